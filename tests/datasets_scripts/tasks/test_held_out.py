"""A task without validation rows: some training rows are held out, by label, and whole texts."""

import json
from collections import Counter

import datasets
import numpy as np
import pytest
from sklearn.model_selection import StratifiedShuffleSplit

from datasets_scripts import ROW_FORMATS, TaskData, load_task
from datasets_scripts.drawing import hold_out
from datasets_scripts.sentence_formats import ClassificationFormat
from tests.problem_examples import EXAMPLES

OWN = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
SIZES = {"up": 140, "down": 63, "flat": 41, "odd": 1}


def load(folder, **keys):
    return load_task(TaskData.from_recipe("own", keys), folder / ".cache")


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make_rows(sizes):
    labels = [label for label, size in sizes.items() for _ in range(size)]
    return [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]


def texts(task, split):
    rows = task.splits[split].select_columns(list(task.row_format.text_names))
    return {tuple(map(str, row.values())) for row in rows}


@pytest.mark.parametrize("problem_type", ROW_FORMATS)
def test_every_problem_type_trains_on_one_file(tmp_path, problem_type):
    keys = {"problem_type": problem_type, **EXAMPLES[problem_type].write(tmp_path)}
    keys = {key: value for key, value in keys.items() if key in TaskData.recipe_keys()}
    whole = load(tmp_path, **keys)
    del keys["validation_file"]

    task = load(tmp_path, **keys, validation_share=0.3)

    sizes = {split: len(rows) for split, rows in task.splits.items()}
    assert sizes["train"] + sizes["validation"] == len(whole.splits["train"])
    assert 0 < sizes["validation"] < sizes["train"]
    assert list(sizes)[:2] == ["train", "validation"]
    assert task.facts["validation"]["held_out_of"] == len(whole.splits["train"])
    assert task.facts["validation"]["training_rows"] == 0
    assert not texts(task, "train") & texts(task, "validation")
    assert task.labels == whole.labels
    assert task.splits["validation"].features == whole.splits["validation"].features


@pytest.mark.parametrize("share", [0.05, 0.1, 0.33])
def test_shares_of_labels_are_those_of_scikit_learn(tmp_path, share):
    sizes = {label: size for label, size in SIZES.items() if size > 1}  # it needs two of each
    rows = make_rows(sizes)
    labels = [row["label"] for row in rows]
    splitter = StratifiedShuffleSplit(1, test_size=share, random_state=0)
    ((_, expected),) = splitter.split(np.zeros(len(rows)), labels)

    path = write_jsonl(tmp_path / "train.jsonl", rows)
    task = load(tmp_path, **OWN, train_file=path, validation_share=share)

    assert len(task.splits["validation"]) == len(expected)
    wanted = Counter(labels[row] for row in expected)
    for label, count in task.facts["validation"]["classes"].items():
        assert abs(count - wanted[label]) <= 1


def test_sentences_with_tags_are_held_out_by_document(tmp_path):
    # the last sentence is in every document and cannot be in both splits
    document = "{0} O\nman B-X\n\n{0} O\nruns O\n\nend O\n\n"
    path = tmp_path / "train.conll"
    path.write_text("".join(f"-DOCSTART- O\n\n{document.format(n)}" for n in range(20)))

    keys = {"problem_type": "token_classification", "train_file": str(path)}
    task = load(tmp_path, **keys, validation_share=0.2)

    words = [row["words"] for row in task.splits["validation"]]
    assert len(words) == 8
    assert ["end"] not in words
    assert len({first for first, _ in words}) == 4


def test_scores_are_spread_over_both_splits(tmp_path):
    rows = [{"a": f"a {n}", "b": "b", "score": (n / 500) ** 4} for n in range(500)]
    keys = {"problem_type": "similarity", "text_columns": ["a", "b"], "label_column": "score"}

    path = write_jsonl(tmp_path / "train.jsonl", rows)
    task = load(tmp_path, **keys, train_file=path, score_range=[0, 1], validation_share=0.2)

    limits = np.quantile([row["score"] for row in rows], np.linspace(0, 1, 11))
    counts, _ = np.histogram(task.splits["validation"]["label"], limits)
    assert counts.tolist() == [10] * 10


def test_large_tasks_hold_out_a_limited_number():
    texts = list(map(str, range(120_000)))
    rows = datasets.Dataset.from_dict({"sentence1": texts, "label": [0, 1] * 60_000})

    is_held = hold_out("own", rows, ClassificationFormat(("text",)), 0.1, seed=0)

    assert (len(is_held), is_held.sum()) == (120_000, 10_000)
    assert is_held[1::2].sum() == 5_000


@pytest.mark.parametrize("labels", [["a", "b"], ["a", "a", "b", "b"]])
def test_rows_that_cannot_be_split_are_refused(tmp_path, labels):
    rows = [{"text": f"text {label}", "label": label} for label in labels]
    path = write_jsonl(tmp_path / "train.jsonl", rows)

    with pytest.raises(ValueError, match="'own': there are no validation rows, and none of its"):
        load(tmp_path, **OWN, train_file=path)
