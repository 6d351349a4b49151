"""Rows that are drawn from a split: how many of each class, which ones, and in what order."""

from collections import Counter

import numpy as np
import pytest

from datasets_scripts import TaskData, load_task
from datasets_scripts.drawing import choose_places

SIZES = {"up": 40, "down": 9, "flat": 23}
LABELS = [label for label, size in SIZES.items() for _ in range(size)]
# so that classes are mixed: 29 and 72 have no common divisor
LABELS = [LABELS[29 * place % len(LABELS)] for place in range(len(LABELS))]


def write(path, labels):
    rows = [f"text {number}\t{label}" for number, label in enumerate(labels)]
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")


def load(folder, **keys):
    write(folder / "train.tsv", LABELS)
    write(folder / "dev.tsv", LABELS)
    recipe = {
        "problem_type": "classification",
        "train_file": str(folder / "train.tsv"),
        "validation_file": str(folder / "dev.tsv"),
        "text_columns": ["text"],
        "label_column": "label",
        **keys,
    }
    return load_task(TaskData.from_recipe("mine", recipe), cache_dir=folder / "cache")


def count(task, split="train"):
    return Counter(task.labels[label] for label in task.splits[split]["label"])


def ids(task, split="train"):
    return [int(row) for row in task.splits[split]["id"]]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (20, {"up": 20, "down": 9, "flat": 20}),
        (1, {"up": 1, "down": 1, "flat": 1}),
        (99, SIZES),
        ("balanced", {"up": 9, "down": 9, "flat": 9}),
    ],
)
def test_no_class_has_more_rows_than_it_may(tmp_path, most, expected):
    task = load(tmp_path, max_train_samples_per_class=most)

    assert count(task) == expected
    assert count(task, "validation") == SIZES


def test_rows_keep_their_order_and_their_labels(tmp_path):
    task = load(tmp_path, max_train_samples_per_class=5)

    assert ids(task) == sorted(ids(task))
    assert [task.labels[label] for label in task.splits["train"]["label"]] == [
        LABELS[number] for number in ids(task)
    ]
    assert task.splits["train"]["sentence1"][:] == [f"text {number}" for number in ids(task)]


def test_the_seed_and_the_split_decide_which_rows_stay(tmp_path):
    first, same, other = (
        load(tmp_path, max_train_samples=30, max_eval_samples=30, sample_seed=seed)
        for seed in (0, 0, 1)
    )

    assert ids(first) == ids(same)
    assert ids(first) != ids(other)
    assert ids(first) != ids(first, "validation")


def test_a_smaller_sample_is_a_part_of_a_larger_one():
    classes = np.asarray([0, 1, 1, 0, 2] * 40)

    chosen = [set(choose_places(classes, most, "7").tolist()) for most in (1, 5, 30, 200)]

    assert chosen[0] < chosen[1] < chosen[2] < chosen[3] == set(range(200))


def test_drawn_rows_are_described(tmp_path):
    task = load(tmp_path, max_train_samples_per_class="balanced", max_eval_samples=30)

    assert task.facts["train"] == {
        "rows": 27,
        "usable_rows": 72,
        "classes": {"down": 9, "flat": 9, "up": 9},
    }
    assert (task.facts["validation"]["rows"], task.facts["validation"]["usable_rows"]) == (30, 72)
    assert task.facts["validation"]["classes"] == count(task, "validation")


def test_a_class_without_rows_cannot_decide_about_the_others(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"'mine': max_train_samples_per_class='balanced', but no train row has .* 'odd'",
    ):
        load(tmp_path, labels=[*SIZES, "odd"], max_train_samples_per_class="balanced")
