"""Rows that are drawn, and held out by label and as whole texts."""

from collections import Counter

import datasets
import numpy as np
import pytest
from sklearn.model_selection import StratifiedShuffleSplit

from datasets_scripts import ROW_KINDS, TaskData, choose_places, hold_out, load_format, load_task
from tests.problem_examples import EXAMPLES
from tests.small_run import load_rows

OWN = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
SIZES = {"up": 40, "down": 9, "flat": 23}
LABELS = [label for label, size in SIZES.items() for _ in range(size)]
# so that classes are mixed: 29 and 72 have no common divisor
LABELS = [LABELS[29 * place % len(LABELS)] for place in range(len(LABELS))]


def load(folder, rows, **keys):
    """Load a task with these training rows, which are its validation rows unless a share is."""
    if "validation_share" in keys:
        keys["validation_file"] = None
    return load_rows(folder, "rows.jsonl", rows, **keys)


def make_rows(labels):
    return [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]


def draw(folder, **keys):
    return load(folder, make_rows(LABELS), **OWN, **keys)


def count(task, split="train"):
    return Counter(task.labels[label] for label in task.splits[split]["label"])


def ids(task, split="train"):
    return [int(row) for row in task.splits[split]["id"]]


# Draws


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (20, {"up": 20, "down": 9, "flat": 20}),
        ("balanced", {"up": 9, "down": 9, "flat": 9}),
    ],
)
def test_no_class_has_more_rows_than_it_may(tmp_path, most, expected):
    task = draw(tmp_path, max_train_samples_per_class=most)

    assert count(task) == expected
    assert count(task, "validation") == SIZES
    assert ids(task) == sorted(ids(task))
    assert task.splits["train"]["sentence1"][:] == [f"text {number}" for number in ids(task)]
    assert [task.labels[label] for label in task.splits["train"]["label"]] == [
        LABELS[number] for number in ids(task)
    ]


def test_the_seed_and_the_split_decide_which_rows_stay(tmp_path):
    first, same, other = (
        draw(tmp_path, max_train_samples=30, max_eval_samples=30, sample_seed=seed)
        for seed in (0, 0, 1)
    )

    assert ids(first) == ids(same)
    assert ids(first) != ids(other)
    assert ids(first) != ids(first, "validation")


def test_a_smaller_sample_is_a_part_of_a_larger_one():
    classes = np.asarray([0, 1, 1, 0, 2] * 40)

    chosen = [set(choose_places(classes, most, "7").tolist()) for most in (1, 5, 30, 200)]

    assert chosen[0] < chosen[1] < chosen[2] < chosen[3] == set(range(200))


def test_a_class_without_rows_cannot_decide_about_the_others(tmp_path):
    message = "'own': max_train_samples_per_class='balanced', but no train row has .* 'odd'"

    with pytest.raises(ValueError, match=message):
        draw(tmp_path, labels=[*SIZES, "odd"], max_train_samples_per_class="balanced")


# Held-out rows


def texts(task, split):
    rows = task.splits[split].select_columns(list(task.row_format.text_names))
    return {tuple(map(str, row.values())) for row in rows}


@pytest.mark.parametrize("problem_type", ROW_KINDS)
def test_every_problem_type_trains_on_one_file(tmp_path, problem_type):
    keys = {"problem_type": problem_type, **EXAMPLES[problem_type].write(tmp_path)}
    keys = {key: value for key, value in keys.items() if hasattr(TaskData, key)}
    whole = load_task(TaskData.from_recipe("own", keys))
    del keys["validation_file"]

    data = TaskData.from_recipe("own", keys | {"validation_share": 0.3})
    task = load_task(data)

    sizes = {split: len(rows) for split, rows in task.splits.items()}
    assert sizes["train"] + sizes["validation"] == len(whole.splits["train"])
    assert 0 < sizes["validation"] < sizes["train"]
    assert list(sizes)[:2] == ["train", "validation"]
    assert task.facts["validation"]["held_out_of"] == len(whole.splits["train"])
    assert task.facts["validation"]["training_rows"] == 0
    assert not texts(task, "train") & texts(task, "validation")
    assert task.labels == whole.labels
    assert task.splits["validation"].features == whole.splits["validation"].features


