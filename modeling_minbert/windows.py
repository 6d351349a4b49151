# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Texts that are split into windows, whose vectors are averaged: N windows of P texts."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .cpu import is_followed
from .texts import Encoded


class Windows(NamedTuple):
    """The windows of a batch."""

    texts: Tensor  # the text of each window, ascending, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor) -> Tensor:
        """Average the vectors of windows, weighted by their tokens, (N, D) -> (P, D).

        The vector of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts).index_add(0, self.texts, weights)
        weights = (weights / sums[self.texts]).unsqueeze(1)
        pooled = vectors.new_zeros(self.num_texts, vectors.shape[1], dtype=dtype)
        pooled = pooled.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled.to(vectors.dtype)


def find_windows(counts: Tensor | None, tokens: Tensor, task: str) -> Windows:
    """Find the text of each window from the windows of the texts; None if each has one.

    Args:
        counts: Windows of each text, (B,) or (B, 2).
        tokens: Tokens of each window, (N,).
        task: Name of the task.

    Raises:
        ValueError: If the counts do not add up to the windows.
    """
    total, device = len(tokens), tokens.device
    if counts is None:
        return Windows(torch.arange(total, device=device), total, tokens)
    counts = counts.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {task!r}: num_windows adds up to {int(counts.sum())} windows, but the batch has "
            f"{total} sequences"
        )
    texts = torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=total)
    return Windows(texts, len(counts), tokens)


def list_windows(texts: Sequence[Sequence[Encoded]], device: torch.device) -> Windows:
    """Describe the windows of texts, text by text."""
    counts = torch.tensor([len(windows) for windows in texts], device=device)
    tokens = [window.tokens for windows in texts for window in windows]
    return find_windows(counts, torch.tensor(tokens, device=device), "")
