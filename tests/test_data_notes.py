"""Notes on the data of a task: rare labels, and what is longer than a row."""

import numpy as np
import pytest

from datasets_scripts import Encoding, TaskData, load_task, train_wordpiece
from minbert_cli.data_notes import describe_data
from modeling_minbert import MinBertConfig
from tests import small_run

OWN = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture(scope="module")
def tokenizer():
    """Return a tokenizer of which every word is a token."""
    return train_wordpiece([" ".join(WORDS)] * 9, 200)


def describe(folder, tokenizer, rows, header, keys, is_weighed=False, **options):
    small_run.write_tsv(folder / "train.tsv", header, rows)
    files = dict.fromkeys(("train_file", "validation_file"), str(folder / "train.tsv"))
    data = TaskData.from_recipe("own", keys | files)
    task = load_task(data)
    head = {"problem_type": "classification", "labels": ["a", "b"]}
    described = MinBertConfig(tasks={"own": head}).task("own")
    options = {"pair_encoding": None, "truncation": "head", "max_length": 12} | options
    encoding = Encoding(**options)
    encoded = task.encode(tokenizer, encoding)
    parts = (task, described, encoded, tokenizer, encoding)
    return describe_data(*parts, is_weighed=is_weighed)


@pytest.mark.parametrize(
    ("sizes", "is_weighed", "warns"),
    [
        ({"a": 22, "b": 2, "c": 1}, False, True),
        ({"a": 22, "b": 2, "c": 1}, True, False),
        ({"a": 20, "b": 3, "c": 2}, False, False),
    ],
)
def test_rare_labels_are_reported(tmp_path, tokenizer, sizes, is_weighed, warns):
    rows = [(f"w{n} w1", label) for label, size in sizes.items() for n in range(size)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN, is_weighed)

    expected = (
        "warning: 22 training rows have the label 'a' for every one with 'c'; give class_weights: "
        "balanced, and judge by macro_f1"
    )
    assert notes == [expected] * warns


def test_labels_that_may_be_one_or_none_are_reported(tmp_path, tokenizer):
    names = ["1", "+1", "01", "Pos", "pos", "nan", "label", "neg"]
    rows = [(f"w{n} w1", name) for n, name in enumerate(names)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN)

    assert [note.removeprefix("warning: ").partition(";")[0] for note in notes] == [
        *(
            f"the label '{name}' of column 'label' may be no label, but a missing value or a line "
            "of a header"
            for name in ("label", "nan")
        ),
        "'+1', '01', '1' are different labels of column 'label'",
        "'Pos', 'pos' are different labels of column 'label'",
    ]
    chosen = OWN | {"labels": sorted(names)}
    assert describe(tmp_path, tokenizer, rows, ("text", "label"), chosen) == []


def test_labels_of_each_output_are_compared(tmp_path, tokenizer):
    keys = {"problem_type": "multi_output_classification", "text_columns": ["text"]}
    keys["label_columns"] = ["size", "tone"]
    rows = [(f"w{n} w1", "ab"[n % 2], ["Up", "up", "down"][n % 3]) for n in range(6)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "size", "tone"), keys)

    assert len(notes) == 1
    assert notes[0].startswith("warning: 'Up', 'up' are different labels of column 'tone'; if")


@pytest.mark.parametrize("truncation", ["head", "head_tail"])
@pytest.mark.parametrize("count", [40, 2500])
def test_the_share_of_cut_tokens_is_that_of_the_lengths(tmp_path, tokenizer, truncation, count):
    lengths = np.random.default_rng(0).integers(1, 30, count)
    rows = [(" ".join(WORDS[:length]), n % 2) for n, length in enumerate(lengths)]
    chosen = lengths[:: -(-count // 1000)]  # up to 1000, evenly spread

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN, truncation=truncation)

    cut = np.maximum(chosen + 2 - 12, 0).sum() / (chosen + 2).sum()
    assert notes == [
        f"tokens of the training rows cut by max_length=12: {100 * cut:.1f} %; raise max_length, "
        "or choose truncation"
    ]
