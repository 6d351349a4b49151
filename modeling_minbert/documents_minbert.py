# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Inference over long texts: their windows are encoded in batches, and pooled to one vector each.

Shapes: N windows of P texts, D hidden size, K logits of a row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .inference_minbert import (
    Encoded,
    Row,
    choose_tokens,
    compute_in_order,
    own_tokenizer,
    predicting,
    windows_of,
)
from .packing_minbert import pool_outputs, reads
from .precision_minbert import check_precision
from .windows_minbert import Windows, check_overlap, choose_windows

# Rows that are tokenized together; each may have many windows.
ROWS = 512


class WindowPlan(NamedTuple):
    """How texts are split into windows, and these encoded and pooled."""

    max_length: int  # tokens of a window, special ones included
    overlap: int  # tokens that a window shares with the one before
    most: int | None  # windows of a text; None for all
    pooling: str  # of the states of a window
    num_layers: int
    pool: Any  # a `MinBertWindowPooling`

    def split(self, tokenizer: Any, texts: Sequence[str]) -> list[list[Encoded]]:
        """Tokenize texts to windows."""
        check_overlap(self.overlap, self.max_length)
        encoded = own_tokenizer(tokenizer)(
            list(texts),
            padding=False,
            truncation=True,
            max_length=self.max_length,
            stride=self.overlap,
            return_overflowing_tokens=True,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        windows: list[list[Encoded]] = [[] for _ in texts]
        names = ("overflow_to_sample_mapping", *Encoded._fields)
        for text, ids, types in zip(*(encoded[name] for name in names), strict=True):
            windows[text].append(Encoded([ids], [types]))
        return [[own[place] for place in choose_windows(len(own), self.most)] for own in windows]

    def encode(self, encoder: Any, batch: dict[str, Any]) -> Tensor:
        """Encode a batch of windows, (n, D)."""
        outputs = encoder(
            **batch, return_dict=True, read=reads(self.pooling), num_layers=self.num_layers
        )
        return pool_outputs(outputs, batch.get("attention_mask"), self.pooling)


def stream_documents(
    model: Any,
    rows: Iterable[Row],
    plan: WindowPlan,
    finish: Callable[[Tensor], Tensor],
    *,
    max_tokens: int | None,
    show_progress: bool | None,
    precision: str | None,
) -> Iterator[Tensor]:
    """Yield (n, K) in float32 on the CPU for some hundred rows; `finish` maps (P, D) to (n, K)."""
    tokens = choose_tokens(model, max_tokens)
    check_precision(precision)

    def run() -> Iterator[Tensor]:
        for some, bar in windows_of(rows, show_progress, ROWS):
            texts = plan.split(model.tokenizer, [text for row in some for text in row])
            encoded = [window for windows in texts for window in windows]
            with predicting(model, precision):
                vectors = compute_in_order(
                    model, encoded, tokens, lambda batch: plan.encode(model.base_model, batch)
                )
                values = finish(plan.pool(vectors, list_windows(texts, vectors.device)))
            bar.update(len(some))
            yield values.float().cpu()

    return run()


def list_windows(texts: Sequence[Sequence[Encoded]], device: torch.device) -> Windows:
    """Describe the windows of texts, text by text."""
    places = [place for place, windows in enumerate(texts) for _ in windows]
    tokens = [window.tokens for windows in texts for window in windows]
    return Windows(
        torch.tensor(places, device=device), len(texts), torch.tensor(tokens, device=device)
    )
