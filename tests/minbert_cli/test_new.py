"""``minbert new``: a recipe from the rows of a user."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from minbert_cli import __main__ as minbert
from minbert_cli.new import find_splits, make_name

TEXTS = [f"This is the text with number {n} of all" for n in range(40)]
SIZES = """{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32,
 vocab_size: 200, max_position_embeddings: 384}"""
CONTEXT = "The answer is blue"
TYPE = ("--problem_type",)


def delimited(header, rows, delimiter=","):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return file.getvalue()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


CASES = {
    "reviews.csv": (
        delimited(("id", "text", "label"), [(n, x, "yes" if n % 3 else "no")
                                            for n, x in enumerate(TEXTS)]),
        {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"},
    ),
    "bars.csv": (
        delimited(("body", "topic"), [(x, "a|b" if n % 2 else "b") for n, x in enumerate(TEXTS)]
                  + [(x, "a") for x in TEXTS]),
        {"problem_type": "multi_label_classification", "label_separator": "|"},
    ),
    "stars.csv": (
        delimited(("text", "stars"), [(x, 1 + n % 5) for n, x in enumerate(TEXTS)]),
        {"problem_type": "classification", "label_column": "stars"},
    ),
    "named.csv": (
        delimited(("text", "label", "label_text"),
                  [(x, n % 2, ("very bad", "very good")[n % 2]) for n, x in enumerate(TEXTS)]),
        {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"},
    ),
    "sts.tsv": (
        delimited(("a", "b", "score"), [(x, x, n % 11 / 2) for n, x in enumerate(TEXTS)], "\t"),
        {"problem_type": "similarity", "text_columns": ["a", "b"], "score_range": [0, 5]},
    ),
    "source.csv": (
        delimited(("question1", "question2", "is_duplicate", "source"),
                  [(x, x, n % 2, "web" if n % 3 else "mail") for n, x in enumerate(TEXTS)]),
        {"problem_type": "paraphrase", "text_columns": ["question1", "question2"],
         "label_column": "is_duplicate"},
    ),
    "premises.csv": (
        delimited(("sentence1", "sentence2", "premise", "y"),
                  [(x, x, x, "yes" if n % 3 else "no") for n, x in enumerate(TEXTS)]),
        {"problem_type": "classification", "text_columns": ["sentence1", "sentence2"]},
    ),
    "grades.csv": (
        delimited(("a", "b", "similarity"), [(x, x, 1 + n % 3) for n, x in enumerate(TEXTS)]),
        {"problem_type": "similarity", "score_range": [0, 5]},
    ),
    "numbered.csv": (
        delimited(("text", "mood", "id"), [(x, "ab"[n % 2], n % 2) for n, x in enumerate(TEXTS)]),
        {"problem_type": "classification", "label_column": "mood"},
    ),
    "prices.csv": (
        delimited(("id", "title", "price"), [(n, x, 9.5 * n) for n, x in enumerate(TEXTS)]),
        {"problem_type": "regression", "text_columns": ["title"], "label_column": "price"},
    ),
    "ner.jsonl": (
        lines({"tokens": x.split(), "ner_tags": ["O"] * 8 + ["B-NUM"]} for x in TEXTS),
        {"problem_type": "token_classification", "label_column": "ner_tags"},
    ),
    "ner.conll": (
        "\n".join(f"one O\ntwo{n} B-X\n" for n in range(40)),
        {"problem_type": "token_classification"},
    ),
    "squad.json": (
        json.dumps({"data": [{"paragraphs": [{"context": CONTEXT + "." * n, "qas": [
            {"id": str(n), "question": f"What is {n}?",
             "answers": [{"text": "blue", "answer_start": 14}]}]} for n in range(40)]}]}),
        {"problem_type": "question_answering"},
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*argv):
    minbert.main(["new", *argv])


def write(name):
    Path(name).write_text(CASES[name][0], "utf-8")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", CASES)
def test_a_guess_is_a_recipe_that_passes_the_check(capsys, name):
    write(name)
    new(name, "--output", "mine.yaml")

    said = capsys.readouterr().out
    written = yaml.safe_load(Path("mine.yaml").read_text("utf-8"))
    task = written["tasks"][name.partition(".")[0]]
    assert {key: task[key] for key in CASES[name][1]} == CASES[name][1]
    assert said.endswith("next: minbert check mine.yaml, then minbert finetune mine.yaml\n")

    flags = ("--use_cpu", "true", "--model_config", SIZES)
    minbert.main(["check", "mine.yaml", "--model_name_or_path", "null", *flags])
    assert capsys.readouterr().out.endswith("\nok\n")


@pytest.mark.usefixtures("folder")
def test_flags_override_guesses_and_files_are_told_apart(capsys):
    for name in ("train.csv", "my-dev.csv", "my-test.csv"):
        Path(name).write_text(CASES["reviews.csv"][0], "utf-8")
    new(
        *("train.csv", "my-dev.csv", "my-test.csv", "--name", "tone"),
        *("--text_columns", "label", "--label_column", "id", "--problem_type", "classification"),
    )

    assert "  validation_file: 'my-dev.csv', by its name\n" in capsys.readouterr().out
    written = yaml.safe_load(Path("tone.yaml").read_text("utf-8"))
    assert written == {
        "tasks": {
            "tone": {
                "problem_type": "classification",
                "train_file": "train.csv",
                "validation_file": "my-dev.csv",
                "test_file": "my-test.csv",
                "text_columns": ["label"],
                "label_column": "id",
            }
        },
        "model_name_or_path": "sentence-transformers/all-MiniLM-L6-v2",
        "output_dir": "runs/tone",
    }


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("devices_test.csv", "test_file"),
        ("Test-2024.csv", "test_file"),
        ("reviews.val.csv", "validation_file"),
        ("dev1.csv", "validation_file"),
        *((f"{name}.csv", None) for name in ("latest", "contest_rows", "developers", "dev_test")),
    ],
)
def test_a_split_is_a_whole_word_of_a_name(name, split):
    if split is not None:
        assert find_splits(["train.csv", name]) == {"train_file": "train.csv", split: name}
        return
    with pytest.raises(ValueError, match=f"{name}: is it validation or test data"):
        find_splits(["train.csv", name])
    with pytest.raises(ValueError, match=r"my-test\.csv: is it validation or test data"):
        find_splits(["train.csv", "test.csv", "my-test.csv"])


@pytest.mark.usefixtures("folder")
def test_other_columns_with_tags_are_named(capsys):
    tags = ["O"] * 8 + ["B-NUM"]
    rows = [{"tokens": x.split(), "pos_tags": tags, "ner_tags": tags} for x in TEXTS]
    Path("two.jsonl").write_text(lines(rows), "utf-8")
    new("two.jsonl")

    assert "please check: other columns with tags: 'ner_tags'" in capsys.readouterr().out


def test_a_name_that_no_task_can_have_gets_a_prefix():
    names = [make_name(name) for name in ("eval.csv", "1.csv", "films.csv")]
    assert names == ["task_eval", "task_1", "films"]


@pytest.mark.usefixtures("folder")
def test_grades_get_metrics_that_know_their_order_if_you_say_so():
    write("stars.csv")
    new("stars.csv")
    note = "if these are grades, add metrics: [accuracy, mae, quadratic_weighted_kappa]"
    assert note in Path("stars.yaml").read_text("utf-8")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (delimited(("id", "text"), enumerate(TEXTS)), (), "its columns are 'id', 'text'"),
        (delimited(("x", "label"), [(n, n % 2) for n in range(40)]), (), "its columns are 'x', 'l"),
        (delimited(("text", "label"), [(x, f"name {x}") for x in TEXTS]), (), "40 different"),
        (
            CASES["reviews.csv"][0],
            ("--problem_type", "similarity", "--text_columns", "id,text"),
            "no n",
        ),
        (
            lines({"text": x, "cats": {"toxic": n % 2, "rude": 1}} for n, x in enumerate(TEXTS)),
            *((), "rows.jsonl: column 'cats': label {'toxic': 0, 'rude': 1} is no name; write the"),
        ),
        ("text,label\na,b,c\n", (), "no row can be read; line 2: too many columns"),
        (CASES["reviews.csv"][0], (*TYPE, "multi_output_classification"), "write its recipe by h"),
        (CASES["reviews.csv"][0], (*TYPE, "masked_lm"), "unknown problem_type 'masked"),
        (CASES["reviews.csv"][0], ("--name", "my films"), "task name 'my films' must consist of"),
    ],
)
def test_what_cannot_be_guessed_is_one_line(folder, capsys, content, flags, message):
    name = "rows.jsonl" if content.startswith("{") else "rows.csv"
    Path(name).write_text(content, "utf-8")
    with pytest.raises(SystemExit) as stopped:
        new(name, *flags)

    error = capsys.readouterr().err
    assert stopped.value.code == 1
    assert error.startswith("minbert new: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == [name]
