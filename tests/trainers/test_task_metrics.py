"""Metrics against scikit-learn and scipy."""

import logging
from functools import partial

import numpy as np
import pytest
from datasets import Dataset
from scipy.special import softmax
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import (
    accuracy_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
    mean_absolute_error,
)

from trainers import PROBLEMS, aggregates, glue_score, make_problems

RANDOM = np.random.default_rng(3)
METRICS = {
    metric.name: metric
    for kind in ("classification", "paraphrase", "similarity")
    for metric in (*PROBLEMS[kind].metrics, *PROBLEMS[kind].optional_metrics)
}


def collect(kind, logits, labels, metrics=(), decode=None):
    problem = PROBLEMS[kind]("t", metrics=metrics)
    rows = Dataset.from_dict({"labels": np.asarray(labels)})
    return problem, problem.collect(np.asarray(logits), rows, decode)


def measure(kind, logits, labels, metrics=(), decode=None):
    problem, outputs = collect(kind, logits, labels, metrics, decode)
    return problem.compute_metrics(outputs)


def standard_error(kind, logits, labels):
    problem, outputs = collect(kind, logits, labels)
    return problem.standard_error(outputs, problem.compute_metrics(outputs))


def test_a_mean_counts_vectors_but_not_pre_training_beside_other_tasks():
    values = {"classification": 0.4, "contrastive": 0.8, "masked_lm": 0.1}
    found = {kind: (PROBLEMS[kind](kind), value) for kind, value in values.items()}
    assert aggregates(found)["mean"] == pytest.approx(0.6)
    assert aggregates({"masked_lm": found["masked_lm"]})["mean"] == 0.1


def test_a_stock_classifier_of_pairs_says_yes_by_its_second_class():
    logits = [[2.0, 1.0], [-3.0, -1.0], [1.0, 4.0], [3.0, 2.0]]
    assert measure("paraphrase", logits, [0, 1, 1, 0])["accuracy"] == 1
    probabilities = PROBLEMS["paraphrase"]("t").probabilities(np.asarray(logits))
    assert probabilities == pytest.approx(softmax(logits, axis=1))


@pytest.mark.parametrize("logits", [np.ones((7, 1)), np.full((7, 1), np.nan), np.ones((1, 1))])
def test_an_undefined_correlation_is_zero_with_a_warning(logits, caplog):
    with caplog.at_level(logging.WARNING):
        metrics = measure("similarity", logits, np.arange(len(logits)))

    assert metrics == {"pearson": 0.0, "spearman": 0.0}
    assert "pearson is undefined" in caplog.text


def test_the_standard_error_of_a_correlation_is_close_to_theory_and_reproducible():
    left = RANDOM.normal(size=(2000, 1))
    right = left[:, 0] + RANDOM.normal(size=2000)

    error = standard_error("similarity", left, right)

    # Fisher: (1 - r^2) / sqrt(N) for normal data
    assert error == pytest.approx((1 - 0.5) / 2000**0.5, rel=0.15)
    assert error == standard_error("similarity", left, right)


def test_draws_without_a_correlation_do_not_count_for_its_standard_error():
    """A draw of rows with one label has none; as a 0 it would hide the others."""
    labels = np.array([0.0] * 18 + [5.0] * 2)
    noise = 0.1 * np.random.default_rng(0).standard_normal((20, 1))

    assert standard_error("similarity", labels[:, None] + noise, labels) < 0.05


def test_unknown_problem_types_are_refused():
    with pytest.raises(ValueError, match="unknown problem_type 'tagging'; known: classification"):
        make_problems({"t": "tagging"})


def test_a_metric_that_was_chosen_comes_first():
    logits = RANDOM.normal(size=(53, 2)).astype(np.float32)
    labels = RANDOM.integers(0, 2, size=53)

    metrics = measure("classification", logits, labels, ("matthews_correlation",))

    assert list(metrics) == ["matthews_correlation", "accuracy", "macro_f1"]
    expected = matthews_corrcoef(labels, logits.argmax(1))
    assert metrics["matthews_correlation"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("classification", "acc", "did you mean 'accuracy'"),
        ("similarity", "accuracy", "unknown similarity metric 'accuracy'; known: pearson"),
        ("contrastive", "accuracy", "the metrics of contrastive tasks are fixed; leave `metrics`"),
    ],
)
def test_a_metric_of_another_problem_type_is_refused(kind, name, message):
    with pytest.raises(ValueError, match=message):
        PROBLEMS[kind]("t", metrics=(name,))


REFERENCES = {
    "accuracy": accuracy_score,
    "f1": lambda labels, found: f1_score(labels == 1, found == 1, zero_division=0),
    "macro_f1": lambda labels, found: f1_score(labels, found, average="macro", zero_division=0),
    "matthews_correlation": matthews_corrcoef,
    "mae": mean_absolute_error,
    "quadratic_weighted_kappa": partial(cohen_kappa_score, weights="quadratic", labels=range(4)),
    "pearson": lambda labels, found: pearsonr(found, labels).statistic,
    "spearman": lambda labels, found: spearmanr(found, labels).statistic,
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("classes", [2, 4])
def test_scores_equal_scikit_learn_and_scipy(name, classes):
    found, labels = RANDOM.integers(0, classes, size=(2, 7, 23)).astype(np.float64)
    if classes > 2:
        found[0, found[0] == 0] = labels[0, labels[0] == 0] = 1  # a draw that lacks a class

    assert set(METRICS) == set(REFERENCES)
    found[1] = 1.0 if name in ("f1", "matthews_correlation") else found[1]  # one side is constant
    scores = [METRICS[name].score(*draw) for draw in zip(found, labels, strict=True)]

    expected = [REFERENCES[name](*draw) for draw in zip(labels, found, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_the_score_of_glue_averages_the_numbers_of_a_task_first():
    # the numbers of BERT-large in table 1 of Devlin et al. 2019, in the form of the leaderboard
    values = {"cola": [60.5], "mnli": [86.7, 85.9], "mrpc": [89.3, 85.4]}

    assert glue_score(values) == pytest.approx((60.5 + 86.3 + 87.35) / 3)
