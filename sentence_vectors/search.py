"""Search: vectors compared with each other, in blocks."""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

# Largest number of scores in memory: 64 MB in float32.
MAX_SCORES = 16_777_216
QUERIES = 256  # largest number in a block
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


class Hits(NamedTuple):
    """The nearest vectors of every query, the nearest first."""

    scores: Tensor  # similarities, by default cosines in [-1, 1], (Q, K)
    indices: Tensor  # in the corpus, (Q, K)


def as_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and convert them to a tensor.

    Args:
        given: (n, D): a tensor, an array, or a list of either.
        name: Name in error messages.

    Returns:
        Float64 if they were float64, else float32, on their device.

    Raises:
        ValueError: If there are no vectors, their shape is wrong, one is not finite, or they are
            integers of 8 bits, which may be packed bits or quantized numbers.
    """
    if isinstance(given, list | tuple) and given and isinstance(given[0], Tensor):
        given = torch.stack(list(given))
    vectors = torch.as_tensor(given).detach()
    if not len(vectors.shape) or not len(vectors):
        raise ValueError(f"{name} is empty; at least one vector is needed")
    if vectors.dim() != 2:
        raise ValueError(f"{name} of shape {tuple(vectors.shape)}; expected (n, D)")
    if vectors.dtype in (torch.uint8, torch.int8):
        raise ValueError(
            f"{name} are 8-bit integers, which may be packed bits: unpack these, or convert "
            "numbers to float32"
        )
    if vectors.dtype != torch.float64:
        vectors = vectors.float()
    bad = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: vector {int(bad[0])} has values that are not finite")
    return vectors


def unit_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and scale them to length 1, except zero vectors."""
    return F.normalize(as_vectors(given, name), dim=1)


def compare(first: Tensor, second: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Compare all (N, D) with all (M, D), which have length 1 for cosines; also under autocast."""
    if similarity in DISTANCES:
        # by default, distances of near vectors would be rounded
        mode = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(first, second, p=DISTANCES[similarity], compute_mode=mode)
    with torch.autocast(first.device.type, enabled=False):
        return first @ second.T


def semantic_search(
    queries: Any,
    corpus: Any,
    *,
    top_k: int = 10,
    similarity: Similarity = "cosine",
    max_scores: int = MAX_SCORES,
) -> Hits:
    """Find the vectors of a corpus that are most similar to each query.

    Args:
        queries: (Q, D).
        corpus: (n, D); searched on its device.
        top_k: Number of results per query.
        similarity: ``cosine``, ``dot``, or a negated distance: ``euclidean``, ``manhattan``.
        max_scores: Largest number of similarities in memory.

    Returns:
        The results, on the CPU, with K = min(top_k, n); ties by index.
    """
    if similarity not in get_args(Similarity):
        raise ValueError(
            f"unknown similarity {similarity!r}; known: {', '.join(get_args(Similarity))}"
        )
    prepare = unit_vectors if similarity == "cosine" else as_vectors
    known = prepare(corpus, "corpus")
    asked = prepare(queries, "queries").to(known.device, known.dtype)
    if asked.shape[1] != known.shape[1]:
        raise ValueError(f"queries have size {asked.shape[1]}, the corpus has {known.shape[1]}")
    if top_k < 1 or max_scores < 1:
        raise ValueError(f"top_k={top_k} and max_scores={max_scores} must be at least 1")
    top_k = min(top_k, len(known))
    parts = []
    for block in asked.split(min(QUERIES, max_scores)):
        scores = block.new_empty(len(block), 0)
        places = scores.long()
        size = max(1, max_scores // len(block))
        for start in range(0, len(known), size):
            found = _take_top(compare(block, known[start : start + size], similarity), top_k)
            scores = torch.cat([scores, found.scores], dim=1)
            places = torch.cat([places, found.indices + start], dim=1)
            # the highest, ties by index
            by_index = places.argsort(dim=1)
            scores, places = scores.gather(1, by_index), places.gather(1, by_index)
            order = scores.argsort(dim=1, descending=True, stable=True)[:, :top_k]
            scores, places = scores.gather(1, order), places.gather(1, order)
        parts.append((scores.cpu(), places.cpu()))
    return Hits(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _take_top(scores: Tensor, top_k: int) -> Hits:
    """Return the highest scores of every row, (Q, n) -> (Q, K); the first of equal ones."""
    values, places = scores.topk(min(top_k, scores.shape[1]), dim=1)
    # among scores equal to the lowest one kept, `topk` chooses arbitrarily
    reach = scores >= values[:, -1:]
    for row in (reach.sum(dim=1) > top_k).nonzero().flatten().tolist():
        near = reach[row].nonzero().flatten()
        order = scores[row, near].argsort(descending=True, stable=True)[:top_k]
        places[row], values[row] = near[order], scores[row, near[order]]
    return Hits(values, places)
