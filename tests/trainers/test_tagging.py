"""Entities are counted as seqeval's default mode and conlleval count them."""

import datasets
import numpy as np
import pytest
import torch
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score

from modeling_minbert import MinBertConfig, MinBertForMultiTask
from tests.trainers.tiny import VOCABULARY, make_config, make_trainer as tiny_trainer
from trainers import PROBLEMS, Evaluated, Example, MultiTaskTrainer, Tagged, Task, evaluate_run

NAMES = ["O", "B-A", "I-A", "B-B", "I-B", "B-C", "I-C"]


def make_problem(names=NAMES, **fields):
    tasks = {"tags": {"problem_type": "token_classification", "labels": names, **fields}}
    spec = MinBertConfig(tasks=tasks).task("tags")
    return PROBLEMS["token_classification"]("tags", spec)


def tag_metrics(found, names=NAMES, **fields):
    return make_problem(names, **fields).compute_metrics(found)


def test_single_words_are_entities_and_what_is_undefined_is_zero():
    found = Tagged(np.asarray([1, 1, 0, 2]), np.asarray([1, 2, 0, 2]), np.zeros(4, np.int64))
    nothing = Tagged(*np.zeros((3, 3), np.int64))

    metrics = tag_metrics(found, ["O", "NN", "VB"])  # parts of speech mark no spans

    expected = {"f1": 2 / 3, "precision": 2 / 3, "recall": 2 / 3, "accuracy": 3 / 4}
    assert metrics == pytest.approx(expected)
    # also where they look as if they did
    assert tag_metrics(found, ["O", "B-X", "I-X"], scheme="plain") == pytest.approx(expected)
    types = make_problem(["O", "B-X", "I-X"], scheme="plain").describe_types(found)
    assert [row["name"] for row in types] == ["B-X", "I-X"]
    assert tag_metrics(nothing) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}


@pytest.mark.parametrize("letters", ["BI", "BIES", "BILU", "BMEW"])
def test_metrics_equal_seqeval_whatever_the_letters(letters):
    known = "BIES"[: len(letters)]  # those of seqeval
    names, expected = (
        ["O", *(f"{letter}-{kind}" for kind in "XYZ" for letter in part)]
        for part in (letters, known)
    )
    # ill-formed sequences are as likely as others
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 12, size=80)
    labels, noise = generator.integers(0, len(names), size=(2, lengths.sum()))
    predictions = np.where(generator.random(len(labels)) < 0.6, labels, noise)
    found = Tagged(predictions, labels, np.repeat(np.arange(80), lengths))
    right, predicted = (
        [[expected[tag] for tag in part] for part in np.split(tags, np.cumsum(lengths)[:-1])]
        for tags in (labels, predictions)
    )

    metrics = tag_metrics(found, names)

    report = classification_report(right, predicted, output_dict=True, zero_division=0)
    assert metrics["f1"] == pytest.approx(f1_score(right, predicted), abs=1e-12)
    assert metrics["precision"] == pytest.approx(precision_score(right, predicted), abs=1e-12)
    assert metrics["recall"] == pytest.approx(recall_score(right, predicted), abs=1e-12)
    assert metrics["accuracy"] == np.mean(predictions == labels)
    for row in make_problem(names).describe_types(found):
        assert row["f1"] == pytest.approx(report[row["name"]]["f1-score"], abs=1e-12)
        assert row["labelled"] == report[row["name"]]["support"]


def make_rows(count, seed=0, tags=True):
    """Encoded rows: a token determines its tag; every third sentence has two rows."""
    generator = np.random.default_rng(seed)
    columns = {name: [] for name in ("id", "sentence", "words", "input_ids", "labels", "length")}
    for number in range(count):
        sentence = number - (number % 3 == 1)
        ids = generator.integers(2, VOCABULARY, size=generator.integers(1, 9))
        labels = np.where(ids % 4 == 3, -100, ids % 4 if tags else -1)
        labels[0] = ids[0] % 3 if tags else -1
        columns["id"].append(str(sentence))
        columns["sentence"].append(sentence)
        columns["words"].append([f"w{token}" for token in ids[labels != -100]])
        columns["input_ids"].append([1, *ids.tolist(), 1])
        columns["labels"].append([-100, *labels.tolist(), -100])
        columns["length"].append(len(ids) + 2)
    columns["token_type_ids"] = [[0] * size for size in columns["length"]]
    return datasets.Dataset.from_dict(columns)


