"""Rows that a model cannot tell apart are on one side of a split, and counted if they are not."""

import logging
import random
import unicodedata
from dataclasses import replace

import pytest

from datasets_scripts import TaskData, load_task, load_tasks
from tests.small_run import write_jsonl
from trainers import RunFacts

WORDS = ["Élan", "naïve", "river", "GARDEN", "søster", "Café", "song", "window", "Ünder", "story"]
KEYS = {
    "classification": {"text_columns": ["a"], "label_column": "label"},
    "token_classification": {"text_columns": ["words"], "label_column": "tags"},
    "paraphrase": {"text_columns": ["a", "b"], "label_column": "label"},
    "question_answering": {},
}
PAIRS = ("paraphrase",)


def swap(row):
    return {**row, "a": row["b"], "b": row["a"]}


def change_texts(change):
    def apply(row):
        words = [change(word) for word in row["words"]]
        texts = {name: change(row[name]) for name in ("a", "b", "context", "question")}
        (answer,) = row["answers"]["text"]
        answers = {"text": [answer], "answer_start": [texts["context"].rindex(answer)]}
        return {**row, "words": words, **texts, "answers": answers}

    return apply


def without_accents(text):
    letters = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


CHANGES = {
    "swapped": swap,
    "upper case": change_texts(str.upper),
    "without accents": change_texts(without_accents),
    "decomposed": change_texts(lambda text: unicodedata.normalize("NFD", text)),
    "white space": change_texts(lambda text: text.replace(" ", " \u00a0 ")),
    "invisible": change_texts(lambda text: f"\u200b{text[:2]}\u00ad{text[2:]}\ufeff"),
}
SPELLINGS = [change for name, change in CHANGES.items() if name != "swapped"]
CASES = [
    *((kind, "spelling") for kind in KEYS),
    *((kind, "swapped") for kind in PAIRS),
]


def change_rows(rows, change):
    """Change rows in one way, or their spelling in all ways in turn."""
    changes = SPELLINGS if change == "spelling" else [CHANGES[change]]
    return [changes[place % len(changes)](row) for place, row in enumerate(rows)]


def make_rows(count=60):
    """Make rows that hold the columns of every type, with random labels."""
    generator = random.Random(0)
    rows = []
    for number in range(count):
        first, second = (" ".join(generator.choices(WORDS, k=4)) + f" {number}" for _ in "ab")
        row = {"a": first, "b": second, "label": number % 2, "words": first.split()}
        row |= {"tags": ["O", "X", "O", "X", "O"]}
        answers = {"text": [str(number)], "answer_start": [first.rindex(str(number))]}
        row |= {"question": second, "context": first, "answers": answers}
        rows.append(row)
    return rows


def write(path, kind, rows):
    needed = [*KEYS[kind].get("text_columns", ("question", "context", "answers")), "label"]
    needed += ["tags"] if kind == "token_classification" else []
    dropped = {"label"} if kind in ("token_classification", "question_answering") else set()
    lines = [{name: row[name] for name in needed if name not in dropped} for row in rows]
    return write_jsonl(path, lines)


def load(kind, **files):
    keys = {"problem_type": kind, **KEYS[kind], **files}
    return load_task(TaskData.from_recipe("own", keys))


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_rows_that_a_model_cannot_tell_apart_are_on_one_side(tmp_path, kind, change):
    rows = make_rows()
    twins = change_rows(rows, change)
    path = write(tmp_path / "rows.jsonl", kind, [*rows, *twins])

    task = load(kind, train_file=path, validation_share=0.3)

    held = [int(row) % len(rows) for row in task.splits["validation"]["id"]]
    assert sorted(held) == sorted(2 * sorted(set(held)))  # a row and its twin
    assert len(held) > 20
    assert task.facts["validation"]["training_rows"] == 0


