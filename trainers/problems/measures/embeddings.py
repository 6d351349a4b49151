"""Metrics of sentence vectors without labels."""

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # rows whose similarities to all others are in memory at a time
# Equal texts in different batches have cosines that differ by rounding.
ROUNDING = 1e-5


def embedding_metrics(vectors: NDArray[np.float32]) -> dict[str, float]:
    """Compute metrics of vectors of length 1, (N, S, D): anchor, positive, an ignored negative.

    - ``accuracy``: share of anchors to which no other positive is nearer, in [0, 1]. Ties count
      only if they are the majority: collapsed vectors must not score well.
    - ``mrr``: mean reciprocal rank of an anchor's own positive, in (0, 1].
    - ``alignment``: mean squared distance of anchor and positive, in [0, 4]; lower is better.
    - ``uniformity``: logarithm of the mean of exp(-2 d^2) over the distances d of all pairs of
      first sentences, in [-8, 0]; lower is better. It is the only one for S = 1.

    Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
    """
    first = vectors[:, 0].astype(np.float32)
    metrics = {}
    if vectors.shape[1] > 1:
        second = vectors[:, 1].astype(np.float32)
        ranks = 1 / _ranks(first, second)
        distances = ((first - second) ** 2).sum(axis=1)
        metrics = {
            "accuracy": float((ranks == 1).mean()),
            "mrr": float(ranks.mean()),
            "alignment": float(distances.mean()),
        }
    return metrics | {"uniformity": _uniformity(first)}


def _ranks(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rank the own positive of every anchor, from 1, (N,).

    It is the first of ties, or if these are more than half of the others, in their middle.
    """
    own = (first * second).sum(axis=1, keepdims=True)
    count, parts = len(first), []
    for start in range(0, count, BLOCK):
        gaps = first[start : start + BLOCK] @ second.T - own[start : start + BLOCK]
        nearer = (gaps > ROUNDING).sum(axis=1)
        equal = np.maximum((np.abs(gaps) <= ROUNDING).sum(axis=1) - 1, 0)
        equal[2 * equal <= count - 1] = 0
        ranks = 1 + nearer + equal // 2 + equal % 2
        parts.append(np.where(np.isfinite(gaps).all(axis=1), ranks, count))
    return np.concatenate(parts)


def _uniformity(vectors: NDArray[np.float32]) -> float:
    """Compute the uniformity on the sphere; 0 for a single vector."""
    count, total = len(vectors), 0.0
    if count < 2:
        return 0.0
    for start in range(0, count, BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        total += float(np.exp(4 * (cosines.astype(np.float64) - 1)).sum())
    # exclude the pairs of a vector with itself, whose distance is 0
    return float(np.log((total - count) / (count * (count - 1))))
