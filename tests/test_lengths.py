"""Predictions read as many tokens of a text as training did, through every door."""

import csv
import random
from itertools import pairwise

import pytest
from datasets import Dataset

from datasets_scripts import Encoding, encode_rows, train_wordpiece
from minbert_cli import __main__ as minbert, finetune
from modeling_minbert import TASKS as TYPES, MinBertConfig, MinBertForMultiTask, MinBertModel
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
        yield {
            "id": f"{split}{number}",
            "a": texts[0],
            "b": texts[1],
            "is_good": "yes" if good else "no",
            "same": int(first == second),
            "score": 4.0 if first == second else 1.0,
            "labels": [["bad"], ["good"]][good],
            "tokens": texts[0].split(),
            "tags": [TAGS.get(word, "O") for word in texts[0].split()],
        }


def write_rows(folder):
    """Write the rows; returns the keys of the files."""
    return {
        key: small_run.write_jsonl(folder / f"rows-{split}.jsonl", make_rows(split))
        for split, key in SPLITS.items()
    }


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
    "tags": {"problem_type": "token_classification"},
}
WINDOWS = {"truncation": "windows", "window_overlap": 2, "max_windows": 3}
TASKS["windows"] = TASKS["good"] | WINDOWS
TASKS["near_in_windows"] = TASKS["near"] | {"truncation": "windows", "max_length": 8}