def test_held_out_rows_that_another_task_trains_on_are_counted(tmp_path, caplog):
    rows = make_rows()
    path = write_jsonl(tmp_path / "rows.jsonl", [*rows, *rows[:20]])
    keys = {"text_columns": ["a"], "label_column": "label", "validation_share": 0.3}
    types = {"kind": "classification", "size": "regression"}
    given = [
        # with one seed both tasks hold out the same texts here
        TaskData.from_recipe(
            name, {**keys, "problem_type": kind, "train_file": path, "sample_seed": seed}
        )
        for seed, (name, kind) in enumerate(types.items())
    ]

    loaded = load_tasks(given)

    alone = load_task(given[1]).splits["validation"]["id"][:]
    assert loaded["size"].splits["validation"]["id"][:] == alone
    held, other = loaded["kind"].splits["validation"], loaded["size"].splits["train"]
    count = sum(text in {*other["sentence1"]} for text in held["sentence1"])
    assert loaded["kind"].facts["validation"]["rows_of_others"] == count > 5
    assert "have the texts of training rows of task 'size'" in caplog.text
    # also those without labels
    more = write_jsonl(tmp_path / "more.jsonl", [{"a": text} for text in held["sentence1"]])
    loaded = load_tasks([given[0], replace(given[1], unlabeled_file=more)])
    assert loaded["kind"].facts["validation"]["rows_of_others"] == len(held)


@pytest.mark.parametrize(
    ("kind", "keys", "changed"),
    [
        ("contrastive", {"text_columns": ["a", "b", "context"]}, "context"),
        ("question_answering", {}, "question"),
    ],
)
def test_rows_of_one_pair_or_passage_are_held_out_together(tmp_path, kind, keys, changed):
    rows = make_rows(40)
    more = [{**row, changed: f"why {n}"} for n, row in enumerate(rows)]
    path = write_jsonl(tmp_path / "rows.jsonl", [*rows, *more])

    keys = {"problem_type": kind, "train_file": path, **keys}
    task = load_task(TaskData.from_recipe("own", keys))

    held = [int(row) % len(rows) for row in task.splits["validation"]["id"]]
    assert sorted(held) == sorted(2 * sorted(set(held)))


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_rows_of_a_validation_file_that_were_learned_are_counted(tmp_path, caplog, kind, change):
    rows = make_rows(25)
    files = {
        "train_file": write(tmp_path / "train.jsonl", kind, rows),
        "validation_file": write(
            tmp_path / "dev.jsonl", kind, [*change_rows(rows[:5], change), *make_rows(30)[25:]]
        ),
    }

    with caplog.at_level(logging.WARNING):
        task = load(kind, **files)

    assert task.facts["validation"]["training_rows"] == 5
    assert "'own': 5 of 10 validation rows (50 %) are also training rows" in caplog.text


def test_formats_labels_and_white_space_are_not_compared(tmp_path, caplog):
    pairs = [{"a": f"text {n}", "b": f"other {n}", "label": 0} for n in range(20)]
    dev, test = tmp_path / "dev.csv", tmp_path / "test.tsv"
    dev.write_text("label,b,a\n" + "".join(f"1, other  {n},text {n}\n" for n in range(17, 22)))
    test.write_text("a\tb\n" + "".join(f"text {n}\tother {n}\n" for n in range(19, 40)))

    files = {"train_file": write(tmp_path / "train.jsonl", "paraphrase", pairs)}
    files |= {"validation_file": str(dev), "test_file": str(test)}
    task = load("paraphrase", **files)

    assert "3 of 5 validation rows (60 %) are also training rows" in caplog.text
    assert "1 of 21 test rows" not in caplog.text  # as by chance
    assert [task.facts[split].get("training_rows") for split in task.splits] == [None, 3, 1]
    drawn = load("paraphrase", **files, max_train_samples=1)
    assert drawn.facts["validation"]["training_rows"] <= 1  # rows that were not drawn do not count


def write_files(folder, other):
    """Write 20 training and 10 validation rows, and others with the texts of six of the latter."""
    rows = {"train_file": make_rows(20), "validation_file": make_rows(30)[20:]}
    rows[other] = make_rows(34)[24:]
    return {key: write(folder / f"{key}.jsonl", "classification", x) for key, x in rows.items()}


def test_test_rows_that_are_validation_rows_are_counted(tmp_path, caplog):
    task = load("classification", **write_files(tmp_path, "test_file"))

    assert task.facts["test"].items() >= {"training_rows": 0, "validation_rows": 6}.items()
    assert "validation_rows" not in task.facts["validation"]
    assert "'own': 6 of 10 test rows (60 %) are also validation rows (case" in caplog.text
    notes = RunFacts("", "", None, {}, {}, splits={"own": task.facts}).list_notes()
    assert notes == ["own: 6 of 10 test rows (60.0%) have the texts of a validation row."]


def test_rows_without_labels_are_training_rows(tmp_path, caplog):
    task = load("classification", **write_files(tmp_path, "unlabeled_file"))

    assert task.facts["validation"]["training_rows"] == 6
    assert "6 of 10 validation rows (60 %) are also training or unlabeled rows" in caplog.text
