"""The most similar pairs of many vectors, and communities around a center, in blocks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .search import MAX_SCORES
from .vectors import products, unit_vectors

# Rounding error of the cosine of equal vectors.
ROUNDING = 1e-6


class Pairs(NamedTuple):
    """Pairs of vectors, the most similar first."""

    scores: Tensor  # cosines in [-1, 1], (P,)
    first: Tensor  # index of the first vector, (P,)
    second: Tensor  # index of the second vector, which is higher, (P,)


def paraphrase_mining(
    vectors: Any, *, max_pairs: int = 500_000, max_scores: int = MAX_SCORES
) -> Pairs:
    """Find the pairs with the highest cosines among all n (n - 1) / 2 pairs.

    The search is exact, with memory for `max_scores` cosines and `max_pairs` pairs, not for n x n.

    Args:
        vectors: (n, D); compared on their device.
        max_pairs: Number of pairs to return.
        max_scores: Largest number of cosines in memory.

    Returns:
        The pairs, on the CPU; ties by the indices of their vectors.
    """
    unit = unit_vectors(vectors)
    count = len(unit)
    if count < 2:
        raise ValueError("one vector makes no pair; at least two are needed")
    if max_pairs < 1 or max_scores < 1:
        raise ValueError(f"max_pairs={max_pairs} and max_scores={max_scores} must be at least 1")
    scores = unit.new_empty(0)
    keys = torch.empty(0, dtype=torch.int64, device=unit.device)  # first * n + second
    for rows, columns in _blocks(count, max_scores):
        cosines = products(unit[rows], unit[columns])
        # only above the diagonal, to count every pair once
        first = torch.arange(count, device=unit.device)[rows].unsqueeze(1)
        second = torch.arange(count, device=unit.device)[columns]
        wanted = second > first
        if len(scores) == max_pairs:
            wanted &= cosines > scores[-1]
        found = (first * count + second)[wanted]
        scores, keys = _best(
            torch.cat([scores, cosines[wanted]]), torch.cat([keys, found]), max_pairs
        )
    scores, keys = scores.cpu(), keys.cpu()
    return Pairs(scores, keys // count, keys % count)


def most_similar_pair(vectors: Any) -> tuple[float, int, int]:
    """Find the pair with the highest cosine; see `paraphrase_mining`.

    Returns:
        The cosine, and the indices of the two vectors, the lower one first.
    """
    pairs = paraphrase_mining(vectors, max_pairs=1)
    return float(pairs.scores[0]), int(pairs.first[0]), int(pairs.second[0])


def community_detection(
    vectors: Any, *, threshold: float = 0.75, min_size: int = 10, max_scores: int = MAX_SCORES
) -> list[list[int]]:
    """Find groups of vectors that are similar to a center.

    A vector is the center of a community if at least `min_size` vectors, including itself, reach
    the threshold. Communities take their members in order of size, the largest first. A vector
    without enough similar ones belongs to none.

    Args:
        vectors: (n, D); compared on their device.
        threshold: Lowest cosine with the center, in [-1, 1].
        min_size: Smallest size of a community.
        max_scores: Largest number of cosines in memory.

    Returns:
        The communities, the largest first: indices of their vectors, the center first, then by
        decreasing cosine.
    """
    unit = unit_vectors(vectors)
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold={threshold} must be a cosine, in [-1, 1]")
    if min_size < 1:
        raise ValueError(f"min_size={min_size} must be at least 1")
    found: list[tuple[int, Tensor]] = []
    size = max(1, max_scores // len(unit))
    for start in range(0, len(unit), size):
        cosines = products(unit[start : start + size], unit)
        counts = (cosines >= threshold - ROUNDING).sum(dim=1)
        for row in (counts >= min_size).nonzero().flatten().tolist():
            members = cosines[row].topk(int(counts[row])).indices
            found.append((start + row, members.cpu()))
    return _assign(found, len(unit), min_size)


def _blocks(count: int, max_scores: int) -> Iterator[tuple[slice, slice]]:
    """Split the upper triangle of n x n into blocks of rows and columns."""
    size = max(1, min(1024, int(max_scores**0.5)))
    width = max(1, max_scores // size)
    for start in range(0, count, size):
        for left in range(start, count, width):
            yield slice(start, start + size), slice(left, left + width)


def _best(scores: Tensor, keys: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Sort pairs and keep the best; ties by key."""
    if len(scores) > most:
        # sort only the candidates
        kept = scores >= scores.topk(most).values[-1]
        scores, keys = scores[kept], keys[kept]
    by_key = keys.argsort()
    order = by_key[scores[by_key].argsort(descending=True, stable=True)][:most]
    return scores[order], keys[order]


def _assign(found: list[tuple[int, Tensor]], count: int, min_size: int) -> list[list[int]]:
    """Assign every vector to one community at most, the largest first."""
    free = torch.ones(count, dtype=torch.bool)
    communities = []
    for center, members in sorted(found, key=lambda community: -len(community[1])):
        left = members[free[members]]
        if not free[center] or len(left) < min_size:
            continue
        community = [center, *left[left != center].tolist()]
        free[community] = False
        communities.append(community)
    return sorted(communities, key=len, reverse=True)
