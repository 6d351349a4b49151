"""The paired bootstrap."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from minbert_cli.compare import ScoredRows, compare_runs
from trainers import PROBLEMS

ROWS = 400


def make_classes(accuracy, seed):
    """Predict labels that are the same for every seed."""
    labels = np.random.default_rng(0).integers(2, size=ROWS)
    right = np.random.default_rng(seed).random(ROWS) < accuracy
    ids = [f"row{number}" for number in range(ROWS)]
    problem = PROBLEMS["classification"]("task")
    return ScoredRows(problem, ids, np.where(right, labels, 1 - labels).astype(float), labels * 1.0)


def make_scores(noise, seed):
    labels = np.random.default_rng(1).uniform(0, 5, ROWS)
    scores = labels + noise * np.random.default_rng(seed).standard_normal(ROWS)
    ids = [str(number) for number in range(ROWS)]
    return ScoredRows(PROBLEMS["similarity"]("task"), ids, scores, labels)


def compare_task(first, second):
    (found,) = compare_runs({"task": first}, {"task": second})
    return found


@pytest.mark.parametrize("better", [0.70, 0.78])
def test_p_of_an_accuracy_agrees_with_the_test_of_the_rows_that_differ(better):
    """McNemar's exact test asks only which run is right where one of them is."""
    first, second = make_classes(0.7, 1), make_classes(better, 2)

    found = compare_task(first, second)

    left, right = (run.values == run.labels for run in (first, second))
    wins, losses = int((right & ~left).sum()), int((left & ~right).sum())
    assert found.p_value == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, abs=0.04)


def test_aggregates_are_compared_with_halved_correlations():
    first = {"a": make_classes(0.7, 1), "b": make_scores(2.0, 3)}
    second = {"a": make_classes(0.8, 2), "b": make_scores(1.0, 4)}

    a, b, mean, board = compare_runs(first, second)

    gains = [found.second - found.first for found in (a, b, mean, board)]
    assert gains[2] == pytest.approx((gains[0] + gains[1]) / 2)
    assert gains[3] == pytest.approx((gains[0] + gains[1] / 2) / 2)
    assert [found.metric for found in (a, b, mean, board)] == [
        "accuracy",
        "pearson",
        "mean",
        "leaderboard",
    ]
    # the rows of tasks are independent: variances add
    widths = [found.high - found.low for found in (a, b, mean, board)]
    assert widths[2] == pytest.approx(np.hypot(widths[0], widths[1]) / 2, rel=0.05)
    assert widths[3] == pytest.approx(np.hypot(widths[0], widths[1] / 2) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": [str(number) for number in range(1, ROWS + 1)]}, "on different rows \\(400 and"),
        ({"labels": np.zeros(ROWS)}, "the labels of the runs differ"),
        ({"texts": "other"}, "the texts of the runs differ"),
    ],
)
def test_different_rows_are_refused(change, message):
    first = replace(make_classes(0.7, 1), texts="same")

    with pytest.raises(ValueError, match=f"task 'task': .*{message}"):
        compare_task(first, replace(first, **change))


def test_draws_without_a_correlation_do_not_count():
    """A draw of rows with one label has none; as a 0 it would hide any difference."""
    labels = np.array([0.0] * 18 + [5.0] * 2)
    noise = 0.1 * np.random.default_rng(0).standard_normal(20)
    good = ScoredRows(
        PROBLEMS["similarity"]("task"), list(map(str, labels)), labels + noise, labels
    )

    found = compare_task(replace(good, values=-good.values), good)
    error = good.problem.standard_error(SimpleNamespace(predictions=good.values, labels=labels), {})

    assert found.p_value < 0.001
    assert found.low > 1.9
    assert error < 0.05
