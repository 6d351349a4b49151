"""Sentences with tags are read from every format, in one scheme, or refused by file and line."""

from pathlib import Path

import pytest

from datasets_scripts import TaskData, load_task

IOB1 = """-DOCSTART- -X- O O

Ann NNP I-NP I-PER
Lee NNP I-NP I-PER
Bob NNP I-NP B-PER
left VBD I-VP O

Rome NNP I-NP I-LOC

-DOCSTART- -X- O O

EU NNP I-NP I-ORG
of IN I-PP I-LOC"""
LABELS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")


def write(folder, **files):
    """Write files of splits; returns the keys of a task that reads them."""
    keys = {"problem_type": "token_classification"}
    for split, text in files.items():
        path = folder / f"my.{split}"
        path.write_text(text, encoding="utf-8", newline="")
        keys[f"{split}_file"] = str(path)
    return keys


def load(keys):
    return load_task(TaskData.from_recipe("ner", keys))


def names(task, split):
    return [[task.labels[tag] for tag in tags] for tags in task.splits[split]["tags"]]


def test_columns_of_iob1_become_iob2(tmp_path):
    task = load(write(tmp_path, train=IOB1, validation=IOB1))

    assert task.problem_type == "token_classification"
    assert task.labels == LABELS
    rows = task.splits["train"]
    assert rows["words"][:] == [["Ann", "Lee", "Bob", "left"], ["Rome"], ["EU", "of"]]
    assert names(task, "train") == [
        ["B-PER", "I-PER", "B-PER", "O"],
        ["B-LOC"],
        ["B-ORG", "B-LOC"],
    ]
    assert rows["document"][:] == [1, 1, 2]  # the last sentence has no empty line behind it
    assert rows["id"][:] == ["0", "1", "2"]
    assert task.facts["train"] == {"rows": 3, "usable_rows": 3}


def test_test_rows_may_lack_tags(tmp_path):
    task = load(write(tmp_path, train=IOB1, validation=IOB1, test="Ann\nleft\n"))

    assert task.splits["test"].column_names == ["id", "words", "document"]


def test_the_official_files_of_conll2003_are_found(tmp_path):
    (tmp_path / "eng.train").write_text(IOB1 + "\n\nx X O O\ny X I-NP B-PER\n")
    (tmp_path / "eng.testa").write_text(IOB1)
    data = TaskData.from_recipe("ner", {"dataset": "conll2003"}, tmp_path)

    task = load_task(data)  # the training file has a B- after an O, as the official one
    assert task.labels == LABELS
    assert names(task, "train")[-1] == ["O", "B-PER"]


def test_white_space_of_other_kinds_is_a_word(tmp_path):
    text = "\u00a0 O\n\x85 O\n\u200b I-PER\nleft O\n"
    task = load(write(tmp_path, train=text, validation=text))

    assert task.splits["train"]["words"][:] == [["\u00a0", "\x85", "\u200b", "left"]]


@pytest.mark.parametrize(
    ("train", "validation", "more", "message"),
    [
        (
            IOB1,
            "Ann X X I-PER\nleft X O\n",
            {},
            r"my.validation: 1 of 1 rows are invalid.*line 2: 3 columns, but the first",
        ),
        (
            IOB1,
            "Ann X X I-PER\n\nhe X X I-XYZ\n",
            {},
            r"my.validation: 1 of 2 rows are invalid.*line 3: unknown tag 'I-XYZ'; ",
        ),
        ("a B-A\nb A\n", "a O\n", {}, r"my.train:2: the tag 'A' is not part of a span"),
        ("a A\nb B\n", "a O\n", {"scheme": "spans"}, r"my.train:1: the tag 'A' is not part"),
        ("a B-A\n", "a XYA\n", {}, r"line 1: unknown tag 'XYA'"),
        ("", IOB1, {}, "my.train: the file is empty"),
        ("-DOCSTART- -X- O O\n\n", IOB1, {}, "my.train: the file has no tokens"),
        ("a O\n", "a O\n", {}, r"my.train: the training rows have the tags \['O'\], at least two"),
        (IOB1, IOB1, {"label_column": 7}, r"no column 7; the first line has 4 columns"),
        (IOB1, IOB1, {"label_column": "ner"}, "have no names: give a number from 0"),
        (
            IOB1,
            IOB1,
            {"scheme": "bio"},
            "scheme='bio'; .*known: spans, plain",
        ),
        (IOB1, IOB1, {"document_context": 1}, "expected true or false"),
        (
            IOB1,
            IOB1,
            {"max_train_samples_per_class": 3},
            "token_classification rows have no classes",
        ),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, train, validation, more, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(write(tmp_path, train=train, validation=validation) | more)

    assert "\n" not in str(caught.value)


def test_invalid_sentences_are_skipped_within_the_tolerance(tmp_path):
    valid = "he O\n\n" * 2
    validation = f"Ann I-PER\nleft X O\n\n{valid}Lee I-XYZ\n\nBob I-PER\n"
    keys = write(tmp_path, train=IOB1.replace("-X- O O", ""), validation=validation)
    columns = {"text_columns": "0", "label_column": "-1", "max_invalid_fraction": 0.4}
    task = load(keys | columns)

    assert [(row.line, row.reason.partition(";")[0]) for row in task.bad_rows] == [
        (2, "3 columns, but the first line has 2"),
        (8, "unknown tag 'I-XYZ'"),
    ]
    rows = task.splits["validation"]
    assert (rows["id"][:], rows["words"][:]) == (["1", "2", "4"], [["he"], ["he"], ["Bob"]])
    assert task.facts["validation"] == {
        "rows": 3,
        "usable_rows": 3,
        "unusable_rows": 2,
        "training_rows": 0,
    }
    with pytest.raises(ValueError, match=r"my.validation: 2 of 5 rows are invalid, .* line 2: 3 c"):
        load(keys | columns | {"max_invalid_fraction": 0.2})


def test_a_tag_with_white_space_is_an_error(tmp_path):
    keys = write(tmp_path, train='{"tokens": ["a", "b"], "tags": ["O", "B-a name"]}\n')
    Path(keys["train_file"]).rename(tmp_path / "train.jsonl")

    with pytest.raises(ValueError, match="the tag 'B-a name' has white space, which separates"):
        load(keys | {"train_file": str(tmp_path / "train.jsonl")})
