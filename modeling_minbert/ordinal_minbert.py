# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Ordinal classification: one of several ordered labels for a text or a pair of texts."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import initialization as init

from .losses_minbert import Target
from .pooled_minbert import PooledHead, PooledTask
from .task_minbert import DATA, check_labels


@strict
@dataclass(kw_only=True)
class OrdinalTask(PooledTask):
    """One of ordered `labels` for a text or a pair of texts; see also `PooledTask`.

    Args:
        labels: Names of the classes in their order, the lowest first.
    """

    problem_type: Literal["ordinal"] = field(default="ordinal", metadata=DATA)
    labels: list[str] | None = field(default=None, metadata=DATA)
    target: ClassVar[Target] = "ordinal"
    default_loss: ClassVar[str] = "corn"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_classes(self) -> int:
        return len(self.labels or [])

    @property
    def pipeline_problem(self) -> str | None:
        has_median = self.num_classes > 2  # of two classes it is the most probable one
        reason = "predicts the median, which need not be the most probable label"
        return super().pipeline_problem or (reason if has_median else None)

    def describe_outputs(self) -> tuple[Any, list[str]]:
        # the softmax of log probabilities, which a pipeline computes, are the probabilities
        return "single_label_classification", self.labels or []

    def make_head(self, config: Any) -> "OrdinalHead":
        return OrdinalHead(config, self)

    def validate_labels(self) -> None:
        check_labels(self.labels)


class OrdinalHead(PooledHead):
    """Log probabilities of the classes, from conditional logits or a score and thresholds."""

    def __init__(self, config: Any, task: OrdinalTask) -> None:
        super().__init__(config, task)
        # named like a bias, so that it has no weight decay
        self.thresholds_bias: nn.Parameter | None = None
        loss: Any = task.loss_function
        if loss.has_thresholds and self.out is not None:
            # its bias would do the same as the lowest threshold
            self.out = nn.Linear(self.out.in_features, self.out.out_features, bias=False)
            self.thresholds_bias = nn.Parameter(torch.zeros(task.num_classes - 1))

    def init_weights(self) -> None:
        super().init_weights()
        if self.thresholds_bias is not None:
            init.zeros_(self.thresholds_bias)

    def to_logits(self, scores: Tensor) -> Tensor:
        """Convert the outputs of the linear layer to log probabilities of the classes, (B, K)."""
        return self.task.loss_function.log_probabilities(scores, self.thresholds_bias)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        """Return the median class: the number of classes k with P(y > k) > 0.5, (B,).

        This is the rule of CORN (Shi, Cao and Raschka 2021). It minimizes the expected absolute
        error.
        """
        above = self.probabilities(logits.float()).flip(-1).cumsum(dim=-1).flip(-1)[..., 1:]
        return (above > 0.5).sum(dim=-1)


__all__ = ["OrdinalTask"]
