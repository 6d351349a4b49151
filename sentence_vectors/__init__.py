"""Use and evaluate sentence vectors: search, similarity, transfer to other tasks.

The package works on vectors of any origin and does not depend on a model.
"""

from .search import Hits, as_vectors, semantic_search
from .senteval import evaluate_similarity, evaluate_transfer

__all__ = ["Hits", "as_vectors", "evaluate_similarity", "evaluate_transfer", "semantic_search"]
