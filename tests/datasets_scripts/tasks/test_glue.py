"""The nine tasks of GLUE: official files, rows of the Hub, and files that are none of theirs."""

from dataclasses import replace

import datasets
import pytest

from datasets_scripts import DATASETS, TaskData, load_task
from tests.glue_files import NLI, write_glue

GLUE = [name for name, row in DATASETS.items() if row.submission is not None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of GLUE with a few rows of each task."""
    return write_glue(tmp_path_factory.mktemp("glue"))


def load(folder, dataset, **keys):
    data = TaskData.from_recipe(dataset, {"dataset": dataset, **keys}, data_dir=folder)
    return load_task(data, cache_dir=folder / ".cache")


@pytest.mark.parametrize("dataset", GLUE)
def test_official_files_are_read_with_every_row(folder, dataset):
    task = load(folder, dataset)

    assert task.bad_rows == []
    sizes = {split: len(rows) for split, rows in task.splits.items()}
    more = {"validation_mismatched": 10, "test_mismatched": 6, "test_ax": 4}
    assert sizes == {"train": 24, "validation": 9, "test": 5} | (more if dataset == "mnli" else {})
    assert all("label" not in task.splits[split].column_names for split in sizes if "test" in split)
    assert task.splits["test"]["id"][:] == ["0", "1", "2", "3", "4"]


def test_labels_equal_the_files(folder):
    def column(dataset, split="train"):
        return load(folder, dataset).splits[split]["label"][:4]

    lines = {
        name: (folder / name / "train.tsv").read_text().splitlines()
        for name in ("CoLA", "MRPC", "STS-B", "WNLI", "RTE")
    }
    assert column("cola") == [int(line.split("\t")[1]) for line in lines["CoLA"][:4]]
    assert column("mrpc") == [int(line[0]) for line in lines["MRPC"][1:5]]
    assert column("stsb") == [float(line.split("\t")[-1]) for line in lines["STS-B"][1:5]]
    assert column("wnli") == [int(line[-1]) for line in lines["WNLI"][1:5]]
    assert column("rte") == [int(line.endswith("not_entailment")) for line in lines["RTE"][1:5]]
    assert column("mnli", "validation_mismatched") == [0, 1, 2, 0]


def write_hub(folder, sizes):
    """Write the Hub's files of MNLI or of the diagnostic set; return the folder."""
    features = datasets.Features(
        {name: datasets.Value("string") for name in ("premise", "hypothesis")}
        | {"label": datasets.ClassLabel(names=list(NLI)), "idx": datasets.Value("int32")}
    )
    (folder / "data").mkdir(parents=True)
    for split, count in sizes.items():
        secret = split.startswith("test")
        rows = [
            {"premise": "a", "hypothesis": "b", "label": -1 if secret else row % 3, "idx": row}
            for row in range(count)
        ]
        table = datasets.Dataset.from_list(rows, features=features)
        table.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return str(folder)


def test_without_a_folder_the_rows_come_from_the_hub(tmp_path, monkeypatch):
    sizes = {"train": 6, "validation_matched": 3, "validation_mismatched": 2}
    sizes |= {"test_matched": 5, "test_mismatched": 4}
    # folders in the layout of the Hub stand for it
    row = replace(
        DATASETS["mnli"],
        hub_id=write_hub(tmp_path / "mnli", sizes),
        hub_tests={"test_ax": write_hub(tmp_path / "ax", {"test": 7})},
    )
    monkeypatch.setitem(DATASETS, "mnli", row)

    task = load_task(TaskData.from_recipe("mnli", {"dataset": "mnli"}), tmp_path / ".cache")

    assert {split: len(rows) for split, rows in task.splits.items()} == {
        "train": 6,
        "validation": 3,
        "test": 5,
        "validation_mismatched": 2,
        "test_mismatched": 4,
        "test_ax": 7,
    }
    assert task.splits["validation_mismatched"]["label"][:] == [0, 1]
    assert "label" not in task.splits["test_ax"].column_names


@pytest.mark.parametrize(
    ("dataset", "path", "old", "new", "message"),
    [
        ("rte", "RTE/dev.tsv", "sentence2", "text", r"dev\.tsv: no column \['sentence2'\]; its"),
        ("rte", "RTE/dev.tsv", "label", "gold", r"dev\.tsv: no column \['label'\]; its columns"),
        (
            "rte",
            "RTE/train.tsv",
            "entailment",
            "maybe",
            "'maybe' is not among the labels 'entailment",
        ),
        ("cola", "CoLA/train.tsv", "gj04\t", "", "too few columns .3, the header has 4"),
        ("mnli", "MNLI/dev_mismatched.tsv", "fiction\t", "", "too few columns .15, the header has"),
        ("stsb", "STS-B/dev.tsv", "\t1.", "\t7.", r"label '7.*' is out of range; allowed is 0 to"),
    ],
)
def test_a_file_that_is_not_the_official_one_is_refused(tmp_path, dataset, path, old, new, message):
    file = write_glue(tmp_path) / path
    file.write_text(file.read_text().replace(old, new))

    with pytest.raises(ValueError, match=message):
        load(tmp_path, dataset)


def test_own_files_can_have_more_held_out_sets(tmp_path):
    write_glue(tmp_path)
    keys = {
        "problem_type": "classification",
        "data_dir": str(tmp_path / "SST-2"),
        "train_file": "train.tsv",
        "validation_file": "dev.tsv",
        "extra_files": {"validation_hard": "train.tsv", "test_web": "test.tsv"},
        "text_columns": "sentence",
        "label_column": "label",
    }
    for file in (tmp_path / "SST-2").iterdir():
        file.write_text(file.read_text().replace('"', ""))

    task = load_task(TaskData.from_recipe("mine", keys), cache_dir=tmp_path / ".cache")

    assert {split: len(rows) for split, rows in task.splits.items()} == {
        "train": 24,
        "validation": 9,
        "validation_hard": 24,
        "test_web": 5,
    }
    with pytest.raises(ValueError, match="extra_files: 'hard' is not a split; names start with"):
        TaskData.from_recipe("mine", keys | {"extra_files": {"hard": "train.tsv"}})
    with pytest.raises(ValueError, match="extra_files=3; expected names and paths, as in"):
        TaskData.from_recipe("mine", keys | {"extra_files": 3})
