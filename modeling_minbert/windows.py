# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Texts that are split into windows, whose vectors are averaged: N windows of P texts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cpu import is_followed
from .heads import TaskBatch, ids_of
from .texts import Encoded

OVERLAP = 64


def default_overlap(max_length: int | None) -> int:
    """Return the `window_overlap` of a task that leaves it out."""
    return OVERLAP if max_length is None else min(OVERLAP, max_length // 4)


class Windows(NamedTuple):
    """The windows of a batch; what belongs to no text has the text P."""

    texts: Tensor  # the text of each window, ascending but for windows of padding, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor) -> Tensor:
        """Average the vectors of windows, weighted by their tokens, (N, D) -> (P, D).

        The vector of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts + 1).index_add(0, self.texts, weights)
        weights = (weights / sums[self.texts]).unsqueeze(1)
        pooled = vectors.new_zeros(self.num_texts + 1, vectors.shape[1], dtype=dtype)
        pooled = pooled.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled[: self.num_texts].to(vectors.dtype)


def find_windows(batch: TaskBatch) -> Windows:
    """Find the text of each window of a batch whose rows are windows, before it is arranged.

    Raises:
        ValueError: If `num_windows` does not fit the batch.
    """
    if batch.offsets is None:
        ids: Any = ids_of(batch.inputs)
        mask, shape = batch.inputs[1], ids.shape[:-1]
        tokens = torch.full(shape, ids.shape[-1], device=ids.device)
        tokens = (tokens if mask is None else mask.ne(0).sum(dim=-1)).flatten()
        most = shape[-1] if batch.has_window_axis else 1
        texts = torch.arange(len(tokens), device=ids.device) // most
        if batch.has_window_axis:
            texts = texts.masked_fill(tokens == 0, len(tokens) // most)
        return Windows(texts, len(tokens) // most, tokens.clamp(min=1))
    tokens = batch.offsets.diff()
    total, device = len(tokens), tokens.device
    if batch.num_windows is None:  # each text is one window
        return Windows(torch.arange(total, device=device), total, tokens)
    counts = batch.num_windows.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {batch.name!r}: num_windows adds up to {int(counts.sum())} windows, but the "
            f"batch has {total} sequences"
        )
    texts = torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=total)
    return Windows(texts, len(counts), tokens)


def flatten_windows(batch: TaskBatch) -> TaskBatch:
    """Make every window of a padded batch a sequence, (N, L)."""
    if batch.offsets is not None:
        return batch
    ids, mask, *others = (
        None if x is None else x.flatten(0, -3 if place == 4 else -2)
        for place, x in enumerate(batch.inputs)
    )
    if mask is not None:
        # attention of a window of padding would be 0 / 0
        first = mask[:, :1] + (mask.ne(0).sum(dim=-1, keepdim=True) == 0).to(mask.dtype)
        mask = torch.cat([first, mask[:, 1:]], dim=1)
    batch.inputs = (ids, mask, *others)
    return batch


def list_windows(texts: Sequence[Sequence[Encoded]], device: torch.device) -> Windows:
    """Describe the windows of texts, text by text."""
    places = [place for place, windows in enumerate(texts) for _ in windows]
    tokens = [window.tokens for windows in texts for window in windows]
    return Windows(
        torch.tensor(places, device=device), len(texts), torch.tensor(tokens, device=device)
    )
