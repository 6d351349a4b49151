"""Built-in datasets: official files, rows of the Hub, samples, and files of another form."""

from dataclasses import replace

import datasets
import pytest

from datasets_scripts import DATASETS, TaskData, load_task
from tests.glue_files import NLI, write_glue
from tests.nli_files import ENDINGS, LABELS, write_multi_nli, write_snli
from tests.small_run import write_hub

GLUE = [name for name, row in DATASETS.items() if row.is_of_glue]
ORDER = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of GLUE with a few rows of each task."""
    return write_glue(tmp_path_factory.mktemp("glue"))


def load(folder, dataset, **keys):
    data = TaskData.from_recipe(dataset, {"dataset": dataset, **keys}, data_dir=folder)
    return load_task(data)


def sizes_of(task):
    return {split: len(rows) for split, rows in task.splits.items()}


@pytest.mark.parametrize("dataset", GLUE)
def test_official_files_of_glue_are_read_with_every_row(folder, dataset):
    task = load(folder, dataset)

    assert task.bad_rows == []
    more = {"validation_mismatched": 10, "test_mismatched": 6}
    expected = {"train": 24, "validation": 9, "test": 5} | (more if dataset == "mnli" else {})
    assert sizes_of(task) == expected
    tests = [rows for split, rows in task.splits.items() if split.startswith("test")]
    assert all("label" not in rows.column_names for rows in tests)
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


TEXT = datasets.Value("string")
PAIRS = {"premise": TEXT, "hypothesis": TEXT}


def test_without_a_folder_the_rows_come_from_the_hub(tmp_path, monkeypatch):
    names = {"label": datasets.ClassLabel(names=list(NLI)), "idx": datasets.Value("int32")}

    def write(folder, **sizes):
        splits = {}
        for split, size in sizes.items():
            labels = [-1 if split.startswith("test") else row % 3 for row in range(size)]
            splits[split] = {"premise": ["a"] * size, "hypothesis": ["b"] * size, "label": labels}
            splits[split]["idx"] = list(range(size))
        return write_hub(tmp_path / folder, datasets.Features(PAIRS | names), **splits)

    sizes = {"train": 6, "validation_matched": 3, "validation_mismatched": 2}
    sizes |= {"test_matched": 5, "test_mismatched": 4}
    # folders in the layout of the Hub stand for it
    hub_id = write("mnli", **sizes)
    monkeypatch.setitem(DATASETS, "mnli", replace(DATASETS["mnli"], hub_id=hub_id))

    task = load_task(TaskData.from_recipe("mnli", {"dataset": "mnli"}))

    expected = {"train": 6, "validation": 3, "validation_mismatched": 2, "test": 5}
    assert sizes_of(task) == expected | {"test_mismatched": 4}
    assert task.splits["validation_mismatched"]["label"][:] == [0, 1]
    assert "label" not in task.splits["test_mismatched"].column_names


def test_duplicates_of_the_hub_are_numbers_by_whatever_name(tmp_path, monkeypatch):
    names = datasets.ClassLabel(names=["not_duplicate", "duplicate"])
    pairs = {"question1": TEXT, "question2": TEXT, "label": names, "idx": datasets.Value("int32")}
    rows = {"question1": ["a", "b", "c"], "question2": ["d", "e", "f"], "label": [1, 0, 1]}
    rows["idx"] = [0, 1, 2]
    features = datasets.Features(pairs)
    hub_id = write_hub(tmp_path / "qqp", features, train=rows, validation=rows)
    monkeypatch.setitem(DATASETS, "qqp", replace(DATASETS["qqp"], hub_id=hub_id))

    task = load_task(TaskData.from_recipe("qqp", {"dataset": "qqp"}))

    assert task.splits["train"]["label"][:] == [1, 0, 1]


def test_no_network_is_one_clear_error():
    with pytest.raises(OSError, match=r"'nyu-mll/glue:qqp' cannot be fetched.*data_dir"):
        load_task(TaskData.from_recipe("quora", {"dataset": "quora"}))


@pytest.mark.parametrize(
    ("dataset", "path", "old", "new", "message"),
    [
        ("rte", "RTE/dev.tsv", "sentence2", "text", r"dev\.tsv: no column \['sentence2'\]; its"),
        ("rte", "RTE/train.tsv", "entailment", "maybe", "'maybe' is not among the labels 'enta"),
        ("cola", "CoLA/train.tsv", "gj04\t", "", "too few columns .3, the header has 4"),
        ("stsb", "STS-B/dev.tsv", "\t1.", "\t7.", r"label '7.*' is out of range; allowed is 0 to"),
    ],
)
def test_a_file_that_is_not_the_official_one_is_refused(tmp_path, dataset, path, old, new, message):
    file = write_glue(tmp_path) / path
    file.write_text(file.read_text().replace(old, new))

    with pytest.raises(ValueError, match=message):
        load(tmp_path, dataset)


def test_sst_files_of_the_course(tmp_path):
    header = "\tid\tsentence\tsentiment\n"
    train = header + "0\tab1\t A film .\t3\n1\tab2\tNo .\t0\n"
    (tmp_path / "ids-sst-train.csv").write_text(train)
    (tmp_path / "ids-sst-dev.csv").write_text(header + "0\tcd1\tWell .\t4\n")
    (tmp_path / "ids-sst-test-student.csv").write_text("0\t\tid\tsentence\n1\t0.0\tef1\tHm .\n")

    task = load(tmp_path, "sst")

    assert task.splits["train"][0] == {"id": "ab1", "sentence1": "A film .", "label": 3}
    assert task.splits["validation"]["label"][:] == [4]
    assert task.splits["test"][0] == {"id": "ef1", "sentence1": "Hm ."}
    assert task.labels[3] == "somewhat positive"


# Rows without agreement of the annotators


def test_rows_without_agreement_are_left_out_and_counted(tmp_path):
    task = load(write_snli(tmp_path, rows=12, undecided=5), "snli")
    both = load(write_multi_nli(tmp_path), "multi_nli")  # with both held-out sets

    assert task.bad_rows == []  # though a third has no label
    assert sizes_of(task) == {"train": 12, "validation": 12, "test": 12}
    assert sizes_of(both) == {"train": 12, "validation": 12, "validation_mismatched": 12}
    for one, undecided in ((task, 5), (both, 1)):
        assert {facts["undecided_rows"] for facts in one.facts.values()} == {undecided}
    assert task.facts["train"]["usable_rows"] == 12
    assert task.labels == ORDER
    for row in task.splits["train"]:
        assert ORDER[row["label"]] == LABELS[ENDINGS.index(row["sentence2"])]


def test_hub_rows_without_agreement_are_left_out(tmp_path, monkeypatch):
    features = datasets.Features(PAIRS | {"label": datasets.ClassLabel(names=list(ORDER))})
    rows = {"premise": ["one walks"] * 4, "hypothesis": [*"abcd"], "label": [0, 1, 2, -1]}
    splits = dict.fromkeys(("train", "validation", "test"), rows)
    write_hub(tmp_path / "stanfordnlp" / "snli", features, **splits)
    monkeypatch.chdir(tmp_path)  # a folder that is laid out like the dataset of the Hub

    data = TaskData.from_recipe("nli", {"dataset": "snli"})
    task = load_task(data)

    assert task.labels == ORDER
    for split in ("train", "validation", "test"):
        assert task.splits[split]["label"][:] == [0, 1, 2]
        assert task.facts[split]["undecided_rows"] == 1

    splits["validation"] = {**rows, "label": [-1] * 4}
    write_hub(tmp_path / "stanfordnlp" / "snli", features, **splits)
    with pytest.raises(
        ValueError, match="snli:validation: no row is left: it has none, or the ann"
    ):
        load_task(data)


# Samples


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name.startswith("sample")])
def test_a_sample_is_a_task_and_no_text_of_a_split_is_in_another(dataset):
    task = load_task(TaskData.from_recipe("t", {"dataset": dataset}))

    assert sizes_of(task) == {"train": 2000, "validation": 300, "test": 200}
    assert task.labels == DATASETS[dataset].labels
    assert task.bad_rows == []
    columns = task.row_format.text_names
    texts = [{text for name in columns for text in rows[name]} for rows in task.splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))
