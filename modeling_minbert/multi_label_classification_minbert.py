# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Multi-label classification: any number of the labels for a text or a pair of texts."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .head_minbert import check_shapes
from .losses_minbert import LossInputs, Target, symmetric_kl
from .pooled_minbert import PooledHead, PooledTask
from .task_minbert import DATA, TRAINING, check_labels


@strict
@dataclass(kw_only=True)
class MultiLabelClassificationTask(PooledTask):
    """Any number of `labels` for a text or a pair of texts, one logit each; see also `PooledTask`.

    The loss is the binary cross-entropy, a mean over labels and rows.

    Args:
        labels: Names of the labels, in the order of the logits.
        thresholds: Probability above which a row has the label, in [0, 1], in the order of
            `labels`; None means 0.5 for all. Training chooses those with the best F1 on the
            validation rows, whose metrics are optimistic from then on: measure on a test set.
    """

    problem_type: Literal["multi_label_classification"] = field(
        default="multi_label_classification", metadata=DATA
    )
    labels: list[str] | None = field(default=None, metadata=DATA)
    thresholds: list[float | int] | None = field(default=None, metadata=TRAINING)
    target: ClassVar[Target] = "binary"
    has_threshold: ClassVar[bool] = True
    default_loss: ClassVar[str] = "bce"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_logits(self) -> int:
        return len(self.labels or [])

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "multi_label_classification", self.labels or []

    def make_head(self, config: Any) -> "MultiLabelHead":
        return MultiLabelHead(config, self)

    def validate_labels(self) -> None:
        check_labels(self.labels)

    def validate_output(self) -> None:
        if self.head == "cosine":
            raise ValueError(
                f"head='cosine' has one output, but there are {self.num_logits} labels: use concat"
            )

    def validate_thresholds(self) -> None:
        chosen, count = self.thresholds, self.num_logits
        if chosen is not None and (len(chosen) != count or not all(0 <= x <= 1 for x in chosen)):
            raise ValueError(f"thresholds={chosen} must be {count} numbers in [0, 1]")


class MultiLabelHead(PooledHead):
    """A logit per label, each with a threshold."""

    @property
    def thresholds(self) -> list[float]:
        """Probability above which a row has the label, (K,)."""
        return self.task.thresholds or [0.5] * self.task.num_logits

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean binary cross-entropy, for labels (B, K); -100 does not count."""
        if labels.shape != scores.shape:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected {tuple(scores.shape)}: 0 or 1 "
                "for each label of a row"
            )
        return self.task.loss_function(self, LossInputs(vectors, scores, labels, keys))

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return symmetric_kl(logits.unsqueeze(-1), other.unsqueeze(-1)).mean()

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.float().sigmoid()

    def decode(self, logits: Tensor) -> Tensor:
        """Return 1 for each label of a row, else 0, (B, K)."""
        # float64, so that a threshold lies between two neighboring probabilities
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64, device=logits.device)
        return (self.probabilities(logits) > thresholds).long()

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Choose for each label the threshold with the best F1; ties go to the nearest to 0.5.

        Logits and labels, -100 for rows that do not count, are (B, K). A label keeps its threshold
        if no row with a finite logit is labelled.
        """
        if not (labels != -100).any():
            raise ValueError("no labelled rows to choose thresholds by")
        chosen = list(self.thresholds)
        for number, values in enumerate(self.probabilities(logits).unbind(dim=1)):
            counted = (labels[:, number] != -100) & values.isfinite()
            if counted.any():
                chosen[number] = best_f1_threshold(values[counted], labels[counted, number] > 0.5)
        self.task.thresholds = chosen
        return chosen

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): a list a row, of its labels or the `top_k` most probable ones."""
        probabilities = self.probabilities(logits)
        ranks = probabilities.argsort(dim=-1, descending=True, stable=True)
        is_shown = self.decode(logits) > 0 if top_k is None else torch.ones_like(ranks) > 0
        rows = zip(probabilities.tolist(), ranks.tolist(), is_shown.tolist(), strict=True)
        names = self.task.labels
        return [
            [{"label": names[index], "score": row[index]} for index in order if shown[index]][
                :top_k
            ]
            for row, order, shown in rows
        ]


def best_f1_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the threshold on probabilities, (N,), with the best F1; ties: nearest to 0.5.

    It is 0.5, or the middle between two neighboring probabilities.
    """
    ordered, order = values.double().sort()
    above = is_above[order].double()
    # hits and predictions if the first n lie below
    hits = above.sum() - F.pad(above.cumsum(0), (1, 0))
    predicted = torch.arange(len(above), -1, -1, device=above.device)
    scores = 2 * hits / (predicted + above.sum()).clamp(min=1)
    edges = F.pad(F.pad(ordered, (1, 0), value=0.0), (0, 1), value=1.0)
    scores_between = scores.masked_fill(edges[1:] == edges[:-1], -1)  # none between equal ones
    at_half = scores[(ordered <= 0.5).sum()]
    middles = (edges[1:] + edges[:-1]) / 2
    candidates = torch.cat([middles, middles.new_tensor([0.5])])
    reached = torch.cat([scores_between, at_half.unsqueeze(0)])
    distances = (candidates - 0.5).abs().masked_fill(reached < reached.max(), torch.inf)
    return float(candidates[distances.argmin()])


__all__ = ["MultiLabelClassificationTask", "best_f1_threshold"]
