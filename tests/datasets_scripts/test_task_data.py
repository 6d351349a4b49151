"""`TaskData.from_recipe`: defaults of the built-in datasets, and checks."""

import pytest

from datasets_scripts import TaskData

OWN = {
    "problem_type": "classification",
    "train_file": "a.tsv",
    "validation_file": "b.tsv",
    "text_columns": ["text"],
    "label_column": "label",
}
ALIKE = {**OWN, "problem_type": "contrastive", "text_columns": ["a"], "label_column": None}
NO_FILES = {"train_file": None, "validation_file": None}


@pytest.mark.parametrize(
    ("dataset", "hub_id", "columns"),
    [
        ("sst", "SetFit/sst5", ("text",)),
        ("quora", "nyu-mll/glue:qqp", ("question1", "question2")),
    ],
)
def test_built_in_dataset_without_a_folder_comes_from_the_hub(dataset, hub_id, columns):
    data = TaskData.from_recipe(dataset, {"dataset": dataset})

    assert (data.hub_id, data.text_columns, data.files) == (hub_id, columns, {})


def test_own_files_are_looked_up_in_the_folder_of_the_task_only():
    data = TaskData.from_recipe("t", {**OWN, "data_dir": "mine"}, data_dir="other")

    assert data.files == {"train": "mine/a.tsv", "validation": "mine/b.tsv"}
    keys = {**OWN, **NO_FILES, "hub_id": "a/b", "data_dir": "mine", "quoting": False}
    data = TaskData.from_recipe("t", {**keys, "unlabeled_file": "c.tsv"})
    assert (data.unlabeled_file, data.file_format.quoting) == ("mine/c.tsv", False)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({**OWN, "hub_id": "a/b"}, "exactly one source.*given: hub_id, train_file, validation"),
        ({"dataset": "cfimdb"}, "no copy on the Hub; give data_dir.*ids-cfimdb-train.csv"),
        ({"dataset": "sst", "labels": ["a", "b"]}, "built in and has its own labels; remove"),
        ({"dataset": "sample_sst", "data_dir": "x"}, "reads no files; remove data_dir"),
        ({**OWN, "validation_share": 1}, r"validation_share=1; expected a fraction in \[0, 1\)"),
        ({**OWN, "labels": [True, False]}, "put names such as 'yes' and 'no' in quotes"),
        ({**OWN, "labels": ["1", "1.0", "2"]}, "labels names '1' twice, since 1.0 is read as 1"),
        ({**ALIKE, "text_columns": list("abcd")}, r"takes 1 or 2 or 3 text_columns, got \['a',"),
        ({**OWN, "text_columns": ["a", "mood"], "label_column": "mood"}, "'mood' is a column of"),
        ({**OWN, "max_eval_samples": True}, "max_eval_samples=True; expected a whole number of"),
        (
            {"dataset": "sample_sts", "max_train_samples_per_class": 9},
            "similarity tasks have no max_train_samples_per_class; remove it",
        ),
        (
            {**ALIKE, **NO_FILES, "hub_id": "a/b", "data_dir": "x"},
            "data_dir='x' has no effect with a dataset of the Hub",
        ),
        (
            {**OWN, "train_file": "a.jsonl", "validation_file": "b.parquet", "quoting": False},
            "quoting=False has no effect, since no file of the task ends in .csv or .tsv",
        ),
    ],
)
def test_a_wrong_recipe_is_refused(mapping, message):
    """The messages of other keys are among the frozen ones."""
    with pytest.raises(ValueError, match=message) as error:
        TaskData.from_recipe("mine", mapping)

    assert "'mine'" in str(error.value)
