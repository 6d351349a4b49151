"""Metrics against scikit-learn and scipy, and what sums them up."""

import logging

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import EvalPrediction

from trainers import (
    PRIMARY_METRIC,
    aggregates,
    check_metric,
    glue_score,
    standard_error,
    task_metrics,
)
from trainers.data.text import SCORES, TEXT_TYPES
from trainers.metrics.scores import METRIC_SCORES

RANDOM = np.random.default_rng(3)


def test_classification_equals_scikit_learn():
    logits = RANDOM.normal(size=(53, 5)).astype(np.float32)
    labels = RANDOM.integers(0, 5, size=53)

    metrics = task_metrics("classification")(EvalPrediction(logits, labels))

    decided = logits.argmax(1)
    assert metrics == {
        "accuracy": accuracy_score(labels, decided),
        "macro_f1": f1_score(labels, decided, average="macro"),
    }


def test_paraphrase_equals_scikit_learn():
    logits = RANDOM.normal(size=(53, 1)).astype(np.float32)
    labels = RANDOM.integers(0, 2, size=53).astype(np.float32)

    metrics = task_metrics("paraphrase")(EvalPrediction(logits, labels))

    decided = logits[:, 0] > 0
    assert metrics == {
        "accuracy": accuracy_score(labels, decided),
        "f1": f1_score(labels, decided),
        "macro_f1": f1_score(labels, decided, average="macro"),
    }


def test_similarity_equals_scipy():
    logits = RANDOM.normal(size=(53, 1)).astype(np.float32)
    labels = (logits[:, 0] + RANDOM.normal(size=53)).astype(np.float32)

    metrics = task_metrics("similarity")(EvalPrediction(logits, labels))

    assert metrics["pearson"] == pytest.approx(pearsonr(logits[:, 0], labels).statistic, abs=1e-6)
    assert metrics["spearman"] == pytest.approx(spearmanr(logits[:, 0], labels).statistic)


def test_a_metric_can_be_computed_again():
    compute = task_metrics("classification")
    right = EvalPrediction(np.eye(3), np.arange(3))
    wrong = EvalPrediction(np.eye(3), np.arange(3)[::-1])

    assert [compute(one)["accuracy"] for one in (right, wrong, right)] == [
        1,
        pytest.approx(1 / 3),
        1,
    ]


@pytest.mark.parametrize("logits", [np.ones((7, 1)), np.full((7, 1), np.nan), np.ones((1, 1))])
def test_an_undefined_correlation_is_zero_with_a_warning(logits, caplog):
    with caplog.at_level(logging.WARNING):
        metrics = task_metrics("similarity")(EvalPrediction(logits, np.arange(len(logits))))

    assert metrics == {"pearson": 0.0, "spearman": 0.0}
    assert "pearson is not defined" in caplog.text


@pytest.mark.parametrize("logit", [-1.0, 1.0])
def test_constant_decisions_give_numbers(logit):
    labels = np.zeros(4)

    metrics = task_metrics("paraphrase")(EvalPrediction(np.full((4, 1), logit), labels))

    assert np.isfinite(list(metrics.values())).all()


def test_every_problem_type_has_its_primary_metric():
    logits = {
        "classification": np.eye(2),
        "paraphrase": np.eye(2)[:, :1],
        "similarity": [[0.0], [1.0]],
        "contrastive": np.ones((2, 2, 1)),
    }
    logits |= dict.fromkeys(TEXT_TYPES, np.ones((2, len(SCORES))))

    for kind, values in logits.items():
        found = task_metrics(kind)(EvalPrediction(np.asarray(values), np.arange(2)))
        assert PRIMARY_METRIC[kind] in found
    # these are measured in words and questions, which several rows can share
    others = {"token_classification", "question_answering"}
    assert PRIMARY_METRIC.keys() == logits.keys() | others
    for kind in others:
        with pytest.raises(ValueError, match=r"use trainers\.[\w.]+"):
            task_metrics(kind)


def test_aggregates_follow_their_formulas():
    values = aggregates(
        {
            "sst": ("classification", 0.5),
            "quora": ("paraphrase", 0.8),
            "sts": ("similarity", 0.6),
        }
    )

    assert values == {
        "mean": pytest.approx((0.5 + 0.8 + 0.6) / 3),
        "leaderboard": pytest.approx((0.5 + 0.8 + (0.6 + 1) / 2) / 3),
    }


def test_the_standard_error_of_an_accuracy_is_the_binomial_one():
    logits = np.asarray([[1.0], [1.0], [1.0], [-1.0]])

    assert standard_error("paraphrase", logits, np.ones(4)) == pytest.approx(
        (0.75 * 0.25 / 4) ** 0.5
    )


