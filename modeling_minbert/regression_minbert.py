# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Regression: one or several numbers without bounds for a text or a pair of texts."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor

from .distillation_minbert import order_labels
from .head_minbert import check_shapes
from .losses_minbert import LossInputs, Target
from .pooled_minbert import PooledHead, PooledTask, describe_scores
from .task_minbert import DATA, MinBertTask


@strict
@dataclass(kw_only=True)
class RegressionTask(PooledTask):
    """K numbers in their own units for a text or a pair of texts; see also `PooledTask`.

    The head is trained on `(target - mean) / std`, so that its first predictions are near the mean
    and losses of all targets have the same scale. Labels, logits and predictions are in the units
    of the data. A label of -100 is missing and does not count.

    Args:
        targets: Names of the targets, in the order of the logits; None for a single one.
        mean: Mean of each target over the training rows; 0 by default.
        std: Standard deviation of each target over the training rows; 1 by default.
    """

    problem_type: Literal["regression"] = field(default="regression", metadata=DATA)
    targets: list[str] | None = field(default=None, metadata=DATA)
    mean: list[float | int] | None = field(default=None, metadata=DATA)
    std: list[float | int] | None = field(default=None, metadata=DATA)
    target: ClassVar[Target] = "number"
    default_loss: ClassVar[str] = "mse"
    default_pair_encoding: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mean = [0.0] * self.num_logits if self.mean is None else self.mean
        self.std = [1.0] * self.num_logits if self.std is None else self.std

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        for name in ("targets", "mean", "std"):
            if name in given:
                raise ValueError(f"{name} follows from the training rows; remove it")
        return super().complete(given, facts)

    @property
    def num_logits(self) -> int:
        return 1 if self.targets is None else len(self.targets)

    @property
    def score_limits(self) -> tuple[float, float] | None:
        return (-math.inf, math.inf) if self.num_logits == 1 else None

    @property
    def logit_units(self) -> tuple[list[float | int], list[float | int]]:
        return self.mean or [0.0], self.std or [1.0]

    @property
    def predicts_several_scores(self) -> bool:
        return self.num_logits > 1

    @property
    def pipeline_problem(self) -> str | None:
        several = "predicts several numbers" if self.predicts_several_scores else None
        return super().pipeline_problem or several

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "regression", self.targets or ["score"]

    def align(self, teacher: MinBertTask) -> Callable[[Tensor], Tensor]:
        super().align(teacher)
        order = order_labels(self.targets, getattr(teacher, "targets", None))
        return partial(self.reorder, order=order)

    def make_head(self, config: Any) -> "RegressionHead":
        return RegressionHead(config, self)

    def validate_targets(self) -> None:
        names = self.targets
        if names is not None and (not all(names) or not 0 < len(set(names)) == len(names)):
            raise ValueError(f"targets={names} must be different names, at least one")

    def validate_scaling(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            numbers, count = values or [], self.num_logits
            if len(numbers) != count or not all(map(math.isfinite, numbers)):
                raise ValueError(f"{name}={values} must have a finite number for each target")
        if not all(number > 0 for number in self.std or []):
            raise ValueError(f"std={self.std} must be above 0")


class RegressionHead(PooledHead):
    """A linear output for each target, whose logits are in the units of the data."""

    def to_logits(self, scores: Tensor) -> Tensor:
        # Numbers instead of buffers: a model that is cast to bfloat16 would round these.
        columns = self._columns(scores)
        return torch.stack([column * std + mean for column, mean, std in columns], dim=-1)

    def unit_labels(self, labels: Tensor) -> Tensor:
        """Standardize labels, (B,) or (B, K); missing ones become 0."""
        columns = self._columns(labels if labels.dim() == 2 else labels.unsqueeze(-1))
        standardized = torch.stack([(column - mean) / std for column, mean, std in columns], dim=-1)
        return standardized.view_as(labels).masked_fill(labels == -100, 0)

    def _columns(self, values: Tensor) -> Iterator[tuple[Tensor, float, float]]:
        """Yield values, (B, K), of each target in at least float32, with its mean and deviation."""
        # bfloat16 has no digits for values that are far from 0
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        return zip(wide.unbind(dim=-1), self.task.mean, self.task.std, strict=True)

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean loss over the labels that are not -100, (B, K), or (B,) for K = 1."""
        rows, count = scores.shape
        labels = labels.squeeze(-1) if count == 1 and labels.dim() == 2 else labels
        expected = (rows,) if count == 1 else (rows, count)
        if labels.shape != expected:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected {expected}: a number for each "
                "target of a row, -100 for none"
            )
        return self.task.loss_function(self, LossInputs(vectors, scores, labels, keys))

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compute the mean squared difference in standard deviations."""
        check_shapes(logits, other, "rows")
        columns = self._columns(logits - other)
        return torch.stack([column / std for column, _, std in columns]).square().mean()

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Compute the squared error to the mean of the teachers in standard deviations, (B,)."""
        columns = self._columns(logits - teacher.mean(dim=-2))
        return torch.stack([column / std for column, _, std in columns]).square().mean(dim=0)

    def decode(self, logits: Tensor) -> Tensor:
        """Return predictions in the units of the data, (B, K), or (B,) for K = 1."""
        return logits.squeeze(-1) if self.task.num_logits == 1 else logits

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): a dictionary a row with `score`, or `scores` by target."""
        if self.task.num_logits == 1:
            return describe_scores(self.decode(logits), top_k)
        rows = [
            {"scores": dict(zip(self.task.targets, row, strict=True))} for row in logits.tolist()
        ]
        return rows if top_k is None else [[row] for row in rows]


__all__ = ["RegressionTask"]
