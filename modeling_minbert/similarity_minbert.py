# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Similarity: a score for a pair of texts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from torch import Tensor

from .distillation_minbert import (
    check_teacher,
    match_probabilities,
    match_scores,
    mean_taught,
)
from .losses_minbert import Target
from .pooled_minbert import HEADS, CosineTask, PooledHead, describe_scores
from .task_minbert import DATA, RECIPE, Pretrained, Suggestion

# With so many training rows, cosines of separate texts are better than joint pairs: they compare
# words from the start (benchmarks/DEFAULTS.md).
FEW_ROWS = 1_000


@strict
@dataclass(kw_only=True)
class SimilarityTask(CosineTask):
    """A score within a range for a pair of texts; see also `CosineTask`.

    Labels are scaled to [0, 1]. For `cross_entropy` every whole number of the range is a class, and
    a score belongs to the nearest one.

    Args:
        score_range: Lowest and highest score, `[low, high]`, in the unit of the labels.
        threshold: Cosine, in [-1, 1], that `bce` scores at the middle of the range; 0.5.
        positive_score: Lowest score of a positive pair for `multiple_negatives_ranking`, in the
            unit of the labels; four fifths up the range.
    """

    problem_type: Literal["similarity"] = field(default="similarity", metadata=DATA)
    score_range: list[float | int] | None = field(default=None, metadata=DATA)
    threshold: float | int = field(default=0.5, metadata=RECIPE)
    positive_score: float | int | None = field(default=None, metadata=RECIPE)
    cosines: ClassVar[tuple[str, ...]] = ("threshold",)
    target: ClassVar[Target] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        ranks = self.loss in self.losses and "positive_score" in self.loss_function.options
        if self.positive_score is None and ranks and len(self.score_range or []) == 2:
            low, high = self.score_range or (0, 1)
            self.positive_score = low + 0.8 * (high - low)

    @classmethod
    def suggest(
        cls, given: Mapping[str, Any], start: Pretrained, rows: int
    ) -> dict[str, Suggestion]:
        suggested = super().suggest(given, start, rows)
        is_free = given.keys().isdisjoint(("pair_encoding", "head", "loss"))
        if is_free and start.sentence_pooling is not None:
            reason = "the checkpoint is a sentence encoder, whose cosines are similarities"
            suggested["pair_encoding"] = Suggestion("separate", reason)
        elif is_free and rows <= FEW_ROWS:
            reason = f"{rows:,} training rows are few to learn comparisons from joint pairs"
            suggested["pair_encoding"] = Suggestion("separate", reason)
        return suggested

    @property
    def default_head(self) -> str:
        return "cosine" if self.pair_encoding == "separate" else HEADS[self.pair_encoding][0]

    @property
    def default_loss(self) -> str:  # type: ignore[override]  # a constant of other types
        # for a cosine that of Reimers and Gurevych 2019, section 3
        return "mse" if self.head == "cosine" else "bce"

    @property
    def num_classes(self) -> int:
        low, high = self.score_range or (0, 1)
        return int(high - low) + 1

    @property
    def score_limits(self) -> tuple[float, float] | None:
        low, high = self.score_range or (0, 1)
        return low, high

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "regression", ["score"]

    def make_head(self, config: Any) -> "SimilarityHead":
        return SimilarityHead(config, self)

    def validate_score_range(self) -> None:
        low_high = self.score_range or []
        if len(low_high) != 2 or not -math.inf < low_high[0] < low_high[1] < math.inf:
            raise ValueError(f"score_range={self.score_range} must be [low, high] with low < high")
        if low_high[0] <= -100 <= low_high[1]:
            raise ValueError(
                f"score_range={self.score_range} contains -100, which marks rows without a label: "
                "rescale the scores"
            )

    def validate_scores(self) -> None:
        low, high = self.score_range or (0, 1)
        if self.positive_score is not None and not low < self.positive_score <= high:
            raise ValueError(
                f"positive_score={self.positive_score} must be above {low} and at most {high}, the "
                "highest score"
            )
        has_classes = self.loss in self.losses and self.loss_function.num_logits(2) == 2
        if has_classes and (low != int(low) or high != int(high)):
            raise ValueError(
                f"score_range={self.score_range}: for loss {self.loss!r} the whole numbers from "
                "low to high are the classes, so both must be whole numbers"
            )


class SimilarityHead(PooledHead):
    """A linear output or a cosine that is a score, or a logit per integer."""

    def __init__(self, config: Any, task: SimilarityTask) -> None:
        super().__init__(config, task)
        self.score_range = task.score_range or (0, 1)

    def class_ids(self, labels: Tensor) -> Tensor:
        """Round to the nearest integer; halves go up, unlike with torch.round."""
        nearest = (labels - self.score_range[0] + 0.5).floor()
        return nearest.masked_fill(labels == -100, -100).long()

    def is_positive(self, labels: Tensor) -> Tensor:
        return (labels != -100) & (labels >= self.task.positive_score)

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits (B, K) to scores, (B, 1), in units of the range, with a gradient."""
        return self.task.loss_function.soft_score(logits.float())

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        scores, known = self.to_targets(logits), teacher.nan_to_num()
        check_teacher(scores, teacher, 1)
        if self.task.loss == "bce":
            return mean_taught(match_probabilities(logits, known), teacher)
        return mean_taught(match_scores(scores, known), teacher)

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        return self.decode(logits).unsqueeze(-1)

    def decode(self, logits: Tensor) -> Tensor:
        return self.task.loss_function.decode_score(logits, *self.score_range)

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        return describe_scores(self.decode(logits), top_k)
