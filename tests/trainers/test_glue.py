"""Files of predictions, byte by byte: those of the server of GLUE and of the course."""

import zipfile

import numpy as np
import pytest
from datasets import Dataset

from trainers import PROBLEMS, GlueFile, Predicted, missing_files, write_submission

NLI = ("entailment", "neutral", "contradiction")
QNLI = GlueFile("QNLI", (*NLI[:1], "not_entailment"))


def submit(folder, ids, predictions, file=QNLI):
    """Write the file of one task; gives its lines."""
    values = np.asarray(predictions)
    outputs = {("q", "test"): Predicted(values[:, None], values, None)}
    rows = {"q": {"test": Dataset.from_dict({"id": ids})}}
    write_submission(folder, {("q", "test"): file}, rows, outputs)
    return (folder / "glue" / f"{file.name}.tsv").read_bytes().decode().splitlines()


# by hand, after the sample submission of the server
@pytest.mark.parametrize(
    ("file", "predictions", "lines"),
    [
        (GlueFile("MNLI-mm", NLI), [2, 1], ["contradiction", "neutral"]),
        (GlueFile("CoLA"), [1, 0], ["1", "0"]),
        (GlueFile("MRPC"), [1.0, 0.0], ["1", "0"]),
        (GlueFile("STS-B"), [5.25, 2.7184], ["5.000", "2.718"]),
        (GlueFile("STS-B"), [-0.01, 0.0], ["0.000", "0.000"]),
    ],
)
def test_a_file_has_an_index_and_a_prediction_in_a_line(tmp_path, file, predictions, lines):
    found = submit(tmp_path, ["0", "1"], predictions, file)

    assert found == ["index\tprediction", f"0\t{lines[0]}", f"1\t{lines[1]}"]


def test_rows_that_could_not_be_read_get_the_most_frequent_prediction(tmp_path, caplog):
    file = GlueFile("QNLI", QNLI.labels, num_rows=5)

    lines = submit(tmp_path, ["0", "3", "1"], [1, 0, 1], file)

    classes = ["not_entailment"] * 3 + ["entailment", "not_entailment"]
    assert lines[1:] == [f"{number}\t{name}" for number, name in enumerate(classes)]
    assert "2 rows could not be read and are written as not_entailment: 2, 4" in caplog.text


def test_an_archive_has_no_folders_and_names_missing_files(tmp_path, caplog):
    rows = {"test": Dataset.from_dict({"id": ["0", "1"]})}
    encoded = dict.fromkeys(("q", "again", "c"), rows)
    names = {"q": QNLI, "again": QNLI, "c": GlueFile("CoLA"), "s": GlueFile("SST-2")}
    files = {(task, "test"): file for task, file in names.items()}
    values = np.asarray([0, 1])
    found = {(task, "test"): Predicted(values[:, None], values, None) for task in encoded}

    archive = write_submission(tmp_path, files, encoded, found)

    assert archive == tmp_path / "glue" / "submission.zip"
    with zipfile.ZipFile(archive) as content:
        assert content.namelist() == ["CoLA.tsv", "QNLI.tsv"]
        for name in content.namelist():
            assert content.read(name) == (tmp_path / "glue" / name).read_bytes()
    assert missing_files(archive) == (
        ["AX", "MNLI-m", "MNLI-mm", "MRPC", "QQP", "RTE", "SST-2", "STS-B", "WNLI"]
    )
    assert "task 'again': QNLI is already that of another task" in caplog.text
    before = archive.read_bytes()
    write_submission(tmp_path, files, encoded, found)
    assert archive.read_bytes() == before


def test_bad_predictions_leave_the_old_file(tmp_path):
    path = tmp_path / "dev-output.csv"
    path.write_text("before")
    outputs = Predicted(None, np.asarray([np.nan]), None)

    with pytest.raises(ValueError, match="prediction of row 'x' is nan"):
        PROBLEMS["similarity"]("t").write(tmp_path, "dev", outputs, {"id": ["x"]})

    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1
