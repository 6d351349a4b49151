"""``minbert predict``: texts from arguments, files or pipes become columns or JSON lines."""

import csv
import html
import io
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from datasets_scripts.readers import read_records
from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertForMultiTask
from tests import small_run

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
    "topics": {"problem_type": "multi_label_classification", "labels": ["x", "y"]},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "parts": {"problem_type": "token_classification", "labels": ["noun", "verb"]},
    "same": {"problem_type": "paraphrase"},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
    "sizes": {"problem_type": "regression", "targets": ["x", "y"]},
}
TEXTS = ["the cat sat", "a dog ran", "the cat sat", "the tree is a tree", "a dog sat"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a folder with a tiny model of several tasks and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    small_run.save_model(folder, TASKS, WORDS)
    return folder


@pytest.fixture
def model(checkpoint):
    """Return the model of the folder."""
    return MinBertForMultiTask.from_pretrained(checkpoint).eval()


@pytest.fixture
def run(checkpoint, capsys, monkeypatch):
    """Return a function that runs the program and returns its output lines, and its notes."""

    def run(*argv, stdin=b"", folder=checkpoint):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        flags = ["--device", "cpu", "--precision", "float32"]
        minbert.main(["predict", str(folder), *map(str, argv), *flags])
        found = capsys.readouterr()
        run.notes = found.err
        return found.out.split("\n")[:-1]

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


def test_the_line_of_a_pair_has_no_vector(run, capsys, tmp_path):
    argv, stdin = ["--task", "near", "--embed", tmp_path / "v.npy"], b"the cat\na tree\tthe bird\n"

    line = fail(run, capsys, *argv, stdin=stdin)
    run(*argv, "--lines", stdin=stdin)

    assert "standard input:2: the line has a tab, as between the texts of a row" in line
    assert len(np.load(tmp_path / "v.npy")) == 2


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


def test_flags_of_predictions_and_those_of_vectors_exclude_each_other(run, capsys):
    several = fail(run, capsys, "--task", "tone,near", "--explain", "a cat")
    vectors = fail(run, capsys, "--embed", "x.npy", "--explain", "a cat")
    page = fail(run, capsys, "--task", "tone", "--output", "why.html", "a cat")
    pooled = fail(run, capsys, "--task", "tone", "--pooling", "cls", "a cat")
    written = fail(run, capsys, "--embed", "x.npy", "--output", "x.csv", "a cat")
    formatted = fail(run, capsys, "--embed", "x.npy", "--format", "csv", "a cat")

    assert "one task at a time" in several
    assert "leave out --embed" in vectors
    assert "give --explain" in page
    assert "--pooling cls is for embeddings; give --embed" in pooled
    assert "leave out --output and --format" in written
    assert formatted == written


ODD = {
    "zero-width non-joiner": "می‌خواهم",
    "zero-width joiner": "क्‍ष, 👩‍👩‍👧",
    "soft hyphen": "Donau\u00addampfschiff",
    "ideographic space": "北京\u3000上海",
    "no-break space": "10\u00a0km",
    "direction marks": "\u200f\u05e9\u05dc\u05dd\u200e",
    "private use": "\uf8ff",
    "variation selector": "❤\ufe0f",
}


QUOTED = ['"a" cat', '"a dog', 'ran"', 'the "tree"', "\"a\ttab\"\nand\u2028a 'line'", "a, cat; |"]


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_tables_of_texts_with_quotes_and_what_somebody_can_print_are_read_back(
    run, tmp_path, suffix
):
    texts = [*QUOTED, *ODD.values()]
    source = small_run.write_jsonl(tmp_path / "t.jsonl", [{"text": text} for text in texts])
    output = tmp_path / f"found.{suffix}"

    run("--task", "tone", "--file", source, "--text_columns", "text", "--output", output)

    ends = "[\t\n\u2028]" if suffix == "tsv" else "\u2028"
    expected = [re.sub(ends, " ", text) for text in texts]
    found = [record.values["text"] for record in read_records(str(output), ("text",))]
    assert found == expected
    table = pd.read_csv(output, sep="\t" if suffix == "tsv" else ",")
    assert table["text"].tolist() == expected


def test_an_output_file_is_whole_or_not_there(run, capsys, tmp_path):
    run("--task", "tone", *TEXTS, "--output", tmp_path / "found.jsonl")
    fail(run, capsys, "--output", tmp_path / "bad.tsv", stdin=b"a cat\n\n")

    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 5
    assert json.loads((tmp_path / "found.jsonl").read_text().splitlines()[0])["text"] == TEXTS[0]
    assert [path.name for path in tmp_path.iterdir()] == ["found.jsonl"]


def test_the_suffix_of_the_output_is_its_format(run, capsys, tmp_path):
    for name in ("found.TXT", "found", "found.CSV", "found.html"):
        flags = ["--explain"] if name.endswith("html") else []
        run("--task", "tone", "a cat", "--output", tmp_path / name, *flags)
    run("--task", "tone", "a cat", "--output", tmp_path / "found.json", "--format", "jsonl")

    starts = {path.name: path.read_text()[:7] for path in tmp_path.iterdir()}
    assert starts == {
        "found.TXT": "label\ts",
        "found": "label\ts",
        "found.CSV": "label,s",
        "found.html": "<!docty",
        "found.json": '{"label',
    }
    for name in ("x.json", "x.csv.gz", "x.parquet"):
        line = fail(run, capsys, "--task", "tone", "a cat", "--output", tmp_path / name)
        assert f"--output {tmp_path / name}: no format has this suffix; name a file" in line


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (["a cat", " "], b"", "text 2 is empty"),
        (["a \udcff"], b"", "text 1, 'a \\udcff', is not UTF-8"),
        (["--task", "tone"], b"a cat\n\na dog", "standard input:2: the line is empty"),
        (["--task", "tone"], b"a cat\n\xff", "standard input:2: not UTF-8"),
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
    (tmp_path / "sentences.csv").write_text("so good a song\na cat\n")
    with pytest.raises(SystemExit):
        minbert.main(["predict", str(tmp_path), "--file", str(tmp_path / "sentences.csv"), *flags])
    assert "its columns are 'so good a song': give --text_columns" in capsys.readouterr().err


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
        with torch.no_grad():
            model.heads["words"].out.bias[0] += 100
        model.save_pretrained(tmp_path)
        minbert.main(["predict", str(tmp_path), *TEXTS])
        assert capsys.readouterr().out == "\t".join(header) + "\n"
    else:
        assert header == ["line", "word", "tag", "score"]
        words = [[w, t] for row in expected for w, t in zip(row["words"], row["tags"], strict=True)]
        assert [line[1:3] for line in lines] == words


def test_an_output_does_not_hide_the_score_of_another(run, tmp_path, capsys):
    outputs = {"outputs": ["food", "food_score"], "classes": [["x", "y"], ["x", "y"]]}
    task = {"problem_type": "multi_output_classification", **outputs}
    small_run.save_model(tmp_path, {"own": task}, WORDS)

    with pytest.raises(SystemExit):
        run("a cat", folder=tmp_path)
    assert "the output 'food_score' has the name of another column" in capsys.readouterr().err
    (line,) = run("a cat", "--format", "jsonl", folder=tmp_path)
    assert list(json.loads(line)["labels"]) == ["food", "food_score"]


# Several tasks


def test_all_tasks_of_texts_are_keys_of_json_lines(run, model):
    rows = [json.loads(line) for line in run("--task", "all", "--format", "jsonl", *TEXTS)]

    names = ["parts", "sizes", "tags", "tone", "topics"]
    expected = {name: model.predict(name, TEXTS) for name in names}
    for place, (row, text) in enumerate(zip(rows, TEXTS, strict=True)):
        assert list(row) == [*names, "text"]
        assert row == {**{name: expected[name][place] for name in names}, "text": text}
    others = "not near, same, which take pairs"
    assert run.notes == f"predicting {', '.join(names)}; {others}\n"


def test_a_single_text_among_pairs_is_refused(run, capsys):
    for stdin, number in ((b"a tree\nthe cat\ta dog\n", 1), (b"the cat\ta dog\na tree\n", 2)):
        line = fail(run, capsys, "--task", "all", stdin=stdin)
        assert f"row {number} has 1 text(s), but the task takes a pair" in line


def test_named_tasks_are_columns_of_one_table(run, model, tmp_path):
    sentences, output = tmp_path / "sentences.txt", tmp_path / "predictions.csv"
    sentences.write_text("".join(f"{text}\n" for text in TEXTS))

    run("--task", "tone,topics,tags,parts,sizes", "--file", sentences, "--output", output)

    assert run.notes == ""
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("tone.label", "tone.score", "topics.labels", "tags.entities"),
        *("parts.words", "parts.tags", "parts.scores", "sizes.scores.x", "sizes.scores.y", "text"),
    ]
    assert [row["tone.label"] for row in rows] == [x["label"] for x in model.predict("tone", TEXTS)]
    entities = [json.loads(row["tags.entities"]) for row in rows]
    assert entities == [row["entities"] for row in model.predict("tags", TEXTS)]
    labels = [json.loads(row["topics.labels"]) for row in rows]
    assert labels == model.predict("topics", TEXTS)
    assert [row["text"] for row in rows] == TEXTS


def test_a_task_called_text_does_not_hide_the_text(run, tmp_path, capsys):
    small_run.save_model(tmp_path, {"text": TASKS["tone"], "tone": TASKS["tone"]}, WORDS)

    with pytest.raises(SystemExit):
        run("--task", "all", "--format", "jsonl", "a dog", folder=tmp_path)
    assert "task 'text' has the name of a column" in capsys.readouterr().err
    header, _ = run("--task", "all", "a dog", folder=tmp_path)
    assert header == "text.label\ttext.score\ttone.label\ttone.score\ttext"
