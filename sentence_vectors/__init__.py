"""What vectors of sentences are good for: search, similar pairs, clusters, transfer to other tasks.

It knows vectors, not models: whatever makes a vector of a sentence will do. The map: ``vectors``
(what is taken), ``search``, ``pairs``, ``clusters``, ``senteval`` (the files of the transfer
tasks), ``transfer`` (what a classifier learns from frozen vectors), ``tables`` (what was found).
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
