"""Ordinal classification: the order of labels, metrics and comparisons."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from datasets_scripts import TaskData, load_task
from modeling_minbert import parse_task
from tests.small_run import load_rows
from trainers import PROBLEMS, Predicted

GRADES = ["poor", "fair", "good"]


# Data


def load(folder, values, **keys):
    rows = [{"text": f"text {number}", "y": value} for number, value in enumerate(values)]
    keys = {"problem_type": "ordinal", "text_columns": ["text"], "label_column": "y", **keys}
    return load_rows(folder, "rows.jsonl", rows, "stars", **keys)


@pytest.mark.parametrize(
    ("labels", "keys", "names", "numbers"),
    [
        ([10, 2, 1], {}, ("1", "2", "10"), [2, 1, 0]),
        (["-1", "0.5", "0"], {}, ("-1", "0", "0.5"), [0, 2, 1]),
        (["poor", "good", "fair"], {"labels": GRADES}, tuple(GRADES), [0, 2, 1]),
        ([2, 0, 1], {"labels": GRADES}, tuple(GRADES), [2, 0, 1]),
        ([5, 3, 4], {"labels": [5, 4, 3]}, ("5", "4", "3"), [0, 2, 1]),
    ],
)
def test_labels_are_in_their_order(tmp_path, labels, keys, names, numbers):
    loaded = load(tmp_path, labels, **keys)

    assert loaded.labels == names
    assert loaded.splits["train"]["label"][:] == numbers


@pytest.mark.parametrize(
    ("labels", "keys", "message"),
    [
        (["1", "2", "many"], {}, "in no known order"),
        ([1, 2, 3], {"labels": [1, 3, 2]}, "numbers, but not all different and in order"),
        (["1", "01", "2"], {}, "numbers, but not all different and in order"),
    ],
)
def test_an_unknown_order_is_refused(tmp_path, labels, keys, message):
    with pytest.raises(ValueError, match=f"task 'stars': .*{message}"):
        load(tmp_path, labels, **keys)


def test_a_built_in_dataset_is_read_as_another_type_that_fits():
    plain = TaskData.from_recipe("tone", {"dataset": "sample_sst"})
    ordered = TaskData.from_recipe("tone", {"dataset": "sample_sst", "problem_type": "ordinal"})
    same = TaskData.from_recipe("tone", {"dataset": "sst", "problem_type": "classification"})

    assert (plain.problem_type, same.problem_type) == ("classification", "classification")
    loaded = [load_task(data) for data in (plain, ordered)]
    assert [task.problem_type for task in loaded] == ["classification", "ordinal"]
    assert loaded[0].fingerprint == loaded[1].fingerprint
    assert loaded[0].labels == loaded[1].labels
    with pytest.raises(ValueError, match="'quora' has the problem_type paraphrase, not 'ordinal'"):
        TaskData.from_recipe("q", {"dataset": "quora", "problem_type": "ordinal"})


# Metrics


def test_a_class_that_no_row_has_keeps_its_distance():
    labels, predictions = np.array([0, 2, 3, 3]), np.array([0, 3, 3, 2])

    expected = cohen_kappa_score(labels, predictions, weights="quadratic", labels=range(4))

    spec = parse_task("stars", {"problem_type": "ordinal", "labels": ["1", "2", "3", "4"]})
    problem = PROBLEMS["ordinal"]("stars", spec)
    metrics = problem.compute_metrics(Predicted(None, predictions, labels))
    assert metrics["quadratic_weighted_kappa"] == pytest.approx(expected)
    assert expected != pytest.approx(cohen_kappa_score(labels, predictions, weights="quadratic"))


def test_a_model_that_cannot_decode_predicts_the_median():
    probabilities = np.array([[0.4, 0.15, 0.45], [0.51, 0.0, 0.49], [0.2, 0.2, 0.6]])

    assert PROBLEMS["ordinal"]("stars").decide(np.log(probabilities + 1e-9)).tolist() == [1, 0, 2]
