"""Held-out rows that are also training rows are counted, and many of them cause a warning."""

import json
import logging

import datasets
import pytest

from datasets_scripts import ROW_FORMATS, TaskData, load_task
from tests.problem_examples import EXAMPLES

PAIRS = {"problem_type": "paraphrase", "text_columns": ["a", "b"], "label_column": "same"}


def load(folder, **keys):
    return load_task(TaskData.from_recipe("own", keys), folder / ".cache")


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def number_pairs(numbers, label):
    return [{"a": f"text {number}", "b": f"other {number}", "same": label} for number in numbers]


@pytest.mark.parametrize("problem_type", ROW_FORMATS)
def test_the_training_file_given_twice_is_reported(tmp_path, caplog, problem_type):
    keys = {"problem_type": problem_type, **EXAMPLES[problem_type].write(tmp_path)}
    keys = {key: value for key, value in keys.items() if key in TaskData.recipe_keys()}

    with caplog.at_level(logging.WARNING):
        task = load(tmp_path, **keys | {"validation_file": keys["train_file"]})

    size = len(task.splits["train"])
    assert task.facts["validation"]["training_rows"] == size
    assert (
        f"task 'own': {size} of {size} validation rows (100 %) are also training rows"
        in caplog.text
    )


def test_formats_labels_and_white_space_are_not_compared(tmp_path, caplog):
    train = write_jsonl(tmp_path / "train.jsonl", number_pairs(range(20), 0))
    dev, test = tmp_path / "dev.csv", tmp_path / "test.tsv"
    dev.write_text("same,b,a\n" + "".join(f"1, other  {i},text {i}\n" for i in range(17, 22)))
    test.write_text("a\tb\n" + "".join(f"text {i}\tother {i}\n" for i in range(19, 40)))

    files = {"train_file": train, "validation_file": str(dev), "test_file": str(test)}
    task = load(tmp_path, **PAIRS, **files)

    assert "3 of 5 validation rows (60 %) are also training rows" in caplog.text
    assert "test rows" not in caplog.text  # one of 21, as by chance
    assert [task.facts[split].get("training_rows") for split in task.splits] == [None, 3, 1]


def test_a_pair_is_repeated_only_with_both_texts(tmp_path, caplog):
    rows = number_pairs(range(4), 1)
    others = [{**rows[0], "b": "text 0"}, {**rows[1], "b": "other 2"}]
    files = {
        "train_file": write_jsonl(tmp_path / "train.jsonl", rows),
        "validation_file": write_jsonl(tmp_path / "dev.jsonl", others),
    }

    task = load(tmp_path, **PAIRS, **files)

    assert task.facts["validation"]["training_rows"] == 0
    assert not caplog.records


def test_rows_of_the_hub_are_compared(tmp_path, caplog):
    folder = tmp_path / "data"
    folder.mkdir()
    rows = datasets.Dataset.from_list(number_pairs(range(3), 1))
    for split in ("train", "validation"):
        rows.to_parquet(folder / f"{split}.parquet")

    load(tmp_path, **PAIRS, hub_id=str(folder))

    assert "3 of 3 validation rows (100 %)" in caplog.text


def test_rows_that_were_not_drawn_are_not_compared(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", number_pairs(range(30), 1))

    files = {"train_file": path, "validation_file": path}
    task = load(tmp_path, **PAIRS, **files, max_train_samples=10)

    assert task.facts["validation"]["training_rows"] == 10
