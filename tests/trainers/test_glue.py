"""Files for the server of GLUE."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from trainers import GlueFile, Predicted, missing_files, write_submission
from trainers.reports.tables import write_glue_file

NLI = ("entailment", "neutral", "contradiction")
QNLI = GlueFile("QNLI", "classification", (*NLI[:1], "not_entailment"))


def outputs(predictions):
    values = np.asarray(predictions)
    return Predicted(values[:, None], values, None)


# by hand, after the sample submission of the server
@pytest.mark.parametrize(
    ("file", "predictions", "lines"),
    [
        (QNLI, [1, 0], ["not_entailment", "entailment"]),
        (GlueFile("MNLI-mm", "classification", NLI), [2, 1], ["contradiction", "neutral"]),
        (GlueFile("CoLA", "classification"), [1, 0], ["1", "0"]),
        (GlueFile("MRPC", "paraphrase"), [1.0, 0.0], ["1", "0"]),
        (GlueFile("STS-B", "similarity"), [5.25, 2.7184], ["5.000", "2.718"]),
        (GlueFile("STS-B", "similarity"), [-0.01, 0.0], ["0.000", "0.000"]),
    ],
)
def test_a_file_has_an_index_and_a_prediction_in_a_line(tmp_path, file, predictions, lines):
    write_glue_file(tmp_path / "a.tsv", ["0", "1"], predictions, file)

    expected = f"index\tprediction\n0\t{lines[0]}\n1\t{lines[1]}\n"
    assert (tmp_path / "a.tsv").read_bytes() == expected.encode()


def test_a_row_that_could_not_be_read_gets_the_most_frequent_prediction(tmp_path, caplog):
    write_glue_file(tmp_path / "a.tsv", ["0", "3", "1"], [1, 0, 1], QNLI)

    lines = (tmp_path / "a.tsv").read_text().splitlines()
    assert lines[1:4] == [f"{number}\tnot_entailment" for number in range(3)]
    assert lines[4:] == ["3\tentailment"]
    assert "1 rows could not be read and are written as not_entailment: 2" in caplog.text


def test_the_last_rows_may_be_missing(tmp_path, caplog):
    file = replace(QNLI, num_rows=4)

    write_glue_file(tmp_path / "a.tsv", ["0", "1"], [1, 1], file)

    assert (tmp_path / "a.tsv").read_text().splitlines()[1:] == [
        f"{number}\tnot_entailment" for number in range(4)
    ]
    assert "2 rows could not be read" in caplog.text


@pytest.mark.parametrize("ids", [[], ["0", "1"]])
def test_rows_and_predictions_must_go_together(tmp_path, ids):
    with pytest.raises(ValueError, match=r"ids and [01] predictions; expected one each"):
        write_glue_file(tmp_path / "a.tsv", ids, [1] * (len(ids) // 2), QNLI)

    assert not list(tmp_path.iterdir())


def test_an_archive_has_no_folders_and_names_missing_files(tmp_path, caplog):
    rows = {"test": Dataset.from_dict({"id": ["0", "1"]})}
    encoded = dict.fromkeys(("q", "again", "c"), rows)
    files = {
        ("q", "test"): QNLI,
        ("again", "test"): QNLI,
        ("c", "test"): GlueFile("CoLA", "classification"),
        ("s", "test"): GlueFile("SST-2", "classification"),
    }
    found = {(task, "test"): outputs([0, 1]) for task in encoded}

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


def test_a_run_without_rows_for_the_server_writes_nothing(tmp_path):
    assert write_submission(tmp_path, {("q", "test"): QNLI}, {}, {}) is None
    assert not list(tmp_path.iterdir())
