"""Multiple choice from files to predictions, against transformers' tokenizer and scikit-learn."""

import csv
import json

import datasets
import pytest

from datasets_scripts import Encoding, TaskData, load_task
from modeling_minbert import parse_task
from tests.loss_cases import make_rows
from tests.modeling_minbert.conftest import WORDS
from tests.small_run import load_rows, make_tokenizer
from trainers import PROBLEMS

KIND = "multiple_choice"
CONTEXTS = ["the cat sat", "a bird", "the dog ran"]
QUESTIONS = ["it is", "was it", "the mat"]
CHOICES = [["on the mat", "far", "in a tree"], ["well", "sat", "ran"], ["very far", "a cat", "not"]]
RIGHT = [2, 0, 1]
SWAG = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
SWAG += ["ending0", "ending1", "ending2", "ending3", "label"]


# Data


def load(folder, name, content, **keys):
    columns = {"text_columns": ["context", "question"], "label_column": "answer"}
    keys = {"problem_type": KIND, **columns, "choice_columns": "choices", **keys}
    return load_rows(folder, name, content, **keys)


def as_json(answers, wrap=list):
    rows = zip(CONTEXTS, QUESTIONS, CHOICES, answers, strict=True)
    names = ("context", "question", "choices", "answer")
    return "".join(
        json.dumps(dict(zip(names, (first, second, wrap(choices), answer), strict=True))) + "\n"
        for first, second, choices, answer in rows
    )


def as_table(answers):
    header = ["context", "question", "x", "y", "z", "answer"]
    columns = zip(CONTEXTS, QUESTIONS, CHOICES, answers, strict=True)
    rows = [[first, second, *choices, answer] for first, second, choices, answer in columns]
    return "".join(",".join(map(str, row)) + "\n" for row in [header, *rows])


def in_two_lists(choices):
    return {"text": choices, "label": ["1", "2", "3"]}


def test_all_ways_to_write_choices_give_equal_rows(tmp_path):
    columns = {"choice_columns": ["x", "y", "z"]}
    ways = [
        load(tmp_path, "a.jsonl", as_json(RIGHT)),
        load(tmp_path, "b.jsonl", as_json(["C", "A", "B"])),
        load(tmp_path, "d.jsonl", as_json(["3", "1", "2"], in_two_lists)),
        load(tmp_path, "e.csv", as_table(RIGHT), **columns),
        load(tmp_path, "f.csv", as_table(["3.0", 1, 2]), labels=[1, 2, 3], **columns),
    ]

    rows = ways[0].splits["train"]
    assert rows["sentence1"][:] == CONTEXTS
    assert rows["sentence2"][:] == QUESTIONS
    assert rows["choices"][:] == CHOICES
    for way in ways:
        assert way.splits["train"]["label"][:] == RIGHT
        assert way.fingerprint == ways[0].fingerprint
        assert way.head_facts()["num_choices"] == 3
    assert list(ways[0].texts())[:5] == ["the cat sat", "it is", *CHOICES[0]]


def test_swag_is_read_in_its_official_layout(tmp_path):
    row = ["0", "v1", "17", "A man sits. He", "A man sits.", "He", "gold", *"wxyz"]
    for name, label in (("train", ["3"]), ("val", ["1"]), ("test", [])):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([SWAG[: 11 + len(label)], [*row, *label]])

    data = TaskData.from_recipe("swag", {"dataset": "swag", "data_dir": str(tmp_path)})
    loaded = load_task(data)

    train, test = loaded.splits["train"][0], loaded.splits["test"][0]
    assert (train["sentence1"], train["sentence2"], train["choices"]) == (
        "A man sits.",
        "He",
        [*"wxyz"],
    )
    assert train["label"] == 3
    assert loaded.splits["validation"]["label"][:] == [1]
    assert "label" not in test
    hub = TaskData.from_recipe("swag", {"dataset": "swag"})
    assert hub.hub_id == "allenai/swag:regular"
    assert hub.choice_columns == ("ending0", "ending1", "ending2", "ending3")
    with pytest.raises(ValueError, match="has its own choice_columns"):
        TaskData.from_recipe("swag", {"dataset": "swag", "choice_columns": "x"})


def test_sequences_are_those_of_transformers_example(tmp_path):
    tokenizer = make_tokenizer(WORDS)
    choices = [*CHOICES[:2], CHOICES[2][:2]]
    text = as_json(RIGHT).replace(json.dumps(CHOICES[2]), json.dumps(choices[2]))

    encoding = Encoding(7, "joint", num_choices=3)
    rows = load(tmp_path, "a.jsonl", text).encode(tokenizer, encoding)["train"]

    # as in examples/pytorch/multiple-choice/run_swag.py
    for row, first, second, ends in zip(rows, CONTEXTS, QUESTIONS, choices, strict=True):
        pairs = [[first] * len(ends), [f"{second} {end}" for end in ends]]
        expected = tokenizer(*pairs, truncation=True, max_length=7)
        assert row["input_ids"][: len(ends)] == expected["input_ids"]
        assert row["token_type_ids"][: len(ends)] == expected["token_type_ids"]
        assert row["length"] == max(map(len, expected["input_ids"]))
    assert rows["input_ids"][2][2] == [0]
    with pytest.raises(ValueError, match="every choice is one sequence with its context"):
        load(tmp_path, "a.jsonl", text).encode(tokenizer, Encoding(7, "separate", num_choices=3))
    assert rows["labels"][:] == RIGHT


# Training


def make_problem(**fields):
    return PROBLEMS[KIND]("ends", parse_task("ends", {"problem_type": KIND, **fields}))


def test_rows_are_checked_before_training():
    problem, rows = make_problem(num_choices=3), make_rows(KIND, {"num_choices": 3}, count=12)
    problem.check("rows", rows)

    with pytest.raises(ValueError, match=r"a list of 4 sequences, one for each choice"):
        make_problem(num_choices=4).check("rows", rows)
    columns = {"input_ids": [[1, 2]] * 3, "token_type_ids": [[0, 0]] * 3, "labels": [0, 1, 2]}
    flat = datasets.Dataset.from_dict(columns)
    with pytest.raises(ValueError, match=r"rows is of a multiple_choice task: input_ids and"):
        problem.check("rows", flat)
    wrong = rows.remove_columns("labels").add_column("labels", [0, 3] * 6)
    with pytest.raises(
        ValueError, match=r"row 1: the label 3 is out of range; allowed are whole .* 0 to 2"
    ):
        problem.check("rows", wrong)
