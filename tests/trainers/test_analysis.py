"""Confusions, calibration and errors, against scikit-learn and by hand."""

import datasets
import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix

from modeling_minbert import MinBertConfig
from trainers import PROBLEMS, Evaluated, Predicted, calibrate

ROWS = datasets.Dataset.from_dict({"id": list(map(str, range(9)))})


def analyse(kind, logits, predictions, right, most=0, **head):
    evaluated = Evaluated(Predicted(logits, predictions, right), ROWS, None, most)
    tasks = {"t": {"problem_type": kind, **head}}
    spec = MinBertConfig(tasks=tasks).task("t") if head else None
    return {block.title: block for block in PROBLEMS[kind]("t", spec).describe(evaluated)}


def find_errors(*arguments):
    return [(int(row.id), row.size) for row in analyse(*arguments, 2)["Worst errors"].rows]


def test_the_calibration_error_equals_a_hand_computation():
    # bins (0.5, 0.6], (0.8, 0.9] and (0.9, 1]: gaps |1 - 0.6|, |0.5 - 0.85| and |1 - 0.95|;
    # the row without a finite confidence counts for nothing
    confidences = np.array([0.6, 0.82, np.nan, 0.88, 0.95])

    found = calibrate(confidences, np.array([True, False, True, True, True]))

    assert found["ece"] == pytest.approx((1 * 0.4 + 2 * 0.35 + 1 * 0.05) / 4)
    assert found["confidence"] == pytest.approx(0.8125)
    assert found["accuracy"] == 0.75
    assert [part["rows"] for part in found["bins"]] == [1, 2, 1]
    assert calibrate(confidences[2:3], np.array([True]))["ece"] is None


def test_the_bins_equal_scikit_learn():
    generator = np.random.default_rng(1)
    confidences = generator.uniform(size=500)
    correct = generator.uniform(size=500) < confidences**2

    found = calibrate(confidences, correct)

    accuracy, confidence = calibration_curve(correct, confidences, n_bins=10)
    assert [part["accuracy"] for part in found["bins"]] == pytest.approx(accuracy)
    assert [part["confidence"] for part in found["bins"]] == pytest.approx(confidence)


def test_the_confusion_matrix_equals_scikit_learn():
    generator = np.random.default_rng(0)
    logits = generator.normal(scale=2, size=(200, 3)).astype(np.float32)
    predictions, labels = logits.argmax(axis=1), generator.integers(0, 3, size=200)

    found = analyse("classification", logits, predictions, labels, labels=["a", "b"])

    *rows, totals = found["Confusion matrix"].rows
    counts = confusion_matrix(labels, predictions)
    assert [row[0] for row in rows] == ["a", "b", "2"]
    assert [row[1:-1] for row in rows] == counts.tolist()
    assert [row[-1] for row in rows] == [(labels == number).sum() for number in range(3)]
    assert totals == ["predictions", *counts.sum(axis=0), len(labels)]
    # the confidence is that of the prediction, not of the label
    said = PROBLEMS["classification"]("t").probabilities(logits).max(axis=1)
    note = f"mean confidence {said.mean():.3f}, accuracy {(predictions == labels).mean():.3f}"
    assert note in found["Reliability"].note


def test_many_classes_have_the_most_frequent_confusions():
    count = 25  # a matrix has up to 20
    labels = np.repeat(np.arange(count), np.arange(1, count + 1))
    predictions = np.where(labels == count - 1, 0, labels)

    found = analyse("classification", np.eye(count)[predictions], predictions, labels)

    assert "Confusion matrix" not in found
    assert found["Most frequent confusions"].rows == [[str(count - 1), "0", count]]


def test_the_calibration_of_test_rows_is_drawn_beside():
    outputs = Predicted(np.eye(2), np.arange(2), np.arange(2))
    problem = PROBLEMS["classification"]("t")

    blocks = problem.describe(Evaluated(outputs, ROWS, others={"test": outputs}))

    (figure,) = [block for block in blocks if block.title == "Reliability"]
    assert set(figure.series) == {"validation", "test"}
    assert "on test rows (mean confidence 0.731, accuracy 1.000)" in figure.note


def test_scores_are_spread():
    generator = np.random.default_rng(2)
    labels = generator.uniform(0, 5, size=20_000).astype(np.float32)
    scores = np.clip(labels + generator.normal(size=20_000), 0, 5)

    found = analyse("similarity", scores[:, None], scores, labels, score_range=[0, 5])

    points = found["Predictions and labels"].series["rows"]
    assert len(points) == 1000
    assert points[0] == pytest.approx([labels[0], scores[0]], abs=1e-4)
    assert points[-1] == pytest.approx([labels[-1], scores[-1]], abs=1e-4)
    assert "1,000 of 20,000 rows, evenly spread" in found["Predictions and labels"].note


def test_the_worst_errors_are_those_with_the_least_probable_label():
    logits = np.log([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.05, 0.9, 0.05], [0.2, 0.5, 0.3]])
    predictions, labels = np.array([0, 2, 1, 1]), np.array([1, 1, 1, 0])

    # row 2 is right, row 1 gave its label more than rows 0 and 3, which are equal
    expected = [(0, pytest.approx(0.7)), (3, pytest.approx(0.5))]
    assert find_errors("classification", logits, predictions, labels) == expected
