# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Multi-label classification: any number of the labels for a text or a pair of texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor

from .class_weights_minbert import BALANCED, add_weights, balance_positives, check_weights
from .distillation_minbert import match_outcomes
from .focal_minbert import FocalTask
from .head_minbert import check_shapes
from .losses_minbert import LossInputs, Target, symmetric_kl
from .pooled_minbert import PooledHead, PooledTask
from .task_minbert import DATA, RECIPE, TRAINING, check_labels
from .temperature_minbert import CalibratedHead, rescale
from .thresholds_minbert import (
    FEWEST_POSITIVES,
    ThresholdTask,
    best_f1_threshold,
    choose_threshold,
)


@strict
@dataclass(kw_only=True)
class MultiLabelClassificationTask(FocalTask, ThresholdTask, PooledTask):
    """Any number of `labels` for a text or a pair of texts, one logit each.

    The loss is the binary cross-entropy, a mean over labels and rows, or `focal`. See also
    `FocalTask`, `ThresholdTask` and `PooledTask`.

    Args:
        labels: Names of the labels, in the order of the logits.
        pos_weight: Factor on the loss of the rows that have a label, in the order of `labels`, as
            in `torch.nn.BCEWithLogitsLoss`. In a recipe also `balanced`: rows without the label /
            rows with it.
        thresholds: Probability above which a row has the label, in [0, 1], in the order of
            `labels`; None means 0.5 for all. Training chooses those with the best F1, or those of
            `threshold_for`, on the validation rows, whose metrics are optimistic from then on:
            measure on a test set.
    """

    problem_type: Literal["multi_label_classification"] = field(
        default="multi_label_classification", metadata=DATA
    )
    labels: list[str] | None = field(default=None, metadata=DATA)
    pos_weight: list[float | int] | None = field(default=None, metadata=RECIPE)
    thresholds: list[float | int] | None = field(default=None, metadata=TRAINING)
    target: ClassVar[Target] = "binary"
    has_threshold: ClassVar[bool] = True
    default_loss: ClassVar[str] = "bce"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_logits(self) -> int:
        return len(self.labels or [])

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        head = super().complete(given, facts)
        if head.get("pos_weight") == BALANCED:
            counts = facts["class_counts"], facts["num_rows"]
            head["pos_weight"] = balance_positives(facts["labels"], *counts)
        return head

    @property
    def pipeline_problem(self) -> str | None:
        reason = "has thresholds, above which a row has any number of labels"
        return super().pipeline_problem or (None if self.thresholds is None else reason)

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "multi_label_classification", self.labels or []

    def make_head(self, config: Any) -> "MultiLabelHead":
        return MultiLabelHead(config, self)

    def validate_labels(self) -> None:
        check_labels(self.labels)

    def validate_pos_weight(self) -> None:
        check_weights("pos_weight", self)

    def validate_output(self) -> None:
        if self.head == "cosine":
            raise ValueError(
                f"head='cosine' has one output, but there are {self.num_logits} labels: use concat"
            )

    def validate_thresholds(self) -> None:
        chosen, count = self.thresholds, self.num_logits
        if chosen is not None and (len(chosen) != count or not all(0 <= x <= 1 for x in chosen)):
            raise ValueError(f"thresholds={chosen} must be {count} numbers in [0, 1]")


class MultiLabelHead(CalibratedHead, PooledHead):
    """A logit per label, each with a threshold."""

    is_binary = True
    pos_weight: Tensor | None  # (K,); None for equal ones

    def __init__(self, config: Any, task: MultiLabelClassificationTask) -> None:
        super().__init__(config, task)
        add_weights(self, task, "pos_weight")
        self.rare: dict[int, int] = {}  # rows with a label, where they were too few for a threshold

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        if self.pos_weight is None:
            return None
        weights = self.pos_weight.float()
        return torch.ones_like(weights), weights

    @property
    def thresholds(self) -> list[float]:
        """Probability above which a row has the label, (K,)."""
        return self.task.thresholds or [0.5] * self.task.num_logits

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean loss of all labels, (B, K); -100 does not count."""
        if labels.shape != scores.shape:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected {tuple(scores.shape)}: 0 or 1 "
                "for each label of a row"
            )
        return self.task.loss_function(self, LossInputs(vectors, scores, labels, keys))

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return symmetric_kl(logits.unsqueeze(-1), other.unsqueeze(-1)).mean()

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return match_outcomes(logits, teacher, temperature).mean(dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        """Return 1 for each label of a row, else 0, (B, K)."""
        # compared without the temperature, whose rounding could otherwise change a decision
        plain = [rescale(threshold, self.temperature) for threshold in self.thresholds]
        thresholds = torch.tensor(plain, dtype=torch.float64, device=logits.device)
        return (self.likelihoods(logits) > thresholds).long()

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Choose for each label the threshold with the best F1, or that of `threshold_for`.

        Ties of F1 go to the nearest to 0.5. Logits and labels, -100 for rows that do not count, are
        (B, K). A label keeps its threshold if no row with a finite logit is labelled, and without
        `threshold_for` also if fewer than `FEWEST_POSITIVES` have it; `rare` lists the latter.
        """
        if not (labels != -100).any():
            raise ValueError("no labelled rows to choose thresholds by")
        chosen, self.rare = list(self.thresholds), {}
        for number, values in enumerate(self.likelihoods(logits).unbind(dim=1)):
            counted = (labels[:, number] != -100) & values.isfinite()
            if counted.any():
                wanted, above = self.task.threshold_for, labels[counted, number] > 0.5
                if wanted is None and above.sum() < FEWEST_POSITIVES:
                    self.rare[number] = int(above.sum())
                    continue
                found = choose_threshold(values[counted], above, wanted)
                if found is not None:
                    chosen[number] = rescale(found, 1 / self.temperature)
        self.task.thresholds = chosen
        return chosen

    def move_thresholds(self, factor: float) -> None:
        if self.task.thresholds is not None:
            self.task.thresholds = [rescale(each, factor) for each in self.task.thresholds]

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


__all__ = ["MultiLabelClassificationTask", "best_f1_threshold"]
