# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Dropout whose masks are cheap on the CPU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .tracing_minbert import is_followed

# Lanes of 16 bits: four masks from one random number, and p exact to 1 / 65536.
LANES = 4
VALUES = 2**16


def draw(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Draw what dropout keeps, from torch's default generator of the CPU.

    `torch.bernoulli` draws one number after the other on one core; here an integer gives four.

    Args:
        shape: Of what is dropped.
        p: Probability of dropping, rounded to 1 / 65536.

    Returns:
        Integers, int16, and a threshold between two of them: what is above it is kept.
    """
    count = shape.numel()
    words = torch.empty(-(-count // LANES), dtype=torch.int64)
    lanes = words.random_(-(2**63), None).view(torch.int16)[:count]
    return lanes.view(shape), round(p * VALUES) - VALUES // 2 - 0.5


class _Dropout(torch.autograd.Function):
    """Dropout that keeps one byte per value for the way back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float) -> Tensor:
        lanes, threshold = draw(values.shape, p)
        keep = lanes > threshold
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - p)
        return _factors(keep, ctx.scale, values.dtype).mul_(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grads[0] * _factors(keep, ctx.scale, grads[0].dtype), None


def _factors(keep: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Make numbers of a mask; from bytes that is four times faster than from booleans."""
    return keep.view(torch.int8).to(dtype).mul_(scale)


class MinBertDropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), with cheap masks in training on the CPU."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - its name in torch
        """Zero values with probability `p` in training, and scale the rest by 1 / (1 - p)."""
        cheap = self.training and 0 < self.p < 1 and input.device.type == "cpu"
        if not cheap or is_followed(input):
            return F.dropout(input, self.p, self.training)
        dropped: Any = _Dropout.apply(input, self.p)
        return dropped
