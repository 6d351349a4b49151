"""Methods that add to the loss of a task, or replace it: R-Drop and distillation."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import TrainingArguments

from datasets_scripts.checking import Part, Positive, check_value
from trainers.data.rows import (
    IGNORED_LABEL,
    TEACHER,
    FlatRows,
    Ids,
    Joined,
    TextSource,
    find_labeled,
    list_places,
)
from trainers.files import find_inner
from trainers.problems import PROBLEMS

from .base import Batch, ComputeLoss, Method, OwnTrainer, StepLoss, check_dropout, refuse_sharding

logger = logging.getLogger(__name__)


@dataclass
class RDrop(Method):
    """R-Drop: passes with other dropout masks should agree (Liang et al. 2021, section 2.2).

    The loss is the mean over both passes, plus ``alpha`` times half of the symmetric divergence
    between them, as the model's ``divergence`` computes it. This is the mean of the published code;
    the paper has the sum, which is twice that with twice the alpha.

    Args:
        alpha: Weight of the divergence, > 0; 0.5 to 5 in the paper.

    Raises:
        ValueError: If alpha is not a number > 0.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_value("r_drop", "alpha", self.alpha, Positive)

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        # a second pass would write to buffers that the first still needs
        args.ddp_broadcast_buffers = False
        self.model: Any = model

    def attach(self, trainer: OwnTrainer) -> None:
        refuse_sharding(trainer, "r_drop")
        if not hasattr(self.model, "divergence"):
            raise ValueError(
                f"r_drop needs a model with the method divergence, as MinBertForMultiTask has it, "
                f"and not a {type(self.model).__name__}; leave it out"
            )
        self.tasks = [
            task
            for task, problem in trainer.problems.items()
            if problem.teaching == "logits" and trainer.tasks[task].training.regularize
        ]
        for task in self.tasks:
            check_dropout(find_inner(self.model), task, "r_drop compares two passes over a row")
        others = ", ".join(task for task in trainer.problems if task not in self.tasks)
        if not self.tasks:
            known = [name for name, kind in PROBLEMS.items() if kind.teaching == "logits"]
            raise ValueError(
                f"r_drop compares predictions of tasks of the types {', '.join(known)} with "
                f"regularize: true, which no task is ({others}); leave r_drop out"
            )
        if others:
            logger.warning("%s: trained without r_drop", others)

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        if task not in self.tasks:
            return compute()
        first, second = compute(), compute()
        divergence = self.model.divergence(task, first.outputs.logits, second.outputs.logits)
        loss = (first.loss + second.loss) / 2 + self.alpha / 2 * divergence
        facts = first.facts | {"rdrop_divergence": divergence.detach()}
        return replace(first, loss=loss, facts=facts)


Values: TypeAlias = NDArray[Any] | Tensor
# Outputs of one teacher, or of several, or a function that returns them when training starts.
Teachers: TypeAlias = Values | Sequence[Values] | Callable[[], Sequence[Values]]
# Share of the teacher in the loss by what it teaches. With vectors there is no other loss that the
# student needs: Reimers and Gurevych 2020, section 2.
ALPHAS = {"logits": 0.5, "tokens": 0.5, "vectors": 1.0}
CHUNK = 100_000  # vectors that are multiplied at a time


class TeacherRows:
    """Outputs of M teachers for the rows of a task, read by row; NaN where there is no teacher.

    They are those of N rows, (N, M, ...), or with ``lengths``, (N,), of all their T tokens, (T, M,
    K).
    """

    def __init__(self, values: NDArray[np.float32], lengths: Ids | None) -> None:
        self._values, self._lengths = values, lengths
        self._starts = None if lengths is None else np.cumsum(lengths) - lengths

    def __call__(self, joined: Joined) -> Joined:
        """Add the values of the rows of a batch, or of their tokens."""
        _, rows = joined.places
        if self._starts is None or self._lengths is None:
            return joined._replace(teacher=np.asarray(self._values[rows], dtype=np.float32))
        places = list_places(self._starts[rows], self._lengths[rows])
        return joined._replace(token_teacher=np.asarray(self._values[places], dtype=np.float32))


