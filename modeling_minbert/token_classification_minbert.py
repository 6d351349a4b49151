# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Token classification: a label for every token.

Shapes: B rows, L tokens of a row, T tokens of a packed batch, D hidden size, K logits of a token.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import TokenClassifierOutput

from .dropout_minbert import MinBertDropout
from .head_minbert import MinBertHead, check_shapes
from .inputs_minbert import TaskBatch, check_token_labels
from .loss_functions_minbert import symmetric_kl
from .packing_minbert import Read, any_at_padding
from .tagging_minbert import predict_tags
from .task_minbert import DATA, RECIPE, MinBertTask, check_dropout, check_labels, check_layer


@strict
@dataclass(kw_only=True)
class TokenClassificationTask(MinBertTask):
    """One of `labels` for every token; long texts are split into windows, not truncated.

    Args:
        labels: Names of the tags, in the order of their ids.
        loss: `cross_entropy`.
        dropout: Probability of dropping an element of the states that the head reads.
        pooling_layer: The hidden state that is read, as in `hidden_states`.
    """

    problem_type: Literal["token_classification"] = field(
        default="token_classification", metadata=DATA
    )
    labels: list[str] | None = field(default=None, metadata=DATA)
    loss: Literal["cross_entropy"] = field(default="cross_entropy", metadata=RECIPE)
    dropout: float | int = field(default=0.1, metadata=RECIPE)
    pooling_layer: int = field(default=-1, metadata=RECIPE)

    is_token_level: ClassVar[bool] = True
    single_task_model: ClassVar[str | None] = "MinBertForTokenClassification"

    def count_layers(self, num_hidden_layers: int) -> int:
        """Return how many layers are computed, from below."""
        return check_layer(self.pooling_layer, num_hidden_layers)

    def describe_outputs(self) -> tuple[Any, list[str]]:
        """Return the label names that transformers' pipelines use."""
        return None, self.labels or []

    def make_head(self, config: Any) -> "TokenClassificationHead":
        """Make the head."""
        return TokenClassificationHead(config, self)

    def validate_labels(self) -> None:
        """Check the names of the tags."""
        check_labels(self.labels)

    def validate_dropout(self) -> None:
        """Check the dropout."""
        check_dropout(self.dropout)


class TokenClassificationHead(MinBertHead):
    """A linear layer on every token."""

    def __init__(self, config: Any, task: TokenClassificationTask) -> None:
        super().__init__()
        self.task = task
        self.dropout = MinBertDropout(task.dropout)
        self.out = nn.Linear(config.hidden_size, len(task.labels or []))

    def prepare(self, batch: TaskBatch) -> None:
        """Check that there is one label a token."""
        check_token_labels(batch)
        batch.options.pop("label_positions", None)  # tokens without a label are scored, too

    def read(self, batch: TaskBatch) -> Read:
        """Read the real tokens."""
        return read_tokens(batch.labels, batch.inputs[1])

    def forward(self, outputs: Any, batch: TaskBatch) -> TokenClassifierOutput:
        """Score every token: `logits` (B, L, K), (1, T, K) of a packed batch."""
        number = batch.options.get("num_items_in_batch")
        return label_tokens(outputs, self.score, batch.labels, number)

    def score(self, hidden: Tensor) -> Tensor:
        """Score states, (..., D) -> (..., K)."""
        return self.out(self.dropout(hidden))

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compare two predictions of the same tokens; see `MinBertForMultiTask.divergence`."""
        check_shapes(logits, other, "tokens")
        each = symmetric_kl(logits, other)
        if labels is None:
            return each.mean()
        counted = labels != -100
        return each.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)

    def decode(self, logits: Tensor) -> Tensor:
        """Return the ids of the best tags, (...)."""
        return logits.argmax(dim=-1)

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        """Tag the words of texts; see `predict_tags`."""
        if isinstance(rows, str):
            raise TypeError(f"{name}: pass a list of texts, not one string")
        if top_k is not None:
            raise ValueError(
                f"task {name!r} is a token_classification, with one tag a word: leave top_k out"
            )
        return predict_tags(model, name, rows, **options)


def read_tokens(labels: Tensor | None, mask: Tensor | None) -> Read:
    """Return which states are read: those of paddings only if they have labels."""
    stray = labels is not None and any_at_padding(labels != -100, mask)
    return "padded" if stray else "tokens"


def label_tokens(
    outputs: Any, score: Callable[[Tensor], Tensor], labels: Tensor | None, number: Any = None
) -> TokenClassifierOutput:
    """Score every token.

    Args:
        outputs: Of the encoder.
        score: Maps states to K logits.
        labels: Ids of the tags, (B, L), (1, T) of a packed batch, -100 where none is predicted.
        number: What the summed loss is divided by; None for the number of labels.

    Returns:
        `logits` (B, L, K), (1, T, K) of a packed batch, and, with labels, the mean `loss`.
    """
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        logits = outputs.sequences.pad(logits)
    loss = None
    if labels is not None:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = fixed_cross_entropy(logits.flatten(0, -2).to(dtype), labels.flatten(), number)
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


__all__ = ["TokenClassificationTask", "label_tokens", "read_tokens"]
