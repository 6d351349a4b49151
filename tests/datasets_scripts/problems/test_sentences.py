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
