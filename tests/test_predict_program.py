"""``minbert predict``: texts from arguments, files or pipes become columns or JSON lines."""

import html
import io
import json
import re
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertForMultiTask
from tests import small_run

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
    "same": {"problem_type": "paraphrase"},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
}
TEXTS = ["the cat sat", "a dog ran", "the cat sat", "the tree is a tree", "a dog sat"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a folder with a tiny model of three tasks and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    small_run.save_model(folder, TASKS, WORDS)
    return folder


@pytest.fixture
def model(checkpoint):
    """Return the model of the folder."""
    return MinBertForMultiTask.from_pretrained(checkpoint).eval()


@pytest.fixture
def run(checkpoint, capsys, monkeypatch):
    """Return a function that runs the program and returns its output lines."""

    def run(*argv, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        flags = ["--device", "cpu", "--precision", "float32"]
        minbert.main(["predict", str(checkpoint), *map(str, argv), *flags])
        return capsys.readouterr().out.split("\n")[:-1]

    return run


def fail(run, capsys, *argv, stdin=b""):
    """Run with a mistake, and return the error line."""
    with pytest.raises(SystemExit) as caught:
        run(*argv, stdin=stdin)
    found = capsys.readouterr()
    assert caught.value.code == (2 if found.err.endswith("see minbert predict --help)\n") else 1)
    assert found.out == ""
    (line,) = found.err.strip().split("\n")
    return line


def test_texts_of_the_command_line_are_predicted(run, model):
    lines = run("--task", "tone", *TEXTS)

    assert lines[0] == "label\tscore\ttext"
    expected = model.predict("tone", TEXTS)
    assert [line.split("\t")[0] for line in lines[1:]] == [row["label"] for row in expected]
    assert [line.split("\t")[2] for line in lines[1:]] == TEXTS


@pytest.mark.parametrize("task", ["same", "near"])
def test_pairs_come_as_columns_or_one_after_the_other(run, model, task):
    piped = run("--task", task, "--format", "jsonl", stdin=b"the cat\ta dog\r\na tree\tthe bird")
    given = run("--task", task, "--format", "jsonl", "the cat", "a dog", "a tree", "the bird")

    assert piped == given
    rows = [json.loads(line) for line in piped]
    assert [(row["text1"], row["text2"]) for row in rows] == [
        ("the cat", "a dog"),
        ("a tree", "the bird"),
    ]
    expected = model.predict(task, [("the cat", "a dog"), ("a tree", "the bird")])
    assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in expected])


@pytest.mark.parametrize("precision", ["int8", None])
def test_vectors_are_computed_in_a_precision(checkpoint, model, tmp_path, capsys, precision):
    file = tmp_path / "vectors.npy"
    flags = [] if precision is None else ["--precision", precision]
    minbert.main(
        ["predict", str(checkpoint), *TEXTS, "--embed", str(file), "--device", "cpu", *flags]
    )

    expected = model.encode(TEXTS, precision=precision or "auto")
    assert_close(torch.tensor(np.load(file)), expected, atol=2e-3, rtol=0)
    model.set_precision("auto")
    line = "precision: float32, as this cpu is not faster in bfloat16\n"
    if model.base_model.precision == "bfloat16":
        line = "precision: bfloat16, fast on this cpu (--precision float32 for exact results)\n"
    assert capsys.readouterr().err == ("" if precision else line)


def test_predictions_are_explained_in_every_format(run, model, tmp_path):
    page = tmp_path / "why.html"
    (expected, _) = model.explain("tone", TEXTS[:2])

    (line, _) = run("--task", "tone", "--explain", "--format", "jsonl", *TEXTS[:2])
    header, cells, _ = run("--task", "tone", "--explain", *TEXTS[:2])
    run("--task", "same", "--explain", "--output", page, "the <b> cat", "a dog & a cat")

    assert json.loads(line) == {**expected, "text": TEXTS[0]}
    assert header.split("\t") == [
        "label",
        "score",
        "explained",
        "decision",
        "baseline",
        "words",
        "text",
    ]
    shares = [f"{word['word']}:{word['share']:+.3f}" for word in expected["words"]]
    assert cells.split("\t")[5] == " ".join(shares)
    shown = page.read_text("utf-8")
    assert shown.count("<section>") == 1
    assert "<b> cat" not in shown
    visible = html.unescape(re.sub(r"<[^>]+>", "", shown))
    assert "the <b> cat" in visible
    assert "a dog & a cat" in visible


