# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Attention within the sequences of a packed batch.

On the CPU, sequences of similar length are computed together, padded to the longest of their bucket
(with explicit matrix products where gradients are needed: torch has no fast kernel with dropout
there). On CUDA the variable-length kernels of torch need no padding.

Shapes: N sequences, of T tokens in all; M queries (T, or only the tokens whose state is read), H
heads, d size of a head, D = H d hidden size. A cell is one row of (T H, d) in a bucket, padding
included.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .cpu import draw

if TYPE_CHECKING:
    from .packing import MinBertSequences

# How much longer the longest sequence of a bucket may be: few products, little padding.
BUCKET_RATIO = 1.2
BUCKET_SLACK = 2
# With this many adjacent sequences per length on average, every length is a separate bucket.
RUN_SEQUENCES = 8
# With local attention, a sequence of more windows (to one side) than these is cut into blocks.
WHOLE_WINDOWS = 4
# Added to scores of keys beyond the window: finite, so that a padded query has no NaN.
LEAST = torch.finfo(torch.bfloat16).min


class Bucket(NamedTuple):
    """n sequences, or blocks of them, that are computed together."""

    queries: tuple[int, int]  # range of its query cells, n H Lq of them
    keys: tuple[int, int]  # range of its key and value cells, n H Lk of them
    heads: int  # n H
    # Minus infinity at padded keys, the least number beyond the window; (n or 1, 1, 1 or Lq, Lk).
    mask: Tensor | None
    places: Tensor | None = None  # of queries in their sequences, (n, Lq); None for 0 to Lq - 1

    def add_bias(self, bias: Tensor | None, sizes: tuple[int, int]) -> Tensor | None:
        """Return what is added to scores, (n or 1, H or 1, Lq or 1, Lk): a bias, and the mask."""
        if bias is None:
            return self.mask
        rows, columns = sizes
        if self.places is None:
            added = bias[:, :rows, :columns].unsqueeze(0)
        else:
            added = bias[:, self.places, :columns].transpose(0, 1)
        return added if self.mask is None else added + self.mask.to(added.dtype)


class Cells(NamedTuple):
    """Maps tokens to the cells of all buckets and back."""

    sources: Tensor  # for each cell a row of (T H, d), (C,); paddings repeat the last token
    # For each row of (T H, d) its cell, (T H,), and of keys in two blocks the other; C for none.
    targets: tuple[Tensor, ...]
    # C + 1 cells, of which the last is zero, are needed where a token is in no bucket

    def gather(self, values: Tensor) -> Tensor:
        """(T, D) -> (C, d)."""
        size = values.numel() // len(self.targets[0])
        return values.reshape(-1, size).index_select(0, self.sources)

    def spread(self, values: Tensor) -> Tensor:
        """(T, D) -> (C + 1, d), paddings zero."""
        size = values.numel() // len(self.targets[0])
        cells = values.new_zeros(len(self.sources) + 1, size)
        return cells.index_copy_(0, self.targets[0], values.reshape(-1, size))

    def collect(self, cells: Tensor, heads: int) -> Tensor:
        """(C, d) -> (T, D), the sum of both cells of a key that is in two blocks."""
        values = cells.index_select(0, self.targets[0])
        for targets in self.targets[1:]:
            values += cells.index_select(0, targets)
        return values.view(-1, heads * cells.shape[1])


class Plan(NamedTuple):
    """The buckets of a batch."""

    queries: Cells
    keys: Cells
    buckets: list[Bucket]


