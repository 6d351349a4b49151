"""Clusters of vectors: communities around a center, k-means, agglomerative clustering."""

from typing import Any

import torch
from torch import Tensor

from .search import MAX_SCORES
from .vectors import products, unit_vectors

# Rounding error of the cosine of equal vectors.
ROUNDING = 1e-6


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
    _check_threshold(threshold)
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


def kmeans_clusters(vectors: Any, num_clusters: int, *, seed: int = 0) -> list[int]:
    """Cluster normalized vectors with scikit-learn's k-means.

    Args:
        vectors: (n, D).
        num_clusters: Number of clusters.
        seed: Seed of the ten initializations, of which the best result is returned.

    Returns:
        The cluster of every vector; 0 is the largest.
    """
    # imported here, since it is slow
    from sklearn.cluster import KMeans

    unit = _check_clusters(vectors, num_clusters)
    model = KMeans(num_clusters, n_init=10, random_state=seed)
    return _number_by_size(model.fit_predict(unit.cpu().numpy()).tolist())


def agglomerative_clusters(
    vectors: Any, num_clusters: int | None = None, *, threshold: float | None = None
) -> list[int]:
    """Cluster vectors with scikit-learn's agglomerative clustering, by mean cosine.

    It needs memory for n x n distances: 800 MB for 10,000 vectors.

    Args:
        vectors: (n, D).
        num_clusters: Number of clusters; None to merge down to the threshold.
        threshold: Lowest mean cosine of merged clusters, in [-1, 1]; instead of their number.

    Returns:
        The cluster of every vector; 0 is the largest.
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
        raise ValueError(f"threshold={threshold} must be a cosine, in [-1, 1]")


def _check_clusters(vectors: Any, num_clusters: int) -> Tensor:
    unit = unit_vectors(vectors)
    if not 1 <= num_clusters <= len(unit):
        raise ValueError(f"num_clusters={num_clusters} must be in [1, {len(unit)}]")
    return unit


def _number_by_size(labels: list[int]) -> list[int]:
    """Renumber clusters by decreasing size; ties by their first vector."""
    names = sorted(set(labels), key=lambda name: (-labels.count(name), labels.index(name)))
    numbers = {name: number for number, name in enumerate(names)}
    return [numbers[label] for label in labels]
