"""What a search takes, and its equals; see also ``tests/test_similarity_of_vectors.py``."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sentence_vectors import as_vectors, semantic_search


def draw(count, size=7, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("max_scores", [7, 100, 10_000])
def test_of_many_equal_vectors_the_first_are_found(max_scores):
    corpus = torch.tensor([[0.0, 1.0], *[[1.0, 0.0]] * 60, [1.0, 1.0]])

    hits = semantic_search(torch.tensor([[1.0, 0.0]]), corpus, top_k=3, max_scores=max_scores)

    assert hits.indices.tolist() == [[1, 2, 3]]


def test_arrays_and_lists_are_searched():
    corpus = draw(5)

    for given in (corpus.numpy(), corpus.numpy().astype(np.float16), list(corpus), corpus.tolist()):
        assert semantic_search(given, given, top_k=1).indices.flatten().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: semantic_search([], draw(2)), "queries is empty"),
        (lambda: semantic_search(draw(2), torch.empty(0, 3)), "corpus is empty"),
        (lambda: semantic_search(draw(1, 3), draw(1, 4)), "size 3, the corpus has 4"),
        (lambda: semantic_search(draw(1), draw(1), top_k=0), "top_k=0 and .* at least 1"),
        (lambda: as_vectors(draw(3)[0]), r"shape \(7,\); expected \(n, D\)"),
        (lambda: as_vectors([[0.0], [float("nan")]]), "vector 1 has values that are not finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow  # importing it takes long
def test_search_equals_sentence_transformers():
    util = pytest.importorskip("sentence_transformers.util")
    queries, corpus = draw(9, 16, seed=1), draw(200, 16)

    hits = semantic_search(queries, corpus, top_k=5)
    for row, found in enumerate(util.semantic_search(queries, corpus, top_k=5)):
        assert hits.indices[row].tolist() == [hit["corpus_id"] for hit in found]
        assert hits.scores[row].tolist() == pytest.approx([hit["score"] for hit in found], abs=1e-6)


@pytest.mark.cuda
def test_gpu_and_cpu_results_are_equal():
    queries, corpus = draw(50, 64, seed=1), draw(2000, 64)

    hits = semantic_search(queries, corpus.cuda(), top_k=20, max_scores=5000)

    expected = semantic_search(queries, corpus, top_k=20)
    assert torch.equal(hits.indices, expected.indices)
    assert_close(hits.scores, expected.scores, atol=1e-5, rtol=0)
