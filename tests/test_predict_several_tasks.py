"""``minbert predict`` with several tasks: one table, the same predictions as one by one."""

import csv
import io
import json
import sys

import pandas as pd
import pytest

from minbert_cli import __main__ as minbert
from minbert_cli.predicting import flatten, join
from tests import small_run

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
    "topics": {"problem_type": "multi_label_classification", "labels": ["x", "y"]},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "parts": {"problem_type": "token_classification", "labels": ["noun", "verb"]},
    "same": {"problem_type": "paraphrase"},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
}
TEXTS = ["the cat sat", "a dog ran", "the tree is a tree"]
PAIRS = [("the cat sat", "a dog"), ("a tree", "a mat")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a folder with a tiny model, and the model."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return folder, small_run.save_model(folder, TASKS, WORDS)


@pytest.fixture
def run(checkpoint, capsys, monkeypatch):
    """Return a function that runs the program and returns its output and its notes."""

    def run(*argv, stdin="", folder=checkpoint[0]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        flags = ["--device", "cpu", "--precision", "float32"]
        minbert.main(["predict", str(folder), *map(str, argv), *flags])
        return capsys.readouterr()

    return run


def test_all_tasks_of_texts_are_keys_of_json_lines(run, checkpoint):
    found = run("--task", "all", "--format", "jsonl", *TEXTS)

    rows = [json.loads(line) for line in found.out.splitlines()]
    _, model = checkpoint
    names = ["parts", "tags", "tone", "topics"]
    expected = {name: model.predict(name, TEXTS) for name in names}
    for place, (row, text) in enumerate(zip(rows, TEXTS, strict=True)):
        assert list(row) == [*names, "text"]
        assert row == {**{name: expected[name][place] for name in names}, "text": text}
    assert found.err == "predicting parts, tags, tone, topics; not near, same, which take pairs\n"


def test_all_tasks_of_pairs_are_predicted(run, checkpoint):
    stdin = "".join("\t".join(pair) + "\n" for pair in PAIRS)
    found = run("--task", "all", "--format", "jsonl", stdin=stdin)

    rows = [json.loads(line) for line in found.out.splitlines()]
    assert found.err.startswith("predicting near, same; not parts, tags, tone, topics, which take ")
    _, model = checkpoint
    assert [row["near"] for row in rows] == model.predict("near", PAIRS)
    assert [row["same"] for row in rows] == model.predict("same", PAIRS)
    assert [(row["text1"], row["text2"]) for row in rows] == PAIRS


def test_named_tasks_are_columns_of_one_table(run, checkpoint, tmp_path):
    lines = tmp_path / "texts.txt"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    output = tmp_path / "predictions.csv"

    assert run("--task", "tone,topics,tags,parts", "--file", lines, "--output", output).err == ""

    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("tone.label", "tone.score", "topics.labels", "tags.entities"),
        *("parts.words", "parts.tags", "parts.scores", "text"),
    ]
    _, model = checkpoint
    assert [row["tone.label"] for row in rows] == [x["label"] for x in model.predict("tone", TEXTS)]
    entities = [json.loads(row["tags.entities"]) for row in rows]
    assert entities == [row["entities"] for row in model.predict("tags", TEXTS)]
    labels = [json.loads(row["topics.labels"]) for row in rows]
    assert labels == model.predict("topics", TEXTS)
    assert [row["text"] for row in rows] == TEXTS


def test_choices_are_predicted_by_all_only_if_no_task_takes_other_rows(run, tmp_path):
    ends = {"problem_type": "multiple_choice", "num_choices": 2}
    models = [
        small_run.save_model(tmp_path / name, {"ends": ends, **others}, WORDS)
        for name, others in (("alone", {"more": ends}), ("beside", {"tone": TASKS["tone"]}))
    ]
    row = ("the cat sat", ["a dog", "a tree"])

    alone = run("--task", "all", row[0], *row[1], folder=tmp_path / "alone")
    beside = run("--task", "all", "a dog", folder=tmp_path / "beside")

    assert alone.err == "predicting ends, more\n"
    header, cells = (line.split("\t") for line in alone.out.splitlines())
    assert header == [
        *("ends.choice", "ends.index", "ends.score", "more.choice", "more.index", "more.score"),
        *("text1", "choices"),
    ]
    assert cells[0] == models[0].predict("ends", [row])[0]["choice"]
    assert beside.err == "predicting tone; not ends, which takes contexts with choices\n"


def test_a_task_called_text_does_not_hide_the_text(run, tmp_path, capsys):
    small_run.save_model(tmp_path, {"text": TASKS["tone"], "tone": TASKS["tone"]}, WORDS)

    with pytest.raises(SystemExit):
        run("--task", "all", "--format", "jsonl", "a dog", folder=tmp_path)
    assert "task 'text' has the name of a column" in capsys.readouterr().err
    found = run("--task", "all", "a dog", folder=tmp_path).out
    assert found.startswith("text.label\ttext.score\ttone.label\ttone.score\ttext\n")


def test_columns_are_those_of_pandas():
    prediction = {"scores": {"length": 1.5, "price": 2.0}, "label": "long"}

    columns = dict(flatten("own", prediction))

    expected = pd.json_normalize({"own": prediction}).iloc[0].to_dict()
    assert columns == expected
    (row,) = join(iter([{"own": prediction}]), iter([{"text": "a"}]), nested=False)
    assert row == expected | {"text": "a"}
