# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Classification: one of several labels for a text or a pair of texts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from torch import Tensor

from .losses_minbert import Target
from .pooled_minbert import PooledHead, PooledTask
from .task_minbert import DATA, RECIPE, check_labels


@strict
@dataclass(kw_only=True)
class ClassificationTask(PooledTask):
    """One of `labels` for a text or a pair of texts; see also `PooledTask`.

    Args:
        labels: Names of the classes, in the order of their ids.
        class_weights: Factor on the loss of the rows of each class, in the order of `labels`; the
            loss is the sum divided by the number of rows.
    """

    problem_type: Literal["classification"] = field(default="classification", metadata=DATA)
    labels: list[str] | None = field(default=None, metadata=DATA)
    class_weights: list[float | int] | None = field(default=None, metadata=RECIPE)
    target: ClassVar[Target] = "class"
    default_loss: ClassVar[str] = "cross_entropy"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_classes(self) -> int:
        return len(self.labels or [])

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        head = super().complete(given, facts)
        if head.get("class_weights") == "balanced":
            head["class_weights"] = balance(facts["labels"], facts["class_counts"])
        return head

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "single_label_classification", self.labels or []

    def make_head(self, config: Any) -> "ClassificationHead":
        return ClassificationHead(config, self)

    def validate_labels(self) -> None:
        check_labels(self.labels)

    def validate_class_weights(self) -> None:
        weights, count = self.class_weights, self.num_classes
        if weights is None:
            return
        if len(weights) != count:
            raise ValueError(
                f"class_weights={weights} must be {count} numbers, one for each of the labels "
                f"{self.labels}"
            )
        if not all(0 < weight < math.inf for weight in weights):
            raise ValueError(f"class_weights={weights} must all be numbers above 0")


def balance(labels: list[str], counts: list[int]) -> list[float]:
    """Return weights rows / (classes * rows of the class), so that all classes weigh the same."""
    for label, count in zip(labels, counts, strict=True):
        if not count:
            raise ValueError(
                f"class_weights='balanced', but no training row has the label {label!r}; give a "
                "list of weights"
            )
    return [sum(counts) / (len(labels) * count) for count in counts]


class ClassificationHead(PooledHead):
    """A logit per class."""

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)
