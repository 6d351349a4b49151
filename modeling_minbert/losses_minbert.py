# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The losses of tasks whose head scores one vector per sequence: one class each, and `LOSSES`.

A task offers a kind of target, its head gives logits or cosines; which losses fit follows from
both. To add a loss, add a class and its line in `LOSSES`.

Shapes: B rows, S sequences of a row, D size of a vector, K logits.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .loss_functions_minbert import cosent, multiple_negatives_ranking, symmetric_kl

# What a row is labelled with: a class id, 0 or 1, a score within a range, or nothing.
Target = Literal["class", "binary", "score", "unlabelled"]
# What the head makes of a row before the loss: the output of a linear layer, or a cosine.
Output = Literal["linear", "cosine"]


class LossInputs(NamedTuple):
    """What a loss is computed from.

    Args:
        vectors: What the head compares, (B, D), or (B, S, D) for separate sequences.
        scores: Logits or cosines, (B, K).
        labels: (B,), as the task takes them; -100 for rows that only pad the batch.
        keys: Hashes of the texts, (B, S); None if all texts are different.
    """

    vectors: Tensor
    scores: Tensor
    labels: Tensor
    keys: Tensor | None = None


class MinBertLoss:
    """The contract of all losses.

    Attributes:
        name: The value of a task's `loss`.
        fits: Pairs of target and head output that the loss takes.
        reads: `logits` (scaled cosines for a cosine head), `scores` (unscaled ones) or `vectors`,
            whose loss needs hashes of the texts.
        options: Fields of a task that only this loss reads.
        teaches_threshold: Whether training places pairs on the right side of the threshold of a
            cosine; else the threshold is fitted afterwards.
        compares_rows: Whether rows of a batch are compared with each other.
        scale: Default factor on cosines.
    """

    name: ClassVar[str]
    fits: ClassVar[tuple[tuple[Target, Output], ...]]
    reads: ClassVar[Literal["logits", "scores", "vectors"]] = "scores"
    options: ClassVar[tuple[str, ...]] = ()
    teaches_threshold: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = False
    scale: ClassVar[float] = 10.0

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compute the mean over the labelled rows; by default of `each_row`.

        Args:
            head: The head, which converts labels and scores.
            inputs: The batch.
        """
        scores, labels = inputs.scores.float(), inputs.labels
        is_labelled = labels != -100
        losses = self.each_row(head, scores.squeeze(-1), head.unit_labels(labels))
        return losses.masked_fill(~is_labelled, 0).sum() / is_labelled.sum().clamp(min=1)

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each row, (B,), for targets in [0, 1]."""
        raise NotImplementedError

    def num_logits(self, num_classes: int) -> int:  # noqa: ARG002  for subclasses
        """Return the number of logits of a row."""
        return 1

    def divergence(self, head: Any, logits: Tensor, other: Tensor) -> Tensor:
        """Return the mean squared difference of what the loss reads."""
        return head.unscale(logits.float() - other.float()).square().sum(dim=-1).mean()

    def to_unit(self, logits: Tensor) -> Tensor:
        """Map logits to scores in [0, 1]."""
        return logits.clamp(0, 1)

    def decode_score(self, logits: Tensor, low: float, high: float) -> Tensor:
        """Map logits (B, K) to scores within [low, high], (B,)."""
        return low + self.to_unit(logits.squeeze(-1)) * (high - low)


class CrossEntropy(MinBertLoss):
    """Cross-entropy of the classes; the whole numbers of a score range are classes, too."""

    name = "cross_entropy"
    fits = (("class", "linear"), ("score", "linear"))
    reads = "logits"

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compute the mean of the weighted cross-entropy of the labelled rows; 0 without any.

        The sum is divided by the number of rows, not by their weights, which would cancel in a
        batch of one row; so it does not depend on how rows are split into batches and processes.
        """
        labels = head.class_ids(inputs.labels)
        # casting the whole model to half precision casts the class weights, too
        weight = None if head.class_weights is None else head.class_weights.float()
        losses = F.cross_entropy(inputs.scores.float(), labels, weight=weight, reduction="sum")
        return losses / (labels != -100).sum().clamp(min=1)

    def num_logits(self, num_classes: int) -> int:
        """Return one logit per class."""
        return num_classes

    def divergence(self, head: Any, logits: Tensor, other: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean symmetric Kullback-Leibler divergence of the classes."""
        return symmetric_kl(logits, other).mean()

    def decode_score(self, logits: Tensor, low: float, high: float) -> Tensor:  # noqa: ARG002
        """Return the score of the best class."""
        return low + logits.argmax(dim=-1).float()


