# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Long texts as windows: N windows of B rows with S texts each, P = B * S texts; D hidden size.

Every window is a sequence of its own, whose positions start anew. The vectors of the windows of a
text are pooled to its vector, as in the hierarchical methods of Sun et al. 2019, How to Fine-Tune
BERT for Text Classification?, section 5.3.1.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .cpu_minbert import is_followed
from .head_minbert import TaskBatch, ids_of, sequence_keys

WindowPooling = Literal["mean", "max", "attention"]
OVERLAP, MOST_WINDOWS = 64, 16


class Windows(NamedTuple):
    """The windows of a batch; what belongs to no text has the text P."""

    texts: Tensor  # the text of each window, ascending but for windows of padding, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor, pooling: str, scores: Tensor | None = None) -> Tensor:
        """Pool the vectors of windows, (N, D) -> (P, D).

        `max` is the maximum of each element. Otherwise a window weighs as its number of tokens
        times `exp(score)`, with `scores` of (N,), or 0: without scores this is the mean. The vector
        of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        texts = vectors.new_zeros(self.num_texts + 1, vectors.shape[1], dtype=dtype)
        if pooling == "max":
            index = self.texts.unsqueeze(1).expand_as(vectors)
            pooled = texts.scatter_reduce(0, index, vectors.to(dtype), "amax", include_self=False)
        else:
            weights = self._weigh(scores, dtype).unsqueeze(1)
            pooled = texts.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled[: self.num_texts].to(vectors.dtype)

    def _weigh(self, scores: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the share of each window in its text, (N,)."""
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts + 1)
        if scores is not None:
            scores = scores.to(dtype)
            largest = sums.scatter_reduce(
                0, self.texts, scores.detach(), "amax", include_self=False
            )
            weights = weights * (scores - largest[self.texts]).exp()
        return weights / sums.index_add(0, self.texts, weights)[self.texts]


class MinBertWindowPooling(nn.Module):
    """Pools the windows of a text; `attention` learns which ones count.

    A window weighs as its number of tokens times the exponential of a linear score of its vector. A
    new score is 0, so that `attention` starts as `mean`.
    """

    def __init__(self, hidden_size: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.weight = nn.Parameter(torch.zeros(hidden_size)) if pooling == "attention" else None

    def forward(self, vectors: Tensor, windows: Windows) -> Tensor:
        """Pool the vectors of windows, (N, D) -> (P, D)."""
        scores = None
        if self.weight is not None:
            dtype = torch.promote_types(vectors.dtype, torch.float32)
            # not a matrix product, which mixed precision would compute in half precision
            scores = (vectors.to(dtype) * self.weight.to(dtype)).sum(dim=-1)
        return windows.pool(vectors, self.pooling, scores)


def find_windows(batch: TaskBatch) -> Windows:
    """Find the text of each window of a batch whose rows are windows, before it is arranged.

    Raises:
        ValueError: If `num_windows` does not fit the batch.
    """
    return _find_padded(batch) if batch.offsets is None else _find_packed(batch, batch.offsets)


def _find_packed(batch: TaskBatch, offsets: Tensor) -> Windows:
    tokens, given = offsets.diff(), batch.num_windows
    total = len(tokens)
    if given is None:  # each text is one window
        return Windows(torch.arange(total, device=offsets.device), total, tokens)
    counts = given.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {batch.name!r}: num_windows adds up to {int(counts.sum())} windows, but the "
            f"batch has {total} sequences"
        )
    texts = torch.arange(len(counts), device=counts.device)
    return Windows(texts.repeat_interleave(counts, output_size=total), len(counts), tokens)


def _find_padded(batch: TaskBatch) -> Windows:
    ids, mask = ids_of(batch.inputs), batch.inputs[1]
    if ids is None:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    shape = ids.shape[:-1]
    whole = torch.full(shape, ids.shape[-1], device=ids.device)
    tokens = whole if mask is None else mask.ne(0).sum(dim=-1)
    has_windows = len(shape) > (1 if batch.num_sequences is None else 2)
    if batch.num_windows is not None and not has_windows:
        raise ValueError(
            f"task {batch.name!r}: num_windows counts windows on an axis of their own, but the "
            f"input has the shape {tuple(ids.shape)}"
        )
    most = shape[-1] if has_windows else 1
    count = shape.numel() // most
    texts = torch.arange(count, device=ids.device).unsqueeze(1).expand(count, most)
    if batch.num_windows is not None:
        places = torch.arange(most, device=ids.device)
        texts = texts.masked_fill(places >= batch.num_windows.reshape(-1, 1), count)
    elif has_windows:
        texts = texts.masked_fill(tokens.view(count, most) == 0, count)
    return Windows(texts.flatten(), count, tokens.flatten().clamp(min=1))


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


def check_windows(batch: TaskBatch, *, has_windows: bool) -> bool:
    """Return whether a padded batch has an axis of windows, (B, W, L) or (B, S, W, L).

    Raises:
        ValueError: If there are windows, but the texts of the task have none.
    """
    if not has_windows:
        if batch.num_windows is not None:
            raise ValueError(
                f"task {batch.name!r} does not split texts into windows: leave num_windows out"
            )
        return False
    ids = ids_of(batch.inputs)
    return ids is not None and ids.dim() == (3 if batch.num_sequences is None else 4)


def text_keys_of_windows(batch: TaskBatch, windows: Windows) -> Tensor | None:
    """Hash the texts of a batch, (B, S), by the sums over their windows; None without ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    keys = sequence_keys(ids, mask, batch.offsets)
    sums = keys.new_zeros(windows.num_texts + 1).index_add(0, windows.texts, keys)
    return sums[:-1].unflatten(0, (-1, batch.num_sequences or 1))


def window_defaults(max_length: int | None) -> dict[str, Any]:
    """Return the window keys of a task that leaves them out."""
    overlap = OVERLAP if max_length is None else min(OVERLAP, max_length // 4)
    return {"window_overlap": overlap, "max_windows": MOST_WINDOWS, "window_pooling": "mean"}


def choose_windows(count: int, most: int | None) -> list[int]:
    """Choose at most `most` of the windows of a text, evenly spread, with the first and last."""
    if most is None or count <= most:
        return list(range(count))
    return [place * (count - 1) // max(1, most - 1) for place in range(most)]


def check_overlap(overlap: int, max_length: int) -> None:
    """Check that a token is in at most two windows."""
    if not 0 <= overlap <= max_length // 2:
        raise ValueError(
            f"window_overlap={overlap} must be from 0 to half of max_length={max_length}"
        )
