"""Use and evaluate sentence vectors: search, similar pairs, transfer to other tasks.

The package works on vectors of any origin and does not depend on a model.
"""

from .search import (
    Hits,
    Pairs,
    as_vectors,
    paraphrase_mining,
    semantic_search,
)
from .senteval import evaluate_similarity, evaluate_transfer

__all__ = [
    "Hits",
    "Pairs",
    "as_vectors",
    "evaluate_similarity",
    "evaluate_transfer",
    "paraphrase_mining",
    "semantic_search",
]
