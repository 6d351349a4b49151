"""Confident learning: the definitions of the paper written out, and labels that were flipped."""

import datasets
import numpy as np
import pytest

from modeling_minbert.tasks import parse_task
from trainers import PROBLEMS, Evaluated, Predicted
from trainers.problems.analysis import find_label_issues

BY_HAND = np.asarray(
    [
        [0.9, 0.1, 0.0],
        [0.7, 0.2, 0.1],
        [0.1, 0.8, 0.1],  # label 0
        [0.2, 0.7, 0.1],
        [0.6, 0.4, 0.0],  # label 1
        [0.0, 0.1, 0.9],
        [0.3, 0.3, 0.4],
    ]
)
LABELS = np.asarray([0, 0, 0, 1, 1, 2, 2])


def test_the_confident_joint_by_hand():
    # thresholds: 1.7 / 3 of class 0, 1.1 / 2 of class 1, 1.3 / 2 of class 2
    found = find_label_issues(LABELS, BY_HAND)

    assert found.rows.tolist() == [2, 4]
    assert found.suggested.tolist() == [1, 0]
    assert found.confidences.tolist() == [0.1, 0.4]


def find_slowly(labels, probabilities):
    """Equations 1 and 2 of Northcutt et al. 2021, row by row."""
    thresholds = {j: np.mean(probabilities[labels == j, j]) for j in set(labels.tolist())}
    found = {}
    for row, (label, own) in enumerate(zip(labels.tolist(), probabilities, strict=True)):
        confident = [j for j, threshold in thresholds.items() if own[j] >= threshold]
        if confident and label != own.argmax():
            true = max(confident, key=lambda j: own[j])
            if true != label:
                found[row] = own[label] - np.delete(own, label).max()
    return sorted(found, key=found.get)


@pytest.mark.parametrize("seed", range(5))
def test_the_rows_are_those_of_the_definition(seed):
    generator = np.random.default_rng(seed)
    labels = generator.choice(4, size=300, p=[0.6, 0.2, 0.15, 0.05])
    logits = generator.normal(size=(300, 4))
    logits[np.arange(300), labels] += 1.5
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    found = find_label_issues(labels, probabilities)

    assert found.rows.tolist() == find_slowly(labels, probabilities)


def test_nothing_is_found_in_labels_that_the_model_agrees_with():
    labels = np.asarray([0, 1, 0, 1])
    found = find_label_issues(labels, np.eye(2)[labels] * 0.8 + 0.1)

    assert len(found.rows) == 0


def test_rows_without_a_label_or_a_finite_probability_do_not_count():
    labels, probabilities = np.append(LABELS, [-100, 0]), np.vstack([BY_HAND, BY_HAND[:2]])
    probabilities[-1] = np.nan

    found, expected = find_label_issues(labels, probabilities), find_label_issues(LABELS, BY_HAND)

    assert found.counted == 7
    assert found.rows.tolist() == expected.rows.tolist()
    empty = find_label_issues(labels[-1:], probabilities[-1:])
    assert (empty.counted, len(empty.rows)) == (0, 0)


def test_no_row_is_suspected_of_a_class_without_labels():
    found = find_label_issues(np.asarray([0, 0, 1]), np.asarray([[0.1, 0.1, 0.8]] * 3))

    assert 2 not in found.suggested


# Reports

SPEC = parse_task("moods", {"problem_type": "classification", "labels": ["down", "up", "mixed"]})
ROWS = datasets.Dataset.from_dict(
    {"id": [f"r{row}" for row in range(7)], "sentence1": [f"text, {row}" for row in range(7)]}
)


def make_outputs():
    logits = np.log(BY_HAND + 1e-9)
    return Predicted(logits, logits.argmax(axis=1), LABELS)


def test_the_table_names_the_class_that_a_label_should_be():
    table = PROBLEMS["classification"]("moods", SPEC).tabulate(make_outputs())

    assert table["suggested_label"] == ["", "", "up", "", "down", "", ""]
    assert table["label"][2] == "down"


def test_the_report_has_the_first_of_them():
    problem = PROBLEMS["classification"]("moods", SPEC)

    *_, found = problem.describe(Evaluated(make_outputs(), ROWS, ROWS, 1))

    assert found.note.startswith("2 of 7 validation rows")
    (first,) = found.rows
    assert (first.id, first.label, first.prediction) == ("r2", "down", "up")
    assert first.texts == ["text, 2"]


def test_pairs_have_them():
    logits = np.asarray([[3.0], [2.0], [4.0], [-3.0], [-2.0]])
    outputs = Predicted(logits, (logits[:, 0] > 0).astype(int), np.asarray([1.0, 1, 0, 0, 0]))

    found = PROBLEMS["paraphrase"]("pairs").find_label_issues(outputs)

    assert found is not None
    assert found.rows.tolist() == [2]
    assert PROBLEMS["paraphrase"]("pairs").find_label_issues(outputs._replace(labels=None)) is None
