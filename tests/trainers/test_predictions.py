"""Prediction files, byte by byte."""

import numpy as np
import pytest

from trainers import PROBLEMS, Predicted


def write(folder, ids, predictions, problem_type="similarity"):
    outputs = Predicted(None, np.asarray(predictions), None)
    PROBLEMS[problem_type]("t").write(folder, "dev", outputs, {"id": ids})
    return folder / "dev-output.csv"


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
def test_the_bytes_equal_the_course_format(tmp_path, problem_type, predictions, expected):
    path = write(tmp_path / "predictions", ["x1", "x2"], predictions, problem_type)

    assert path.read_bytes() == expected
    assert [entry.name for entry in path.parent.iterdir()] == ["dev-output.csv"]


def test_bad_predictions_leave_the_old_file(tmp_path):
    path = tmp_path / "dev-output.csv"
    path.write_text("before")

    with pytest.raises(ValueError, match="prediction of row 'x' is nan"):
        write(tmp_path, ["x"], [float("nan")])

    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1