def plan_buckets(sequences: "MinBertSequences", heads: int, select: Tensor | None = None) -> Plan:
    """Group sequences of similar length into buckets; `select`, (M,), are the queries, sorted."""
    offsets = starts = sequences.offsets.long()
    if select is not None:
        starts = torch.searchsorted(select, offsets)
    groups = _group(offsets.diff().tolist(), starts.diff().nonzero().flatten().tolist())
    tokens = int(offsets[-1]) + sequences.extra
    keys, key_ranges, real = arrange(offsets.unfold(0, 2, 1), groups, heads, tokens)
    queries, query_ranges = keys, key_ranges
    places: list[Tensor | None] = [None] * len(groups)
    if select is not None:
        queries, query_ranges, _ = arrange(starts.unfold(0, 2, 1), groups, heads, len(select))
        if sequences.bias is not None:
            known = sequences.positions()[select]
            for number, cells in enumerate(query_ranges):
                rows = queries.sources[slice(*cells)] // heads
                places[number] = known[rows].view(len(groups[number]), heads, -1)[:, 0]
    buckets = [
        Bucket(q, k, len(group) * heads, mask_padding(is_real), place)
        for group, q, k, is_real, place in zip(
            groups, query_ranges, key_ranges, real, places, strict=True
        )
    ]
    return Plan(queries, keys, buckets)


def plan_blocks(sequences: "MinBertSequences", heads: int, window: int) -> Plan:
    """Group sequences, and the blocks of long ones, into buckets for local attention.

    A block has 2 * `window` queries and the keys in their reach, `window` more to both sides, so
    that no key is in more than two blocks.
    """
    blocks: list[tuple[int, int, int, int]] = []  # queries and their end, keys and their end
    for start, end in pairwise(sequences.offsets.tolist()):
        size = 2 * window if end - start > WHOLE_WINDOWS * window else end - start
        for first in range(start, end, size):
            last = min(first + size, end)
            blocks.append((first, last, max(start, first - window), min(end, last + window)))
    # those with keys to their left are apart, since their queries are elsewhere among the keys
    blocks.sort(key=lambda block: (block[0] - block[2], block[0] - block[1], block[2] - block[3]))
    groups: list[list[int]] = []
    for number, (first, last, low, _) in enumerate(blocks):
        if groups:
            longest = blocks[groups[-1][0]]
            is_similar = (last - first) * BUCKET_RATIO + BUCKET_SLACK >= longest[1] - longest[0]
            if is_similar and first - low == longest[0] - longest[2]:
                groups[-1].append(number)
                continue
        groups.append([number])
    spans = torch.tensor(blocks)
    tokens = int(sequences.offsets[-1]) + sequences.extra
    queries, query_ranges, _ = arrange(spans[:, :2], groups, heads, tokens)
    keys, key_ranges, real = arrange(spans[:, 2:], groups, heads, tokens, spans[:, :2])
    buckets = []
    for group, q, k, is_real in zip(groups, query_ranges, key_ranges, real, strict=True):
        rows = (q[1] - q[0]) // (len(group) * heads)
        columns = is_real.shape[1]
        places = torch.arange(rows) + int(spans[group[0], 0] - spans[group[0], 2])
        is_far = (torch.arange(columns) - places.unsqueeze(1)).abs() > window
        mask = mask_padding(is_real)
        if is_far.any():
            far = torch.zeros(1, 1, rows, columns).masked_fill_(is_far, LEAST)
            mask = far if mask is None else far + mask
        buckets.append(Bucket(q, k, len(group) * heads, mask))
    return Plan(queries, keys, buckets)


def mask_padding(is_real: Tensor) -> Tensor | None:
    """Return minus infinity at padded keys, (n, Lk) -> (n, 1, 1, Lk); None if there are none."""
    if is_real.all():
        return None
    return torch.zeros(is_real.shape).masked_fill_(~is_real, -torch.inf)[:, None, None]


def find_runs(lengths: Sequence[int], members: Sequence[int]) -> list[list[int]] | None:
    """List runs of adjacent sequences of equal length; None if most are too short."""
    runs: list[list[int]] = []
    for index in members:
        if runs and runs[-1][-1] == index - 1 and lengths[runs[-1][0]] == lengths[index]:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs if len(runs) * RUN_SEQUENCES <= len(members) or len(runs) == 1 else None


