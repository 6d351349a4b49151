"""SNLI and MultiNLI: official files and rows of the Hub; rows without agreement are left out."""

import datasets

from datasets_scripts import TaskData, load_task
from tests.nli_files import ENDINGS, LABELS, write_multi_nli, write_snli

ORDER = ("entailment", "neutral", "contradiction")


def load(folder, dataset, data_dir=None):
    data = TaskData.from_recipe("nli", {"dataset": dataset}, data_dir=data_dir or folder)
    return load_task(data, cache_dir=folder / ".cache")


def test_rows_without_agreement_are_left_out_and_counted(tmp_path):
    task = load(write_snli(tmp_path, rows=12, undecided=5), "snli")

    assert task.bad_rows == []  # though a third has no label
    assert {split: len(rows) for split, rows in task.splits.items()} == dict.fromkeys(
        ("train", "validation", "test"), 12
    )
    for facts in task.facts.values():
        assert facts["undecided_rows"] == 5
        assert facts["usable_rows"] == 12


def test_labels_have_the_order_of_the_hub_and_the_names_of_the_files(tmp_path):
    task = load(write_snli(tmp_path), "snli")

    assert task.labels == ORDER
    for row in task.splits["train"]:
        assert ORDER[row["label"]] == LABELS[ENDINGS.index(row["sentence2"])]
    assert "undecided_rows" not in task.facts["train"]


def test_both_held_out_sets_of_multi_nli_are_read(tmp_path):
    task = load(write_multi_nli(tmp_path), "multi_nli")

    sizes = {split: len(rows) for split, rows in task.splits.items()}
    assert sizes == {"train": 12, "validation": 12, "validation_mismatched": 12}
    assert {facts["undecided_rows"] for facts in task.facts.values()} == {1}


def test_hub_rows_without_agreement_are_left_out(tmp_path, monkeypatch):
    names = datasets.ClassLabel(names=list(ORDER))
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": names,
        }
    )
    rows = {
        "premise": ["one walks"] * 4,
        "hypothesis": ["a walk", "a dog walks", "none walks", "?"],
        "label": [0, 1, 2, -1],
    }
    for split in ("train", "validation", "test"):
        path = tmp_path / "stanfordnlp" / "snli" / f"{split}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(rows, features).to_parquet(path)
    monkeypatch.chdir(tmp_path)  # a folder that is laid out like the dataset of the Hub

    data = TaskData.from_recipe("nli", {"dataset": "snli"})
    task = load_task(data, cache_dir=tmp_path / ".cache")

    assert task.labels == ORDER
    for split in ("train", "validation", "test"):
        assert task.splits[split]["label"][:] == [0, 1, 2]
        assert task.facts[split]["undecided_rows"] == 1