class Distillation(Method):
    """Learn from teachers, whose outputs were computed once (Hinton et al. 2015, section 2).

    The loss of a task is ``(1 - alpha)`` times its own plus ``alpha`` times
    ``model.distillation(task, logits, teacher_logits, temperature)``, which is ``T^2 KL(P || Q)``
    for classes. With several teachers P is the mean of their probabilities. There is no pass
    through a teacher in training.

    Rows whose labels are -100 learn from the teacher alone. The loss of a batch is a mean over all
    of its rows, so that every label counts equally.

    It must come first in the list of methods. Then R-Drop averages the whole loss over both of its
    passes.

    Args:
        teachers: By task, the outputs of a teacher for the training rows in their order, or a list
            of those of several teachers, or a function that returns such a list when training
            starts. Outputs are what ``teach`` of the model returns, (N, K); of tags and answers
            those of all T tokens of the rows, (T, K); of a contrastive task vectors of the texts,
            (N, S, D), or (N, D) for one each. NaN marks rows without a teacher.
        alpha: Share of the teacher in the loss, in [0, 1]; None for 0.5, and 1 for vectors.
        temperature: T; 1 is the plain softmax. Scores and vectors have none.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(
        self,
        teachers: Mapping[str, Teachers],
        alpha: float | None = None,
        temperature: float | None = None,
    ) -> None:
        self.teachers = dict(teachers)
        self.alpha = check_value("", "distillation_alpha", alpha, Part | None)
        warmth = check_value("", "distillation_temperature", temperature, Positive | None)
        self.temperature = 2.0 if warmth is None else warmth
        self.alphas: dict[str, float] = {}  # share of the teacher in the loss, by taught task
        self._shares: dict[str, float] = {}  # of the training rows that have a label

    def attach(self, trainer: OwnTrainer) -> None:
        self.trainer = trainer
        self.model: Any = trainer.model
        for method in trainer.methods[: trainer.methods.index(self)]:
            if type(method).loss is not Method.loss:
                raise ValueError(
                    f"methods: Distillation is part of every pass of {type(method).__name__}; list "
                    "it first"
                )
        if not self.teachers:
            raise ValueError("distillation has no teacher: give the outputs of one by task")
        problems = trainer.problems
        for task in self.teachers:
            if task not in problems:
                raise ValueError(
                    f"distillation has a teacher of task {task!r}; the tasks are "
                    f"{', '.join(problems)}"
                )
            problem = problems[task]
            if problem.teaching is None or isinstance(trainer.tasks[task].train, TextSource):
                types = ", ".join(name for name, kind in PROBLEMS.items() if kind.teaching)
                raise ValueError(
                    f"task {task!r} is a {problem.problem_type} task, which cannot learn from a "
                    f"teacher; those that can are of the types {types}"
                )
            projection = getattr(problem.spec, "projection", None)
            if projection == "training" and problem.teaching == "vectors":
                raise ValueError(
                    f"task {task!r} has projection 'training', whose vectors are not those of "
                    "evaluation: a teacher would not reach these; leave the projection out"
                )
            self.alphas[task] = ALPHAS[problem.teaching] if self.alpha is None else self.alpha
            if problem.teaching == "logits":
                self._shares[task] = float(find_labeled(trainer.tasks[task].train).mean()) or 1.0
        if others := [task for task in problems if task not in self.teachers]:
            logger.warning("%s: trained without a teacher", ", ".join(others))

    def begin(self) -> None:
        dataset: Any = self.trainer.train_dataset
        for task, given in self.teachers.items():
            outputs: Any = given() if callable(given) else given
            several = outputs if isinstance(outputs, list | tuple) else [outputs]
            values = [np.asarray(teacher, dtype=np.float32) for teacher in several]
            teaching = self.trainer.problems[task].teaching
            rows: Any = self.trainer.tasks[task].train
            if teaching == "vectors":
                if len(values) > 1:
                    raise ValueError(
                        f"task {task!r} has {len(values)} teachers, whose vectors have nothing in "
                        "common that could be averaged: give one"
                    )
                vectors = values[0][:, None] if values[0].ndim == 2 else values[0]  # (N, S, D)
                values = [reduce_width(vectors, self.model.config.hidden_size)]
            lengths = FlatRows(rows).count_tokens() if teaching == "tokens" else None
            count = len(rows) if lengths is None else int(lengths.sum())
            for array in values:
                if array.ndim < 2 or array.shape != values[0].shape or len(array) != count:
                    unit = "rows" if lengths is None else "tokens"
                    raise ValueError(
                        f"task {task!r}: the outputs of a teacher have the shape {array.shape}; "
                        f"expected ({count}, ...) for the {count:,} training {unit}, equal for all "
                        "teachers"
                    )
            dataset.teachers[task] = TeacherRows(np.stack(values, axis=1), lengths)

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        labels = inputs.get("labels")  # which a loss of the user may take out
        step = compute()
        if step.teacher is None:
            return step
        logits = self.trainer.problems[task].logits_of(step.outputs)
        divergence = self.model.distillation(task, logits, step.teacher, self.temperature, labels)
        alpha, labelled = self.alphas[task], self._shares.get(task, 1.0)
        share: Tensor | float = 1.0  # of the rows of the step that have a label; others fill it
        if labels is not None and labelled != 1:
            if "labelled" in step.terms:
                share = step.terms["labelled"].mean / step.terms["all"].mean
            else:
                counts = _count_rows(labels, _is_known(step.teacher, 1))
                share = counts["labelled"] / counts["all"].clamp(min=1)
        loss = (1 - alpha) * share * step.loss + alpha * divergence * step.weigh("taught")
        plain = step.plain * share / labelled  # the mean over batches is that over all labels
        facts = step.facts | {"distillation": divergence.detach()}
        return replace(step, loss=loss, plain=plain, facts=facts)

    def count_terms(self, task: str, inputs: Batch) -> dict[str, Tensor]:
        labels, teacher = inputs.get("labels"), inputs.get(TEACHER)
        if task not in self.alphas or teacher is None:
            return {}
        if self.trainer.problems[task].predicts_tokens:
            taught = (labels != IGNORED_LABEL) & _is_known(teacher, 2)
        elif labels is not None and labels.dim() == 2 and teacher.dim() == 4:  # answers
            taught = _is_known(teacher, 2).any(dim=1)
        else:
            taught = _is_known(teacher, 1)
        terms = {"taught": taught.sum()}
        if labels is not None and self._shares.get(task, 1.0) != 1:
            terms |= _count_rows(labels, taught)
        return terms

    def replaces_loss(self, task: str) -> bool:
        return self.alphas.get(task) == 1


def _is_known(teacher: Tensor, dims: int) -> Tensor:
    """Return which elements of the first dimensions have outputs of a teacher."""
    return teacher.isfinite().flatten(dims).all(dim=-1)


def _count_rows(labels: Tensor, taught: Tensor) -> dict[str, Tensor]:
    """Count the rows with a label, and those with a label or a teacher."""
    is_labeled = (labels != IGNORED_LABEL).view(len(labels), -1).any(dim=1)
    return {"labelled": is_labeled.sum(), "all": (taught | is_labeled).sum()}


def reduce_width(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Map vectors, (N, S, D), to another width so that their scalar products stay.

    Wider vectors are projected on their main directions, the eigenvectors of the matrix of second
    moments: no other linear map keeps the scalar products better (Eckart and Young 1936).
    Narrower ones get zeros. Vectors with NaN stay NaN.
    """
    old = vectors.shape[-1]
    if old == width:
        return vectors
    if old < width:
        return np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, width - old)])
    flat = vectors.reshape(-1, old)
    moments = np.zeros((old, old))
    for start in range(0, len(flat), CHUNK):
        part = np.nan_to_num(flat[start : start + CHUNK].astype(np.float64))
        moments += part.T @ part
    _, directions = np.linalg.eigh(moments)  # the main ones come last
    projection = directions[:, : -width - 1 : -1].astype(np.float32)
    projected: NDArray[np.float32] = flat @ projection
    return projected.reshape(*vectors.shape[:-1], width)