def _group(lengths: Sequence[int], members: list[int]) -> list[list[int]]:
    """Group sequences of similar length, or adjacent ones of equal length if there are many."""
    if (runs := find_runs(lengths, members)) is not None:
        return runs
    groups: list[list[int]] = []
    for index in sorted(members, key=lambda index: -lengths[index]):
        limit = lengths[groups[-1][0]] if groups else torch.inf
        if lengths[index] * BUCKET_RATIO + BUCKET_SLACK < limit:
            groups.append([index])
        else:
            groups[-1].append(index)
    return groups


def arrange(
    spans: Tensor, groups: list[list[int]], heads: int, tokens: int, inner: Tensor | None = None
) -> tuple[Cells, list[tuple[int, int]], list[Tensor]]:
    """Pad groups of spans, (S, 2): their cells, range of cells, and which tokens are real, (n, L).

    Of T `tokens`, some may be in no span; those beyond the `inner` spans, (S, 2), are in two.
    """
    cells, real, parts = [], [], []
    for group in groups:
        start, end = spans[group].unsqueeze(2).unbind(1)
        steps = start + torch.arange(int((end - start).max()))
        rows = torch.minimum(steps, end - 1)
        cells.append(rows[:, None, :] * heads + torch.arange(heads)[None, :, None])
        is_real = steps < end
        real.append(is_real)
        parts.append([is_real])
        if inner is not None:
            start, end = inner[group].unsqueeze(2).unbind(1)
            is_inner = (start <= steps) & (steps < end)
            parts[-1] = [is_inner, is_real & ~is_inner]
    sources = torch.cat([bucket.flatten() for bucket in cells])
    targets = []
    for part in zip(*parts, strict=True):
        filled = [x[:, None].expand(y.shape).flatten() for x, y in zip(part, cells, strict=True)]
        places = torch.cat(filled).nonzero().squeeze(1)
        target = torch.full((tokens * heads,), len(sources))
        target[sources[places]] = places
        targets.append(target)
    ranges = list(pairwise(accumulate((bucket.numel() for bucket in cells), initial=0)))
    return Cells(sources, tuple(targets)), ranges, real