def test_explanations_are_of_one_task_and_of_predictions(run, capsys):
    several = fail(run, capsys, "--task", "tone,near", "--explain", "a cat")
    vectors = fail(run, capsys, "--embed", "x.npy", "--explain", "a cat")
    page = fail(run, capsys, "--task", "tone", "--output", "why.html", "a cat")

    assert "one task at a time" in several
    assert "leave out --embed" in vectors
    assert "give --explain" in page


def test_an_output_file_is_whole_or_not_there(run, capsys, tmp_path):
    run("--task", "tone", *TEXTS, "--output", tmp_path / "found.jsonl")
    fail(run, capsys, "--output", tmp_path / "bad.tsv", stdin=b"a cat\n\n")

    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 5
    assert json.loads((tmp_path / "found.jsonl").read_text().splitlines()[0])["text"] == TEXTS[0]
    assert [path.name for path in tmp_path.iterdir()] == ["found.jsonl"]


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (["a cat", " "], b"", "text 2 is empty"),
        (["a \udcff"], b"", "text 1, 'a \\udcff', is not UTF-8"),
        (["--task", "tone"], b"a cat\n\na dog", "standard input:2: the line is empty"),
        (["--task", "tone"], b"a cat\n\xff", "standard input:2: not UTF-8"),
        (["--task", "same", "a cat"], b"", "row 1 has 1 text(s), but the task takes a pair"),
        (["--task", "same"], b"a\tb\tc", "row 1 has 3 text(s)"),
    ],
)
def test_a_mistake_is_one_line(run, capsys, argv, stdin, message):
    line = fail(run, capsys, *argv, stdin=stdin)

    assert line.startswith("minbert predict: error: ")
    assert message in line


def test_an_encoder_without_tasks_names_its_modes(model, capsys, tmp_path):
    model.save_as_sentence_transformers(tmp_path)

    with pytest.raises(SystemExit):
        minbert.main(["predict", str(tmp_path), "a cat", "--device", "cpu"])
    assert "has no tasks to predict; it has vectors: give --embed" in capsys.readouterr().err
    flags = ["--embed", str(tmp_path / "v.npy"), "--precision", "float32"]
    minbert.main(["predict", str(tmp_path), "a cat", *flags])
    assert_close(torch.tensor(np.load(tmp_path / "v.npy")), model.encode(["a cat"]))


@pytest.mark.parametrize("labels", [["O", "B-PER", "I-PER"], ["noun", "verb", "other"]])
def test_tags_have_a_line_for_each_entity_or_word(tmp_path, capsys, labels):
    task = {"problem_type": "token_classification", "labels": labels}
    model = small_run.save_model(tmp_path, {"words": task}, WORDS)
    with torch.no_grad():
        model.heads["words"].out.bias[1] += 0.5  # so that there are entities
    model.save_pretrained(tmp_path)

    minbert.main(["predict", str(tmp_path), *TEXTS])

    header, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    expected = model.predict("words", TEXTS)
    if labels[0] == "O":
        assert header == ["line", "label", "text", "start", "end", "score"]
        entities = [
            [str(number), entity["label"], entity["text"]]
            for number, row in enumerate(expected, start=1)
            for entity in row["entities"]
        ]
        assert [line[:3] for line in lines] == entities
        assert entities
    else:
        assert header == ["line", "word", "tag", "score"]
        words = [[w, t] for row in expected for w, t in zip(row["words"], row["tags"], strict=True)]
        assert [line[1:3] for line in lines] == words
