"""Recipes for imbalanced classes and doubtful labels, from the file to the report."""

import json
import random

import pytest

from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers.pages import PageReader

NOUNS = ("garden", "river", "story", "window", "song")
SPLITS = {"train": 30, "dev": 12}


def write_rows(folder):
    """Write moods (a fifth bad), pairs (a third the same), topics (several labels), and tags."""
    for split, count in SPLITS.items():
        rng = random.Random(split)
        moods, pairs, topics, tags = [], [], [], []
        for number in range(count):
            noun, bad, same = rng.choice(NOUNS), number % 5 == 0, number % 3 == 0
            words = f"the {noun} is {'dull' if bad else 'fine'}".split()
            moods.append((" ".join(words), "bad" if bad else "good"))
            other = " ".join(words) if same else "something else"
            pairs.append((" ".join(words), other, int(same)))
            labels = ["nature"] * (noun in NOUNS[:2]) + ["rare"] * (number % 6 == 0)
            topics.append((" ".join(words), ",".join(labels)))
            tags.append({"tokens": words, "tags": ["O", "THING", "O", "O"]})
        small_run.write_tsv(folder / f"moods-{split}.tsv", ("text", "mood"), moods)
        small_run.write_tsv(folder / f"pairs-{split}.tsv", ("a", "b", "same"), pairs)
        small_run.write_tsv(folder / f"topics-{split}.tsv", ("text", "topics"), topics)
        lines = "".join(json.dumps(row) + "\n" for row in tags)
        (folder / f"tags-{split}.jsonl").write_text(lines)


def make_task(folder, name, problem_type, columns, label, **keys):
    suffix = "jsonl" if name == "tags" else "tsv"
    files = {"train_file": folder / f"{name}-train.{suffix}"}
    files |= {"validation_file": folder / f"{name}-dev.{suffix}"}
    keys = {"text_columns": columns, "label_column": label} | keys
    return {"problem_type": problem_type} | keys | {key: str(path) for key, path in files.items()}


@pytest.fixture
def recipe(tmp_path):
    write_rows(tmp_path)
    tasks = {
        "moods": ("classification", ["text"], "mood", {"class_weights": "balanced"}),
        "pairs": ("paraphrase", ["a", "b"], "same", {"class_weights": "balanced"}),
        "topics": ("multi_label_classification", ["text"], "topics", {"pos_weight": "balanced"}),
        "tags": ("token_classification", ["tokens"], "tags", {"class_weights": "balanced"}),
    }
    made = {name: make_task(tmp_path, name, *keys[:3], **keys[3]) for name, keys in tasks.items()}
    return small_run.make_recipe(tmp_path) | {"tasks": made, "label_smoothing_factor": 0.1}


def test_a_run_from_files_to_the_report(tmp_path, recipe):
    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    out = tmp_path / "out"
    tasks = MinBertForMultiTask.from_pretrained(out).config.tasks
    assert tasks["pairs"]["class_weights"] == [30 / (2 * 20), 30 / (2 * 10)]
    topics = (tmp_path / "topics-train.tsv").read_text().splitlines()[1:]
    counts = [sum(name in line.split("\t")[1] for line in topics) for name in ("nature", "rare")]
    assert tasks["topics"]["pos_weight"] == [(30 - count) / count for count in counts]
    assert tasks["tags"]["class_weights"] == [120 / (2 * 90), 120 / (2 * 30)]

    page = (out / "report.html").read_text()
    assert not PageReader(page).faults
