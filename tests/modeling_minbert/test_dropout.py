"""Dropout by masks of 16 bits has the statistics, the gradient and the repeatability of dropout."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from modeling_minbert.cpu import MinBertDropout

RATES = [0.05, 0.1, 0.3, 0.5, 0.9]
SIZE = 1_000_003  # no multiple of the four lanes


@pytest.mark.parametrize("rate", RATES)
def test_fraction_and_scale_follow_the_rate(rate):
    torch.manual_seed(0)

    dropped = MinBertDropout(rate)(torch.ones(SIZE))

    zero = (dropped == 0).float().mean()
    assert abs(zero - rate) < 4 * (rate * (1 - rate) / SIZE) ** 0.5
    assert_close(dropped[dropped != 0].unique(), torch.tensor([1 / (1 - rate)]))


def test_a_seed_repeats_the_mask_and_a_second_call_does_not():
    drop = MinBertDropout(0.5)

    torch.manual_seed(5)
    first, second = drop(torch.ones(1000)), drop(torch.ones(1000))
    torch.manual_seed(5)

    assert torch.equal(drop(torch.ones(1000)), first)
    assert torch.equal(drop(torch.ones(1000)), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", RATES)
def test_first_and_second_gradients_are_right(rate):
    """Those of the mask of the way there."""
    drop = MinBertDropout(rate)
    values = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def compute(given):
        torch.manual_seed(7)
        return drop(given**3)

    assert torch.autograd.gradcheck(compute, (values,))
    assert torch.autograd.gradgradcheck(compute, (values,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's tracer
def test_traced_dropout_is_torch_s():
    drop = MinBertDropout(0.5)
    compiled = torch.compile(drop, backend="eager", fullgraph=True)
    traced = torch.jit.trace(drop, torch.ones(8), check_trace=False)

    for compute, reference in ((compiled, drop), (traced, drop)):
        torch.manual_seed(0)
        actual = compute(torch.ones(1000))
        torch.manual_seed(0)
        assert torch.equal(actual, nn.functional.dropout(torch.ones(1000), 0.5))
        assert not torch.equal(actual, reference(torch.ones(1000)))
    assert "dropout" in str(traced.graph)
