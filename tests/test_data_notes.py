"""Notes on the data of a task: shares of the labels, and what is longer than a row."""

import numpy as np
import pytest

from datasets_scripts import TaskData, load_task, train_wordpiece
from minbert_cli.training.data_notes import describe_data
from tests import small_run

OWN = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
PAIRS = {"problem_type": "paraphrase", "text_columns": ["a", "b"], "label_column": "label"}
WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture(scope="module")
def tokenizer():
    """Return a tokenizer of which every word is a token."""
    return train_wordpiece([" ".join(WORDS)] * 9, 200)


def describe(folder, tokenizer, rows, header, keys, head=None, **options):
    small_run.write_tsv(folder / "train.tsv", header, rows)
    small_run.write_tsv(folder / "dev.tsv", header, rows)
    files = {"train_file": str(folder / "train.tsv"), "validation_file": str(folder / "dev.tsv")}
    data = TaskData.from_recipe("own", keys | files)
    options = {"pair_encoding": None, "truncation": "head", "max_length": 12} | options
    repeats = options.pop("is_oversampled", False)
    task = load_task(data, folder / "cache")
    return describe_data(task, data, head or {}, tokenizer, options, is_oversampled=repeats)


def make_rows(sizes):
    return [(f"w{n} w1", label) for label, size in sizes.items() for n in range(size)]


@pytest.mark.parametrize(
    ("sizes", "head", "warning"),
    [
        ({"a": 22, "b": 2, "c": 1}, {}, True),
        ({"a": 22, "b": 2, "c": 1}, {"class_weights": "balanced"}, False),
        ({"a": 20, "b": 3, "c": 2}, {}, False),
    ],
)
def test_shares_of_labels_are_listed_and_rare_ones_reported(
    tmp_path, tokenizer, sizes, head, warning
):
    notes = describe(tmp_path, tokenizer, make_rows(sizes), ("text", "label"), OWN, head)

    shares = ", ".join(f"{label!r} {4 * size:.1f} %" for label, size in sizes.items())
    assert notes[0] == f"labels of the training rows: {shares}"
    expected = (
        "warning: 22 training rows have the label 'a' for every one with 'c'; give class_weights: "
        "balanced or oversample: balanced, and judge by macro_f1"
    )
    assert (expected in notes) is warning
    assert len(notes) == 2 + warning  # also the share of cut tokens


def test_rare_pairs_are_reported_unless_they_are_repeated(tmp_path, tokenizer):
    rows = [(f"w{n}", "w0", int(n == 0)) for n in range(30)]
    keys = {"pair_encoding": "joint"}

    notes = describe(tmp_path, tokenizer, rows, ("a", "b", "label"), PAIRS, **keys)
    assert "warning: 29 training rows have the label '0' for" in notes[1]

    keys["is_oversampled"] = True
    notes = describe(tmp_path, tokenizer, rows, ("a", "b", "label"), PAIRS, **keys)
    assert not any("warning" in note for note in notes)


def test_many_labels_are_counted(tmp_path, tokenizer):
    rows = make_rows({f"label{n}": 2 for n in range(15)})

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN)

    assert notes[0].count("%") == 10
    assert notes[0].endswith(", 5 more")


@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("count", [40, 2500])
def test_the_share_of_cut_tokens_is_that_of_the_lengths(tmp_path, tokenizer, truncation, count):
    lengths = np.random.default_rng(0).integers(1, 30, count)
    rows = [(" ".join(WORDS[:length]), n % 2) for n, length in enumerate(lengths)]
    chosen = lengths[:: -(-count // 1000)]  # up to 1000, evenly spread

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN, truncation=truncation)

    cut = np.maximum(chosen + 2 - 12, 0).sum() / (chosen + 2).sum()
    assert notes[-1] == (
        f"tokens of the training rows cut by max_length=12: {100 * cut:.1f} %; raise max_length, "
        "or choose truncation"
    )


@pytest.mark.parametrize(("encoding", "cut"), [("separate", 4 / 44), ("joint", 19 / 43)])
def test_both_texts_of_a_pair_are_counted(tmp_path, tokenizer, encoding, cut):
    rows = [(" ".join(WORDS[:18]), f"w{n}" + " w1" * 21, n % 2) for n in range(9)]
    length = {"separate": 20, "joint": 24}[encoding]
    options = {"pair_encoding": encoding, "max_length": length}

    notes = describe(tmp_path, tokenizer, rows, ("a", "b", "label"), PAIRS, **options)

    assert f"max_length={length}: {100 * cut:.1f} %" in notes[-1]


def test_no_remedy_is_given_for_rows_that_fit(tmp_path, tokenizer):
    notes = describe(tmp_path, tokenizer, make_rows({"a": 3, "b": 3}), ("text", "label"), OWN)

    assert notes[-1] == "tokens of the training rows cut by max_length=12: 0.0 %"