def test_the_standard_error_of_a_correlation_is_close_to_theory_and_reproducible():
    left = RANDOM.normal(size=(2000, 1))
    right = left[:, 0] + RANDOM.normal(size=2000)

    error = standard_error("similarity", left, right)

    # Fisher: (1 - r^2) / sqrt(N) for normal data
    assert error == pytest.approx((1 - 0.5) / 2000**0.5, rel=0.15)
    assert error == standard_error("similarity", left, right)


def test_a_standard_error_needs_rows():
    with pytest.raises(ValueError, match="no rows"):
        standard_error("similarity", np.ones((0, 1)), [])


def test_unknown_problem_types_are_refused():
    with pytest.raises(ValueError, match="problem_type='tagging'; expected one of classification"):
        task_metrics("tagging")


def test_no_tasks_cannot_be_summed_up():
    with pytest.raises(ValueError, match="no tasks to aggregate"):
        aggregates({})


def test_the_model_s_own_predictions_are_measured():
    logits = np.array([[-4.0], [0.0], [1.0], [6.0]])
    labels = np.array([0.1, 0.4, 0.9, 1.0])

    def decode(values):
        return 1 / (1 + np.exp(-values[:, 0]))

    metrics = task_metrics("similarity", decode)(EvalPrediction(logits, labels))

    assert metrics["pearson"] == pytest.approx(pearsonr(decode(logits), labels).statistic)
    assert metrics["pearson"] != pytest.approx(pearsonr(logits[:, 0], labels).statistic)


def test_a_metric_that_was_chosen_comes_first():
    logits = RANDOM.normal(size=(53, 2)).astype(np.float32)
    labels = RANDOM.integers(0, 2, size=53)

    metrics = task_metrics("classification", metric=("matthews_correlation",))(
        EvalPrediction(logits, labels)
    )

    assert list(metrics) == ["matthews_correlation", "accuracy", "macro_f1"]
    expected = matthews_corrcoef(labels, logits.argmax(1))
    assert metrics["matthews_correlation"] == pytest.approx(expected)


def test_a_constant_prediction_has_no_matthews_correlation():
    compute = task_metrics("classification", metric=("matthews_correlation",))

    assert compute(EvalPrediction(np.eye(2)[[0, 0, 0]], np.array([0, 1, 0])))[
        "matthews_correlation"
    ] == pytest.approx(0)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("classification", "f1", "task 't': metric='f1' is none of a classification; it has acc"),
        ("similarity", "accuracy", "'accuracy' is none of a similarity; it has pearson, spearman"),
        ("contrastive", "accuracy", "none of a contrastive; its metrics are fixed, leave it out"),
    ],
)
def test_a_metric_of_another_problem_type_is_refused(kind, name, message):
    with pytest.raises(ValueError, match=message):
        check_metric("t", kind, (name,))


REFERENCES = {
    "accuracy": accuracy_score,
    "f1": lambda labels, found: f1_score(labels == 1, found == 1, zero_division=0),
    "macro_f1": lambda labels, found: f1_score(labels, found, average="macro", zero_division=0),
    "matthews_correlation": matthews_corrcoef,
    "pearson": lambda labels, found: pearsonr(found, labels).statistic,
    "spearman": lambda labels, found: spearmanr(found, labels).statistic,
}


@pytest.mark.parametrize("name", METRIC_SCORES)
@pytest.mark.parametrize("classes", [2, 4])
def test_scores_of_many_draws_equal_those_of_scikit_learn_and_scipy(name, classes):
    found, labels = RANDOM.integers(0, classes, size=(2, 7, 23)).astype(np.float64)
    if classes > 2:
        found[0, found[0] == 0] = labels[0, labels[0] == 0] = 1  # a draw that lacks a class

    scores = METRIC_SCORES[name](found, labels)

    expected = [REFERENCES[name](*draw) for draw in zip(labels, found, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1e-12)


@pytest.mark.parametrize("name", METRIC_SCORES)
def test_scores_of_constant_predictions_are_numbers(name):
    assert np.isfinite(METRIC_SCORES[name](np.zeros(6), np.array([0.0, 1, 0, 1, 1, 0])))


def test_the_standard_error_of_a_matthews_correlation_is_that_of_a_correlation():
    labels = RANDOM.integers(0, 2, size=2000)
    logits = np.eye(2)[np.where(RANDOM.random(2000) < 0.8, labels, 1 - labels)]
    error = standard_error("classification", logits, labels, metric="matthews_correlation")

    # for balanced classes it is 2 accuracy - 1
    accuracy = standard_error("classification", logits, labels)
    assert error == pytest.approx(2 * accuracy, rel=0.1)


def test_the_score_of_glue_averages_the_numbers_of_a_task_first():
    # the numbers of BERT-large in table 1 of Devlin et al. 2019, in the form of the leaderboard
    values = {"cola": [60.5], "mnli": [86.7, 85.9], "mrpc": [89.3, 85.4]}

    assert glue_score(values) == pytest.approx((60.5 + 86.3 + 87.35) / 3)
