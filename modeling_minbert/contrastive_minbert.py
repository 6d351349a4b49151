# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Contrastive learning: vectors of related texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .distillation_minbert import match_vectors
from .head_minbert import TaskBatch, mark_rows
from .losses_minbert import Target
from .pooled_minbert import CosineTask, PairEncoding, PooledHead, describe_scores
from .task_minbert import DATA


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
    default_loss: ClassVar[str] = "multiple_negatives_ranking"
    default_pair_encoding: ClassVar[PairEncoding] = "separate"
    default_head: ClassVar[str] = "cosine"
    normalizes_vectors: ClassVar[bool] = True
    allows_windows: ClassVar[bool] = False
    score_limits: ClassVar[tuple[float, float]] = (-1, 1)

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        count = facts["num_texts"]
        if "num_sentences" in given:
            raise ValueError(f"num_sentences is the number of text_columns, {count}; leave it out")
        head = super().complete({"pair_encoding": "separate", **given}, facts)
        return {**head, "num_sentences": count}

    @property
    def num_sequences(self) -> int | None:
        return self.num_sentences

    def make_head(self, config: Any) -> "ContrastiveHead":
        return ContrastiveHead(config, self)

    def validate_num_sentences(self) -> None:
        if not 1 <= self.num_sentences <= 3:
            raise ValueError(f"num_sentences={self.num_sentences} must be 1, 2 or 3")


class ContrastiveHead(PooledHead):
    """Vectors of length 1, (B, S, D), instead of logits."""

    scales = False
    computes_some_rows = False

    def __init__(self, config: Any, task: ContrastiveTask) -> None:
        super().__init__(config, task)
        self.padding = config.pad_token_id

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None:
            raise ValueError(
                f"task {batch.name!r} is contrastive and learns without labels: leave them out"
            )
        batch.labels = mark_rows(batch, self.padding)
        super().prepare(batch)

    def score(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors.float(), dim=-1)

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        if self.task.num_sentences == 1:  # encoded twice in training
            teacher = teacher.expand(-1, -1, logits.shape[1], -1)
        return super().distillation(logits, teacher, temperature)

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return match_vectors(logits, teacher)

    def decode(self, logits: Tensor) -> Tensor:
        pair = logits[:, :2]
        return (pair[:, 0] * pair[:, -1]).sum(dim=-1)

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the cosines of pairs, (B, 1)."""
        return self.decode(logits).unsqueeze(-1)

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        return describe_scores(logits.squeeze(-1), top_k)
