"""What vectors of sentences are worth without labels."""

import numpy as np
from numpy.typing import NDArray

# Those of pairs; of single sentences there is the last one alone.
EMBEDDING_METRICS = ("accuracy", "mrr", "alignment", "uniformity")
BLOCK = 1024  # rows whose similarities to all others are in memory at a time
# Equal texts in different batches have cosines that differ by rounding.
ROUNDING = 1e-5


def embedding_metrics(vectors: NDArray[np.float32]) -> dict[str, float]:
    """Measure vectors of length 1.

    Args:
        vectors: The sentences of every row, (N, S, D): an anchor, its positive, and maybe a
            negative, which is not looked at; or a sentence alone.

    Returns:
        - ``accuracy``: share of anchors to which no positive of another row is nearer than their
          own, in [0, 1]; equally near ones, as equal texts are, do no harm, unless they are most
          of all: vectors that have collapsed into one are no success.
        - ``mrr``: mean reciprocal rank of the own positive among all positives, in (0, 1].
        - ``alignment``: mean squared distance of anchor and positive, in [0, 4]; lower is better.
        - ``uniformity``: logarithm of the mean of exp(-2 d^2) over the distances d of all pairs of
          first sentences, in [-8, 0]; lower is better.

        The first three only if S is 2 or more; a sentence alone is as near to itself as can be.

    Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
    """
    first = vectors[:, 0].astype(np.float32)
    found = {}
    if vectors.shape[1] > 1:
        second = vectors[:, 1].astype(np.float32)
        ranks = 1 / _ranks(first, second)
        distances = ((first - second) ** 2).sum(axis=1)
        found = {
            "accuracy": float((ranks == 1).mean()),
            "mrr": float(ranks.mean()),
            "alignment": float(distances.mean()),
        }
    return found | {"uniformity": _uniformity(first)}


def _ranks(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.int64]:
    """Find the rank of the own positive of every anchor, from 1, (N,).

    Among as near ones it is the first, unless these are more than half of the others: then it is in
    their middle. What is no number is last.
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
    """Measure how evenly vectors lie on the sphere; 0 for a single one."""
    count, total = len(vectors), 0.0
    if count < 2:
        return 0.0
    for start in range(0, count, BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        total += float(np.exp(4 * (cosines.astype(np.float64) - 1)).sum())
    # without the pairs of a vector with itself, whose distance is 0
    return float(np.log((total - count) / (count * (count - 1))))
