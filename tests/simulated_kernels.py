"""The attention kernels of CUDA, computed by a loop over the sequences, without dropout."""

from itertools import pairwise

import torch
from torch.nn.attention import varlen  # noqa: F401  (registers its operations)


def _attend(states, *starts, window=None):
    """Attend within each sequence, (M, H, d) and (T, H, d) twice -> (M, H, d)."""
    parts = [
        torch.einsum("hqk,khd->qhd", weights, value)
        for _, _, value, weights in _sequences(states, *starts, window=window)
    ]
    return torch.cat(parts).to(states[0].dtype)


def _attend_backward(grad, states, *starts, window=None):
    """Return the gradients of ``_attend`` for queries, keys and values."""
    parts = []
    grads = (grad[slice(*rows)].double() for rows in pairwise(starts[0].tolist()))
    for g, (q, k, v, weights) in zip(
        grads, _sequences(states, *starts, window=window), strict=True
    ):
        of_weights = torch.einsum("qhd,khd->hqk", g, v)
        inner = (weights * of_weights).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - inner) * q.shape[-1] ** -0.5
        dq = torch.einsum("hqk,khd->qhd", of_scores, k)
        dk = torch.einsum("hqk,qhd->khd", of_scores, q)
        parts.append((dq, dk, torch.einsum("hqk,qhd->khd", weights, g)))
    return tuple(torch.cat(each).to(grad.dtype) for each in zip(*parts, strict=True))


def _sequences(states, *starts, window=None):
    """Give queries, keys, values and weights of each sequence, in float64.

    With a window, the last query is beside the last key, as in the kernels.
    """
    bounds = (pairwise(each.tolist()) for each in starts)
    for rows, keys in zip(*bounds, strict=True):
        q, k, v = (
            each[slice(*part)].double()
            for each, part in zip(states, (rows, keys, keys), strict=True)
        )
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        if window is not None and window >= 0:
            places = torch.arange(len(q))[:, None] + len(k) - len(q)
            is_far = (torch.arange(len(k)) - places).abs() > window
            scores = scores.masked_fill(is_far, -torch.inf)
        yield q, k, v, scores.softmax(-1)


def _check_call(query, key, starts, key_starts, *most):
    """Check what the kernels trust and do not check."""
    for tokens, offsets, longest in zip((query, key), (starts, key_starts), most, strict=True):
        lengths = offsets.diff()
        assert offsets.dtype == torch.int32
        assert offsets[0] == 0
        assert offsets[-1] == len(tokens)
        assert (lengths >= 0).all()
        assert lengths.max() <= longest


def _flash(query, key, value, starts, key_starts, *rest, window_size_left=None, **_):
    """Compute ``_flash_attention_forward``, without dropout."""
    assert query.dtype in (torch.float16, torch.bfloat16)
    _check_call(query, key, starts, key_starts, *rest[:2])
    sums = torch.zeros(query.shape[1], len(query))
    state = torch.zeros(2, dtype=torch.uint64)
    context = _attend((query, key, value), starts, key_starts, window=window_size_left)
    return context, sums, state, torch.zeros((), dtype=torch.uint64), query.new_empty(0)


def _flash_backward(grad, q, k, v, _out, _sums, *rest, window_size_left=None, **_):
    return _attend_backward(grad, (q, k, v), *rest[:2], window=window_size_left)


def _varlen(query, key, value, *rest, **_):
    # `window_size` follows the offsets, the longest lengths, `is_causal` and `scale`
    window = rest[6][0] if len(rest) > 6 and rest[6] else None
    return _flash(query, key, value, *rest[:4], window_size_left=window)[:3]


def _varlen_backward(grad, q, k, v, _out, _sums, *rest, **_):
    window = rest[7][0] if len(rest) > 7 and rest[7] else None
    return _attend_backward(grad, (q, k, v), *rest[:2], window=window)


def _efficient(query, key, value, _bias, *rest, **_):
    """Compute ``_efficient_attention_forward``, without dropout."""
    starts, key_starts, most, most_keys = rest[:4]
    q, k, v = query[0], key[0], value[0]
    _check_call(q, k, starts, key_starts, most, most_keys)
    sums = torch.zeros(len(starts) - 1, q.shape[1], -(-most // 32) * 32)
    seed = torch.zeros((), dtype=torch.int64)
    context = _attend((q, k, v), starts, key_starts)[None]
    return context, sums, seed, seed.clone(), most, most_keys


def _efficient_backward(grad, q, k, v, _bias, _out, *rest, **_):
    grads = _attend_backward(grad[0], (q[0], k[0], v[0]), *rest[:2])
    return *(each[None] for each in grads), None


KERNELS = {
    torch.ops.aten._efficient_attention_forward.default: _efficient,
    torch.ops.aten._efficient_attention_backward.default: _efficient_backward,
    torch.ops.aten._flash_attention_forward.default: _flash,
    torch.ops.aten._flash_attention_backward.default: _flash_backward,
    torch.ops.torch_attn._varlen_attn.default: _varlen,
    torch.ops.torch_attn._varlen_attn_backward.default: _varlen_backward,
}
