"""Metrics of vectors without labels, against loops and scikit-learn."""

import math

import numpy as np
import pytest
from datasets import Dataset
from sklearn.metrics import label_ranking_average_precision_score

from trainers import PROBLEMS


def embedding_metrics(vectors, texts=None):
    """Compute the metrics of vectors, whose texts have these names, by default all different."""
    if texts is None:
        texts = np.arange(vectors.shape[0] * vectors.shape[1]).reshape(vectors.shape[:2])
    rows = Dataset.from_dict({"input_ids": [[[name] for name in row] for row in np.asarray(texts)]})
    problem = PROBLEMS["contrastive"]("near")
    return problem.compute_metrics(problem.collect(vectors, rows))


def make_vectors(rows, sentences, noise=1.0):
    """Return rows of sentences that are the nearer, the less noise there is."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(rows, 1, 6))
    vectors = first + noise * generator.normal(size=(rows, sentences, 6))
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("block", [5, 1024])
def test_ranks_equal_scikit_learn(monkeypatch, block):
    monkeypatch.setattr("trainers.problems.text.BLOCK", block)
    vectors = make_vectors(23, 3)

    found = embedding_metrics(vectors)

    scores = vectors[:, 0] @ vectors[:, 1].T
    # with one right answer in a row, its average precision is the reciprocal rank
    assert found["mrr"] == pytest.approx(label_ranking_average_precision_score(np.eye(23), scores))
    assert found["accuracy"] == pytest.approx((scores.argmax(axis=1) == np.arange(23)).mean())
    assert 0 < found["accuracy"] < 1


def test_other_positives_of_an_anchor_and_its_own_text_are_not_wrong():
    """The anchor 0 has two positives, and the last row has its texts in the other order."""
    vectors = {0: [1, 0], 1: [1, 0.1], 2: [1, -0.2], 3: [0, 1], 4: [0.1, 1]}
    texts = [[0, 1], [0, 2], [3, 4], [1, 0]]
    values = np.asarray([[vectors[name] for name in row] for row in texts], dtype=np.float32)
    values /= np.linalg.norm(values, axis=-1, keepdims=True)

    assert embedding_metrics(values)["accuracy"] == 0.25
    assert embedding_metrics(values, texts)["accuracy"] == 1
    assert embedding_metrics(values, texts)["mrr"] == 1
    texts[3] = [1, 6]  # another text with the vector of the anchor 0
    assert embedding_metrics(values, texts)["accuracy"] == 0.5


def test_an_answer_to_several_questions_counts_once():
    answers, questions = make_vectors(4, 2)[:, 1], make_vectors(12, 2, noise=0)[:, 0]
    which = np.arange(12) // 3
    values = np.stack([questions, answers[which]], axis=1)
    texts = [[100 + row, answer] for row, answer in enumerate(which.tolist())]

    found = embedding_metrics(values, texts)["mrr"]

    right = np.eye(4)[which]
    assert found == pytest.approx(
        label_ranking_average_precision_score(right, questions @ answers.T)
    )
    assert found < 1


@pytest.mark.parametrize("block", [5, 1024])
def test_alignment_and_uniformity_are_the_formulas(monkeypatch, block):
    monkeypatch.setattr("trainers.problems.text.BLOCK", block)
    vectors = make_vectors(23, 2)

    found = embedding_metrics(vectors)

    distances = [math.dist(*row) ** 2 for row in vectors]
    assert found["alignment"] == pytest.approx(np.mean(distances), rel=1e-5)
    pairs = [(u, v) for i, u in enumerate(vectors[:, 0]) for v in vectors[:i, 0]]
    energies = [math.exp(-2 * math.dist(u, v) ** 2) for u, v in pairs]
    assert found["uniformity"] == pytest.approx(math.log(np.mean(energies)), rel=1e-5)


def test_extremes():
    same = np.ones((1, 2, 1), dtype=np.float32)
    apart = np.asarray([[[1.0]], [[-1.0]]])

    assert embedding_metrics(same) == {
        "accuracy": 1,
        "mrr": 1,
        "alignment": 0,
        "uniformity": pytest.approx(0),
    }
    assert embedding_metrics(apart)["uniformity"] == pytest.approx(-8)
    assert embedding_metrics(apart[:1]) == {"uniformity": 0}


@pytest.mark.parametrize("broken", [1.0, np.nan])
def test_vectors_that_collapsed_or_are_no_numbers_find_nothing(broken):
    vectors = np.full((50, 2, 4), broken / 2, dtype=np.float32)

    found = embedding_metrics(vectors)

    assert found["accuracy"] == 0
    assert found["mrr"] < 0.05
