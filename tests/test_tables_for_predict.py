"""``minbert predict`` reads tables as training did, or refuses them before anything is computed."""

import csv
import gzip
import io
import json
import sys

import numpy as np
import pytest
from datasets import Dataset

from minbert_cli import __main__ as minbert, finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run

QUOTED = 'a "quoted", comma\tand a tab; ünïcode'
TEXTS = ["the garden is fine", 'the "river",\nit is cold', "a story; a song", "the song is dull"]
FILES = {
    "rows.csv": lambda path: write(path, ","),
    "rows.tsv": lambda path: write(path, "\t"),
    "semicolons.csv": lambda path: write(path, ";"),
    "tabs.csv": lambda path: write(path, "\t"),
    "rows.csv.gz": lambda path: write(path, ",", gzip.open),
    "rows.jsonl": lambda path: path.write_text(
        "".join(json.dumps({"mood": "good", "text": text}) + "\n" for text in TEXTS)
    ),
    "rows.parquet": lambda path: Dataset.from_dict({"id": [4, 3, 2, 1], "text": TEXTS}).to_parquet(
        path
    ),
}


def write(path, delimiter, opener=open):
    """Write the texts as a table with further columns."""
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=delimiter)
        table.writerow(["number", "text", "mood"])
        table.writerows([number, text, "good"] for number, text in enumerate(TEXTS))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a run of three tasks."""
    folder = tmp_path_factory.mktemp("run")
    small_run.write_files(folder)
    path = folder / "scores-dev.jsonl"
    first, *others = (json.loads(line) for line in path.read_text().splitlines())
    small_run.write_jsonl(path, [first | {"a": f"{QUOTED}\nsecond line", "b": QUOTED}, *others])
    recipe = small_run.make_recipe(folder) | small_run.QUICK
    recipe |= {"num_train_epochs": 1, "report_examples": 1}  # so that tables have texts
    finetune.main([small_run.write_recipe(folder, recipe)])
    return folder


@pytest.fixture(scope="module")
def model(trained):
    return MinBertForMultiTask.from_pretrained(trained / "out").eval()


@pytest.fixture
def run(trained, capsys, monkeypatch):
    """Return a function that runs the program and returns its rows."""

    def run(*argv, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        flags = ["--device", "cpu", "--precision", "float32"]
        flags += [] if "--embed" in argv else ["--format", "jsonl"]
        minbert.main(["predict", str(trained / "out"), *map(str, argv), *flags])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def fail(run, capsys):
    """Return a function that runs with a mistake and returns the message."""

    def fail(*argv, stdin=b""):
        with pytest.raises(SystemExit):
            run(*argv, stdin=stdin)
        found = capsys.readouterr()
        assert found.out == ""
        return found.err.strip().split("error: ")[1]

    return fail


@pytest.mark.parametrize("name", FILES)
def test_a_table_is_read_by_the_column_that_the_task_was_trained_on(run, model, tmp_path, name):
    FILES[name](tmp_path / name)

    rows = run("--task", "moods", "--file", tmp_path / name)

    assert [row["text"] for row in rows] == TEXTS
    expected = model.predict("moods", TEXTS)
    assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in expected])


@pytest.mark.parametrize(
    ("task", "file"), [("pairs", "pairs-dev.tsv"), ("scores", "scores-dev.jsonl")]
)
def test_the_file_of_a_run_has_the_predictions_of_the_run(run, trained, task, file):
    rows = run("--task", task, "--file", trained / file)

    with (trained / "out" / "predictions" / f"{task}-dev.csv").open(newline="") as table:
        expected = list(csv.DictReader(table))
    assert [[row["text1"], row["text2"]] for row in rows] == [
        [row["text1"], row["text2"]] for row in expected
    ]
    if task == "pairs":
        assert list(expected[0]) == ["id", "text1", "text2", "label", "prediction", "probability"]
        assert [row["label"] for row in rows] == [row["prediction"] for row in expected]
    else:
        numbers = [float(row["prediction"]) for row in expected]
        assert [row["score"] for row in rows] == pytest.approx(numbers, abs=0.02)
        assert (rows[0]["text1"], rows[0]["text2"]) == (f"{QUOTED}\nsecond line", QUOTED)
        lines = (trained / "out" / "predictions" / "scores-dev-output.csv").read_text()
        values = [float(line.rpartition(" , ")[2]) for line in lines.splitlines()[1:]]
        assert values == pytest.approx(numbers)


def test_a_flag_names_other_columns(run, model, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("x,left,right\n1,the song,a song\n2,the river,a story\n")

    rows = run("--task", "pairs", "--file", path, "--text_columns", "left,right")
    alone = run("--task", "moods", "--file", path, "--text_columns", "right")
    both = run("--task", "all", "--file", path, "--text_columns", "left,right")

    assert [row["text2"] for row in rows] == ["a song", "a story"]
    assert [row["text"] for row in alone] == ["a song", "a story"]
    expected = model.predict("scores", [("the song", "a song"), ("the river", "a story")])
    assert [row["scores"]["score"] for row in both] == pytest.approx(
        [row["score"] for row in expected]
    )


@pytest.mark.parametrize(
    ("content", "argv", "message"),
    [
        ("body,mood\na,b\n", (), "no column 'text'; its columns are 'body', 'mood': give --text_c"),
        ("text,mood\na,b\n", ("--task", "pairs"), "no column 'a'; its columns are 'text', 'mood'"),
        (
            "text,mood\na,b\n",
            ("--task", "pairs", "--text_columns", "text"),
            "the texts are in 'text'; its columns are 'text', 'mood': give --text_columns with the "
            "two columns",
        ),
        ("a,b\nc,d\n", ("--task", "scores", "--embed", "x.npy"), "the texts are in 'a', 'b'; its"),
        ("a,b\nc,d\n", ("--task", "all"), "trained on different columns, ['a', 'b'] and ['text']"),
        ("text,mood\na,b\n ,b\nc,d,e\n", (), "2 of 3 rows are invalid; the first are: line 3: em"),
        ('text,mood\n"a,1\nb,0\nc,0\nd",1\ne,0\n', (), "quotes join the lines 2 to 5"),
    ],
)
def test_a_table_without_the_texts_is_refused(fail, tmp_path, content, argv, message):
    path = tmp_path / "rows.csv"
    path.write_text(content)

    assert message in fail(*(argv or ("--task", "moods")), "--file", path)


@pytest.mark.parametrize(
    "content",
    [
        b"text,mood\na song,good\nthe river,bad\n",
        b"name\ttext\n1\ta song\n",
        b"text\na song\nthe river\n",  # one column
        b"review,stars\na song,3\nthe river,1\n",  # names that the task does not know
        b'{"text": "a song"}\n{"text": "the river"}\n',
        b"review,stars\n" + b"a song " * 20_000 + b",3\n",
    ],
)
def test_a_table_in_lines_is_refused(fail, run, tmp_path, content):
    (tmp_path / "rows.txt").write_bytes(content)

    piped = fail("--task", "moods", stdin=content)
    named = fail("--task", "moods", "--file", tmp_path / "rows.txt")
    embedded = fail("--task", "moods", "--embed", tmp_path / "x.npy", stdin=content)

    for message in (piped, named, embedded):
        assert "looks like that of a table, whose rows are no texts: give --file" in message
    assert len(run("--task", "moods", "--lines", stdin=content)) == content.count(b"\n")


def test_texts_that_no_table_can_hold_are_lines(run):
    long = "a song " * 20_000
    rows = run("--task", "moods", stdin=f"{long}\nthe\rriver\n".encode())

    assert [row["text"] for row in rows] == [long, "the\rriver"]


def test_an_empty_line_is_refused_before_anything_is_computed(fail, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a song\n" * 20_000 + "\nthe story\n")

    # with the first rows computed there would be output, since they are written as they come
    assert fail("--task", "moods", "--file", path).startswith(f"{path}:20001: the line is empty")


KINDS = {
    "answers": {"problem_type": "question_answering", "max_question_length": 9},
    "names": {
        "problem_type": "token_classification",
        "labels": ["x", "y"],
        "data_keys": {"text_columns": ["words"]},
    },
    "second": {
        "problem_type": "token_classification",
        "labels": ["x", "y"],
        "data_keys": {"text_columns": ["1"]},
    },
    "grammar": {
        "problem_type": "classification",
        "labels": ["bad", "good"],
        "data_keys": {
            "text_columns": ["sentence"],
            "delimiter": "\t",
            "quoting": False,
            "header": ["source", "label", "mark", "sentence"],
        },
    },
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Return the folder of a model with a task of each other kind of rows."""
    folder = tmp_path_factory.mktemp("kinds")
    small_run.save_model(folder, KINDS, ("a", "cat", "dog", "sat", '"'))
    return folder