@pytest.mark.parametrize("share", [0.05, 0.33])
def test_shares_of_labels_are_those_of_scikit_learn(tmp_path, share):
    splitter = StratifiedShuffleSplit(1, test_size=share, random_state=0)
    ((_, expected),) = splitter.split(np.zeros(len(LABELS)), LABELS)

    task = draw(tmp_path, validation_share=share)

    assert len(task.splits["validation"]) == len(expected)
    wanted = Counter(LABELS[row] for row in expected)
    for label, number in task.facts["validation"]["classes"].items():
        assert abs(number - wanted[label]) <= 1


def test_sentences_with_tags_are_held_out_by_document(tmp_path):
    # the last sentence is in every document and cannot be in both splits
    document = "{0} O\nman B-X\n\n{0} O\nruns O\n\nend O\n\n"
    path = tmp_path / "train.conll"
    path.write_text("".join(f"-DOCSTART- O\n\n{document.format(n)}" for n in range(20)))
    keys = {"problem_type": "token_classification", "train_file": str(path)}

    data = TaskData.from_recipe("own", keys | {"validation_share": 0.2})
    words = [row["words"] for row in load_task(data).splits["validation"]]

    assert len(words) == 8
    assert ["end"] not in words
    assert len({first for first, _ in words}) == 4


def test_scores_and_rare_labels_are_spread_over_both_splits(tmp_path):
    rows = [{"a": f"a {n}", "b": "b", "label": (n / 500) ** 4} for n in range(500)]
    keys = {"problem_type": "similarity", "text_columns": ["a", "b"], "label_column": "label"}
    task = load(tmp_path, rows, **keys, score_range=[0, 1], validation_share=0.2)

    limits = np.quantile([row["label"] for row in rows], np.linspace(0, 1, 11))
    counts, _ = np.histogram(task.splits["validation"]["label"], limits)
    assert counts.tolist() == [10] * 10

    rows = make_rows([["often", "rare"] if n % 30 == 0 else ["often"] for n in range(300)])
    keys = OWN | {"problem_type": "multi_label_classification", "validation_share": 0.2}
    task = load(tmp_path, rows, **keys)

    assert np.asarray(task.splits["validation"]["label"]).sum(axis=0).tolist() == [60, 2]


def test_large_tasks_hold_out_a_limited_number():
    texts = list(map(str, range(110_000)))
    rows = datasets.Dataset.from_dict({"sentence1": texts, "label": [0, 1] * 55_000})

    row_format = load_format(TaskData.from_recipe("own", {**OWN, "train_file": "a.csv"}))
    is_held = hold_out(rows, row_format)

    assert (len(is_held), is_held.sum()) == (110_000, 10_000)
    assert is_held[1::2].sum() == 5_000


@pytest.mark.parametrize("labels", [["a", "b"], ["a", "a", "b", "b"]])
def test_rows_that_cannot_be_split_are_refused(tmp_path, labels):
    rows = [{"text": f"text {label}", "label": label} for label in labels]

    with pytest.raises(ValueError, match="'own': there are no validation rows, and none of its"):
        load(tmp_path, rows, **OWN, validation_share=0.1)


def test_tasks_of_one_file_hold_out_mostly_the_same_texts(tmp_path):
    rows = [
        {"text": f"text {n}", "label": "ab"[n % 2], "kind": "xyz"[n % 3] if n % 7 else None}
        for n in range(420)
    ]
    both = OWN | {"validation_share": 0.2, "max_invalid_fraction": 0.2}
    tasks = [load(tmp_path, rows, **both | {"label_column": name}) for name in ("label", "kind")]

    held = [texts(task, "validation") for task in tasks]
    assert [len(task.splits["validation"]) for task in tasks] == [84, 72]
    # two independent draws would share 14
    assert len(held[0] & held[1]) >= 60