class BinaryCrossEntropy(MinBertLoss):
    """Binary cross-entropy of one logit, or of the scaled cosine."""

    name = "bce"
    fits = (("binary", "linear"), ("binary", "cosine"), ("score", "linear"), ("score", "cosine"))
    reads = "logits"

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each row, (B,)."""
        logits = head.to_logits(scores)
        return F.binary_cross_entropy_with_logits(logits, target, reduction="none")

    def divergence(self, head: Any, logits: Tensor, other: Tensor) -> Tensor:  # noqa: ARG002
        """Return the mean symmetric Kullback-Leibler divergence of the two outcomes."""
        return symmetric_kl(logits, other).mean()

    def to_unit(self, logits: Tensor) -> Tensor:
        """Map logits to probabilities."""
        return torch.sigmoid(logits)


class CosineEmbedding(MinBertLoss):
    """`1 - cosine` of positive pairs, `max(0, cosine - margin)` of negative ones."""

    name = "cosine_embedding"
    fits = (("binary", "cosine"),)
    teaches_threshold = False

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each row, (B,)."""
        return torch.where(target > 0.5, 1 - scores, F.relu(scores - head.task.margin))


class MeanSquaredError(MinBertLoss):
    """Squared error of the linear output or the cosine."""

    name = "mse"
    fits = (("binary", "cosine"), ("score", "linear"), ("score", "cosine"))

    def each_row(self, head: Any, scores: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002
        """Compute the loss of each row, (B,)."""
        return F.mse_loss(scores, target, reduction="none")


class InBatchLoss(MinBertLoss):
    """A loss that compares the rows of a batch: it orders cosines and gives them no meaning."""

    teaches_threshold = False
    compares_rows = True
    scale = 20.0

    def to_unit(self, logits: Tensor) -> Tensor:
        """Map all of [-1, 1] to [0, 1]."""
        return (logits.clamp(-1, 1) + 1) / 2


class CoSENT(InBatchLoss):
    """Pairs with a higher score get a higher cosine (Su 2022)."""

    name = "cosent"
    fits = (("score", "cosine"),)

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compare every pair of rows."""
        cosines = inputs.scores.float().squeeze(-1)
        return cosent(cosines, inputs.labels, scale=head.cosine_scale)


class MultipleNegativesRanking(InBatchLoss):
    """Every other second sentence of the batch is a negative (Henderson et al. 2017)."""

    name = "multiple_negatives_ranking"
    fits = (("binary", "cosine"), ("score", "cosine"), ("unlabelled", "cosine"))
    reads = "vectors"
    options = ("symmetric", "positive_score")

    def __call__(self, head: Any, inputs: LossInputs) -> Tensor:
        """Compare every first sentence with the other sentences of the batch.

        The second sentence of a negative pair is a candidate, too: a hard negative if its first
        sentence also occurs in another row.
        """
        vectors, _, labels, keys = inputs
        return multiple_negatives_ranking(
            vectors[:, 0],
            _candidates(vectors),
            scale=head.cosine_scale,
            symmetric=head.task.symmetric,
            is_anchor=head.is_positive(labels),
            is_candidate=(labels != -100).repeat(max(1, vectors.shape[1] - 1)),
            keys=None if keys is None else (keys[:, 0], _candidates(keys)),
        )


def _candidates(values: Tensor) -> Tensor:
    """List the second sequences of all rows, then the third ones, (B, S, ...) -> (C, ...)."""
    others = values[:, 1:] if values.shape[1] > 1 else values  # a single one is its own candidate
    return others.transpose(0, 1).flatten(0, 1)


LOSSES: dict[str, MinBertLoss] = {
    "bce": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
    "cosine_embedding": CosineEmbedding(),
    "mse": MeanSquaredError(),
    "cosent": CoSENT(),
    "multiple_negatives_ranking": MultipleNegativesRanking(),
}


def fitting_losses(target: Target, output: Output, default: str) -> tuple[str, ...]:
    """Return the names of the losses for a target and a head output, the default first."""
    names = [name for name, loss in LOSSES.items() if (target, output) in loss.fits]
    return tuple(sorted(names, key=lambda name: name != default))


__all__ = ["LOSSES", "LossInputs", "MinBertLoss", "Target", "fitting_losses"]