def test_vectors_are_those_of_the_column_of_their_task(tmp_path):
    tone = {"problem_type": "classification", "labels": ["bad", "good"]}
    search = {"problem_type": "contrastive", "num_sentences": 1}
    tasks = {
        "tone": tone | {"data_keys": {"text_columns": ["title"]}},
        "search": search | {"data_keys": {"text_columns": ["body"]}},
    }
    model = small_run.save_model(tmp_path, tasks, ("a", "cat", "dog", "sat"))
    (tmp_path / "rows.csv").write_text("title,body\na cat,a dog sat\nsat,cat cat\n")
    path = tmp_path / "vectors.npy"

    argv = ["--file", str(tmp_path / "rows.csv"), "--embed", str(path), "--device", "cpu"]
    minbert.main(["predict", str(tmp_path), *argv, "--precision", "float32"])

    np.testing.assert_allclose(np.load(path), model.encode(["a dog sat", "cat cat"]), atol=1e-6)


SQUAD = {
    "data": [{"paragraphs": [{"context": "a cat sat", "qas": [{"question": "a dog", "id": "1"}]}]}]
}
UNIVERSAL = "# text = cat sat.\n" + "".join(
    f"{number}\t{word}" + 8 * "\t_" + "\n"
    for number, word in (("1-2", "catsat."), (1, "cat"), (2, "sat."))
)
OTHER_KINDS = {
    "answers.json": ("answers", json.dumps(SQUAD), ("a dog", "a cat sat")),
    "answers.csv": ("answers", "context,x,question\na cat sat,1,a dog\n", ("a dog", "a cat sat")),
    "names.jsonl": ("names", json.dumps({"words": ["cat", "sat."]}) + "\n", ["cat", "sat."]),
    "names.conll": ("names", "cat x\nsat. y\n\n", ["cat", "sat."]),
    "second.conll": ("second", "1 cat x\n2 sat. y\n\n", ["cat", "sat."]),
    "numbered.conll": ("names", UNIVERSAL, ["cat", "sat."]),
    "universal.conllu": ("names", UNIVERSAL, ["cat", "sat."]),
    "names.csv": ("names", "words,y\na cat sat,1\n", "a cat sat"),
    "lists.csv": ("names", "words,y\n\"['cat', 'sat.']\",1\n", ["cat", "sat."]),
    "brackets.csv": ("names", "words\n[a] cat [sat]\n", "[a] cat [sat]"),
    "grammar.tsv": ("grammar", 'k1\t1\t*\t"a cat\n', '"a cat'),
    "headed.tsv": ("grammar", 'index\tsentence\n1\ta "cat\n', 'a "cat'),
    "titled.tsv": ("grammar", 'source\tlabel\tmark\tsentence\nk1\t1\t*\t"a cat\n', '"a cat'),
    "sorted.tsv": ("grammar", 'sentence\tx\ty\tz\n"a cat\t1\t1\tsat\n', '"a cat'),
    "own.csv": ("grammar", 'sentence,x\n"a, cat",1\n', "a, cat"),
}


