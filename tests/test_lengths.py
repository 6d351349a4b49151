"""Predictions read as many tokens of a text as training did, through every door."""

import csv
import json
import random

import pytest
from torch.testing import assert_close
from transformers import AutoTokenizer

from minbert_cli import finetune, predict
from modeling_minbert import MinBertForMultiTask
from tests import small_run

LENGTH = 12  # tokens that the run reads; its rows have about fifty
SPLITS = {"train": "train_file", "dev": "validation_file"}
TAGS = {"fine": "B-GOOD", "dull": "B-BAD"}


def make_rows(split):
    """Make rows whose first ten words decide, and whose other forty say the opposite."""
    generator = random.Random(split)
    for number in range(32 if split == "train" else 12):
        good = number % 2
        first, second = (("dull", "fine")[good] for good in (good, generator.randrange(2)))
        texts = []
        for word in (first, second):
            other = "fine" if word == "dull" else "dull"
            things = generator.choices(small_run.THINGS, k=25)
            texts.append(" ".join([word] * 5 + things + [other] * 20))
        ends = ["fine fine", "dull dull"]
        yield {
            "id": f"{split}{number}",
            "a": texts[0],
            "b": texts[1],
            "is_good": "yes" if good else "no",
            "same": int(first == second),
            "score": 4.0 if first == second else 1.0,
            "labels": [["bad"], ["good"]][good],
            "ends": ends,
            "right": "BA"[good],
            "tokens": texts[0].split(),
            "tags": [TAGS.get(word, "O") for word in texts[0].split()],
        }


def write_rows(folder):
    """Write the rows; returns the keys of the files."""
    files = {}
    for split, key in SPLITS.items():
        path = folder / f"rows-{split}.jsonl"
        lines = [json.dumps(row) + "\n" for row in make_rows(split)]
        path.write_text("".join(lines), encoding="utf-8")
        files[key] = str(path)
    return files


# one task of each kind of input
TASKS = {
    "good": {"problem_type": "classification", "text_columns": ["a"], "label_column": "is_good"},
    "same": {"problem_type": "paraphrase", "text_columns": ["a", "b"], "label_column": "same"},
    "near": {
        "problem_type": "similarity",
        "text_columns": ["a", "b"],
        "label_column": "score",
        "score_range": [0, 5],
        "pair_encoding": "separate",
    },
    "labels": {
        "problem_type": "multi_label_classification",
        "text_columns": ["a"],
        "label_column": "labels",
        "truncation": "tail",
    },
    "ends": {
        "problem_type": "multiple_choice",
        "text_columns": ["a"],
        "choice_columns": "ends",
        "label_column": "right",
        "max_length": 10,
    },
    "tags": {"problem_type": "token_classification"},
}


def make_recipe(folder, **changes):
    """Return a recipe of all tasks on a model with many more positions than the run's length."""
    files = write_rows(folder)
    recipe = small_run.make_recipe(folder)
    recipe["model_config"] |= {"max_position_embeddings": 80}
    tasks = {name: {**files, "pooling": "mean", **keys} for name, keys in TASKS.items()}
    del tasks["tags"]["pooling"]
    more = {"tasks": tasks, "max_length": LENGTH, "steps_per_epoch": "60"}
    return recipe | more | changes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train once; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("run")
    recipe = make_recipe(folder, eval_strategy="no", save_strategy="no", calibrate=True)
    finetune.main([small_run.write_recipe(folder, recipe)])
    return folder / "out"


@pytest.fixture(scope="module")
def model(run):
    return MinBertForMultiTask.from_pretrained(run)


@pytest.fixture(scope="module")
def rows():
    return list(make_rows("dev"))


def read_table(run, task):
    with (run / "predictions" / f"{task}-dev.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_of_a_checkpoint_are_those_of_its_run(run, model, rows):
    texts, pairs = [row["a"] for row in rows], [(row["a"], row["b"]) for row in rows]

    found = {name: model.predict(name, texts) for name in ("good", "labels")}
    found |= {name: model.predict(name, pairs) for name in ("same", "near")}
    found["ends"] = model.predict("ends", [(row["a"], row["ends"]) for row in rows])

    assert [row["label"] for row in found["good"]] == [row["is_good"] for row in rows]  # all right
    for name in ("good", "same"):
        table = read_table(run, name)
        assert [row["label"] for row in found[name]] == [row["prediction"] for row in table]
        scores = [float(row["probability"]) for row in table]
        assert [row["score"] for row in found[name]] == pytest.approx(scores, abs=1e-3)
    scores = [float(row["prediction"]) for row in read_table(run, "near")]
    assert [row["score"] for row in found["near"]] == pytest.approx(scores, abs=1e-3)
    labels = [" ".join(label["label"] for label in row) for row in found["labels"]]
    assert labels == [row["prediction"] for row in read_table(run, "labels")]
    chosen = [str(row["index"]) for row in found["ends"]]
    assert chosen == [row["prediction"] for row in read_table(run, "ends")]


def test_several_tasks_and_streams_read_the_same_tokens(model, rows):
    texts = [row["a"] for row in rows]
    alone = {name: model.predict(name, texts) for name in ("good", "labels", "tags")}

    together = model.predict_all(texts)

    assert together.keys() == alone.keys()
    assert [row["label"] for row in together["good"]] == [row["label"] for row in alone["good"]]
    assert list(model.predict_stream("good", iter(texts))) == alone["good"]


def test_tags_of_long_texts_come_from_windows_of_the_training(run, model, rows):
    found = model.predict("tags", [row["tokens"] for row in rows])

    # in windows of another length, words have other contexts and positions
    lines = (run / "predictions" / "tags-dev-output.txt").read_text().splitlines()
    expected = [line.split()[2] for line in lines if line.strip()]
    assert [tag for row in found for tag in row["tags"]] == expected


def test_the_checkpoint_has_the_length_of_every_task(run, model):
    lengths = {name: model.config.task(name).max_length for name in TASKS}

    assert lengths == dict.fromkeys(TASKS, LENGTH) | {"ends": 10}
    assert json.loads((run / "sentence_bert_config.json").read_text())["max_seq_length"] == LENGTH


def test_vectors_are_made_of_the_same_tokens(run, model, rows):
    tokenizer = AutoTokenizer.from_pretrained(run)
    texts = [row["a"] for row in rows[:3]]
    ids = tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    cut = tokenizer.batch_decode(ids, skip_special_tokens=True)

    for options in ({"task": "near"}, {"task": "good"}, {}):  # {} is the first task of pairs
        assert_close(model.encode(texts, **options), model.encode(cut, **options))


def test_a_command_reads_as_many_tokens(run, rows, capsys):
    predict.main([str(run), "--task", "good", *(row["a"] for row in rows)])

    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == [row["is_good"] for row in rows]
