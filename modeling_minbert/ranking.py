# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Losses that compare the rows of a batch, and which of their texts are equal."""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from .heads import TaskBatch
from .inference import Windows
from .packing import MinBertSequences

# The increment and the factors of splitmix64, as signed numbers (Steele et al. 2014).
GAMMA, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def multiple_negatives_ranking(
    anchors: Tensor,
    candidates: Tensor,
    *,
    scale: float,
    is_anchor: Tensor | None = None,
    is_candidate: Tensor | None = None,
    keys: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute the cross-entropy of choosing each anchor's positive among all candidates, by cosine.

    Anchors are (B, D); candidates, (C, D), begin with their positives; the masks tell which count.
    With hashes as `keys`, (B,) and (C,), texts equal to an anchor or a positive of it are kept out.
    Source: Henderson et al. 2017; van den Oord et al. 2018.
    """
    if is_anchor is None:
        is_anchor = anchors.new_ones(len(anchors), dtype=torch.bool)
    if is_candidate is None:
        is_candidate = candidates.new_ones(len(candidates), dtype=torch.bool)
    with torch.autocast(anchors.device.type, enabled=False):
        # half precision would distinguish few cosines
        anchors, candidates = (F.normalize(x.float(), dim=-1) for x in (anchors, candidates))
        scores = scale * anchors @ candidates.T
    ignored = ~is_candidate.expand(scores.shape)
    if keys is not None:
        ignored = ignored | _related(*keys, is_anchor)
    target = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    rest = scores.masked_fill(ignored & ~target, -torch.inf)
    losses = rest.logsumexp(dim=1) - scores.diagonal()
    return losses.where(is_anchor, 0).sum() / is_anchor.sum().clamp(min=1)


def _related(anchors: Tensor, candidates: Tensor, is_anchor: Tensor) -> Tensor:
    """Return which candidates equal an anchor, its positive, or an equal anchor's one, (B, C)."""
    positives = candidates[: len(anchors)]
    equal = (candidates == anchors[:, None]) | (candidates == positives[:, None])
    shared = (anchors == anchors[:, None]) & is_anchor
    count = shared.float() @ (candidates == positives[:, None]).float()
    return equal | (count > 0)


def count_processes() -> int:
    """Return the number of processes that train together."""
    is_parallel = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_parallel else 1


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the number of rows is dynamic
def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate rows, (B, ...), of all processes; only the own ones keep their gradient."""
    own = rows.new_tensor([len(rows)], dtype=torch.int64)
    sizes = [torch.zeros_like(own) for _ in range(count_processes())]
    distributed.all_gather(sizes, own)
    counts = [int(size) for size in sizes]
    filled = rows.new_zeros(max(counts), *rows.shape[1:])
    filled[: len(rows)] = rows.detach()
    parts = [torch.empty_like(filled) for _ in counts]
    distributed.all_gather(parts, filled)
    parts = [part[:count] for part, count in zip(parts, counts, strict=True)]
    parts[distributed.get_rank()] = rows
    return torch.cat(parts)


def cosent(cosines: Tensor, labels: Tensor, *, scale: float) -> Tensor:
    """Compute `log(1 + sum exp(scale * (s_j - s_i)))` over all i, j with `y_i > y_j`.

    Cosines and labels, -100 for none, are (B,). Source: Su 2022, https://kexue.fm/archives/8847
    """
    scores = scale * cosines.float()
    real = labels != -100
    higher = (labels[:, None] > labels) & real[:, None] & real
    differences = (scores - scores[:, None]).masked_fill(~higher, -torch.inf)
    return F.pad(differences.flatten(), (1, 0)).logsumexp(dim=0)


def list_candidates(values: Tensor) -> Tensor:
    """List the second sequences of all rows, then the third ones, (B, S, ...) -> (C, ...)."""
    others = values[:, 1:] if values.shape[1] > 1 else values  # a single one is its own candidate
    return others.transpose(0, 1).flatten(0, 1)


def compute_together(function: Any, head: Any, inputs: Any) -> Tensor:
    """Compute a loss of the rows of all processes; the gradients of the own ones count."""
    processes = count_processes()
    if processes == 1:
        return function(head, inputs)
    gathered = type(inputs)(*(None if x is None else gather_rows(x) for x in inputs))
    loss = function(head, gathered)
    # each process has the gradient of its own rows, and gradients are averaged
    return loss.detach() + processes * (loss - loss.detach())


def sequence_keys(ids: Tensor, mask: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Hash the ids of sequences, (N, L) or packed (1, T) with `offsets`, to 64 bits, (N,)."""
    if offsets is not None:
        sequences = MinBertSequences(offsets.int(), 0, None, (1, ids.shape[1]))
        values = _scramble(ids[0], sequences.positions())
        # sums of integers wrap around and stay exact, and so do their differences
        return F.pad(values.cumsum(0), (1, 0))[offsets.long()].diff()
    real = torch.ones_like(ids) if mask is None else mask.ne(0).long()
    return (_scramble(ids, real.cumsum(1) - 1) * real).sum(dim=1)


def _scramble(ids: Tensor, positions: Tensor) -> Tensor:
    """Hash each token with its position to 64 bits: the finalizer of splitmix64."""
    bits = ((ids.long() << 24) + positions + 1) * GAMMA
    for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
        # the shift of a signed number repeats the sign
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return bits


def text_keys(batch: TaskBatch, windows: Windows | None) -> Tensor | None:
    """Hash the texts of a batch, (B, S), by the sums over their windows; None without ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    keys = sequence_keys(ids, mask, batch.offsets)
    if windows is not None:
        keys = keys.new_zeros(windows.num_texts).index_add(0, windows.texts, keys)
    return keys.unflatten(0, (-1, batch.num_sequences or 1))
