"""Losses as means over their terms, counted over all batches and processes of a step."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments
from transformers.trainer_pt_utils import LabelSmoother
from transformers.utils.generic import ModelOutput

from trainers.data.rows import IGNORED_LABEL, Batch
from trainers.files import find_inner
from trainers.methods.base import Method, StepLoss, Terms
from trainers.problems.base import AnyProblem

logger = logging.getLogger(__name__)


class LossLog:
    """Adds up, on the device, the unweighted losses of each task, their parts, and facts.

    All processes train on the same tasks, so they have the same names in the same order.
    """

    def __init__(self, problems: Mapping[str, AnyProblem]) -> None:
        self._problems = problems
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, task: str, step: StepLoss) -> None:
        """Add the loss of a batch."""
        values = {f"loss_{task}": step.plain}
        for part, (key, _) in self._problems[task].parts.items():
            values[f"loss_{task}_{part}"] = step.outputs[key] * step.weigh(part)
        values |= {f"{name}_{task}": fact for name, fact in step.facts.items()}
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach().mean().float()
            self._counts[name] = self._counts.get(name, 0) + 1

    def flush(self, reduce: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return the mean of each loss since the last call, over batches and (``reduce``) ranks."""
        if not self._sums:
            return {}
        totals = reduce(torch.stack(list(self._sums.values()))).tolist()
        means = zip(self._counts.items(), totals, strict=True)
        self._sums, self._counts = {}, {}
        return {name: total / count for (name, count), total in means}


TERMS = "terms"  # key of a batch: its terms by part
WHOLE = "loss"  # the part of a loss that has no others
FEWEST = 1e-6  # terms of a batch on average, to divide by


class TermCounter:
    """Counts the terms of batches.

    A model without ``count_terms`` has a term for each label that is not -100.
    """

    def __init__(
        self, model: nn.Module, problems: Mapping[str, AnyProblem], methods: Sequence[Method]
    ) -> None:
        self._problems, self._methods = problems, methods
        inner = find_inner(model)
        own = getattr(inner, "count_terms", count_labels)
        # of a module around a model of transformers, too
        self._count: Callable[[str, Tensor], Tensor] = getattr(model, "count_terms", own)
        # losses of the rows of all processes, whose terms are theirs, too
        self._joint: set[str] = set()
        if hasattr(inner, "gather_rows"):
            self._joint = {task for task in problems if compares_rows(problems[task])}

    def count_parts(self, batch: Batch, rows: int | None = None) -> dict[str, float | Tensor]:
        """Count the terms of each part of the loss of a batch, of whose rows so many are real."""
        task = batch["task"]
        problem = self._problems[task]
        if batch.get("labels") is None:
            if rows is not None:
                return {WHOLE: rows}
            if "cu_seq_lens_q" in batch:  # packed
                count = len(batch["cu_seq_lens_q"]) - 1
            else:
                count = batch["attention_mask"].ne(0).any(dim=-1).sum()
            return {WHOLE: count / getattr(problem.spec, "num_sentences", 1)}
        parts = problem.parts or {WHOLE: ("loss", "labels")}
        return {part: self._count(task, batch[name]) for part, (_, name) in parts.items()}

    def mark(
        self, batches: Sequence[Batch], device: torch.device, reduce: Callable[[Tensor], Tensor]
    ) -> None:
        """Put ``Terms`` into the batches of an optimizer step; ``reduce`` averages over ranks."""
        entries: list[tuple[Batch, str]] = []
        counts: list[Tensor] = []
        for batch in batches:
            batch[TERMS] = {}
            parts = self.count_parts(batch)
            for method in self._methods:
                parts |= method.count_terms(batch["task"], batch)
            for part, count in parts.items():
                entries.append((batch, part))
                counts.append(torch.as_tensor(count, dtype=torch.float32, device=device))
        everywhere = reduce(torch.stack(counts)).unbind()
        sums: dict[tuple[str, str], list[Tensor]] = {}
        for (batch, part), number in zip(entries, everywhere, strict=True):
            sums.setdefault((batch["task"], part), []).append(number)
        # without any term the loss is 0
        means = {key: torch.stack(each).mean().clamp(min=FEWEST) for key, each in sums.items()}
        for (batch, part), own, shared in zip(entries, counts, everywhere, strict=True):
            task = batch["task"]
            count = shared if task in self._joint and part == WHOLE else own
            batch[TERMS][part] = Terms(count, means[task, part])


def compares_rows(problem: AnyProblem) -> bool:
    """Whether the loss of a task compares the rows of a batch."""
    return getattr(getattr(problem.spec, "loss_function", None), "compares_rows", False)


def count_labels(_task: str, labels: Tensor) -> Tensor:
    """Count the labels of a batch."""
    return (labels != IGNORED_LABEL).sum()


def split_loss(problem: AnyProblem, loss: Tensor, outputs: ModelOutput) -> dict[str, Tensor]:
    """Return the parts of a loss, each a mean over its own terms, by name."""
    return {part: outputs[key] for part, (key, _) in problem.parts.items()} or {WHOLE: loss}


def smooth_labels(
    model: nn.Module, args: TrainingArguments, problems: Mapping[str, AnyProblem]
) -> LabelSmoother | None:
    """Tell a model the factor of its tasks, or return what smooths the labels of other models."""
    factor = args.label_smoothing_factor
    own: Any = getattr(find_inner(model), "smooth_labels", None)
    if own is None:
        if not factor:
            return None
        config = getattr(find_inner(model), "config", None)
        kinds = {problem.kind.hub_type for problem in problems.values()}
        several = "several labels for a row" if "multi_label_classification" in kinds else ""
        found = "num_labels=1" if getattr(config, "num_labels", 2) < 2 else several
        if found:
            raise ValueError(
                f"label_smoothing_factor={factor!r} spreads labels over classes, but the model has "
                f"{found}; leave it out"
            )
        return LabelSmoother(epsilon=factor)
    smoothed = [task for task, problem in problems.items() if problem.smooths_labels]
    for task in smoothed:
        own(task, factor)
    if factor and (others := [task for task in problems if task not in smoothed]):
        logger.warning("%s: trained without label_smoothing_factor", ", ".join(others))
    return None
