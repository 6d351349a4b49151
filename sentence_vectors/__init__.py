"""Use and evaluate sentence vectors: search, similar pairs, communities, transfer to other tasks.

The package works on vectors of any origin and does not depend on a model. Modules: ``vectors``
(accepted input), ``search``, ``pairs`` (and communities) and ``senteval`` (vectors measured).
"""

from .pairs import Pairs, community_detection, most_similar_pair, paraphrase_mining
from .search import Hits, semantic_search
from .senteval import evaluate_similarity, evaluate_transfer
from .vectors import as_vectors

__all__ = [
    "Hits",
    "Pairs",
    "as_vectors",
    "community_detection",
    "evaluate_similarity",
    "evaluate_transfer",
    "most_similar_pair",
    "paraphrase_mining",
    "semantic_search",
]