# a list of NumPy, and words in lines
BROKEN = {"joined.csv": "words\n['cat' 'sat']\n", "names.txt": "cat x\n\n"}


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_rows_of_other_kinds_are_read_from_tables(kinds, tmp_path, name):
    task, content, row = OTHER_KINDS[name]
    (tmp_path / name).write_text(content)

    output = tmp_path / "found.jsonl"

    argv = ["--task", task, "--file", tmp_path / name, "--output", output]
    minbert.main(
        ["predict", str(kinds), *map(str, argv), "--device", "cpu", "--precision", "float32"]
    )

    (found,) = map(json.loads, output.read_text().splitlines())
    assert found.get("text", row) == row
    (expected,) = MinBertForMultiTask.from_pretrained(kinds).eval().predict(task, [row])
    for key in expected.keys() & {"label", "answer", "words", "tags"}:
        assert found[key] == expected[key]
    if "score" in expected:
        assert found["score"] == pytest.approx(expected["score"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "argv", "message"),
    [
        ("names.conll", ("--task", "all"), "has lists of words, which only tags are for: give --t"),
        ("names.conll", ("--task", "names", "--text_columns", "1,0"), "0: name the words alone"),
        ("answers.json", ("--task", "answers", "--text_columns", "x"), "name the question and the"),
        ("joined.csv", ("--task", "names"), "line 2: \"['cat' 'sat']\" is no list that"),
        ("names.txt", ("--task", "names"), "if these are words and tags, give the file a name"),
    ],
)
def test_files_of_words_and_questions_are_refused_for_other_uses(
    kinds, tmp_path, capsys, name, argv, message
):
    (tmp_path / name).write_text(OTHER_KINDS.get(name, ("", BROKEN.get(name)))[1])

    with pytest.raises(SystemExit):
        minbert.main(["predict", str(kinds), *argv, "--file", str(tmp_path / name)])
    assert message in capsys.readouterr().err
