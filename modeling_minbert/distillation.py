# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""How much predictions differ: from those of teachers, and from those of another pass.

Shapes: B rows, L tokens, M teachers, K logits, S sequences of a row, D size of a vector.
"""

from collections.abc import Callable
from typing import Any

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


def align_outputs(task: Any, teacher: Any) -> Callable[[Tensor], Tensor]:
    """Return what brings the outputs of a teacher, (..., K), to the order of a task's labels.

    Raises:
        ValueError: If the task of the teacher is another one.
    """
    if (task.kind, task.num_texts) != (teacher.kind, teacher.num_texts):
        raise ValueError(
            f"it is {teacher.kind} with {teacher.num_texts} text(s) a row, but the task to learn "
            f"is {task.kind} with {task.num_texts}"
        )
    for key in ("outputs", "classes", "score_range"):
        own, other = (getattr(described, key, None) for described in (task, teacher))
        if own != other:
            raise ValueError(f"it has the {key} {other}, but the task to learn has {own}")
    # the outputs of a regression are named by its targets
    labels, others = (
        list(getattr(described, "labels", None) or getattr(described, "targets", None) or ())
        for described in (task, teacher)
    )
    if sorted(labels) != sorted(others):
        raise ValueError(f"it has the labels {others}, but the task to learn has {labels}")
    order = [others.index(label) for label in labels]
    if order == sorted(order):
        return lambda values: values
    if task.num_logits == 1:  # the logit of the other label
        return torch.neg
    return lambda values: values[..., order]


def distill(
    head: Any, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None
) -> Tensor:
    """Compare the outputs of a head with those of teachers; see `MinBertForMultiTask`."""
    kind = head.outputs
    values = head.to_targets(logits)
    if kind == "vectors" and head.task.num_sentences == 1:  # encoded twice in training
        teacher = teacher.expand(-1, -1, logits.shape[1], -1)
    place = 2 if kind in ("tags", "spans") else 1
    check_teacher(values, teacher, place)
    is_taught = teacher.isfinite().flatten(place).all(dim=-1)  # (B,), or (B, L) of tokens
    known = teacher.nan_to_num()
    if kind == "spans":  # start and end are classes, of which paddings are none
        own = logits.float().masked_fill(~is_taught[..., None], IMPOSSIBLE)
        others = teacher.float().masked_fill(~is_taught[..., None, None], IMPOSSIBLE)
        own, others = own.transpose(1, 2), others.permute(0, 3, 2, 1)
        losses = match_classes(own, others, temperature).mean(dim=-1)
        is_taught = is_taught.any(dim=-1)
    elif kind == "vectors":  # of length 1: half of the squared distance
        cosines = F.cosine_similarity(logits.float(), known.float().squeeze(1), dim=-1)
        losses = (1 - cosines).mean(dim=-1)
    elif kind == "numbers":
        losses = head.standardize(logits - known.mean(dim=-2)).square().mean(dim=0)
    elif kind == "scores" and head.task.loss_function.is_likelihood:
        # the divergence of probabilities; scores that were trained by squares may be outside
        mean = known.float().mean(dim=-2).clamp(0, 1)
        losses = F.binary_cross_entropy_with_logits(logits.float(), mean, reduction="none")
        losses = losses - torch.special.entr(mean) - torch.special.entr(1 - mean)
        losses = losses.sum(dim=-1)
    elif kind == "scores":
        losses = (values.float() - known.float().mean(dim=-2)).square().sum(dim=-1)
    elif kind == "outcomes":
        # a sigmoid is the softmax of its logit and 0
        known = known.transpose(-1, -2)
        own = torch.stack([logits, torch.zeros_like(logits)], dim=-1)
        others = torch.stack([known, torch.zeros_like(known)], dim=-1)
        losses = match_classes(own, others, temperature).mean(dim=-1)
    elif kind == "several_classes":
        pairs = zip(head.split(logits), head.split(known), strict=True)
        losses = torch.stack([match_classes(*pair, temperature) for pair in pairs]).mean(dim=0)
    else:
        losses = match_classes(values, known, temperature)
    if kind == "tags" and labels is not None:
        is_taught = is_taught & (labels != -100)
    return losses.masked_fill(~is_taught, 0).sum() / is_taught.sum().clamp(min=1)


def symmetric_kl(logits: Tensor, other: Tensor) -> Tensor:
    """Compute `KL(P || Q) + KL(Q || P)` of logits, (B, K) -> (B,); one logit is a probability's."""
    logits, other = logits.float(), other.float()
    if logits.shape[-1] == 1:
        return ((logits.sigmoid() - other.sigmoid()) * (logits - other)).squeeze(-1)
    p, q = logits.log_softmax(dim=-1), other.log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1)


def diverge(head: Any, logits: Tensor, other: Tensor) -> Tensor:
    """Compare two predictions of a head for the same rows; see `MinBertForMultiTask.divergence`."""
    kind = head.outputs
    if head.task.is_token_level:
        raise ValueError(
            f"there is no divergence for a {head.task.problem_type} task, whose scores are those "
            "of tokens: train it without r_drop"
        )
    if logits.shape != other.shape:
        raise ValueError(
            f"logits of {tuple(logits.shape)} and {tuple(other.shape)}: a divergence needs two "
            "predictions for the same rows"
        )
    if kind == "numbers":
        return head.standardize(logits - other).square().mean()
    if kind == "several_classes":
        pairs = zip(head.split(logits), head.split(other), strict=True)
        return torch.stack([symmetric_kl(*pair) for pair in pairs]).mean()
    if head.task.loss_function.is_likelihood:
        if kind == "outcomes":  # each logit is a question of its own
            logits, other = logits.unsqueeze(-1), other.unsqueeze(-1)
        return symmetric_kl(logits, other).mean()
    difference = logits.float() - other.float()
    if head.scales:
        difference = difference / head.cosine_scale
    return difference.square().sum(dim=-1).mean()
