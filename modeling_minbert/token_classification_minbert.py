# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Token classification: B rows of L tokens, T of a packed batch; D hidden size, K logits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import TokenClassifierOutput

from .head_minbert import TaskBatch, TokenHead, check_shapes, check_token_labels
from .losses_minbert import symmetric_kl
from .packing_minbert import Read, any_at_padding
from .tagging_minbert import predict_tags
from .task_minbert import DATA, RECIPE, HeadTask, check_labels


@strict
@dataclass(kw_only=True)
class TokenClassificationTask(HeadTask):
    """One of `labels` for every token; long texts are split into windows, not truncated.

    Args:
        labels: Names of the tags, in the order of their ids.
        loss: `cross_entropy`.
    """

    problem_type: Literal["token_classification"] = field(
        default="token_classification", metadata=DATA
    )
    labels: list[str] | None = field(default=None, metadata=DATA)
    loss: Literal["cross_entropy"] = field(default="cross_entropy", metadata=RECIPE)
    dropout: float | int = field(default=0.1, metadata=RECIPE)
    is_token_level: ClassVar[bool] = True
    single_task_model: ClassVar[str | None] = "MinBertForTokenClassification"

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return None, self.labels or []

    def make_head(self, config: Any) -> "TokenClassificationHead":
        return TokenClassificationHead(config, self, len(self.labels or []))

    def validate_labels(self) -> None:
        check_labels(self.labels)


class TokenClassificationHead(TokenHead):
    """K logits of every token."""

    def prepare(self, batch: TaskBatch) -> None:
        check_token_labels(batch)
        batch.options.pop("label_positions", None)  # tokens without a label are also scored

    def read(self, batch: TaskBatch) -> Read:
        return read_tokens(batch.labels, batch.inputs[1])

    def forward(self, outputs: Any, batch: TaskBatch) -> TokenClassifierOutput:
        number = batch.options.get("num_items_in_batch")
        return label_tokens(outputs, self.score, batch.labels, number, self.smoothing)

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "tokens")
        each = symmetric_kl(logits, other)
        if labels is None:
            return each.mean()
        counted = labels != -100
        return each.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        if isinstance(rows, str):
            raise TypeError(f"{name}: pass a list of texts, not one string")
        if top_k is not None:
            raise ValueError(
                f"task {name!r} is a token_classification task with one tag per word: leave top_k "
                "out"
            )
        return predict_tags(model, name, rows, **options)


def read_tokens(labels: Tensor | None, mask: Tensor | None) -> Read:
    """Return which states are read: of paddings only if they have labels."""
    stray = labels is not None and any_at_padding(labels != -100, mask)
    return "padded" if stray else "tokens"


def label_tokens(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    labels: Tensor | None,
    number: Any = None,
    smoothing: float = 0.0,
) -> TokenClassifierOutput:
    """Score tokens, (B, L, K) or (1, T, K); the mean loss is over `number` or all labels."""
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        logits = outputs.sequences.pad(logits)
    loss = None
    if labels is not None:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        reduction = "mean" if number is None else "sum"
        options: Any = {"label_smoothing": smoothing, "reduction": reduction}
        loss = F.cross_entropy(logits.flatten(0, -2).to(dtype), labels.flatten(), **options)
        loss = loss if number is None else loss / number
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)
