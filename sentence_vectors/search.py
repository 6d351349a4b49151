"""Semantic search: the nearest of many vectors, exact, in blocks."""

import importlib
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .vectors import unit_vectors

# Largest number of scores in memory: 64 MB in float32.
MAX_SCORES = 16_777_216
QUERIES = 256  # largest number in a block


class Hits(NamedTuple):
    """The nearest vectors of every query, the nearest first."""

    scores: Tensor  # cosines in [-1, 1], (Q, K)
    indices: Tensor  # in the corpus, (Q, K)


def semantic_search(
    queries: Any,
    corpus: Any,
    *,
    top_k: int = 10,
    backend: Literal["torch", "faiss"] = "torch",
    max_scores: int = MAX_SCORES,
) -> Hits:
    """Find the vectors of a corpus with the highest cosines for each query.

    Args:
        queries: (Q, D).
        corpus: (n, D); searched on its device.
        top_k: Number of results per query.
        backend: ``torch``, or ``faiss`` for its exact index on the CPU (``pip install faiss-cpu``).
        max_scores: Largest number of cosines in memory.

    Returns:
        The results, on the CPU, with K = min(top_k, n); ties by index (faiss may return others of
        the vectors with equal cosines).

    Raises:
        ImportError: If faiss is not installed.
    """
    known = unit_vectors(corpus, "corpus")
    asked = unit_vectors(queries, "queries").to(known.device, known.dtype)
    if asked.shape[1] != known.shape[1]:
        raise ValueError(f"queries have size {asked.shape[1]}, the corpus has {known.shape[1]}")
    if top_k < 1 or max_scores < 1:
        raise ValueError(f"top_k={top_k} and max_scores={max_scores} must be at least 1")
    top_k = min(top_k, len(known))
    if backend == "faiss":
        return _search_faiss(asked, known, top_k)
    parts = [
        _search_block(block, known, top_k, max(1, max_scores // len(block)))
        for block in asked.split(min(QUERIES, max_scores))
    ]
    return Hits(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def _search_block(asked: Tensor, known: Tensor, top_k: int, size: int) -> Hits:
    """Search for a block of queries, `size` vectors of the corpus at a time."""
    scores = asked.new_empty(len(asked), 0)
    best = Hits(scores, scores.long())
    for start in range(0, len(known), size):
        scores = asked @ known[start : start + size].T
        found, places = _take_top(scores, min(top_k, scores.shape[1]))
        pairs = zip(best, (found, places + start), strict=True)
        best = _order(Hits(*(torch.cat(pair, dim=1) for pair in pairs)), top_k)
    return best


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


def _search_faiss(asked: Tensor, known: Tensor, top_k: int) -> Hits:
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError as error:
        raise ImportError(
            "backend='faiss' needs the package faiss: pip install faiss-cpu, or use torch"
        ) from error
    index = faiss.IndexFlatIP(known.shape[1])
    index.add(known.float().cpu().numpy())
    scores, indices = index.search(asked.float().cpu().numpy(), top_k)
    return _order(Hits(torch.from_numpy(scores), torch.from_numpy(indices)), top_k)
