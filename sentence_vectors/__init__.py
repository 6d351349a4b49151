"""Use and evaluate sentence vectors: search, similar pairs, clusters, transfer to other tasks.

The package works on vectors of any origin and does not depend on a model. Modules: ``vectors``
(accepted input), ``search``, ``pairs``, ``clusters``, ``senteval`` (files of the transfer tasks),
``transfer`` (classifiers on frozen vectors) and ``tables`` (results).
"""

from .clusters import agglomerative_clusters, community_detection, kmeans_clusters
from .pairs import Pairs, most_similar_pair, paraphrase_mining
from .search import Hits, semantic_search
from .vectors import as_vectors

__all__ = [
    "Hits",
    "Pairs",
    "agglomerative_clusters",
    "as_vectors",
    "community_detection",
    "kmeans_clusters",
    "most_similar_pair",
    "paraphrase_mining",
    "semantic_search",
]
