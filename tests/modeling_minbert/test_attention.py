"""Attention in packed sequences is that under a block-diagonal mask, at a flat cost per token."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertSequences

EXACT = {"atol": 1e-10, "rtol": 1e-10}


def sequences_of(lengths):
    """Return packed sequences of these lengths."""
    lengths = torch.as_tensor(lengths)
    offsets = F.pad(lengths.cumsum(0), (1, 0)).int()
    return MinBertSequences(offsets, int(lengths.max()), None, (1, int(lengths.sum())))


def draw_lengths(seed):
    """Draw 1 to 64 lengths of 1 to 300 tokens; some sorted, all equal, or in runs."""
    generator = torch.Generator().manual_seed(seed)
    count = (1, 7, 64, 23, 5, 40)[seed % 6]
    lengths = torch.randint(1, (4, 60, 20, 301)[seed % 4], (count,), generator=generator)
    if seed % 5 == 0:
        lengths = lengths.sort().values
    if seed % 7 == 0:
        lengths = lengths[:1].expand(count)
    if seed % 11 == 0:
        lengths = lengths.repeat_interleave(9)[:64]
    return lengths[: 2000 // int(lengths.max()) + 1]


def draw_queries(total, seed):
    """Draw few, some or most of the tokens, ascending; every second time some of them twice."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(total, generator=generator) < (0.02, 0.3, 0.9)[seed % 3]
    chosen[seed % total] = True
    select = chosen.nonzero().squeeze(1)
    return select if seed % 2 else torch.cat([select, select[:2], select[-1:]]).sort().values


def reference(query, key, value, lengths, heads, select=None):
    """Attend under a block-diagonal mask by the kernel of torch."""
    segments = torch.arange(len(lengths)).repeat_interleave(lengths)
    of_queries = segments if select is None else segments[select]
    query, key, value = (x.unflatten(1, (heads, -1)).transpose(0, 1) for x in (query, key, value))
    mask = of_queries[:, None] == segments
    return F.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("chosen", [False, True], ids=["all", "some"])
@pytest.mark.parametrize("seed", range(24))
def test_attention_and_gradients_equal_those_under_a_block_diagonal_mask(seed, chosen):
    lengths, heads, size = draw_lengths(seed), 1 + seed % 3, 1 + 2 * (seed % 4)
    total = int(lengths.sum())
    select = draw_queries(total, seed) if chosen else None
    generator = torch.Generator().manual_seed(seed)
    rows = (total if select is None else len(select), total, total)
    states = [
        torch.randn(n, heads * size, generator=generator, dtype=torch.float64, requires_grad=True)
        for n in rows
    ]
    upstream = torch.randn(rows[0], heads * size, generator=generator, dtype=torch.float64)

    actual = sequences_of(lengths).attend(*states, heads, select=select)
    with torch.no_grad():
        without_gradient = sequences_of(lengths).attend(*states, heads, select=select)

    expected = reference(*states, lengths, heads, select)
    assert_close(actual, expected, **EXACT)
    assert_close(without_gradient, expected, **EXACT)
    gradients = torch.autograd.grad(actual, states, upstream)
    assert_close(gradients, torch.autograd.grad(expected, states, upstream), **EXACT)


@pytest.mark.parametrize("chosen", [False, True], ids=["all", "some"])
def test_gradients_match_the_computed_dropout(chosen):
    sequences = sequences_of([2, 3, 1])
    select = torch.tensor([0, 3, 4]) if chosen else None
    generator = torch.Generator().manual_seed(0)
    states = [
        torch.randn(n, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        for n in (3 if chosen else 6, 6, 6)
    ]

    def compute(*given):
        torch.manual_seed(3)
        return sequences.attend(*given, 2, select=select, dropout=0.4)

    assert not torch.allclose(compute(*states), sequences.attend(*states, 2, select=select))
    assert torch.autograd.gradcheck(compute, states)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_zeroes_weights_and_scales_the_rest(rate):
    """The values are one-hot, so that the context is the weights themselves."""
    lengths, size = torch.tensor([64, 50, 64]), 64
    total = int(lengths.sum())
    columns = torch.cat([torch.arange(int(length)) for length in lengths])
    query = torch.zeros(total, size, requires_grad=True)
    torch.manual_seed(0)

    weights = sequences_of(lengths).attend(query, query, torch.eye(size)[columns], 1, dropout=rate)

    own = lengths.repeat_interleave(lengths)
    inside = torch.arange(size) < own[:, None]
    kept = weights[inside] != 0
    assert not weights[~inside].any()
    sigma = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(1 - kept.float().mean() - rate) < 4 * sigma
    expected = (1 / own[:, None] / (1 - rate)).expand_as(inside)[inside][kept]
    assert_close(weights[inside][kept], expected)
