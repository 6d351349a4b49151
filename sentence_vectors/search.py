"""Semantic search: the nearest of many vectors, exact, in blocks."""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .vectors import as_vectors, packed_bits, products, unit_vectors

# Largest number of scores in memory: 64 MB in float32.
MAX_SCORES = 16_777_216
QUERIES = 256  # largest number in a block
Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "hamming"]
# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


class Hits(NamedTuple):
    """The nearest vectors of every query, the nearest first."""

    scores: Tensor  # similarities, by default cosines in [-1, 1], (Q, K)
    indices: Tensor  # in the corpus, (Q, K)


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
        similarity: ``cosine``, ``dot``, or a negated distance: ``euclidean``, ``manhattan``, or for
            packed bits, (n, D / 8) in uint8 or int8, ``hamming``, the number of bits that differ.
        max_scores: Largest number of similarities in memory.

    Returns:
        The results, on the CPU, with K = min(top_k, n); ties by index.
    """
    if similarity not in get_args(Similarity):
        raise ValueError(
            f"unknown similarity {similarity!r}; known: {', '.join(get_args(Similarity))}"
        )
    prepare = {"cosine": unit_vectors, "hamming": packed_bits}.get(similarity, as_vectors)
    known = prepare(corpus, "corpus")
    asked = prepare(queries, "queries").to(known.device, known.dtype)
    if asked.shape[1] != known.shape[1]:
        raise ValueError(f"queries have size {asked.shape[1]}, the corpus has {known.shape[1]}")
    if top_k < 1 or max_scores < 1:
        raise ValueError(f"top_k={top_k} and max_scores={max_scores} must be at least 1")
    top_k = min(top_k, len(known))
    parts = []
    for block in asked.split(min(QUERIES, max_scores)):
        # bits take memory, too, where they are unpacked
        width = max(len(block), 8 * known.shape[1]) if similarity == "hamming" else len(block)
        size = max(1, max_scores // width)
        parts.append(_search_block(block, known, top_k, size, similarity))
    return Hits(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def _search_block(
    asked: Tensor, known: Tensor, top_k: int, size: int, similarity: Similarity
) -> Hits:
    """Search for a block of queries, `size` vectors of the corpus at a time."""
    scores = asked.new_empty(len(asked), 0)
    best = Hits(scores, scores.long())
    for start in range(0, len(known), size):
        scores = _compare(asked, known[start : start + size], similarity)
        found, places = _take_top(scores, min(top_k, scores.shape[1]))
        pairs = zip(best, (found, places + start), strict=True)
        best = _order(Hits(*(torch.cat(pair, dim=1) for pair in pairs)), top_k)
    return best


def _compare(asked: Tensor, known: Tensor, similarity: Similarity) -> Tensor:
    """Compare all queries with some vectors, (Q, n)."""
    if similarity in DISTANCES:
        # by default, distances of near vectors would be rounded
        mode = "donot_use_mm_for_euclid_dist"
        return -torch.cdist(asked, known, p=DISTANCES[similarity], compute_mode=mode)
    if similarity == "hamming":
        asked, known = _unpack(asked), _unpack(known)
        # a product is the number of equal bits minus that of others
        return (products(asked, known) - asked.shape[1]) / 2
    return products(asked, known)


def _unpack(packed: Tensor) -> Tensor:
    """Unpack bits as 1 and -1, (n, D / 8) -> (n, D)."""
    places = torch.arange(8, dtype=torch.uint8, device=packed.device)
    bits = packed.unsqueeze(-1).bitwise_right_shift(places).bitwise_and(1)
    return bits.flatten(1).float() * 2 - 1


def _take_top(scores: Tensor, top_k: int) -> Hits:
    """Return the highest scores of every row, (Q, n) -> (Q, K); ties by index."""
    # Among scores equal to the lowest one kept, `topk` chooses arbitrarily.
    values, places = scores.topk(top_k, dim=1)
    reach = scores >= values[:, -1:]
    for row in (reach.sum(dim=1) > top_k).nonzero().flatten().tolist():
        near = reach[row].nonzero().flatten()
        order = scores[row, near].argsort(descending=True, stable=True)[:top_k]
        places[row], values[row] = near[order], scores[row, near[order]]
    return Hits(values, places)


def _order(found: Hits, top_k: int) -> Hits:
    """Return the highest scores of every row; ties by index."""
    by_index = found.indices.argsort(dim=1)
    scores, indices = (column.gather(1, by_index) for column in found)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :top_k]
    return Hits(scores.gather(1, order), indices.gather(1, order))
