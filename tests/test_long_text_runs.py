"""Runs whose tasks split long texts into windows: train, measure, save, predict, resume."""

import csv
import json
import random

import numpy as np
import pytest

from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run

WINDOWS = {"truncation": "windows", "window_overlap": 2, "max_length": 8}
LABELS = ["fine", "dull", "warm"]


def write_rows(folder):
    """Write texts of one to forty words with several labels; returns the keys of the files."""
    files = {}
    for split, key in (("train", "train_file"), ("dev", "validation_file")):
        generator = random.Random(split)
        lines = []
        for number in range(24 if split == "train" else 9):
            words = generator.choices([*small_run.THINGS, *LABELS], k=generator.randrange(1, 40))
            labels = [label for label in LABELS if label in words]
            row = {"id": f"{split}{number}", "text": " ".join(words), "labels": labels}
            row |= {"is_even": "no" if words.count("dull") % 2 else "yes", "other": words[0]}
            lines.append(json.dumps(row | {"score": float(len(labels))}))
        path = folder / f"long-{split}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        files[key] = str(path)
    return files


def make_recipe(folder):
    """Return a recipe with a task of every problem type that can have windows."""
    files = write_rows(folder)
    many = {"problem_type": "multi_label_classification", "label_column": "labels"}
    one = {"problem_type": "classification", "label_column": "is_even", "max_windows": 3}
    pairs = {"problem_type": "similarity", "label_column": "score", "score_range": [0, 3]}
    pairs |= {"text_columns": ["text", "other"], "pair_encoding": "separate"}
    tasks = {
        "many": {**many, "text_columns": ["text"]},
        "one": {**one, "text_columns": ["text"], "max_tokens_per_batch": 90},
        "pairs": {**pairs, "max_windows": 5},
    }
    return small_run.make_recipe(folder) | {
        "tasks": {name: {**files, **WINDOWS, **keys} for name, keys in tasks.items()},
        "train_sampling_strategy": "group_by_length",
        "steps_per_epoch": 6,
        "r_drop": 1.0,
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train once; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("run")
    finetune.main([small_run.write_recipe(folder, make_recipe(folder))])
    return folder / "out"


def read_texts(run):
    lines = (run.parent / "long-dev.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_predictions(run, task):
    with (run / "predictions" / f"{task}-dev-output.csv").open(newline="") as file:
        return {row[0].strip(): row[1].strip() for row in list(csv.reader(file))[1:]}


def test_the_saved_model_predicts_what_the_run_measured(run):
    model, rows = MinBertForMultiTask.from_pretrained(run), read_texts(run)
    texts = [row["text"] for row in rows]

    one, pairs = read_predictions(run, "one"), read_predictions(run, "pairs")

    assert list(one) == [row["id"] for row in rows]
    names = model.config.task("one").labels
    found = [str(names.index(row["label"])) for row in model.predict("one", texts)]
    assert found == list(one.values())
    given = [(row["text"], row["other"]) for row in rows]
    found = [row["score"] for row in model.predict("pairs", given)]
    np.testing.assert_allclose(found, [float(score) for score in pairs.values()], atol=1e-4)
    assert len(model.predict("many", texts)) == len(texts)


def test_the_run_says_what_max_windows_cuts(run):
    notes = json.loads((run / "metrics.json").read_text())
    text = json.dumps(notes) + (run / "README.md").read_text()

    lengths = [
        len(json.loads(line)["text"].split())
        for line in (run.parent / "long-train.jsonl").read_text().splitlines()
    ]
    # three windows of six tokens, which share two: as many as are evenly spread keep 18 of a text
    assert "cut by max_windows=3: " in text
    assert max(lengths) > 18
