"""Prediction files, byte by byte."""

import numpy as np
import pytest

from trainers import write_predictions
from trainers.reports.predictions import read_predictions


@pytest.mark.parametrize(
    ("problem_type", "predictions", "expected"),
    [
        (
            "classification",
            np.asarray([3, 0]),
            b"id \t Predicted_Sentiment \nx1 , 3 \nx2 , 0 \n",
        ),
        (
            "paraphrase",
            np.asarray([1, 0]),
            b"id \t Predicted_Is_Paraphrase \nx1 , 1.0 \nx2 , 0.0 \n",
        ),
        (
            "similarity",
            np.asarray([2.75, 0.1], dtype=np.float32),
            b"id \t Predicted_Similiary \nx1 , 2.75 \nx2 , 0.1 \n",
        ),
    ],
)
def test_the_bytes_are_those_of_the_course(tmp_path, problem_type, predictions, expected):
    path = tmp_path / "predictions" / "dev.csv"

    write_predictions(path, ["x1", "x2"], predictions, problem_type)

    assert path.read_bytes() == expected
    assert [entry.name for entry in path.parent.iterdir()] == ["dev.csv"]


def test_ids_with_odd_characters_are_read_back(tmp_path):
    ids = ["r1\x85x", "r2\u2028x", "r3 , x"]
    write_predictions(tmp_path / "dev.csv", ids, [0.5, 1.0, 2.0], "similarity")

    names, values = read_predictions(tmp_path / "dev.csv")

    assert names == ids
    assert values.tolist() == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("ids", "predictions", "problem_type", "message"),
    [
        (["x"], [1.0, 2.0], "similarity", "1 ids but 2 predictions"),
        (["x"], [float("nan")], "similarity", "prediction of row 'x' is nan"),
        (["x"], [1.0], "tagging", "problem_type='tagging'"),
    ],
)
def test_bad_predictions_leave_the_old_file(tmp_path, ids, predictions, problem_type, message):
    path = tmp_path / "dev.csv"
    path.write_text("before")

    with pytest.raises(ValueError, match=message):
        write_predictions(path, ids, predictions, problem_type)

    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1
