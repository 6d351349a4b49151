"""Formats of sentences: from a record to a row, or the reason why it is invalid."""

import pytest

from datasets_scripts.readers import Record
from datasets_scripts.sentence_formats import (
    ClassificationFormat,
    ParaphraseFormat,
    SimilarityFormat,
    infer_labels,
)

SENTIMENT = ClassificationFormat(("text",), "label", labels=("up", "down"))
NUMERIC = ClassificationFormat(("text",), "label", labels=("1", "2"))
PARAPHRASE = ParaphraseFormat(("text", "other"), "label")
SIMILARITY = SimilarityFormat(("text", "other"), "label", score_range=(0.0, 5.0))


def convert(row_format, split="train", **values):
    values = {"text": "a", "other": "b", **values}
    return row_format.to_row(Record(9, values), 4, split)


def test_a_usable_row():
    row = convert(SIMILARITY, text=" a cat ", other="A dog.", label="2.5")

    assert row == {
        "id": "4",
        "sentence1": "a cat",
        "sentence2": "A dog.",
        "label": 2.5,
        "line": 9,
        "problem": "",
    }


@pytest.mark.parametrize(
    ("row_format", "values", "problem"),
    [
        (SENTIMENT, {"label": ""}, "no label"),
        (SENTIMENT, {"label": None}, "no label"),
        (SENTIMENT, {"label": float("nan")}, "no label"),
        (SENTIMENT, {"label": "up", "text": " \n"}, "empty text in column 'text'"),
        (SENTIMENT, {"label": "up", "text": None}, "empty text in column 'text'"),
        (SENTIMENT, {"label": "up", "text": 5}, "column 'text' holds 5, not text"),
        (SENTIMENT, {"label": "", "text": ""}, "empty text in column 'text', no label"),
        (SENTIMENT, {"label": "x"}, "label 'x' is not among the labels 'up', 'down' or their n"),
        (SENTIMENT, {"label": "2"}, "label '2' is not among the labels 'up', 'down' or their n"),
        (NUMERIC, {"label": "0"}, "label '0' is not among the labels '1', '2'"),
        (PARAPHRASE, {"label": "1", "other": ""}, "empty text in column 'other'"),
        (PARAPHRASE, {"label": "2"}, "label '2' is out of range; allowed are 0 and 1"),
        (SIMILARITY, {"label": "high"}, "label 'high' is not a number"),
        (SIMILARITY, {"label": "nan"}, "label 'nan' is not a number"),
        (SIMILARITY, {"label": "5.5"}, "label '5.5' is out of range; allowed is 0 to 5"),
        (SENTIMENT, {"label": "", "id": "n3"}, "no label (id n3)"),
    ],
)
def test_an_invalid_row_has_a_reason(row_format, values, problem):
    row = convert(row_format, **values)

    assert row["problem"].startswith(problem)


@pytest.mark.parametrize(
    ("row_format", "raw", "label"),
    [
        (SENTIMENT, "down", 1),
        (SENTIMENT, "1", 1),
        (SENTIMENT, 1.0, 1),
        (NUMERIC, "1", 0),
        (NUMERIC, 2.0, 1),
        (PARAPHRASE, "1.0", 1),
        (PARAPHRASE, True, 1),
        (PARAPHRASE, "false", 0),
        (SIMILARITY, 5, 5.0),
    ],
)
def test_labels_as_files_write_them(row_format, raw, label):
    assert convert(row_format, label=raw)["label"] == label


@pytest.mark.parametrize("raw", [None, "", -1])
def test_a_test_row_may_have_no_label(raw):
    row = convert(PARAPHRASE, "test", label=raw)

    assert (row["label"], row["problem"]) == (None, "")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["b", "a", "", None, "b"], ("a", "b")),
        (["10", "9", "10.0"], ("9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        ([1, 0, 1], ("0", "1")),
    ],
)
def test_labels_are_sorted_as_people_expect(values, labels):
    assert infer_labels(values) == labels
