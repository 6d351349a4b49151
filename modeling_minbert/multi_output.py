# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""A class for each of several outputs of a text or a pair of texts.

Shapes: B rows, C outputs, K classes of all outputs.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor

from .cpu import is_followed
from .heads import MEANING, Outputs, Types
from .losses import Target
from .pooled import PooledHead, PooledTask


@strict
@dataclass(kw_only=True)
class MultiOutputClassificationTask(PooledTask):
    """A class for each of several outputs, such as the aspects of a review; see `PooledTask`.

    The head has the logits of all classes of all outputs; the loss is the mean over the labels
    that are given. A label of -100 is missing.

    Args:
        outputs: Names of the outputs.
        classes: Names of the classes of each output, in the order of the logits.
    """

    problem_type: Literal["multi_output_classification"] = field(
        default="multi_output_classification", metadata=MEANING
    )
    outputs: list[str] | None = field(default=None, metadata=MEANING)
    classes: list[list[str]] | None = field(default=None, metadata=MEANING)
    target: ClassVar[Target] = "classes"
    default_pair_encoding: ClassVar[None] = None

    @property
    def num_classes(self) -> int | None:
        return max(map(len, self.classes or []), default=0)

    @property
    def num_logits(self) -> int:
        return sum(map(len, self.classes or []))

    def validate_outputs(self) -> None:
        names, classes = self.outputs or [], self.classes or []
        if not names or len(set(names)) < len(names) or len(classes) != len(names):
            raise ValueError(
                f"outputs={names} must be different names, with a list of classes for each, got "
                f"classes={classes}"
            )
        for name, labels in zip(names, classes, strict=True):
            if len(labels) < 2 or len(set(labels)) < len(labels):
                raise ValueError(
                    f"the classes of the output {name!r} must be at least two different names, got "
                    f"{labels}"
                )


class MultiOutputClassificationHead(PooledHead):
    """The logits of the classes of each output, one output after the other."""

    outputs: ClassVar[Outputs] = "several_classes"
    row_label = "the number of a class for each output of a row, -100 for none"

    def split(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Split logits (..., K) into those of each output."""
        return logits.split(list(map(len, self.task.classes)), dim=-1)

    def list_classes(self, scores: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        columns = labels.unbind(dim=-1)
        if labels.device.type == "cpu" and not is_followed(labels):
            for name, classes, given in zip(
                self.task.outputs, self.task.classes, columns, strict=True
            ):
                if (given >= len(classes)).any():
                    raise ValueError(
                        f"the label {int(given.max())} of the output {name!r} must be a whole "
                        f"number from 0 to {len(classes) - 1}, or -100 for none"
                    )
        return list(zip(self.split(scores), columns, strict=True))

    def label_shape(self, scores: Tensor) -> torch.Size:
        return torch.Size((len(scores), len(self.task.outputs)))

    def decode(self, logits: Tensor) -> Tensor:
        """Return the class of each output, (B, C)."""
        return torch.stack([values.argmax(dim=-1) for values in self.split(logits)], dim=-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.cat([values.softmax(dim=-1) for values in self.split(logits)], dim=-1)


TYPES: Types = {
    "multi_output_classification": (MultiOutputClassificationTask, MultiOutputClassificationHead)
}
