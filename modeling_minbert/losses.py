# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Losses of tasks. A loss says what labels it fits and how it weighs classes.

Shapes: B rows, K classes or labels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F

from .heads import MEANING, RECIPE, TRAINING, HeadTask
from .texts import Fields


def sum_class_losses(
    logits: Tensor, labels: Tensor, *, weight: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Sum the losses of N examples.

    That is `torch.nn.functional.cross_entropy`, unless labels are smoothed and classes weighted:
    then the whole loss of an example has the weight of its label.

    Args:
        logits: (N, K).
        labels: Class ids, (N,); -100 for examples that do not count.
        weight: Factor on the loss of the examples of each class, (K,).
        smoothing: Share of a label that is spread over all classes.
    """
    # casting the whole model to half precision also casts the weights
    weight = None if weight is None else weight.to(logits.dtype)
    if weight is None or not smoothing:
        return F.cross_entropy(
            logits, labels, weight=weight, reduction="sum", label_smoothing=smoothing
        )
    scores = logits.log_softmax(dim=-1)
    of_labels = F.nll_loss(scores, labels, weight=weight, reduction="sum")
    of_all = -scores.sum(dim=-1) * weight[labels.clamp(min=0)]
    spread = of_all.masked_fill(labels == -100, 0).sum() / logits.shape[-1]
    return (1 - smoothing) * of_labels + smoothing * spread


# The label of a row: a class id, several, 0 or 1, a score within a range, any numbers, or none.
Target = Literal["class", "classes", "binary", "score", "number", "unlabelled"]
# The output of the head before the loss: of a linear layer, or a cosine.
Output = Literal["linear", "cosine"]


class LossInputs(NamedTuple):
    """Inputs of a loss."""

    vectors: Tensor  # compared by the head, (B, D), or (B, S, D) for separate sequences
    scores: Tensor  # logits or cosines, (B, K)
    labels: Tensor  # (B,), of the task; -100 for rows that only fill the batch
    keys: Tensor | None = None  # hashes of the texts, (B, S); None if all texts differ


class MinBertLoss:
    """The interface of all losses.

    Attributes:
        fits: Pairs of target and head output that the loss accepts.
        scales_cosines: Whether cosines are scaled to logits first.
        reads_vectors: Whether it reads vectors, with hashes of the texts, instead of scores.
        teaches_threshold: Whether training moves pairs to the right side of the decision threshold
            of a cosine; otherwise it is fitted afterwards.
        compares_rows: Whether rows of a batch are compared with each other.
        weighs_classes: Whether it takes a factor for each class.
        smooths_labels: Whether it takes `label_smoothing`.
        is_likelihood: Whether softmax or sigmoid of the logits are then probabilities.
        scale: Default factor on cosines.
    """

    fits: ClassVar[tuple[tuple[Target, Output], ...]]
    scales_cosines: ClassVar[bool] = False
    reads_vectors: ClassVar[bool] = False
    teaches_threshold: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = False
    smooths_labels: ClassVar[bool] = False
    is_likelihood: ClassVar[bool] = False
    scale: ClassVar[float] = 10.0

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compute the mean over the labeled rows, by default of `each_row`."""
        scores, labels = inputs.scores.float(), inputs.labels
        losses = self.each_row(head, scores.squeeze(-1), head.unit_labels(labels))
        total = losses.masked_fill(labels == -100, 0).sum()
        return total / self.count_terms(head, labels).clamp(min=1)

    def count_terms(self, head: Any, labels: Tensor) -> Tensor:
        """Count what the loss is a mean of, by default the labels that are given."""
        return (labels != -100).sum()

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each row from its score and its label in units of the head, (B,).

        These are in [0, 1], or standardized for a regression; (B, K) for several outputs.
        """
        raise NotImplementedError

    def to_unit(self, logits: Tensor) -> Tensor:
        """Map logits to scores, in [0, 1] or a little beyond: the gradient is never cut."""
        return logits


class CrossEntropy(MinBertLoss):
    """Cross-entropy of the classes."""

    fits = (("class", "linear"), ("classes", "linear"))
    weighs_classes = True
    smooths_labels = True
    is_likelihood = True

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Divide the weighted sum by the number of labels, not by their weights."""
        # These would cancel in a batch of one row, and the loss would depend on the batches.
        labels = inputs.labels.long()
        weight, smoothing = head.class_weights, head.smoothing
        losses = [
            sum_class_losses(scores, classes, weight=weight, smoothing=smoothing)
            for scores, classes in head.list_classes(inputs.scores.float(), labels)
        ]
        return torch.stack(losses).sum() / (labels != -100).sum().clamp(min=1)


class BinaryCrossEntropy(MinBertLoss):
    """Binary cross-entropy of one logit, or of the scaled cosine."""

    fits = (("binary", "linear"), ("binary", "cosine"), ("score", "linear"), ("score", "cosine"))
    scales_cosines = True
    smooths_labels = True
    is_likelihood = True
    weighs_classes = True

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        logits, weights, smoothing = head.to_logits(scores), head.binary_weights, head.smoothing
        if weights is None:
            target = target * (1 - smoothing) + smoothing / 2
            return F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        of_yes, of_no = F.softplus(-logits), F.softplus(logits)
        if smoothing:
            kept, spread = 1 - smoothing / 2, smoothing / 2
            of_no, of_yes = kept * of_no + spread * of_yes, kept * of_yes + spread * of_no
        return weights[0] * (1 - target) * of_no + weights[1] * target * of_yes

    def to_unit(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits)


class CosineEmbedding(MinBertLoss):
    """`1 - cosine` of positive pairs, `max(0, cosine - margin)` of negative ones."""

    fits = (("binary", "cosine"),)
    teaches_threshold = False

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        return torch.where(target > 0.5, 1 - scores, F.relu(scores - head.task.margin))


class MeanSquaredError(MinBertLoss):
    """Squared error of the linear output or the cosine."""

    fits = (("binary", "cosine"), ("score", "linear"), ("score", "cosine"), ("number", "linear"))

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(scores, target, reduction="none")


class CoSENT(MinBertLoss):
    """Pairs with a higher score get a higher cosine (Su 2022); cosines are not calibrated."""

    fits = (("score", "cosine"),)
    compares_rows = True
    scale = 20.0

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        from .ranking import cosent

        return cosent(inputs.scores.squeeze(-1), inputs.labels, scale=head.cosine_scale)

    def to_unit(self, logits: Tensor) -> Tensor:
        return (logits + 1) / 2


class MultipleNegativesRanking(MinBertLoss):
    """MNRL: every other second sentence of the batch is a negative (Henderson et al. 2017)."""

    fits = (("binary", "cosine"), ("unlabelled", "cosine"))
    reads_vectors = True
    teaches_threshold = False
    compares_rows = True
    scale = 20.0

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compare each first sentence with all others, including negative pairs."""
        from .ranking import list_candidates, multiple_negatives_ranking

        vectors, _, labels, keys = inputs
        return multiple_negatives_ranking(
            vectors[:, 0],
            list_candidates(vectors),
            scale=head.cosine_scale,
            is_anchor=head.is_positive(labels),
            is_candidate=(labels != -100).repeat(max(1, vectors.shape[1] - 1)),
            keys=None if keys is None else (keys[:, 0], list_candidates(keys)),
        )

    def count_terms(self, head: Any, labels: Tensor) -> Tensor:
        return head.is_positive(labels).sum()  # each with all candidates of its batch


# The first one that fits a task is its default.
LOSSES: dict[str, MinBertLoss] = {
    "bce": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
    "cosine_embedding": CosineEmbedding(),
    "mse": MeanSquaredError(),
    "cosent": CoSENT(),
    "multiple_negatives_ranking": MultipleNegativesRanking(),
}


# Fields of tasks with a factor for each class or label; the heads have buffers of these names.
WEIGHTS = ("class_weights", "pos_weight")
BALANCED = "balanced"


@strict
@dataclass(kw_only=True)
class LabelledTask(HeadTask):
    """A task that predicts labels, which may have factors in the loss, under one of `WEIGHTS`.

    Args:
        labels: Their names, in the order of their ids.
    """

    labels: list[str] | None = field(default=None, metadata=MEANING)

    @property
    def num_classes(self) -> int | None:
        return len(self.labels or [])

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        for key in WEIGHTS:
            if given.get(key) == BALANCED:
                weights = balance(key, facts["labels"], facts["class_counts"], facts["num_rows"])
                given = {**given, key: weights}
        return super().complete(given, facts)

    @property
    def num_logits(self) -> int:
        return len(self.labels or [])

    def validate_labels(self) -> None:
        names = self.labels or []
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"labels={self.labels} must be at least two different names")

    def validate_weights(self) -> None:
        key = next((key for key in WEIGHTS if getattr(self, key, None) is not None), None)
        if key is None:
            return
        weights, labels = getattr(self, key), self.labels or []
        if len(weights) != len(labels):
            raise ValueError(
                f"{key}={weights} must be {len(labels)} numbers, one for each of the labels "
                f"{labels}"
            )
        if not all(0 < weight < math.inf for weight in weights):
            raise ValueError(f"{key}={weights} must all be numbers above 0")
        loss = getattr(self, "loss", "cross_entropy")
        if loss in LOSSES and not LOSSES[loss].weighs_classes:
            names = [name for name, loss in LOSSES.items() if loss.weighs_classes]
            raise ValueError(
                f"{key}={weights} has no effect on loss {loss!r}: leave it out, or use one of "
                f"{', '.join(names)}"
            )


@strict
@dataclass(kw_only=True)
class WeightedTask(LabelledTask):
    """A task whose classes may weigh differently in the loss; see also `LabelledTask`.

    Args:
        class_weights: Factor on the loss of each class, in the order of `labels`. The weighted sum
            is divided by the number of labels, not by their weights: these would cancel in a batch
            with one class. In a recipe also `balanced`: labels / (classes * labels of the class).
    """

    class_weights: list[float | int] | None = field(default=None, metadata=RECIPE)


@strict
@dataclass(kw_only=True)
class CalibratedTask(HeadTask):
    """A task that predicts probabilities, which a temperature can calibrate.

    Args:
        calibrate: Whether training ends with a fit of the temperature to the validation rows.
        temperature: Divisor of the logits in probabilities, above 0; None means 1. The logits and
            the loss of the model are without it.
    """

    calibrate: bool = field(default=False, metadata=RECIPE)
    temperature: float | int | None = field(default=None, metadata=TRAINING)

    def validate_calibration(self) -> None:
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be above 0")
        if self.calibrate and not self.is_likelihood:
            fitting = [name for name in getattr(self, "losses", ()) if LOSSES[name].is_likelihood]
            raise ValueError(
                f"calibrate=True needs probabilities, which loss {getattr(self, 'loss', None)!r} "
                f"does not train: use loss {' or '.join(fitting)}, or leave it out"
            )


class CalibratedHead:
    """What heads with probabilities share: mixed into one of them.

    Attributes:
        is_binary: Whether every logit has its own probability, its sigmoid.
    """

    task: Any
    is_binary: ClassVar[bool] = False

    @property
    def temperature(self) -> float:
        """Divisor of the logits; 1 before a fit."""
        return float(self.task.temperature or 1)

    def decode(self, logits: Tensor) -> Tensor:
        """Return the class with the highest logit, (..., K) -> (...)."""
        return logits.argmax(dim=-1)

    def likelihoods(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities without a temperature."""
        return logits.float().sigmoid() if self.is_binary else logits.softmax(dim=-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities of the labels."""
        if self.task.temperature is not None:
            logits = logits.float() / self.temperature
        return self.likelihoods(logits)


def balance(
    key: str, labels: Sequence[str] | None, counts: Sequence[int], rows: int
) -> list[float]:
    """Return weights by which all classes, or rows with and without a label, weigh the same.

    For `class_weights` total / (classes * labels of the class), as `class_weight="balanced"` of
    scikit-learn; for `pos_weight` rows without / rows with the label.
    """
    for number, count in enumerate(counts):
        problem = "no" if not count else "every" if key == "pos_weight" and count == rows else None
        if problem is not None:
            name = labels[number] if labels else str(number)
            raise ValueError(
                f"{key}='balanced', but {problem} training row has the label {name!r}; give a "
                "list of weights"
            )
    if key == "pos_weight":
        return [(rows - count) / count for count in counts]
    return [sum(counts) / (len(counts) * count) for count in counts]


def add_weights(head: nn.Module, task: HeadTask) -> None:
    """Give a head the factors of its task as buffers, (K,), which are None for equal ones."""
    for key in WEIGHTS:
        given = getattr(task, key, None)
        weights = None if given is None else torch.tensor(given, dtype=torch.float32)
        head.register_buffer(key, weights, persistent=False)
