"""Distillation from teachers that run in every step, instead of outputs computed before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from trainers.methods.base import ComputeLoss, StepLoss
from trainers.wrapped_models import find_inner

from .distillation import TEMPERATURE, Distillation
from .frozen import Frozen, load_frozen

# What a teacher reads of a batch.
READ_BY_TEACHERS = (
    *("input_ids", "attention_mask", "token_type_ids", "position_ids", "num_windows"),
    *("cu_seq_lens_q", "max_length_q"),
)


def keep_order(values: Tensor) -> Tensor:
    """Return the outputs of a teacher with the labels in the order of the student's."""
    return values


@dataclass(frozen=True)
class OnlineTeacher:
    """A teacher of one task, which reads the batches of its student.

    Args:
        model: A model such as ``MinBertForMultiTask``, or a function that loads it when training
            starts; the same object for several tasks is loaded once.
        task: Name of its task; None for that of the student.
        align: Brings its outputs, (..., K), to the order of the student's labels; ``align`` of the
            description of a task makes it.
    """

    model: Frozen
    task: str | None = None
    align: Callable[[Tensor], Tensor] = keep_order


class OnlineDistillation(Distillation):
    """Learn from teachers that run on every batch: nothing is computed before, or kept.

    Losses are those of ``Distillation``, to rounding. Teachers run in evaluation mode and without
    gradients, on the device and in the precision of the student; they are neither trained nor
    saved. They read the tokens of the student, so they need its tokenizer, and tasks whose rows
    are encoded in the same way. In the list of methods it comes first.

    Args:
        teachers: By task, a teacher or several.
        alpha: As for ``Distillation``.
        temperature: As for ``Distillation``.
    """

    def __init__(
        self,
        teachers: Mapping[str, OnlineTeacher | Sequence[OnlineTeacher]],
        alpha: float | None = None,
        temperature: float = TEMPERATURE,
    ) -> None:
        self._live: dict[str, Any] = {
            task: [given] if isinstance(given, OnlineTeacher) else list(given)
            for task, given in teachers.items()
        }
        super().__init__(self._live, alpha, temperature)
        self._models: dict[int, Any] = {}  # by the number of what loads them

    def _take_teachers(self, given: Mapping[str, Any]) -> None:
        self._rows, self._later = {}, {}
        for task, teachers in given.items():
            if len(teachers) > 1 and self.trainer.problems[task].teaching == "vectors":
                raise ValueError(
                    f"task {task!r} has {len(teachers)} teachers, whose vectors have nothing in "
                    "common that could be averaged: give one"
                )

    def begin(self) -> None:
        super().begin()
        for teacher in (each for several in self._live.values() for each in several):
            given = teacher.model
            if id(given) not in self._models:
                self._models[id(given)] = load_frozen(given, self.trainer.args.device)

    def loss(self, compute: ComputeLoss, task: str, inputs: dict[str, Any]) -> StepLoss:
        # once for all passes of a batch
        if self._taken is None and task in self._live:
            self._taken = self._ask(task, inputs)
        return super().loss(compute, task, inputs)

    @torch.no_grad()
    def _ask(self, task: str, inputs: Mapping[str, Any]) -> Tensor:
        """Compute what teachers teach of a batch, in the layout of ``teacher_logits``."""
        problem = self.trainer.problems[task]
        batch = {name: inputs[name] for name in READ_BY_TEACHERS if name in inputs}
        found = []
        for teacher in self._live[task]:
            model, name = self._models[id(teacher.model)], teacher.task or task
            with self.trainer.accelerator.autocast():
                logits = problem.logits_of(model(**batch, task=name))
            inner: Any = find_inner(model)
            found.append(teacher.align(inner.to_targets(name, logits.float())))
        values = torch.stack(found, dim=1 if problem.teaching == "vectors" else -2)
        if problem.teaching == "tokens":
            values = hide_paddings(values, batch)
        if problem.teaching == "vectors":
            values = self._fit_width(task, values)
        student: Any = find_inner(self.model)
        return hide_fillers(values, batch, student.config.pad_token_id)

    def _fit_width(self, task: str, vectors: Tensor) -> Tensor:
        """Append zeros to the vectors of a teacher that are narrower than the student's."""
        missing = self.model.config.hidden_size - vectors.shape[-1]
        if missing < 0:
            raise ValueError(
                f"task {task!r}: the vectors of the teacher have the size {vectors.shape[-1]}, and "
                "projecting them to the student's takes those of all rows: compute them before "
                "training, with Distillation or teacher_mode: cached"
            )
        return F.pad(vectors, (0, missing))

    def release(self) -> None:
        super().release()
        self._models = {}


def hide_paddings(values: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Mark what is of no token by NaN in values of tokens, (B, L, M, K)."""
    offsets = batch.get("cu_seq_lens_q")
    if offsets is None:
        mask = batch.get("attention_mask")
        return values if mask is None else values.masked_fill(mask[..., None, None] == 0, torch.nan)
    if values.shape[:2] == batch["input_ids"].shape:  # by token, as in the batch
        return values
    columns = torch.arange(values.shape[1], device=values.device)
    is_beyond = columns >= offsets.diff().unsqueeze(1)
    return values.masked_fill(is_beyond[..., None, None], torch.nan)


def hide_fillers(values: Tensor, batch: Mapping[str, Any], padding: int | None) -> Tensor:
    """Mark rows of padding alone, which only fill a packed batch, by NaN, (B, M, ...)."""
    offsets = batch.get("cu_seq_lens_q")
    if offsets is None or padding is None:
        return values
    rows, windows = len(values), batch.get("num_windows")
    first = torch.arange(rows, device=values.device) * ((len(offsets) - 1) // rows)
    if windows is not None:
        counts = windows.view(rows, -1).sum(dim=1)
        first = counts.cumsum(dim=0) - counts
    first = first.clamp(max=len(offsets) - 2)  # a filler may have no window of its own
    is_filler = batch["input_ids"][0, offsets[first].long()] == padding
    return values.masked_fill(is_filler.view(-1, *[1] * (values.dim() - 1)), torch.nan)
