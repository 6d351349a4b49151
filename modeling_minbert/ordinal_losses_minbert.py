# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Probabilities of K ordered classes: from conditional logits, or from a score and thresholds.

Shapes: B rows, K classes. All results are logarithms in float32, finite for finite inputs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

# So that neighboring thresholds never meet, and every class has a probability above 0.
SMALLEST_GAP = 1e-6


def conditional_log_probabilities(logits: Tensor) -> Tensor:
    """Chain the conditional probabilities `P(y > k | y > k - 1)` of CORN.

    Logits are (B, K - 1), the result is log P(y = k), (B, K). Source: Shi, Cao and Raschka 2021,
    arXiv:2111.08851.
    """
    logits = logits.float()
    # log sigmoid(x) = -softplus(-x)
    missed = F.pad(F.softplus(-logits).cumsum(dim=-1), (1, 0))  # -log P(y > k - 1)
    return -missed - F.pad(F.softplus(logits), (0, 1))  # nothing follows the last class


def cumulative_log_probabilities(scores: Tensor, bias: Tensor) -> Tensor:
    """Split a scale at thresholds t: `P(y <= k) = sigmoid(t_k - score)`.

    Scores are (B, 1), and the thresholds are those of `order_thresholds`; the result is log P(y =
    k), (B, K). Source: McCullagh 1980.
    """
    first, gaps = order_thresholds(bias)
    thresholds = torch.cat([first, first + gaps.cumsum(dim=0)])
    above = scores.float() - thresholds  # logits of P(y > k)
    # sigmoid(a) - sigmoid(b) = sigmoid(a) * sigmoid(-b) * (1 - exp(b - a))
    between = F.pad((-torch.expm1(-gaps)).log(), (1, 1))
    return between - F.pad(F.softplus(-above), (1, 0)) - F.pad(F.softplus(above), (0, 1))


def order_thresholds(bias: Tensor) -> tuple[Tensor, Tensor]:
    """Make ascending thresholds of any numbers, (K - 1,): the lowest one, and the gaps to the next.

    Zeros split the probability of the score 0 equally among the classes.
    """
    bias = bias.float()
    count = len(bias)
    ranks = torch.arange(1, count + 1, dtype=bias.dtype, device=bias.device)
    equal = (ranks / (count + 1)).logit()
    gaps = F.softplus(bias[1:] + torch.expm1(equal.diff()).log()) + SMALLEST_GAP
    return bias[:1] + equal[:1], gaps
