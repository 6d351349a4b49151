# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The contract of all heads: from the states of the encoder to logits, loss and predictions.

Shapes: B rows, S sequences of a row, L tokens of a sequence, D hidden size, K logits.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from .inputs_minbert import TaskBatch
from .packing_minbert import Read


class MinBertHead(nn.Module):
    """The head of one task of `MinBertForMultiTask`.

    For a batch, the model calls `prepare`, then `arrange` and `read`, encodes, and calls `forward`
    with the output of the encoder. Without `prepare` there is no loss.

    Attributes:
        task: What the head computes.
        gathers: Whether in training a loss that compares rows sees those of all processes.
    """

    gathers = False
    task: Any

    def prepare(self, batch: TaskBatch) -> None:
        """Check the targets of a batch and complete them in place.

        Raises:
            ValueError: If they do not fit the task.
        """

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Return the batch with inputs as the encoder takes them."""
        return batch

    def read(self, batch: TaskBatch) -> Read:
        """Return which states `forward` needs; see `MinBertModel.forward`."""
        raise NotImplementedError

    def forward(self, outputs: Any, batch: TaskBatch) -> ModelOutput:
        """Compute logits and, with labels, the loss.

        Args:
            outputs: Of the encoder, with the states that were read.
            batch: The batch, arranged.
        """
        raise NotImplementedError

    def decode(self, logits: Tensor) -> Tensor:
        """Turn logits into predictions; see `MinBertForMultiTask.decode`."""
        raise NotImplementedError

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compare two predictions of the same rows; see `MinBertForMultiTask.divergence`."""
        raise NotImplementedError

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        """Predict rows of text; see `MinBertForMultiTask.predict`.

        Args:
            model: The model of this head.
            name: Name of the task.
            rows: Texts, or what else a row of the task is.
            top_k: Predictions of a row at most; None for the best one alone.
            **options: `max_tokens` and `show_progress` of `stream`.
        """
        raise NotImplementedError


def check_shapes(logits: Tensor, other: Tensor, unit: str) -> None:
    """Check that two predictions can be of the same rows or tokens."""
    if logits.shape != other.shape:
        raise ValueError(
            f"logits of {tuple(logits.shape)} and {tuple(other.shape)}: a divergence needs two "
            f"predictions for the same {unit}"
        )


__all__ = ["MinBertHead", "check_shapes"]
