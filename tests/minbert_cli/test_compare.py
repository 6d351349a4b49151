"""The paired bootstrap."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from seqeval.metrics import f1_score

from minbert_cli.experiments.compare import (
    ScoredRows,
    _judge,
    compare_runs,
    describe_differences,
    read_scored_rows,
)
from trainers import PROBLEMS, Predicted
from trainers.problems.base import read_predictions
from trainers.problems.questions import QuestionAnswers, write_answers
from trainers.problems.tags import Tagged, read_tags, write_tags

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


def test_the_interval_of_an_accuracy_equals_its_normal_limit():
    first, second = make_classes(0.7, 1), make_classes(0.75, 2)

    found = compare_task(first, second)

    right = [(run.values == run.labels).astype(float) for run in (first, second)]
    change = right[1] - right[0]
    error = change.std() / np.sqrt(ROWS)
    assert (found.first, found.second) == (right[0].mean(), right[1].mean())
    assert found.low == pytest.approx(change.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(change.mean() + 1.96 * error, abs=0.1 * error)


@pytest.mark.parametrize("better", [0.70, 0.74, 0.78])
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


def test_pairing_narrows_the_interval():
    """Two runs that err on the same rows differ significantly even with few rows."""
    first = make_classes(0.6, 1)
    predictions = first.values.copy()
    wrong = np.flatnonzero(predictions != first.labels)[:20]
    predictions[wrong] = first.labels[wrong]

    found = compare_task(first, replace(first, values=predictions))

    unpaired = np.sqrt(2 * 0.6 * 0.4 / ROWS)
    assert found.high - found.low < 2 * 1.96 * unpaired / 2
    assert found.low > 0
    assert found.p_value < 0.001


def test_equal_runs_do_not_differ():
    found = compare_task(make_scores(1, 1), make_scores(1, 1), resamples=200)

    assert (found.low, found.high, found.p_value) == (0, 0, 1)


def test_p_is_never_zero_and_the_order_only_turns_the_sign():
    runs = make_classes(0.5, 1), make_classes(0.9, 2)

    there, back = compare_task(*runs, resamples=999), compare_task(*runs[::-1], resamples=999)

    assert there.p_value == back.p_value == pytest.approx(2 / 1000)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_the_seed_decides():
    runs = make_classes(0.7, 1), make_classes(0.72, 2)

    assert compare_task(*runs, resamples=500) == compare_task(*runs, resamples=500)
    assert compare_task(*runs, resamples=500) != compare_task(*runs, resamples=500, seed=1)


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


def test_runs_with_different_tasks_are_compared_on_shared_ones():
    first = {"a": make_classes(0.7, 1), "b": make_scores(2.0, 3)}

    (found,) = compare_runs(first, {"b": make_scores(1.0, 4)}, resamples=100)

    assert found.task == "b"
    with pytest.raises(ValueError, match="no task in common: a, b; c"):
        compare_runs(first, {"c": make_scores(1.0, 4)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ids": [str(number) for number in range(1, ROWS + 1)]},
            "on different rows \\(400 and 400",
        ),
        ({"problem": make_problem("paraphrase")}, "on different rows"),
        ({"labels": np.zeros(ROWS)}, "the labels of the runs differ"),
    ],
)
def test_different_rows_are_refused(change, message):
    first = make_classes(0.7, 1)

    with pytest.raises(ValueError, match=f"task 'task': .*{message}"):
        compare_task(first, replace(first, **change))


def test_a_resample_is_needed():
    with pytest.raises(ValueError, match="resamples=0; expected 1 or more"):
        compare_task(make_classes(0.7, 1), make_classes(0.7, 2), resamples=0)


def test_a_table_shows_the_signed_difference():
    text = describe_differences(
        compare_runs({"a": make_classes(0.9, 1)}, {"a": make_classes(0.5, 2)}, resamples=99)
    )

    (line,) = [line for line in text.splitlines() if line.startswith("| a ")]
    assert " -0." in line
    assert "| 0.0200 |" in line


@pytest.fixture
def run(tmp_path):
    """Write the results of a run of one task; return its folder and its labels."""
    rows = make_scores(1.0, 1)
    outputs = Predicted(None, rows.values, None)
    rows.problem.write(tmp_path / "predictions", "sts-dev", outputs, {"id": rows.ids})
    content = {
        "tasks": {"sts": {"problem_type": "similarity", "score_range": [0, 5]}},
        "validation": {"metrics": {"sts_pearson": rows.metric}},
    }
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    return tmp_path, {"sts": (rows.ids, rows.labels)}


def test_predictions_of_a_run_are_read_with_its_labels(run):
    folder, labels = run

    scored = read_scored_rows(folder, labels)

    np.testing.assert_allclose(scored["sts"].values, make_scores(1.0, 1).values, 1e-6)
    assert scored["sts"].ids == labels["sts"][0]


def test_changed_labels_are_noticed(run):
    folder, labels = run
    ids, values = labels["sts"]

    with pytest.raises(ValueError, match="the labels have changed, repeat the run"):
        read_scored_rows(folder, {"sts": (ids, values[::-1])})
    with pytest.raises(ValueError, match="its 400 rows are not the current 399 validation rows"):
        read_scored_rows(folder, {"sts": (ids[1:], values[1:])})


def test_a_run_without_results_is_named(run, tmp_path):
    folder, labels = run
    (folder / "predictions" / "sts-dev-output.csv").unlink()

    with pytest.raises(ValueError, match=r"sts-dev-output.csv' is missing; repeat the run"):
        read_scored_rows(folder, labels)
    with pytest.raises(ValueError, match=r"has no metrics.json; expected a finished run"):
        read_scored_rows(tmp_path / "nothing", labels)


def test_a_broken_line_of_predictions_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id \t Predicted_Sentiment \na , 3 \nb , \n")

    with pytest.raises(ValueError, match=r"a.csv:3: 'b , '; expected an id"):
        read_predictions(path)


def test_an_id_may_have_a_comma(tmp_path):
    outputs = Predicted(None, np.array([1, 0]), None)
    make_problem("paraphrase").write(tmp_path, "a", outputs, {"id": ["a , b", "c"]})

    ids, values = read_predictions(tmp_path / "a-output.csv")

    assert ids == ["a , b", "c"]
    assert values.tolist() == [1, 0]


# Questions and tags


def write_run(folder, task, head, metrics):
    content = {"tasks": {task: head}, "validation": {"metrics": metrics}}
    (folder / "metrics.json").write_text(json.dumps(content))
    return folder


def lists(values):
    return np.fromiter(values, dtype=object)


ANSWERS = lists([["the red fox", "fox"], ["in 1887"], ["Vienna"], ["two dogs"]])


def write_questions(folder, texts, f1, **head):
    ids = [f"q{number}" for number in range(len(texts))]
    found = [QuestionAnswers(name, text, [], None) for name, text in zip(ids, texts, strict=True)]
    write_answers(folder / "predictions", found, "qa-dev-")
    write_run(folder, "qa", {"problem_type": "question_answering", **head}, {"qa_f1": f1})
    return ids


def test_answers_of_two_runs_are_compared_by_their_f1(tmp_path):
    # 1, 2/3 (1887 of two words), 0 and 1; the second run has all but the last right
    ids = write_questions(
        tmp_path / "a", ["A Fox!", "1887", "Graz", "two dogs"], (3 + 2 / 3) / 4 - 0.25
    )
    write_questions(tmp_path / "b", ["fox", "in 1887", "Vienna", "cats"], 0.75)

    first, second = (
        read_scored_rows(tmp_path / name, {"qa": (ids, ANSWERS)}) for name in ("a", "b")
    )
    (found,) = compare_runs(first, second, resamples=500)

    assert first["qa"].values == pytest.approx([1, 2 / 3, 0, 1])
    assert second["qa"].values.tolist() == [1, 1, 1, 0]
    assert (found.metric, found.rows) == ("f1", 4)
    assert found.second - found.first == pytest.approx((1 / 3 + 1 - 1) / 4)
    assert found.low < 0 < found.high


def test_a_question_without_answer_counts_as_in_squad_2(tmp_path):
    answers = lists([["fox"], []])
    ids = write_questions(tmp_path, ["fox", ""], 1.0, null_score_diff_threshold=0.0)

    assert read_scored_rows(tmp_path, {"qa": (ids, answers)})["qa"].values.tolist() == [1, 1]


def test_changed_answers_and_questions_are_noticed(tmp_path):
    ids = write_questions(tmp_path, ["fox", "in 1887", "Vienna", "cats"], 0.75)

    with pytest.raises(ValueError, match=r"f1 is 0.4167, but metrics.json has 0.7500"):
        read_scored_rows(tmp_path, {"qa": (ids, lists([["cow"], ["1887"], ["Rome"], ["cats"]]))})
    with pytest.raises(ValueError, match=r"its 4 rows are not the current 3 validation rows"):
        read_scored_rows(tmp_path, {"qa": (ids[1:], ANSWERS[1:])})
    (tmp_path / "predictions" / "qa-dev-predictions.json").write_text("{")
    with pytest.raises(ValueError, match=r"predictions.json' cannot be read"):
        read_scored_rows(tmp_path, {"qa": (ids, ANSWERS)})


NAMES = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def write_sentences(folder, right, seed, sentences=60):
    """Write a run whose tags are right with some probability; return its labels."""
    labels = np.random.default_rng(0).choice(5, (sentences, 8), p=[0.6, 0.1, 0.1, 0.1, 0.1])
    generator = np.random.default_rng(seed)
    given = generator.integers(5, size=labels.shape)
    tags = np.where(generator.random(labels.shape) < right, labels, given)
    tagged = Tagged(tags.ravel(), labels.ravel(), np.repeat(np.arange(sentences), 8))
    path = folder / "predictions" / "ner-dev-output.txt"
    write_tags(path, ["a word"] * labels.size, tagged, NAMES)
    named = [[[NAMES[tag] for tag in row] for row in rows.tolist()] for rows in (labels, tags)]
    head = {"problem_type": "token_classification", "labels": NAMES}
    write_run(folder, "ner", head, {"ner_f1": float(f1_score(*named))})
    return named


def test_tags_of_two_runs_are_compared_by_sentences(tmp_path):
    labels, first_tags = write_sentences(tmp_path / "a", 0.6, 1)
    _, second_tags = write_sentences(tmp_path / "b", 0.9, 2)
    rows = {"ner": ([str(number) for number in range(60)], lists(labels))}

    first, second = (read_scored_rows(tmp_path / name, rows)["ner"] for name in ("a", "b"))
    (found,) = compare_runs({"ner": first}, {"ner": second}, resamples=300)

    drawn = np.random.default_rng(3).integers(60, size=(5, 60))
    for row, values in zip(
        drawn, zip(first.score(drawn), second.score(drawn), strict=True), strict=True
    ):
        for tags, value in zip((first_tags, second_tags), values, strict=True):
            chosen = [[sentences[place] for place in row] for sentences in (labels, tags)]
            assert value == pytest.approx(f1_score(*chosen))
    assert (found.metric, found.rows, found.task) == ("f1", 60, "ner")
    assert found.low > 0


def test_changed_tags_and_broken_lines_are_noticed(tmp_path):
    labels, _ = write_sentences(tmp_path, 0.8, 1)
    ids = [str(number) for number in range(60)]

    with pytest.raises(ValueError, match="its 60 rows are not the current 60 validation rows"):
        read_scored_rows(tmp_path, {"ner": (ids, lists(labels[::-1]))})
    path = tmp_path / "predictions" / "ner-dev-output.txt"
    path.write_text("a O O\n\nb O\n")
    with pytest.raises(ValueError, match=r"output.txt:3: 'b O'; expected a word and two tags"):
        read_tags(path)


def test_no_entity_at_all_is_an_f1_of_zero():
    problem = make_problem("token_classification")
    rows = ScoredRows(problem, ["a"], np.zeros((1, 3), int), lists([["O"]]))

    assert rows.metric == 0
