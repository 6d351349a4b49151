"""Datasets of the Hub, with a local folder in the same layout in their place."""

import json

import datasets
import pytest

from datasets_scripts import TaskData, load_task

KEYS = {
    "problem_type": "paraphrase",
    "text_columns": ["question1", "question2"],
    "label_column": "label",
    "id_column": "idx",
}


def write_rows(path, labels):
    rows = [
        {"question1": f"q {number}", "question2": "r", "label": label, "idx": number}
        for number, label in enumerate(labels)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def load_folder(folder, **keys):
    recipe = {"hub_id": str(folder), **KEYS, **keys}
    return load_task(TaskData.from_recipe("pairs", recipe), cache_dir=folder / ".cache")


def test_folder_in_the_layout_of_the_hub(tmp_path):
    write_rows(tmp_path / "train.jsonl", [0, 1, 1])
    write_rows(tmp_path / "validation.jsonl", [1, 0])
    write_rows(tmp_path / "test.jsonl", [-1, -1])

    task = load_folder(tmp_path)

    assert task.splits["train"].to_dict() == {
        "id": ["0", "1", "2"],
        "sentence1": ["q 0", "q 1", "q 2"],
        "sentence2": ["r", "r", "r"],
        "label": [0, 1, 1],
    }
    assert "label" not in task.splits["test"].column_names


def test_class_names_of_the_features_become_the_labels(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "kind": datasets.ClassLabel(names=["2", "1"])}
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "kind": [0, 1]}, features=features)
    rows.to_parquet(tmp_path / "train.parquet")
    rows.to_parquet(tmp_path / "validation.parquet")

    task = load_folder(
        tmp_path,
        problem_type="classification",
        text_columns=["text"],
        label_column="kind",
        id_column=None,
    )

    assert task.labels == ("2", "1")
    assert task.splits["train"]["label"][:] == [0, 1]


def test_a_missing_validation_split_is_an_error_without_a_share(tmp_path):
    write_rows(tmp_path / "train.jsonl", [0, 1])

    with pytest.raises(ValueError, match="has no split 'validation'; its splits: train"):
        load_folder(tmp_path, validation_share=0)


def test_no_network_is_one_clear_error(tmp_path):
    data = TaskData.from_recipe("quora", {"dataset": "quora"})

    with pytest.raises(OSError, match=r"'nyu-mll/glue:qqp' cannot be fetched.*data_dir"):
        load_task(data, cache_dir=tmp_path)
