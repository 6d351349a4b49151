"""The built-in samples are tasks, and no text of a split occurs in another one."""

import pytest

from datasets_scripts import DATASETS, TaskData, load_task
from datasets_scripts.catalog import read_sample

SAMPLES = ("sample_sst", "sample_quora", "sample_sts", "sample_text")

SIZES = {"train": 2000, "validation": 300, "test": 200}


@pytest.mark.parametrize("dataset", [name for name in SAMPLES if name != "sample_text"])
def test_a_sample_loads_as_a_task(dataset, tmp_path):
    task = load_task(TaskData.from_recipe("t", {"dataset": dataset}), cache_dir=tmp_path)

    assert {split: len(rows) for split, rows in task.splits.items()} == SIZES
    assert task.labels == DATASETS[dataset].labels
    assert task.bad_rows == []


@pytest.mark.parametrize("name", SAMPLES)
def test_no_text_of_a_split_occurs_in_another(name):
    splits = [
        {text for row in rows for text in ([row] if isinstance(row, str) else row.values())}
        for rows in read_sample(name).values()
    ]
    texts = [{text for text in split if isinstance(text, str)} for split in splits]

    assert sum(map(len, texts)) == len(set.union(*texts))
