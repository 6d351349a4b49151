"""Distillation: a student learns from what teachers predict for its training rows."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import TrainingArguments

from trainers.data.masking import IGNORED_LABEL
from trainers.data.rows import TextSource
from trainers.data.task_dataset import count_tokens, find_labeled
from trainers.data.teacher_rows import TEACHER, TeacherRows
from trainers.methods.base import ComputeLoss, Method, StepLoss, count_sequences, refuse_shared_rows
from trainers.options import is_positive
from trainers.problems import PROBLEMS

from .principal_components import reduce_width

logger = logging.getLogger(__name__)

Values: TypeAlias = NDArray[Any] | Tensor
# Outputs of one teacher, or of several, or a function that returns them when training starts.
Teachers: TypeAlias = Values | Sequence[Values] | Callable[[], Sequence[Values]]
# Share of the teacher in the loss by what it teaches. With vectors there is no other loss that the
# student needs: Reimers and Gurevych 2020, section 2.
ALPHAS = {"logits": 0.5, "tokens": 0.5, "vectors": 1.0}
TEMPERATURE = 2.0
NOT_SHARED = ("teachers have outputs for the rows of one task", "give the task teacher: null")


class Distillation(Method):
    """Learn from teachers, whose outputs were computed once (Hinton et al. 2015, section 2).

    The loss of a task is ``(1 - alpha)`` times its own plus ``alpha`` times
    ``model.distillation(task, logits, teacher_logits, temperature)``, which is ``T^2 KL(P || Q)``
    for classes. With several teachers P is the mean of their probabilities. There is no pass
    through a teacher in training.

    Rows whose labels are -100 learn from the teacher alone. The loss of a batch is a mean over all
    of its rows, so that every label counts equally.

    It must come first in the list of methods. Then R-Drop averages the whole loss over both of its
    passes, and SMART adds to it.

    Args:
        teachers: By task, the outputs of a teacher for the training rows in their order, or a list
            of those of several teachers, or a function that returns such a list when training
            starts. Outputs are what ``teach`` of the model returns, (N, K); of tags and answers
            those of all T tokens of the rows, (T, K); of a contrastive task vectors of the texts,
            (N, S, D), or (N, D) for one each. NaN marks rows without a teacher. None takes the
            column ``teacher_logits`` of the training rows, (N, K), or (N, M, K) of M teachers, in
            the tasks that have it.
        alpha: Share of the teacher in the loss, in [0, 1]; None for 0.5, and 1 for vectors.
        temperature: T; 1 is the plain softmax. Scores and vectors have none.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(
        self,
        teachers: Mapping[str, Teachers] | None = None,
        alpha: float | None = None,
        temperature: float = TEMPERATURE,
    ) -> None:
        is_share = alpha is None or (is_positive(alpha, or_zero=True) and alpha <= 1)
        if not is_share:
            raise ValueError(f"distillation_alpha={alpha!r}; expected a number from 0 to 1")
        if not is_positive(temperature):
            raise ValueError(f"distillation_temperature={temperature!r}; expected a number > 0")
        self.teachers: dict[str, Any] | None = None if teachers is None else dict(teachers)
        self.alpha = alpha
        self.temperature = float(temperature)
        self.alphas: dict[str, float] = {}
        self._taken: Tensor | None = None

    # Before training

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if not hasattr(model, "distillation"):
            raise ValueError(
                "distillation needs a model with distillation(task, logits, teacher, temperature, "
                f"labels), such as MinBertForMultiTask; {type(model).__name__} has none"
            )
        self.model: Any = model

    def attach(self, trainer: Any) -> None:
        self.trainer = trainer
        self._check_order(trainer.methods)
        given = self._find_columns() if self.teachers is None else self.teachers
        self._check_tasks(given)
        refuse_shared_rows(trainer.tasks, given, *NOT_SHARED)
        kinds = {task: str(trainer.problems[task].teaching) for task in given}
        self.alphas = {
            task: ALPHAS[kind] if self.alpha is None else self.alpha for task, kind in kinds.items()
        }
        self._take_teachers(given)
        self._shares = {
            task: float(find_labeled(self.trainer.tasks[task].train).mean()) or 1.0
            for task, kind in kinds.items()
            if kind == "logits"
        }
        if others := [task for task in trainer.problems if task not in given]:
            logger.warning("%s: trained without a teacher", ", ".join(others))

    def _take_teachers(self, given: Mapping[str, Any]) -> None:
        """Read the outputs that are known, and keep the functions that compute others."""
        self._rows: dict[str, TeacherRows] = {
            task: self._lay_out(task, values)
            for task, values in given.items()
            if not callable(values)
        }
        self._later = {task: values for task, values in given.items() if callable(values)}

    def describe(self) -> str:
        shares = (f"{task} {alpha:g}" for task, alpha in self.alphas.items())
        return (
            f"share of teachers in the loss, at temperature {self.temperature:g}: "
            f"{', '.join(shares)}"
        )

    def _check_order(self, methods: Sequence[Method]) -> None:
        """Raise ValueError if a method before this one computes a loss of several passes."""
        for method in methods[: methods.index(self)]:
            if type(method).loss is not Method.loss:
                raise ValueError(
                    f"methods: Distillation is part of every pass of {type(method).__name__}; list "
                    "it first"
                )

    def _find_columns(self) -> dict[str, Any]:
        """Read the outputs of teachers from the training rows that have them."""
        columns = {}
        for name, task in self.trainer.tasks.items():
            rows: Any = task.train
            if TEACHER in getattr(rows, "column_names", ()):
                values = np.asarray(rows.with_format(None)[TEACHER][:], dtype=np.float32)
                columns[name] = list(np.moveaxis(values, 1, 0)) if values.ndim > 2 else values
        return columns

    def _check_tasks(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if there is no teacher, or one of a task that cannot have any."""
        problems = self.trainer.problems
        if unknown := [task for task in given if task not in problems]:
            raise ValueError(
                f"distillation has a teacher of task {unknown[0]!r}; the tasks are "
                f"{', '.join(problems)}"
            )
        if not given:
            raise ValueError(
                "distillation has no teacher: give the outputs of one by task, or training rows a "
                f"column {TEACHER!r}"
            )
        for task in given:
            self._check_task(task)

    def _check_task(self, task: str) -> None:
        """Raise ValueError if a task cannot have a teacher."""
        problem, rows = self.trainer.problems[task], self.trainer.tasks[task].train
        if problem.teaching is None or isinstance(rows, TextSource):
            types = ", ".join(name for name, kind in PROBLEMS.items() if kind.teaching)
            raise ValueError(
                f"task {task!r} is a {problem.problem_type} task, which cannot learn from a "
                f"teacher; those that can are of the types {types}"
            )
        if problem.head.get("projection") == "training" and problem.teaching == "vectors":
            raise ValueError(
                f"task {task!r} has projection 'training', whose vectors are not those of "
                "evaluation: a teacher would not reach these; leave the projection out"
            )

    def begin(self) -> None:
        for task, compute in self._later.items():
            self._rows[task] = self._lay_out(task, compute())
        self._later = {}
        if self.trainer.train_dataset is not None:
            self.trainer.train_dataset.teachers.update(self._rows)

    def _lay_out(self, task: str, given: Any) -> TeacherRows:
        """Check the outputs of teachers, and make them readable by row."""
        several = given if isinstance(given, list | tuple) else [given]
        values = [np.asarray(each, dtype=np.float32) for each in several]
        problem, rows = self.trainer.problems[task], self.trainer.tasks[task].train
        if problem.teaching == "vectors":
            values = [self._fit_vectors(task, values)]
        lengths = np.asarray(count_tokens(rows)) if problem.teaching == "tokens" else None
        count = len(rows) if lengths is None else int(lengths.sum())
        for each in values:
            if each.ndim < 2 or each.shape != values[0].shape or len(each) != count:
                unit = "rows" if lengths is None else "tokens"
                raise ValueError(
                    f"task {task!r}: the outputs of a teacher have the shape {each.shape}; "
                    f"expected ({count}, ...) for the {count:,} training {unit}, equal for all "
                    "teachers"
                )
        return TeacherRows(np.stack(values, axis=1), lengths)

    def _fit_vectors(self, task: str, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the vectors of the only teacher, (N, S, D), with the student's width."""
        if len(values) > 1:
            raise ValueError(
                f"task {task!r} has {len(values)} teachers, whose vectors have nothing in "
                "common that could be averaged: give one"
            )
        vectors = values[0][:, None] if values[0].ndim == 2 else values[0]
        return reduce_width(vectors, self.model.config.hidden_size)

    # Training

    def take(self, inputs: dict[str, Any]) -> None:
        self._taken = inputs.pop(TEACHER, None)

    def loss(self, compute: ComputeLoss, task: str, inputs: dict[str, Any]) -> StepLoss:
        labels = inputs.get("labels")  # which a loss of the user may take out
        step = compute()
        if self._taken is None:
            return step
        logits = self.trainer.problems[task].logits_of(step.outputs)
        options = (self.temperature, labels)
        divergence = self.model.distillation(task, logits, self._taken, *options)
        alpha, share = self.alphas[task], self._share_labeled(step, task, labels)
        loss = (1 - alpha) * share * step.loss + alpha * divergence * step.weigh("taught")
        # the mean over batches is that over all labels
        plain = step.plain * share / self._shares.get(task, 1.0)
        facts = step.facts | {"distillation": divergence.detach()}
        return replace(step, loss=loss, plain=plain, facts=facts)

    def count_terms(self, task: str, inputs: dict[str, Any]) -> dict[str, Any]:
        if task not in self.alphas:
            return {}
        labels, teacher = inputs.get("labels"), inputs.get(TEACHER)
        if labels is None and teacher is None:
            return {"taught": count_sequences(inputs)}
        taught = _find_taught(labels, teacher, by_token=self.trainer.problems[task].predicts_tokens)
        terms = {"taught": taught.sum()}
        if labels is not None and self._shares.get(task, 1.0) != 1:
            terms |= _count_rows(labels, taught)
        return terms

    def _share_labeled(self, step: StepLoss, task: str, labels: Any) -> Tensor | float:
        """Return the share of the rows of a step that have a label; others fill the batch."""
        if labels is None or self._shares.get(task, 1.0) == 1:
            return 1.0
        if "labelled" in step.terms:
            return step.terms["labelled"].mean / step.terms["all"].mean
        counts = _count_rows(labels, _find_taught(labels, self._taken, by_token=False))
        return counts["labelled"] / counts["all"].clamp(min=1)

    def replaces_loss(self, task: str) -> bool:
        return self.alphas.get(task) == 1

    def fact_names(self, task: str) -> tuple[str, ...]:
        return ("distillation",) if task in self.alphas else ()

    def release(self) -> None:
        self._taken = None


def _find_taught(labels: Any, teacher: Tensor | None, *, by_token: bool) -> Tensor:
    """Return which rows, (B,), or labelled tokens, (B, L), of a batch have a teacher.

    Without its outputs, which a teacher that runs in training computes later, all of them have.
    """
    if by_token:
        is_labelled: Tensor = labels != IGNORED_LABEL
        return is_labelled if teacher is None else is_labelled & _is_known(teacher, 2)
    if teacher is None:
        return labels.new_ones(len(labels), dtype=torch.bool)
    if labels is not None and labels.dim() == 2 and teacher.dim() == 4:  # answers
        return _is_known(teacher, 2).any(dim=1)
    return _is_known(teacher, 1)


def _is_known(teacher: Tensor, dims: int) -> Tensor:
    return teacher.isfinite().flatten(dims).all(dim=-1)


def _count_rows(labels: Tensor, taught: Tensor) -> dict[str, Tensor]:
    """Count the rows with a label, and those with a label or a teacher."""
    is_labeled = (labels != IGNORED_LABEL).view(len(labels), -1).any(dim=1)
    return {"labelled": is_labeled.sum(), "all": (taught | is_labeled).sum()}
