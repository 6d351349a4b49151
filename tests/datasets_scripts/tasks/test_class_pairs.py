"""Pairs of rows by their classes."""

from collections import Counter
from itertools import combinations

import pytest

from datasets_scripts import TaskData, load_task

LABELS = ["up"] * 6 + ["down"] * 3 + ["flat"] * 3


def load(folder, **keys):
    rows = [f"text {number}\t{label}" for number, label in enumerate(LABELS)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    recipe = {
        "train_file": str(folder / "train.tsv"),
        "validation_file": str(folder / "dev.tsv"),
        "text_columns": ["text"],
        "label_column": "label",
        "class_pairs": 2,
        **keys,
    }
    return load_task(TaskData.from_recipe("mine", recipe), cache_dir=folder / "cache")


def list_pairs(task, split="train"):
    rows = task.splits[split]
    return [
        (int(first.split()[1]), int(second.split()[1]), label)
        for first, second, label in zip(
            rows["sentence1"], rows["sentence2"], rows["label"], strict=True
        )
    ]


def test_a_pair_is_labeled_by_whether_its_classes_are_equal(tmp_path):
    task = load(tmp_path)

    pairs = list_pairs(task)

    assert task.problem_type == "paraphrase"
    assert all(label == (LABELS[first] == LABELS[second]) for first, second, label in pairs)
    assert all(first != second for first, second, _ in pairs)


def test_every_row_begins_as_many_pairs_of_each_kind_as_wanted_if_there_are_so_many(tmp_path):
    begun = Counter((first, label) for first, _, label in list_pairs(load(tmp_path)))

    assert set(begun.values()) <= {1, 2}
    assert begun[0, 1] == begun[0, 0] == 2


def test_many_pairs_are_all_pairs(tmp_path):
    pairs = list_pairs(load(tmp_path, class_pairs=100))

    found = {frozenset(pair[:2]) for pair in pairs}
    assert found == set(map(frozenset, combinations(range(len(LABELS)), 2)))
    assert sum(label for *_, label in pairs) == 15 + 3 + 3


def test_pairs_are_made_of_the_rows_that_are_drawn(tmp_path):
    task = load(tmp_path, max_train_samples_per_class=2, class_pairs=9)

    pairs = list_pairs(task)

    used = {place for pair in pairs for place in pair[:2]}
    assert Counter(LABELS[place] for place in used) == {"up": 2, "down": 2, "flat": 2}
    assert task.facts["train"]["classes"] == {"0": 12, "1": 3}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"class_pairs": 0}, "class_pairs=0; expected a whole number of at least 1"),
        ({"problem_type": "similarity"}, "class_pairs makes pairs for a paraphrase task, not for"),
        ({"text_columns": ["text", "label"]}, "class_pairs needs rows with one text and a class"),
        ({"max_train_samples": 1}, "class_pairs: the 1 train rows make no pairs of both kinds"),
    ],
)
def test_rows_that_make_no_pairs_are_refused(tmp_path, keys, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, **keys)
