"""Self-attention relations of the tokens of a sequence, which a student learns from a teacher.

Shapes: N sequences of L tokens, T tokens in all, A relation heads, D hidden size, d = D / A.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Span: TypeAlias = tuple[int, int]  # the first token of a sequence, and its end
Vectors: TypeAlias = tuple[Tensor, Tensor, Tensor]  # queries, keys and values of tokens, (T, D)

# Size of a relation head of the teacher: 48 heads for a width of 768, 64 for 1024, as in the
# experiments of Wang et al. 2021.
HEAD_SIZE = 16
# Sequences of one group differ at most by so much in length ...
GROUP_RATIO = 1.2
GROUP_SLACK = 2
# ... and have at most so many relations together, unless a single one has more.
MAX_RELATIONS = 2**22


def choose_relation_heads(student: int, teacher: int) -> int:
    """Choose the relation heads for two hidden sizes: a divisor of both.

    It is the largest that leaves the heads of the teacher a size of 16, if there is one.
    """
    shared = math.gcd(student, teacher)
    most = max(1, teacher // HEAD_SIZE)
    return max(count for count in range(1, min(shared, most) + 1) if shared % count == 0)


def compare_relations(
    student: Vectors, teacher: Vectors, sequences: Sequence[Span], heads: int
) -> Tensor:
    """Compute how much the relations of a student differ from those of its teacher.

    A relation of queries is ``softmax(Q Q^T / sqrt(d))`` over the tokens of a sequence, for each of
    A heads into which the vectors are split again, so that teacher and student may have other
    widths and numbers of attention heads; so for keys and values. The result is the mean over the
    three of ``KL(teacher || student)`` in nats, which is a mean over heads and tokens of a
    sequence, and then over sequences. Source: Wang et al. 2021, section 3, with equal weights.

    Relations are in memory for a group of sequences at a time, in at least float32; the backward
    pass computes them again.

    Args:
        student: Its vectors of the tokens of all sequences, (T, D).
        teacher: Those of the teacher, (T, D) with another D.
        sequences: The tokens of each sequence, at least one.
        heads: A.
    """
    # in the graph also without sequences: every rank of DDP needs a gradient, if only of zeros
    total = 0.0 * torch.stack([vectors.float().sum() for vectors in student]).sum()
    for rows, real in group_sequences(sequences, heads):
        place = rows.to(student[0].device), real.to(student[0].device), heads
        for own, other in zip(student, teacher, strict=True):
            total = total + checkpoint(
                _compare_group, own, other, *place, use_reentrant=False, preserve_rng_state=False
            )
    return total / (3 * max(1, len(sequences)))


def group_sequences(sequences: Sequence[Span], heads: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Group sequences of similar length.

    Yields the tokens of a group, (n, L), where paddings repeat the last one of their sequence, and
    which are real, (n, L), on the CPU.
    """
    spans = sorted(sequences, key=lambda span: span[0] - span[1])  # the longest first
    first = 0
    while first < len(spans):
        longest = spans[first][1] - spans[first][0]
        most = max(1, MAX_RELATIONS // (heads * longest**2))
        group = [
            (start, end)
            for start, end in spans[first : first + most]
            if (end - start) * GROUP_RATIO + GROUP_SLACK >= longest
        ]
        first += len(group)
        bounds = torch.tensor(group)
        steps, counts = torch.arange(longest), bounds.diff(dim=1)
        yield bounds[:, :1] + torch.minimum(steps, counts - 1), steps < counts


def _compare_group(
    student: Tensor, teacher: Tensor, rows: Tensor, real: Tensor, heads: int
) -> Tensor:
    """Sum the divergences of n sequences, each a mean over heads and tokens."""
    target = _relate(teacher, rows, real, heads).softmax(dim=-1)
    found = _relate(student, rows, real, heads).log_softmax(dim=-1)
    # of finite numbers also at paddings, where the target is 0
    divergence = torch.xlogy(target, target) - target * found
    by_token = divergence.sum(dim=-1).mean(dim=1).masked_fill(~real, 0)
    return (by_token.sum(dim=1) / real.sum(dim=1)).sum()


def _relate(vectors: Tensor, rows: Tensor, real: Tensor, heads: int) -> Tensor:
    """Compute scaled dot products of tokens, (n, A, L, L); tiny ones with paddings."""
    with torch.autocast(vectors.device.type, enabled=False):
        wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        split = wide[rows].unflatten(-1, (heads, -1)).transpose(1, 2)
        scores = split @ split.mT / math.sqrt(split.shape[-1])
    return scores.masked_fill(~real[:, None, None], torch.finfo(scores.dtype).min)
