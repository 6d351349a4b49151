# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Losses of a student that learns from the outputs of teachers.

Shapes: B rows, L tokens, M teachers, K logits, S sequences of a row, D size of a vector.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

# The logit of a padding: its probability is 0, and unlike with infinity no product with it is NaN.
IMPOSSIBLE = -1e9


def match_classes(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Compute `T^2 KL(P || Q)` of classes, (..., K) and (..., M, K) -> (...).

    Q is the student's distribution, the softmax of its logits divided by the temperature T, and P
    the mean of those of the teachers. The factor keeps the size of the gradient, which falls as
    `1 / T^2`. Source: Hinton et al. 2015, sections 1 and 2.
    """
    student = (logits.float() / temperature).log_softmax(dim=-1)
    target = (teacher.float() / temperature).softmax(dim=-1).mean(dim=-2)
    return temperature**2 * F.kl_div(student, target, reduction="none").sum(dim=-1)


def match_outcomes(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Compute `match_classes` of yes and no of each logit, (..., K), (..., M, K) -> (..., K)."""

    def add_no(yes: Tensor) -> Tensor:
        # a sigmoid is the softmax of its logit and 0
        return torch.stack([yes, torch.zeros_like(yes)], dim=-1)

    return match_classes(add_no(logits), add_no(teacher.transpose(-1, -2)), temperature)


def match_scores(scores: Tensor, teacher: Tensor) -> Tensor:
    """Compute the squared error to the mean score of the teachers, (B, 1) and (B, M, 1) -> (B,)."""
    return (scores.float() - teacher.float().mean(dim=-2)).square().sum(dim=-1)


def match_probabilities(logits: Tensor, teacher: Tensor) -> Tensor:
    """Compute `KL(p || q)` of scores in [0, 1] as probabilities, (B, 1) and (B, M, 1) -> (B,).

    p is the mean score of the teachers, and q the sigmoid of the student's logit.
    """
    target = teacher.float().mean(dim=-2).clamp(0, 1)  # those trained by squares may be outside
    losses = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    entropy = torch.special.entr(target) + torch.special.entr(1 - target)
    return (losses - entropy).sum(dim=-1)


def match_vectors(vectors: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean of `1 - cosine` over sequences, (B, S, D) and (B, 1, S, D) -> (B,).

    For vectors of length 1 this is half of the squared distance.
    """
    cosines = F.cosine_similarity(vectors.float(), teacher.float().squeeze(1), dim=-1)
    return (1 - cosines).mean(dim=-1)


def match_positions(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Compute `match_classes` of positions, (B, L, 2) and (B, L, M, 2) -> (B,).

    The mean over start and end. Only positions for which no teacher's value is NaN count.
    """
    is_real = teacher.isfinite().flatten(2).all(dim=-1)
    student = logits.float().masked_fill(~is_real[..., None], IMPOSSIBLE)
    target = teacher.float().masked_fill(~is_real[..., None, None], IMPOSSIBLE)
    swapped = (student.transpose(1, 2), target.permute(0, 3, 2, 1))
    return match_classes(*swapped, temperature).mean(dim=-1)


def mean_taught(each: Tensor, teacher: Tensor, counted: Tensor | None = None) -> Tensor:
    """Average over the rows or tokens whose teacher's values are finite, and that are counted."""
    is_taught = teacher.isfinite().flatten(each.dim()).all(dim=-1)
    if counted is not None:
        is_taught = is_taught & counted
    return each.masked_fill(~is_taught, 0).sum() / is_taught.sum().clamp(min=1)


def check_teacher(logits: Tensor, teacher: Tensor, place: int) -> None:
    """Check that values of teachers fit logits; their dimension M is at `place`."""
    shape = (*teacher.shape[:place], *teacher.shape[place + 1 :])
    if teacher.dim() != logits.dim() + 1 or shape != tuple(logits.shape):
        wanted = [*map(str, logits.shape)]
        wanted.insert(place, "teachers")
        raise ValueError(
            f"values of teachers of shape {tuple(teacher.shape)}, but logits of "
            f"{tuple(logits.shape)} need ({', '.join(wanted)})"
        )