def make_recipe(folder, **changes):
    """Return a recipe of all tasks on a model with many more positions than the run's length."""
    files = write_rows(folder)
    recipe = small_run.make_recipe(folder)
    recipe["model_config"] |= {"max_position_embeddings": 80}
    tasks = {name: {**files, "pooling": "mean", **keys} for name, keys in TASKS.items()}
    del tasks["tags"]["pooling"]
    more = {"tasks": tasks, "max_length": LENGTH, "steps_per_epoch": 60}
    return recipe | more | changes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train once; returns the folder of the run."""
    folder = tmp_path_factory.mktemp("run")
    recipe = make_recipe(folder, **small_run.QUICK, calibrate=True)
    finetune.main([small_run.write_recipe(folder, recipe)])
    return folder / "out"


def read_table(run, task):
    with (run / "predictions" / f"{task}-dev.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_of_a_checkpoint_are_those_of_its_run(run):
    model, rows = MinBertForMultiTask.from_pretrained(run), list(make_rows("dev"))
    texts, pairs = [row["a"] for row in rows], [(row["a"], row["b"]) for row in rows]

    found = {name: model.predict(name, texts) for name in ("good", "labels", "windows")}
    found |= {name: model.predict(name, pairs) for name in ("same", "near", "near_in_windows")}

    lengths = [model.config.task(name).max_length for name in ("good", "near_in_windows")]
    assert lengths == [LENGTH, 8]
    assert [row["label"] for row in found["good"]] == [row["is_good"] for row in rows]  # all right
    for name in ("good", "same", "windows"):
        table = read_table(run, name)
        assert [row["label"] for row in found[name]] == [row["prediction"] for row in table]
        scores = [float(row["probability"]) for row in table]
        assert [row["score"] for row in found[name]] == pytest.approx(scores, abs=1e-3)
    for name in ("near", "near_in_windows"):
        scores = [float(row["prediction"]) for row in read_table(run, name)]
        assert [row["score"] for row in found[name]] == pytest.approx(scores, abs=1e-3)
    labels = [" ".join(label["label"] for label in row) for row in found["labels"]]
    assert labels == [row["prediction"] for row in read_table(run, "labels")]


def test_a_task_that_is_trained_on_reads_texts_as_before(run, tmp_path, caplog):
    recipe = small_run.make_recipe(tmp_path) | small_run.QUICK | {"steps_per_epoch": 1}
    files, names = write_rows(tmp_path), ("good", "windows", "labels", "near_in_windows")
    read = {"pair_encoding", "truncation", "window_overlap", "max_windows", "max_length"}
    recipe["tasks"] = {
        name: files | {key: value for key, value in TASKS[name].items() if key not in read}
        for name in names
    }
    recipe["tasks"]["labels"]["max_length"] = 9
    recipe |= {"model_config": None, "max_length": None}

    finetune.main([small_run.write_recipe(tmp_path, recipe | {"model_name_or_path": str(run)})])

    before = MinBertForMultiTask.from_pretrained(run).config
    after = MinBertForMultiTask.from_pretrained(tmp_path / "out").config
    shared = ("max_length", "truncation", "window_overlap", "max_windows", "pooling")
    for name in recipe["tasks"]:
        old, new = (
            {key: getattr(config.task(name), key) for key in shared} for config in (before, after)
        )
        assert new == old | ({"max_length": 9} if name == "labels" else {})
    assert after.task("near_in_windows").pair_encoding == "separate"
    lost = ", ".join(name for name in sorted(TASKS) if name not in names)
    assert f"has the tasks {lost}, which this recipe does not name" in caplog.text


@pytest.mark.parametrize(("limit", "length"), [(50, 50), (None, 80)])
def test_a_task_of_vectors_reads_as_much_as_its_sentence_encoder(tmp_path, limit, length):
    rows, recipe = write_rows(tmp_path), small_run.make_recipe(tmp_path) | small_run.QUICK
    tokenizer = train_wordpiece([row["a"] for row in make_rows("train")], 150)
    own = {"pooling": "mean", "max_length": limit}
    sizes = small_run.make_recipe(tmp_path)["model_config"] | {"max_position_embeddings": 80}
    config = MinBertConfig(**sizes | {"vocab_size": len(tokenizer)}, sentence_embedding=own)
    MinBertModel(config).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    recipe |= {"model_name_or_path": str(tmp_path / "start"), "max_length": None, "max_steps": 1}
    recipe |= {"model_config": None, "tasks": {"near": rows | TASKS["near"]}}

    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    config = MinBertForMultiTask.from_pretrained(tmp_path / "out").config
    assert (config.task("near").max_length, config.embedding.max_length) == (length, length)


def test_the_run_says_what_max_windows_cuts(run):
    assert "cut by max_windows=3: " in (run / "metrics.json").read_text()


ANSWER_WORDS = 5


def write_questions(folder, words=150, places=range(0, 145, 3)):
    """Write questions about passages of numbered words; an answer begins at each of the places."""
    rows = []
    for place in places:
        names = [f"w{number}" for number in range(words)]
        answer = " ".join(names[place : place + ANSWER_WORDS])
        passage = " ".join(names)
        answers = {"text": [answer], "answer_start": [passage.index(answer)]}
        row = {"id": str(place), "question": f"what is w{place}", "context": passage}
        rows.append(row | {"answers": answers})
    path = small_run.write_jsonl(folder / "questions.jsonl", rows)
    files = {"train_file": path, "validation_file": path}
    return {"problem_type": "question_answering", **files}


def check_questions(folder, capsys, keys, **changes):
    """Check a recipe of questions on a model of 200 positions; returns what is printed."""
    recipe = small_run.make_recipe(folder)
    recipe["tasks"] = {"ask": write_questions(folder) | keys}
    recipe["model_config"] |= {"vocab_size": 500, "max_position_embeddings": 200}
    del recipe["max_length"]
    minbert.main(["check", small_run.write_recipe(folder, recipe | changes)])
    return capsys.readouterr().out


def test_windows_of_default_sizes_hold_every_answer(tmp_path, capsys):
    assert "warning" not in check_questions(tmp_path, capsys, {})
    # as long as the smaller half of the room
    assert "warning" not in check_questions(tmp_path, capsys, {"max_length": 40})


def make_small_model(folder, **changes):
    """Return a recipe on a model of 64 positions that says nothing about lengths."""
    recipe = make_recipe(folder, **small_run.QUICK, steps_per_epoch=2)
    recipe["tasks"] = {name: recipe["tasks"][name] for name in ("good", "tags")}
    recipe["tasks"]["ask"] = write_questions(folder, places=range(0, 145, 30))
    recipe["model_config"] |= {"vocab_size": 500, "max_position_embeddings": 64}
    del recipe["max_length"]
    return recipe | {"num_train_epochs": 1} | changes


def test_a_default_fits_a_model_of_few_positions(tmp_path):
    finetune.main([small_run.write_recipe(tmp_path, make_small_model(tmp_path))])

    model = MinBertForMultiTask.from_pretrained(tmp_path / "out")
    assert {model.config.task(name).max_length for name in ("good", "tags", "ask")} == {64}
    (found,) = model.predict("ask", [("what is w9", " ".join(f"w{n}" for n in range(99)))])
    assert found["answer"]
    start = {"model_name_or_path": str(tmp_path / "out"), "output_dir": str(tmp_path / "next")}
    again = make_small_model(tmp_path, **start)
    del again["model_config"]
    minbert.main(["check", small_run.write_recipe(tmp_path, again)])


# Keys that change the tokens of a text, each with a task whose tokens it changes.
READ = {
    "max_length": {},
    "truncation": {"truncation": "tail"},
    "window_overlap": {"truncation": "windows", "window_overlap": 2},
    "max_windows": {"truncation": "windows", "max_windows": 2},
    "pair_encoding": {"pair_encoding": "separate"},
}


def read_keys():
    """Return the fields that say how texts become tokens."""
    kind = TYPES["paraphrase"]
    return {*kind.fields_of("reading"), "pair_encoding"}


def split_sequences(inputs):
    """Return the sequences of a batch, padded or packed, as sorted lists of ids."""
    ids, offsets = inputs["input_ids"], inputs.get("cu_seq_lens_q")
    if offsets is not None:
        return [ids[0, start:end].tolist() for start, end in pairwise(offsets.tolist())]
    mask = inputs["attention_mask"].flatten(0, -2) == 1
    rows = zip(ids.flatten(0, -2), mask, strict=True)
    return [row[real].tolist() for row, real in rows if real.any()]


@pytest.mark.parametrize("key", sorted(read_keys()))
def test_a_key_that_changes_tokens_reaches_every_door(key):
    """A key that is added without a line in `READ` fails here."""
    is_pair = key == "pair_encoding"
    rows = list(make_rows("train"))
    tokenizer = train_wordpiece([row["a"] for row in rows], 150)
    rows = rows[:6]
    texts = [(row["a"], row["b"]) for row in rows] if is_pair else [row["a"] for row in rows]
    keys = {"max_length": LENGTH, **READ[key]}
    spec = {"problem_type": "paraphrase"} if is_pair else {"problem_type": "classification"}
    labels = {} if is_pair else {"labels": ["bad", "good"]}
    tasks = {"own": {**spec, **labels, "pooling": "mean", **keys}}
    model = small_run.make_model(tasks, tokenizer, max_position_embeddings=128)
    columns = {"id": [row["id"] for row in rows], "label": [0] * len(rows)}
    sides = zip(*texts, strict=True) if is_pair else [texts]
    columns |= {f"sentence{number}": list(side) for number, side in enumerate(sides, start=1)}
    own = vars(model.config.task("own"))
    options = {name: own.get(name) for name in READ}
    encoded = encode_rows(Dataset.from_dict(columns), tokenizer, Encoding(**options))["input_ids"]
    is_nested = isinstance(encoded[0][0], list)
    trained = [ids for row in encoded for ids in (row if is_nested else [row])]
    seen = []

    def note(_, args, inputs):
        names = ("input_ids", "attention_mask")
        seen.extend(split_sequences({**dict(zip(names, args, strict=False)), **inputs}))

    model.bert.register_forward_pre_hook(note, with_kwargs=True)
    doors = {
        "predict": lambda: model.predict("own", texts),
        "predict_all": lambda: model.predict_all(texts, ["own"]),
        "teach": lambda: model.teach("own", texts),
    }
    if not is_pair:
        doors["encode"] = lambda: model.encode(texts, task="own")
    for door in doors.values():
        seen.clear()
        door()
        assert sorted(seen) == sorted(trained)
