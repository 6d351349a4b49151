# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tasks that compare texts by their vectors: similarity, and contrastive learning."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .heads import (
    DATA,
    RECIPE,
    Fields,
    HubType,
    Outputs,
    Pretrained,
    Suggestion,
    TaskBatch,
    Types,
    find_padding,
)
from .losses import LOSSES, Target
from .pooled import HEADS, PairEncoding, PooledHead, PooledTask

# With so many training rows, cosines of separate texts are better than joint pairs: they compare
# words from the start (benchmarks/DEFAULTS.md).
FEW_ROWS = 1_000


@strict
@dataclass(kw_only=True)
class CosineTask(PooledTask):
    """A task that may compare the vectors of two texts by their cosine.

    Args:
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`;
            10, and 20 for losses that compare rows, for which it is 1 / temperature.
        projection: `training` puts a dense layer with tanh between vectors and cosine, which is
            left out in evaluation, as in unsupervised SimCSE (Gao et al. 2021, section 6.3); None
            for none.
    """

    cosine_scale: float | int | None = field(default=None, metadata=RECIPE)
    projection: Literal["training"] | None = field(default=None, metadata=RECIPE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cosine_scale is None:
            self.cosine_scale = LOSSES[self.loss].scale if self.loss in LOSSES else 10.0

    def validate_cosine(self) -> None:
        if self.projection is not None and self.head != "cosine":
            raise ValueError(
                f"projection={self.projection!r} is only for head cosine: leave it out"
            )
        if self.cosine_scale is not None and self.cosine_scale <= 0:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be above 0")
        for name in ("margin", "threshold"):
            value = getattr(self, name, None)
            if value is not None and not -1 <= value <= 1:
                raise ValueError(f"{name}={value} is a cosine, it must be in [-1, 1]")


@strict
@dataclass(kw_only=True)
class SimilarityTask(CosineTask):
    """A score within a range for a pair of texts; see also `CosineTask`.

    Labels are scaled to [0, 1].

    Args:
        score_range: Lowest and highest score, `[low, high]`, in the unit of the labels.
        threshold: Cosine, in [-1, 1], that `bce` scores at the middle of the range; 0.5.
    """

    problem_type: Literal["similarity"] = field(default="similarity", metadata=DATA)
    score_range: list[float | int] | None = field(default=None, metadata=DATA)
    threshold: float | int = field(default=0.5, metadata=RECIPE)
    target: ClassVar[Target] = "score"
    hub_type: ClassVar[HubType] = "regression"

    @classmethod
    def suggest(cls, given: Fields, start: Pretrained, rows: int) -> dict[str, Suggestion]:
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
    def default_loss(self) -> str | None:
        # for a cosine that of Reimers and Gurevych 2019, section 3
        return "mse" if self.head == "cosine" else "bce"

    def validate_score_range(self) -> None:
        low_high = self.score_range or []
        if len(low_high) != 2 or not -math.inf < low_high[0] < low_high[1] < math.inf:
            raise ValueError(f"score_range={self.score_range} must be [low, high] with low < high")
        if low_high[0] <= -100 <= low_high[1]:
            raise ValueError(
                f"score_range={self.score_range} contains -100, which marks rows without a label: "
                "rescale the scores"
            )


class SimilarityHead(PooledHead):
    """A linear output or a cosine that is a score."""

    outputs: ClassVar[Outputs] = "scores"

    def __init__(self, config: PreTrainedConfig, task: SimilarityTask) -> None:
        super().__init__(config, task)
        self.score_range = task.score_range or (0, 1)

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits to scores, (B, 1), in units of the range, with a gradient."""
        return self.task.loss_function.to_unit(logits.float())

    def decode(self, logits: Tensor) -> Tensor:
        low, high = self.score_range
        unit = self.task.loss_function.to_unit(logits.squeeze(-1)).clamp(0, 1)
        return low + unit * (high - low)


@strict
@dataclass(kw_only=True)
class ContrastiveTask(CosineTask):
    """Vectors of related texts, learned without labels; see also `CosineTask`.

    Args:
        num_sentences: Texts of a row: 1, which is encoded twice with different dropout
            (unsupervised SimCSE), 2 related ones, or 3, the last of which is a hard negative of the
            first.
    """

    problem_type: Literal["contrastive"] = field(default="contrastive", metadata=DATA)
    num_sentences: int = field(default=2, metadata=DATA)
    is_unlabelled: ClassVar[bool] = True
    target: ClassVar[Target] = "unlabelled"
    default_pair_encoding: ClassVar[PairEncoding] = "separate"
    default_head: ClassVar[str] = "cosine"
    normalizes_vectors: ClassVar[bool] = True
    allows_windows: ClassVar[bool] = False

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        head = super().complete({"pair_encoding": "separate", **given}, facts)
        return {**head, "num_sentences": facts["num_texts"]}

    @property
    def num_sequences(self) -> int | None:
        return self.num_sentences

    def validate_num_sentences(self) -> None:
        if not 1 <= self.num_sentences <= 3:
            raise ValueError(f"num_sentences={self.num_sentences} must be 1, 2 or 3")


class ContrastiveHead(PooledHead):
    """Vectors of length 1, (B, S, D), instead of logits."""

    outputs: ClassVar[Outputs] = "vectors"

    def __init__(self, config: PreTrainedConfig, task: ContrastiveTask) -> None:
        super().__init__(config, task)
        self.config = config  # whose padding id may change

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None:
            raise ValueError(
                f"task {batch.name!r} is contrastive and learns without labels: leave them out"
            )
        # 1, and -100 for rows that only fill the batch
        is_filler = find_padding(batch, self.config.pad_token_id)[:: batch.num_sequences]
        labels = torch.ones_like(is_filler, dtype=torch.long)
        batch.labels = labels.masked_fill(is_filler, -100)
        super().prepare(batch)

    def score(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors.float(), dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        pair = logits[:, :2]
        return (pair[:, 0] * pair[:, -1]).sum(dim=-1)

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the cosines of pairs, (B, 1)."""
        return self.decode(logits).unsqueeze(-1)


TYPES: Types = {
    "similarity": (SimilarityTask, SimilarityHead),
    "contrastive": (ContrastiveTask, ContrastiveHead),
}