def make_trainer(folder, packed=True):
    torch.manual_seed(0)
    tags = {"problem_type": "token_classification", "labels": ["O", "B-A", "I-A"]}
    model = MinBertForMultiTask(make_config({"tags": tags}, layers=1))
    model.set_attn_implementation("sdpa" if packed else "eager")
    rows = make_rows(48), make_rows(13, seed=1)
    own = {"tasks": [Task("tags", "token_classification", *rows)]}
    return tiny_trainer(folder, model=model, own=own, per_device_eval_batch_size=4)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_evaluation_equals_single_rows(tmp_path, packed):
    trainer = make_trainer(tmp_path, packed)
    rows = make_rows(13, seed=1)
    predictions, labels = [], []
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        logits = trainer.model.eval()(ids, task="tags").logits[0]
        kept = np.asarray(row["labels"]) != -100
        predictions += logits.argmax(dim=-1).numpy()[kept].tolist()
        labels += np.asarray(row["labels"])[kept].tolist()
    words = [len(row) for row in rows["words"]]
    found = Tagged(
        np.asarray(predictions), np.asarray(labels), np.repeat(rows["sentence"][:], words)
    )

    metrics = trainer.evaluate()

    for name, value in tag_metrics(found, ["O", "B-A", "I-A"]).items():
        assert metrics[f"eval_tags_{name}"] == pytest.approx(value)
    assert metrics["eval_mean"] == metrics["eval_tags_f1"]
    results, outputs = evaluate_run(trainer, {"tags": {"validation": rows}})
    assert outputs["tags", "validation"].predictions.tolist() == predictions
    assert results["validation"].rows == {"tags": len(set(rows["sentence"][:]))}
    assert "| tags | A " in results["validation"].table(trainer.problems)


def test_words_of_unknown_tags_are_predicted(tmp_path):
    trainer = make_trainer(tmp_path)
    rows = make_rows(13, seed=1, tags=False)

    _, outputs = evaluate_run(trainer, {"tags": {"test": rows}})

    found = outputs["tags", "test"]
    assert found.labels is None
    assert len(found.predictions) == sum(map(len, rows["words"]))
    alone = trainer.predict(rows)  # of the only task
    assert np.array_equal(alone.predictions, trainer.predict_task("tags", rows))
    assert "test_tags_f1" not in alone.metrics


def test_predictions_are_written_as_conlleval_reads_them(tmp_path):
    found = Tagged(np.asarray([1, 2, 0]), np.asarray([1, 0, 0]), np.asarray([0, 0, 1]))

    problem = make_problem()
    problem.write(tmp_path, "a", found, {"words": [["New York", "\u00a0"], ["x"]]})
    problem.write(tmp_path, "b", found._replace(labels=None), {"words": [["y", "z"], ["x"]]})

    assert (tmp_path / "a-output.txt").read_text() == "New_York B-A B-A\n_ O I-A\n\nx O O\n\n"
    assert (tmp_path / "b-output.txt").read_text() == "y B-A\nz I-A\n\nx O\n\n"


def test_the_worst_sentences_are_shown():
    rows = datasets.Dataset.from_dict({"words": [["Ann", "left"], ["Rome"]]})
    found = Tagged(np.asarray([1, 0, 0]), np.asarray([1, 0, 3]), np.asarray([4, 4, 7]))

    (errors,) = make_problem().describe(Evaluated(found, rows, None, 5))

    assert errors.rows == [Example("7", ["Rome"], "Rome (B)", "none", 1.0)]


def test_predictions_of_other_rows_are_refused():
    with pytest.raises(ValueError, match="not of these rows"):
        make_problem().collect(np.zeros((13, 2), np.int16), make_rows(13))


def test_rows_without_a_label_a_token_are_refused(tmp_path):
    trainer = make_trainer(tmp_path)
    rows = make_rows(4).remove_columns("labels").add_column("labels", [0, 1, 0, 1])
    with pytest.raises(ValueError, match="labels must be a list with a number for every token"):
        MultiTaskTrainer(
            trainer.model,
            trainer.args,
            [Task("tags", "token_classification", rows)],
        )
