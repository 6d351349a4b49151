# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Factors on the loss of classes: their fields, how they are balanced, and how heads have them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import initialization as init

from .focal_minbert import FocalTask
from .losses_minbert import LOSSES
from .task_minbert import RECIPE

# Fields of tasks with a factor for each class or label; the heads have buffers of these names.
WEIGHTS = ("class_weights", "pos_weight")
BALANCED = "balanced"


@strict
@dataclass(kw_only=True)
class WeightedTask(FocalTask):
    """A task whose classes may weigh differently in the loss; see also `FocalTask`.

    Args:
        class_weights: Factor on the loss of each class, in the order of `labels`. The weighted sum
            is divided by the number of labels, not by their weights: these would cancel in a batch
            with one class. In a recipe also `balanced`: labels / (classes * labels of the class).
    """

    class_weights: list[float | int] | None = field(default=None, metadata=RECIPE)

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        head = super().complete(given, facts)
        if head.get("class_weights") == BALANCED:
            head["class_weights"] = balance(facts["labels"], facts["class_counts"])
        return head

    def validate_class_weights(self) -> None:
        check_weights("class_weights", self)


def check_weights(key: str, task: Any) -> None:
    """Check that there is a factor for each label, and that the loss has a use for it."""
    weights, labels = getattr(task, key), task.labels or []
    if weights is None:
        return
    if len(weights) != len(labels):
        raise ValueError(
            f"{key}={weights} must be {len(labels)} numbers, one for each of the labels {labels}"
        )
    if not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f"{key}={weights} must all be numbers above 0")
    if task.loss in LOSSES and not LOSSES[task.loss].weighs_classes:
        names = [name for name, loss in LOSSES.items() if loss.weighs_classes]
        raise ValueError(
            f"{key}={weights} has no effect on loss {task.loss!r}: leave it out, or use one of "
            f"{', '.join(names)}"
        )


def balance(labels: Sequence[str] | None, counts: Sequence[int]) -> list[float]:
    """Return weights total / (classes * labels of the class), so that all classes weigh the same.

    That is `class_weight="balanced"` of scikit-learn.
    """
    _check_counts("class_weights", labels, counts)
    return [sum(counts) / (len(counts) * count) for count in counts]


def balance_positives(
    labels: Sequence[str] | None, counts: Sequence[int], rows: int
) -> list[float]:
    """Return weights rows without / rows with the label, so that both weigh the same."""
    _check_counts("pos_weight", labels, counts)
    for label, count in zip(labels or (), counts, strict=True):
        if count == rows:
            raise ValueError(
                f"pos_weight='balanced', but every training row has the label {label!r}; give a "
                "list of weights"
            )
    return [(rows - count) / count for count in counts]


def _check_counts(key: str, labels: Sequence[str] | None, counts: Sequence[int]) -> None:
    for number, count in enumerate(counts):
        if not count:
            name = labels[number] if labels else str(number)
            raise ValueError(
                f"{key}='balanced', but no training row has the label {name!r}; give a list of "
                "weights"
            )


def add_weights(head: nn.Module, task: Any, key: str) -> None:
    """Give a head the factors of its task as a buffer, (K,), which is None for equal ones."""
    given = getattr(task, key, None)
    weights = None if given is None else torch.tensor(given, dtype=torch.float32)
    head.register_buffer(key, weights, persistent=False)


def fill_weights(module: nn.Module) -> None:
    """Compute the factors of a head again: buffers that are not saved are not loaded."""
    for key in WEIGHTS:
        buffer = getattr(module, key, None)
        if isinstance(buffer, Tensor):
            task: Any = module.task
            init.copy_(buffer, torch.tensor(getattr(task, key), dtype=torch.float32))
