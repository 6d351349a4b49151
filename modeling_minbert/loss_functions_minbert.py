# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Losses that compare the rows of a batch with each other, and divergences of two predictions.

Shapes: B rows, C candidates, D size of a vector, K logits, N sequences, L columns or T tokens.
"""

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

# The increment and the factors of splitmix64, as signed numbers (Steele et al. 2014).
GAMMA, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def sequence_keys(ids: Tensor, mask: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Make one number of the ids of each sequence; equal sequences have equal numbers.

    Two different ones have equal numbers with a probability of about 2 ** -64.

    Args:
        ids: Word-piece ids, (N, L), or (1, T) of a packed batch.
        mask: 1 for real tokens, (N, L); None if all are real, and for a packed batch.
        offsets: Where each sequence of a packed batch begins, and T, (N + 1,); None if it
            is padded.

    Returns:
        (N,), int64; the same for a padded batch and for a packed one.
    """
    if offsets is not None:
        tokens = torch.arange(ids.shape[1], device=ids.device)
        starts = offsets[:-1].long()
        segments = torch.searchsorted(
            offsets[1:].contiguous(), tokens.to(offsets.dtype), right=True
        )
        values = _scramble(ids[0], tokens - starts[segments])
        # sums of integers wrap around and stay exact, so their differences are, too
        return F.pad(values.cumsum(0), (1, 0))[offsets.long()].diff()
    real = torch.ones_like(ids) if mask is None else mask.ne(0).long()
    return (_scramble(ids, real.cumsum(1) - 1) * real).sum(dim=1)


def _scramble(ids: Tensor, positions: Tensor) -> Tensor:
    """Make 64 random-looking bits of each token and its position: the finalizer of splitmix64."""
    bits = ((ids.long() << 24) + positions + 1) * GAMMA
    for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
        # the shift of a signed number repeats the sign
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return bits


def multiple_negatives_ranking(
    anchors: Tensor,
    candidates: Tensor,
    *,
    scale: float,
    symmetric: bool = False,
    is_anchor: Tensor | None = None,
    is_candidate: Tensor | None = None,
    keys: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Let every anchor find its positive among all candidates of the batch.

    The mean over the anchors of `-log(exp(s_ii) / sum_j exp(s_ij))`, s the scaled cosine; 0 if
    there is no anchor.

    Args:
        anchors: (B, D).
        candidates: The positive of each anchor, in their order, then further negatives, (C, D).
        scale: Factor on the cosines, 1 / temperature.
        symmetric: Whether the loss is the mean of this and of the other direction: the positive
            finds its anchor among the anchors, with no further negatives.
        is_anchor: Which rows are anchors with a positive, (B,), bool; None for all.
        is_candidate: Which candidates count, (C,), bool; None for all.
        keys: A number for the text of each anchor, (B,), and of each candidate, (C,): a candidate
            with the text of the anchor, or of a positive of it in any row, is no negative. None
            for all different.

    Source: Henderson et al. 2017; van den Oord et al. 2018, section 2.3.
    """
    count = len(anchors)
    is_anchor = anchors.new_ones(count, dtype=torch.bool) if is_anchor is None else is_anchor
    if is_candidate is None:
        is_candidate = candidates.new_ones(len(candidates), dtype=torch.bool)
    with torch.autocast(anchors.device.type, enabled=False):
        # half precision would tell few cosines apart
        anchors, candidates = (F.normalize(x.float(), dim=-1) for x in (anchors, candidates))
        scores = scale * anchors @ candidates.T
    ignored, ignored_back = ~is_candidate.expand(scores.shape), ~is_anchor.expand(count, count)
    if keys is not None:
        own, others = keys
        positives = others[:count]
        ignored = ignored | _related(own, positives, others, is_anchor)
        ignored_back = ignored_back | _related(positives, own, own, is_anchor)
    losses = _rank(scores, ignored)
    if symmetric:
        losses = (losses + _rank(scores[:, :count].T, ignored_back)) / 2
    return losses.where(is_anchor, 0).sum() / is_anchor.sum().clamp(min=1)


def _related(queries: Tensor, targets: Tensor, candidates: Tensor, is_anchor: Tensor) -> Tensor:
    """Find the candidates that are no negatives of a query, (B, C), by the numbers of texts.

    They are equal to it, or to its target, or to that of another query that is equal to it.
    """
    equal = (candidates == queries[:, None]) | (candidates == targets[:, None])
    shared = (queries == queries[:, None]) & is_anchor
    found = shared.float() @ (candidates == targets[:, None]).float()
    return equal | (found > 0)


def count_processes() -> int:
    """Count the processes that train together; 1 for one that is alone."""
    together = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if together else 1


@torch.compiler.disable  # type: ignore[untyped-decorator]  # how many rows is known only then
def gather_rows(rows: Tensor) -> Tensor:
    """Put the rows of all processes one after the other, (B, ...) -> (sum of all B, ...).

    Those of this process keep their gradient. Numbers of rows may differ.
    """
    own = rows.new_tensor([len(rows)], dtype=torch.int64)
    found = [torch.zeros_like(own) for _ in range(count_processes())]
    distributed.all_gather(found, own)
    counts = [int(count) for count in found]
    filled = rows.new_zeros(max(counts), *rows.shape[1:])
    filled[: len(rows)] = rows.detach()
    parts = [torch.empty_like(filled) for _ in counts]
    distributed.all_gather(parts, filled)
    parts = [part[:count] for part, count in zip(parts, counts, strict=True)]
    parts[distributed.get_rank()] = rows
    return torch.cat(parts)


def _rank(scores: Tensor, ignored: Tensor) -> Tensor:
    """Compute the cross-entropy of each query, whose target has its own number, (B, C) -> (B,)."""
    target = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    rest = scores.masked_fill(ignored & ~target, -torch.inf)
    return rest.logsumexp(dim=1) - scores.diagonal()


def cosent(cosines: Tensor, labels: Tensor, *, scale: float) -> Tensor:
    """Let pairs with a higher label have a higher cosine.

    `log(1 + sum exp(scale * (s_j - s_i)))` over all i, j with `y_i > y_j`; 0 if all labels are
    equal.

    Args:
        cosines: (B,).
        labels: (B,); -100 for a row that does not count.
        scale: Factor on the cosines.

    Source: Su 2022, https://kexue.fm/archives/8847
    """
    scores = scale * cosines.float()
    real = labels != -100
    higher = (labels[:, None] > labels) & real[:, None] & real
    differences = (scores - scores[:, None]).masked_fill(~higher, -torch.inf)
    return F.pad(differences.flatten(), (1, 0)).logsumexp(dim=0)


def symmetric_kl(logits: Tensor, other: Tensor) -> Tensor:
    """Compute `KL(P || Q) + KL(Q || P)` of each row of logits, (B, K) -> (B,).

    A single logit is that of a probability, against its complement.
    """
    logits, other = logits.float(), other.float()
    if logits.shape[-1] == 1:
        return ((logits.sigmoid() - other.sigmoid()) * (logits - other)).squeeze(-1)
    p, q = logits.log_softmax(dim=-1), other.log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1)


__all__ = [
    "cosent",
    "count_processes",
    "gather_rows",
    "multiple_negatives_ranking",
    "sequence_keys",
    "symmetric_kl",
]
