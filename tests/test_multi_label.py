"""Multi-label classification against scikit-learn, torch, transformers, and brute force."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from modeling_minbert import MinBertForMultiTask, choose_threshold
from tests.small_run import load_rows, write_jsonl
from tests.trainers import tiny

KIND = "multi_label_classification"
LABELS = ["rude", "vague", "warm"]
TEXTS = ["one", "two", "three", "four"]
GIVEN = [["warm", "rude"], [], ["vague"], ["rude", "vague"]]
VECTORS = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]]


def make_model(**keys):
    torch.manual_seed(0)
    task = {"problem_type": KIND, "labels": LABELS, "dropout": 0.0, **keys}
    return MinBertForMultiTask(tiny.make_config({"tone": task})).eval()


# Data


def load(folder, name, content, **keys):
    return load_rows(folder, name, content, problem_type=KIND, text_columns="text", **keys)


def as_rows(values):
    return [{"text": text, "y": value} for text, value in zip(TEXTS, values, strict=True)]


def write_cells(cells):
    quoted = [cell.replace('"', '""') for cell in cells]
    lines = [f'{text},"{cell}"\n' for text, cell in zip(TEXTS, quoted, strict=True)]
    return "".join(["text,y\n", *lines])


def test_all_ways_to_write_labels_give_equal_rows(tmp_path):
    lists = load(tmp_path, "a.jsonl", as_rows(GIVEN), label_column="y")
    commas = load(tmp_path, "b.csv", write_cells(map(", ".join, GIVEN)), label_column="y")
    lines = [f"{text}\t{'|'.join(names)}" for text, names in zip(TEXTS, GIVEN, strict=True)]
    keys = {"label_column": "y", "label_separator": "|"}
    bars = load(tmp_path, "c.tsv", "\n".join(["text\ty", *lines]) + "\n", **keys)
    lines = [",".join(map(str, [text, *row])) for text, row in zip(TEXTS, VECTORS, strict=True)]
    columns = load(
        tmp_path, "d.csv", "\n".join(["text,rude,vague,warm", *lines]) + "\n", label_columns=LABELS
    )
    cells = [
        load(tmp_path, f"{write.__name__}.csv", write_cells(map(write, GIVEN)), label_column="y")
        for write in (repr, json.dumps)
    ]
    numbers = [[LABELS.index(name) for name in names] for names in GIVEN]
    named = load(tmp_path, "e.jsonl", as_rows(numbers), label_column="y", labels=LABELS)

    assert lists.labels == tuple(LABELS)
    assert lists.splits["train"]["label"][:] == VECTORS
    for other in (commas, bars, columns, named, *cells):
        assert other.labels == lists.labels
        assert other.fingerprint == lists.fingerprint


def test_rows_of_which_none_has_a_label_are_not_labeled(tmp_path):
    write_jsonl(tmp_path / "none.jsonl", as_rows(["", "", [], None]))
    rows, keys = as_rows(GIVEN), {"label_column": "y", "max_invalid_fraction": 0.3}

    task = load(tmp_path, "a.jsonl", rows, **keys, test_file=str(tmp_path / "none.jsonl"))

    assert len(task.splits["test"]) == 4
    assert "label" not in task.splits["test"].column_names
    with pytest.raises(ValueError, match=r"none.jsonl: none of its 4 rows has a label; only"):
        load(tmp_path, "a.jsonl", rows, **keys, validation_file=str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("labels", [["sport", "news"], None])
def test_a_number_for_each_of_two_labels_is_no_name(tmp_path, labels):
    rows = as_rows([[0, 1], [1, 0], [1, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"'own': 'y' has not names, but 0 or 1 for each label"):
        load(tmp_path, "a.jsonl", rows, label_column="y", labels=labels)

    (rows[0]["y"], rows[1]["y"]) = ([0], [1])  # numbers of labels
    task = load(tmp_path, "a.jsonl", rows, label_column="y", labels=labels)
    assert task.splits["train"]["label"][:2] == [[1, 0], [0, 1]]


# Model


@pytest.mark.parametrize("seed", range(6))
def test_thresholds_equal_an_exhaustive_search(seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(30, generator=generator).mul(20).round().div(20)  # with ties
    labels = torch.rand(30, generator=generator) < values if seed else values < 0

    found = choose_threshold(values, labels)

    def f1(threshold):
        return f1_score(labels, values > threshold, zero_division=0)

    steps = [(number + 0.5) / 20 for number in range(20)]  # one between all neighbors
    grid = [0.5, *sorted(steps, key=lambda x: abs(x - 0.5))]
    scores = [f1(x) for x in grid]
    assert f1(found) == pytest.approx(max(scores))
    nearest = grid[int(np.argmax(np.isclose(scores, max(scores))))]
    assert abs(found - 0.5) <= abs(nearest - 0.5) + 0.05


def test_fitted_thresholds_decide_and_are_saved(tmp_path):
    model = make_model()
    logits = torch.randn(40, 3) - torch.tensor([2.0, 0.0, -2.0])
    labels = (logits.sigmoid() > torch.tensor([0.1, 0.5, 0.9])).float()
    labels[0] = -100

    chosen = model.fit_threshold("tone", logits, labels)

    counted = labels[:, 0] != -100
    assert torch.equal(model.decode("tone", logits)[counted], labels[counted].long())
    assert chosen[1] == 0.5
    model.save_pretrained(tmp_path)
    loaded = MinBertForMultiTask.from_pretrained(tmp_path)
    assert loaded.config.task("tone").thresholds == chosen
    with pytest.raises(ValueError, match="no labelled rows"):
        model.fit_threshold("tone", logits, torch.full_like(labels, -100))
