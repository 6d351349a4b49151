"""Clusters of vectors: communities around a centre, k-means, and agglomerative clustering."""

from typing import Any

import torch
from torch import Tensor

from .search import MAX_SCORES
from .vectors import unit_vectors

# Cosines of equal vectors are 1 but for their last digits.
ROUNDING = 1e-6


def community_detection(
    vectors: Any,
    *,
    threshold: float = 0.75,
    min_size: int = 10,
    max_scores: int = MAX_SCORES,
) -> list[list[int]]:
    """Find groups of vectors that are all similar to the one in their centre.

    Every vector with at least `min_size` others (itself among them) whose cosine reaches the
    threshold is the centre of a community. The largest community takes its members, the next one
    what is left, and so on. Vectors that are near nothing are in none.

    Args:
        vectors: (n, D); they are compared on the device where they are.
        threshold: Lowest cosine with the centre, in [-1, 1].
        min_size: Vectors of a community at least.
        max_scores: Cosines that are in memory at a time, at most.

    Returns:
        The communities, the largest first: the numbers of their vectors, the centre first, then by
        falling cosine.

    Raises:
        ValueError: If there are no vectors, or a value is out of its range.
    """
    unit = unit_vectors(vectors)
    _check_threshold(threshold)
    if min_size < 1:
        raise ValueError(f"min_size={min_size} must be at least 1")
    found: list[tuple[int, Tensor]] = []
    size = max(1, max_scores // len(unit))
    for start in range(0, len(unit), size):
        cosines = unit[start : start + size] @ unit.T
        counts = (cosines >= threshold - ROUNDING).sum(dim=1)
        for row in (counts >= min_size).nonzero().flatten().tolist():
            members = cosines[row].topk(int(counts[row])).indices
            found.append((start + row, members.cpu()))
    return _part(found, len(unit), min_size)


def _part(found: list[tuple[int, Tensor]], count: int, min_size: int) -> list[list[int]]:
    """Give every vector to one community at most, to the largest first."""
    free = torch.ones(count, dtype=torch.bool)
    communities = []
    for centre, members in sorted(found, key=lambda community: -len(community[1])):
        left = members[free[members]]
        if not free[centre] or len(left) < min_size:
            continue
        community = [centre, *left[left != centre].tolist()]
        free[community] = False
        communities.append(community)
    return sorted(communities, key=len, reverse=True)


def kmeans_clusters(vectors: Any, num_clusters: int, *, seed: int = 0) -> list[int]:
    """Part vectors of length 1 into so many clusters by k-means (scikit-learn's).

    Args:
        vectors: (n, D).
        num_clusters: Number of clusters.
        seed: Of the first centres; the best of ten choices is taken.

    Returns:
        The number of the cluster of every vector; 0 is the largest one.

    Raises:
        ValueError: If there are fewer vectors than clusters.
    """
    # importing it takes time that only those who cluster have to spend
    from sklearn.cluster import KMeans

    unit = _check_clusters(vectors, num_clusters)
    model = KMeans(num_clusters, n_init=10, random_state=seed)
    return _number_by_size(model.fit_predict(unit.cpu().numpy()).tolist())


def agglomerative_clusters(
    vectors: Any, num_clusters: int | None = None, *, threshold: float | None = None
) -> list[int]:
    """Join the nearest clusters, by the mean cosine of their vectors, again and again.

    It is scikit-learn's, and needs memory for n x n distances: 800 MB for 10,000 vectors.

    Args:
        vectors: (n, D).
        num_clusters: How many clusters are to be left; None to go on down to the threshold.
        threshold: Lowest mean cosine of two clusters that are joined, in [-1, 1].

    Returns:
        The number of the cluster of every vector; 0 is the largest one.

    Raises:
        ValueError: If not exactly one of `num_clusters` and `threshold` is given, or there are
            fewer vectors than clusters, or the threshold is no cosine.
    """
    from sklearn.cluster import AgglomerativeClustering

    if (num_clusters is None) == (threshold is None):
        raise ValueError("give exactly one of num_clusters and threshold")
    unit = _check_clusters(vectors, 1 if num_clusters is None else num_clusters)
    if threshold is not None:
        _check_threshold(threshold)
    if len(unit) == 1:
        return [0]
    model = AgglomerativeClustering(
        num_clusters,
        metric="cosine",
        linkage="average",
        distance_threshold=None if threshold is None else 1 - threshold + ROUNDING,
    )
    return _number_by_size(model.fit_predict(unit.cpu().numpy()).tolist())


def _check_threshold(threshold: float) -> None:
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold={threshold} is a cosine, it must be in [-1, 1]")


def _check_clusters(vectors: Any, num_clusters: int) -> Tensor:
    unit = unit_vectors(vectors)
    if not 1 <= num_clusters <= len(unit):
        raise ValueError(f"num_clusters={num_clusters} must be in [1, {len(unit)}], the vectors")
    return unit


def _number_by_size(labels: list[int]) -> list[int]:
    """Number clusters anew: the largest is 0, of equal ones that of the earlier vector."""
    names = sorted(set(labels), key=lambda name: (-labels.count(name), labels.index(name)))
    numbers = {name: number for number, name in enumerate(names)}
    return [numbers[label] for label in labels]
