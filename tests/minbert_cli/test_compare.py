"""The paired bootstrap."""

import json
from dataclasses import replace

import datasets
import numpy as np
import pytest
from scipy import stats
from seqeval.metrics import f1_score

from minbert_cli.experiments.compare import (
    ScoredRows,
    _judge,
    compare_runs,
    read_scored_rows,
)
from modeling_minbert import parse_task
from trainers import PROBLEMS, Predicted, Tagged
from trainers.reports.results import write_sample

ROWS = 400


def make_problem(kind, *metrics):
    return PROBLEMS[kind]("task", metrics=metrics)


def make_classes(accuracy, seed, kind="classification", metrics=()):
    """Predict labels that are the same for every seed."""
    labels = np.random.default_rng(0).integers(2, size=ROWS)
    right = np.random.default_rng(seed).random(ROWS) < accuracy
    ids = [f"row{number}" for number in range(ROWS)]
    problem = make_problem(kind, *metrics)
    return ScoredRows(problem, ids, np.where(right, labels, 1 - labels).astype(float), labels * 1.0)


def make_scores(noise, seed):
    labels = np.random.default_rng(1).uniform(0, 5, ROWS)
    scores = labels + noise * np.random.default_rng(seed).standard_normal(ROWS)
    ids = [str(number) for number in range(ROWS)]
    return ScoredRows(make_problem("similarity"), ids, scores, labels)


def compare_task(first, second, **keys):
    (found,) = compare_runs({"task": first}, {"task": second}, **keys)
    return found


@pytest.mark.parametrize("better", [0.70, 0.78])
def test_p_of_an_accuracy_agrees_with_the_test_of_the_rows_that_differ(better):
    """McNemar's exact test asks only which run is right where one of them is."""
    first, second = make_classes(0.7, 1), make_classes(better, 2)

    found = compare_task(first, second)

    left, right = (run.values == run.labels for run in (first, second))
    wins, losses = int((right & ~left).sum()), int((left & ~right).sum())
    assert found.p_value == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, abs=0.04)


def test_a_tie_of_sums_counts_on_both_sides():
    tie = (281 / 400 - 280 / 400 + 239 / 400 - 240 / 400) / 2
    assert tie > 0
    drawn = np.array([tie, -0.1, *[0.1] * 7])

    found = _judge("all", "mean", 400, 0.5, 0.5, drawn)

    assert found.p_value == pytest.approx(2 * (2 + 1) / (9 + 1))


def test_a_correlation_is_resampled_with_its_labels():
    first, second = make_scores(1.5, 1), make_scores(1.0, 2)

    found = compare_task(first, second, resamples=3000)

    generator = np.random.default_rng(5)
    drawn = []
    for _ in range(3000):
        rows = generator.integers(ROWS, size=ROWS)
        values = [np.corrcoef(run.values[rows], run.labels[rows])[0, 1] for run in (first, second)]
        drawn.append(values[1] - values[0])
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.second == pytest.approx(stats.pearsonr(second.values, second.labels).statistic)
    assert found.low == pytest.approx(low, abs=0.06 * (high - low))
    assert found.high == pytest.approx(high, abs=0.06 * (high - low))
    assert found.p_value < 0.01


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
        (
            {"ids": [str(number) for number in range(1, ROWS + 1)]},
            "on different rows \\(400 and 400",
        ),
        ({"labels": np.zeros(ROWS)}, "the labels of the runs differ"),
    ],
)
def test_different_rows_are_refused(change, message):
    first = make_classes(0.7, 1)

    with pytest.raises(ValueError, match=f"task 'task': .*{message}"):
        compare_task(first, replace(first, **change))


def write_run(folder, task, head, outputs, rows):
    """Write the results of a run of one task, as far as they are compared."""
    problem = PROBLEMS[head["problem_type"]](task, parse_task(task, head))
    write_sample(folder / "predictions" / f"{task}-dev.npz", problem, outputs, rows)
    (folder / "metrics.json").write_text(json.dumps({"tasks": {task: head}}))
    return read_scored_rows(folder)


def test_the_sample_of_a_run_is_read_with_its_labelled_rows(tmp_path):
    rows = make_scores(1.0, 1)
    outputs = Predicted(None, rows.values, np.append(rows.labels[:-1], -100))
    table = datasets.Dataset.from_dict({"id": rows.ids, "labels": outputs.labels})

    (scored,) = write_run(
        tmp_path, "sts", {"problem_type": "similarity", "score_range": [0, 5]}, outputs, table
    ).values()

    assert scored.ids == rows.ids[:-1]
    expected = stats.pearsonr(rows.values[:-1], rows.labels[:-1]).statistic
    assert scored.metric == pytest.approx(expected)


# Tags

NAMES = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def write_sentences(folder, right, seed, sentences=60):
    """Write a run whose tags are right with some probability; return them and its rows."""
    labels = np.random.default_rng(0).choice(5, (sentences, 8), p=[0.6, 0.1, 0.1, 0.1, 0.1])
    generator = np.random.default_rng(seed)
    given = generator.integers(5, size=labels.shape)
    tags = np.where(generator.random(labels.shape) < right, labels, given)
    tagged = Tagged(tags.ravel(), labels.ravel(), np.repeat(np.arange(sentences), 8))
    head = {"problem_type": "token_classification", "labels": NAMES}
    rows = write_run(folder, "ner", head, tagged, None)
    named = [[[NAMES[tag] for tag in row] for row in rows.tolist()] for rows in (labels, tags)]
    return *named, rows["ner"]


def test_tags_of_two_runs_are_compared_by_sentences(tmp_path):
    labels, first_tags, first = write_sentences(tmp_path / "a", 0.6, 1)
    _, second_tags, second = write_sentences(tmp_path / "b", 0.9, 2)

    (found,) = compare_runs({"ner": first}, {"ner": second}, resamples=300)

    drawn = np.random.default_rng(3).integers(60, size=(5, 60))
    for run, tags in ((first, first_tags), (second, second_tags)):
        for row in drawn:
            chosen = [[sentences[place] for place in row] for sentences in (labels, tags)]
            score = run.problem.score(run.values[row], run.labels[row])
            assert score == pytest.approx(f1_score(*chosen))
    assert (found.metric, found.rows, found.task) == ("f1", 60, "ner")
    assert found.low > 0
    assert first.ids[0] == f"0 {' '.join(labels[0])}"