class _BucketAttention(torch.autograd.Function):
    """Attention with dropout, which sets the sign bit of weights (Vaswani et al. 2017, 3.2.1)."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        plan: Plan,
        heads: int,
        dropout: float,
        bias: Tensor | None,
    ) -> Tensor:
        queries = plan.queries.gather(query)
        keys, values = plan.keys.gather(key), plan.keys.gather(value)
        size = queries.shape[1]
        context = _new_cells(queries)
        saved = [queries, keys, values]
        for bucket in plan.buckets:
            q, k, v, out = _blocks(bucket, queries, keys, values, context)
            scores = torch.baddbmm(q.new_zeros(()), q, k.mT, beta=0, alpha=size**-0.5)
            added = bucket.add_bias(bias, (q.shape[1], k.shape[1]))
            if added is not None:
                scores.unflatten(0, (-1, heads)).add_(added)
            probs = torch.softmax(scores, dim=-1)
            if dropout:
                lanes, threshold = draw(probs.shape, dropout)
                probs = probs.copysign_(lanes.to(probs.dtype).sub_(threshold))
            saved.append(probs)
            kept = probs.relu() if dropout else probs
            out.baddbmm_(kept, v, beta=0, alpha=_scale(dropout))
        ctx.save_for_backward(*saved)
        ctx.plan, ctx.heads, ctx.dropout = plan, heads, dropout
        learns_bias = bias is not None and ctx.needs_input_grad[6]
        ctx.bias_shape = bias.shape if bias is not None and learns_bias else None
        return plan.queries.collect(context, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, *saved = ctx.saved_tensors
        plan, scale = ctx.plan, _scale(ctx.dropout)
        grad = plan.queries.spread(grads[0])
        d_queries, d_keys, d_values = map(_new_cells, (queries, keys, values))
        d_bias = None if ctx.bias_shape is None else queries.new_zeros(ctx.bias_shape)
        for bucket, probs in zip(plan.buckets, saved, strict=True):
            q, k, v, g = _blocks(bucket, queries, keys, values, grad)
            dq, dk, dv, _ = _blocks(bucket, d_queries, d_keys, d_values, grad)
            d_probs, kept, weights = torch.bmm(g, v.mT), probs, probs
            if ctx.dropout:
                kept, weights = probs.relu(), probs.abs()
                d_probs = torch.ops.aten.threshold_backward(d_probs, kept, 0)
            dv.baddbmm_(kept.mT, g, beta=0, alpha=scale)
            d_scores = torch._softmax_backward_data(d_probs, weights, -1, weights.dtype)
            if d_bias is not None:
                rows = scale * d_scores.unflatten(0, (-1, ctx.heads)).transpose(0, 1)
                columns = d_bias[:, :, : k.shape[1]]
                if bucket.places is None:
                    columns[:, : q.shape[1]] += rows.sum(dim=1)
                else:
                    columns.index_add_(1, bucket.places.flatten(), rows.flatten(1, 2))
            inner = scale * q.shape[2] ** -0.5
            dq.baddbmm_(d_scores, k, beta=0, alpha=inner)
            dk.baddbmm_(d_scores.mT, q, beta=0, alpha=inner)
        gradients = (plan.keys.collect(cells, ctx.heads) for cells in (d_keys, d_values))
        return plan.queries.collect(d_queries, ctx.heads), *gradients, None, None, None, d_bias


def _new_cells(like: Tensor) -> Tensor:
    """Allocate cells, and a zero one for tokens in no bucket, (C, d) -> (C + 1, d)."""
    cells = like.new_empty(len(like) + 1, like.shape[1])
    cells[-1] = 0
    return cells


def _scale(dropout: float) -> float:
    """Return the factor on the weights that are kept."""
    return 1 / (1 - dropout) if dropout < 1 else 0.0


def _blocks(
    bucket: Bucket, queries: Tensor, keys: Tensor, values: Tensor, context: Tensor
) -> tuple[Tensor, ...]:
    """Return the cells of a bucket as views, (n H, Lq or Lk, d)."""
    shape = (bucket.heads, -1, queries.shape[1])
    q, k = slice(*bucket.queries), slice(*bucket.keys)
    views = ((queries, q), (keys, k), (values, k), (context, q))
    return tuple(states[cells].view(shape) for states, cells in views)


def _attend_runs(
    query: Tensor, key: Tensor, value: Tensor, sequences: "MinBertSequences", heads: int
) -> Tensor | None:
    """Attend without gradients; every run is a view of its tokens. None if most are too short."""
    if sequences.runs is None:
        starts = sequences.offsets.tolist()
        lengths = [end - start for start, end in pairwise(starts)]
        found = find_runs(lengths, range(len(lengths))) or []
        sequences.runs = [(starts[run[0]], starts[run[-1] + 1], len(run)) for run in found]
    if not sequences.runs:
        return None
    bias, contexts = sequences.bias, []
    for start, end, count in sequences.runs:
        shape = (count, -1, heads, query.shape[1] // heads)
        views = (states[start:end].view(shape) for states in (query, key, value))
        q, k, v = (x.transpose(1, 2) for x in views)
        size = q.shape[2]
        added = None if bias is None else bias[None, :, :size, :size].to(q.dtype)
        context = F.scaled_dot_product_attention(q, k, v, added)
        contexts.append(context.transpose(1, 2).reshape(end - start, -1))
    return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


def _attend_buckets(
    query: Tensor, key: Tensor, value: Tensor, plan: Plan, heads: int, bias: Tensor | None
) -> Tensor:
    """Attend without gradients."""
    queries = plan.queries.gather(query)
    keys, values = plan.keys.gather(key), plan.keys.gather(value)
    context = torch.empty_like(queries)
    for bucket in plan.buckets:
        q, k, v, out = (
            x.unflatten(0, (-1, heads)) for x in _blocks(bucket, queries, keys, values, context)
        )
        mask = bucket.add_bias(bias, (q.shape[2], k.shape[2]))
        mask = None if mask is None else mask.to(q.dtype)
        out.copy_(F.scaled_dot_product_attention(q, k, v, mask))
    return plan.queries.collect(context, heads)


def attend_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: "MinBertSequences",
    heads: int,
    select: Tensor | None,
    dropout: float,
    window: int | None,
) -> Tensor:
    """Attend within the sequences on the CPU; see `MinBertSequences.attend`."""
    bias = sequences.bias
    states = (query, key, value) if bias is None else (query, key, value, bias)
    wants_grad = torch.is_grad_enabled() and any(x.requires_grad for x in states)
    needs_cells = bool(dropout or wants_grad or sequences.extra)
    if select is None and window is None and not needs_cells:
        attended = _attend_runs(query, key, value, sequences, heads)
        if attended is not None:
            return attended
    plans = sequences.plans  # made once for all layers
    if select is not None:
        plan = plan_buckets(sequences, heads, select)  # for the last layer alone
    elif (heads, window) in plans:
        plan = plans[heads, window]
    elif window is None:
        plan = plans[heads, window] = plan_buckets(sequences, heads)
    else:
        plan = plans[heads, window] = plan_blocks(sequences, heads, window)
    if not needs_cells:
        return _attend_buckets(query, key, value, plan, heads, bias)
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):  # few CPUs compute in them
        query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        bias = None if bias is None else bias.to(query.dtype)
        context: Any = _BucketAttention.apply(query, key, value, plan, heads, dropout, bias)
    return context.to(dtype)


@cache
def has_flash_kernels(device: torch.device) -> bool:
    """Return whether a GPU has flash attention, which needs Ampere or newer."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def attend_cuda(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float,
    offsets: tuple[Tensor, Tensor, int, int],
    window: int | None,
) -> Tensor:
    """Attend with the variable-length kernels of torch, (M, H, d) and (T, H, d) -> (M, H, d)."""
    # The public function has no dropout; private ones have equal arguments in torch 2.11 to 2.13.
    if query.dtype == torch.float32 or not has_flash_kernels(query.device):
        batch = (states.unsqueeze(0) for states in (query, key, value))
        efficient = torch.ops.aten._efficient_attention_forward
        return efficient(*batch, None, *offsets, dropout, 0, True)[0].squeeze(0)
    if dropout:
        flash = torch.ops.aten._flash_attention_forward
        sides = {"window_size_left": window, "window_size_right": window}
        return flash(query, key, value, *offsets, dropout, False, False, **sides)[0]
    from torch.nn.attention.varlen import varlen_attn  # whose import registers operators

    side = -1 if window is None else window
    plain: Any = varlen_attn(query, key, value, *offsets, window_size=(side, side))
    return plain


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, Tensor]:
    """Attend (Vaswani et al. 2017, section 3.2.1): (B, H, L, d) -> (B, L, H, d), (B, H, L, L)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    probs = F.dropout(F.softmax(scores, dim=-1), p=dropout, training=module.training)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


def can_attend(config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether `attend` has a kernel for a configuration, dtype and device."""
    if config._attn_implementation != "sdpa":
        return False
    if device.type != "cuda":
        return device.type == "cpu"
    if config.relative_attention_num_buckets:
        return False  # the kernels take no bias
    head_size = config.hidden_size // config.num_attention_heads
    known = dtype in (torch.float16, torch.bfloat16, torch.float32)
    if config.local_attention:  # for which there are kernels of flash attention alone
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        known = known and dtype != torch.float32 and has_flash_kernels(device)
    return known and head_size % 8 == 0 and head_size <= 256


def join_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Add a bias, (1, H, L, L), to a mask of `create_bidirectional_mask`."""
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    return bias + mask


def find_distance_buckets(distances: Tensor) -> Tensor:
    """Number the buckets of distances between tokens: 16 to each side, wider from 8 to 128 on.

    Source: Raffel et al. 2020, T5, section 2.1; MPNet has the same 32.
    """
    sizes = distances.abs()
    wide = 8 + (torch.log(sizes.float() / 8) / math.log(128 / 8) * 8).long()
    return torch.where(sizes < 8, sizes, wide.clamp(max=15)) + 16 * (distances > 0)
