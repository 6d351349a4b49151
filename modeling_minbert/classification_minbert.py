# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Classification: one of several labels for a text or a pair of texts."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from torch import Tensor

from .class_weights_minbert import WeightedTask
from .losses_minbert import Target
from .pooled_minbert import PooledHead, PooledTask
from .task_minbert import DATA, check_labels
from .temperature_minbert import CalibratedHead, CalibratedTask


@strict
@dataclass(kw_only=True)
class ClassificationTask(WeightedTask, CalibratedTask, PooledTask):
    """One of `labels` for a text or a pair of texts.

    See also `WeightedTask`, `CalibratedTask` and `PooledTask`.

    Args:
        labels: Names of the classes, in the order of their ids.
    """

    problem_type: Literal["classification"] = field(default="classification", metadata=DATA)
    labels: list[str] | None = field(default=None, metadata=DATA)
    target: ClassVar[Target] = "class"
    default_loss: ClassVar[str] = "cross_entropy"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_classes(self) -> int:
        return len(self.labels or [])

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "single_label_classification", self.labels or []

    def make_head(self, config: Any) -> "ClassificationHead":
        return ClassificationHead(config, self)

    def validate_labels(self) -> None:
        check_labels(self.labels)


class ClassificationHead(CalibratedHead, PooledHead):
    """A logit per class."""

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)
