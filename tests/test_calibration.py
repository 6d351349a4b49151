"""Temperatures and goals of thresholds from the recipe to the report, measured again by hand."""

import random
import re

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve

import minbert
from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers.pages import read_sections

COUNTS = {"train": 60, "dev": 40}
PAIRS = {"text_columns": ["a", "b"], "label_column": "same", "id_column": "id"}


def make_rows(split):
    """Draw rows whose labels are wrong in a fifth of all cases."""
    generator = random.Random(split)
    for number in range(COUNTS[split]):
        first, second = (generator.choice((small_run.GOOD, small_run.BAD)) for _ in "ab")
        things = [generator.choice(small_run.THINGS) for _ in "ab"]
        words = [generator.choice(kind) for kind in (first, second)]
        texts = [f"the {thing} is {word}" for thing, word in zip(things, words, strict=True)]
        flips = [generator.random() < 0.2 for _ in "abc"]
        good = (first is small_run.GOOD) ^ flips[0]
        same = int((first is second) ^ flips[1])
        yield {
            **dict(zip(("id", "a", "b"), (f"{split}{number}", *texts), strict=True)),
            "mood": "good" if good else "bad",
            "same": same,
            "topics": ["good"] * good + ["story"] * (("story" in texts[0]) ^ flips[2]),
            "tokens": texts[0].split(),
            "tags": ["O", "B-THING", "O", "B-GOOD" if good else "B-BAD"],
        }


def make_recipe(folder, *names, **keys):
    """Write the files and return the recipe of some tasks."""
    files = {
        key: small_run.write_jsonl(folder / f"{split}.jsonl", make_rows(split))
        for split, key in (("train", "train_file"), ("dev", "validation_file"))
    }
    moods = {"problem_type": "classification", "text_columns": ["a"], "label_column": "mood"}
    moods["pooling"] = "mean"
    topics = {"problem_type": "multi_label_classification", "text_columns": ["a"]}
    topics |= {"label_column": "topics", "threshold_for": {"precision": 1}}
    tasks = {
        "moods": moods | files,
        "same": {"problem_type": "paraphrase", "threshold_for": {"recall": 0.8}, **PAIRS, **files},
        "topics": topics | files,
        "tags": {"problem_type": "token_classification", **files},
        "scores": {"problem_type": "similarity", "score_range": [0, 1], **PAIRS, **files},
    }
    recipe = small_run.make_recipe(folder) | {"tasks": {name: tasks[name] for name in names}}
    recipe |= small_run.QUICK | {"calibrate": True, "per_device_train_batch_size": 8}
    return recipe | {"steps_per_epoch": 8, "num_train_epochs": 1, **keys}


def compute_logits(model, pairs):
    """Compute logits of pairs one by one, without the package's batches."""
    found = []
    for pair in pairs:
        encoded = model.tokenizer(*pair, return_tensors="pt")
        with torch.no_grad():
            found.append(model(**encoded, task="same").logits[0, 0])
    return torch.stack(found)


def test_a_recall_is_reached_with_the_best_precision(tmp_path):
    recipe = make_recipe(tmp_path, "same", "topics", steps_per_epoch=80)
    finetune.main([small_run.write_recipe(tmp_path, recipe)])
    model = MinBertForMultiTask.from_pretrained(tmp_path / "out").eval()
    rows = list(make_rows("dev"))
    pairs = [(row["a"], row["b"]) for row in rows]
    logits = compute_logits(model, pairs)
    labels = np.array([row["same"] for row in rows])
    notes = " ".join(read_sections(tmp_path / "out")["same"]["notes"])
    pattern = r"for recall 0.8: precision ([\d.]+) and recall ([\d.]+)"
    reached = re.search(pattern, notes)
    precision, recall = map(float, reached.groups())
    (threshold,) = model.config.task("same").thresholds

    precisions, recalls, _ = precision_recall_curve(labels, logits.numpy())

    assert recall >= 0.8
    assert precision == pytest.approx(precisions[recalls >= 0.8].max(), abs=1e-3)
    predictions = model.predict("same", pairs)
    is_yes = [row["label"] == "paraphrase" for row in predictions]
    likely = [
        row["score"] if yes else 1 - row["score"]
        for row, yes in zip(predictions, is_yes, strict=True)
    ]
    assert [value > threshold for value in likely] == is_yes

    recipe["tasks"]["same"].pop("threshold_for")
    recipe |= {"model_name_or_path": str(tmp_path / "out"), "model_config": None}
    more = minbert.finetune(recipe, output_dir=str(tmp_path / "more"), steps_per_epoch=1)

    assert more.model.config.task("same").threshold_for == {"recall": 0.8}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"scores": {}}, "calibrate: no task predicts probabilities"),
        ({"scores": {"calibrate": True}}, "no key 'calibrate'"),
        ({"same": {"temperature": 2}}, "unknown key 'temperature'"),
    ],
)
def test_a_recipe_is_checked_before_anything_is_written(tmp_path, tasks, message, capsys):
    recipe = make_recipe(tmp_path, *tasks)
    recipe["tasks"] = {name: recipe["tasks"][name] | keys for name, keys in tasks.items()}

    with pytest.raises(SystemExit):
        finetune.main([small_run.write_recipe(tmp_path, recipe)])

    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_task_chooses_for_itself(tmp_path):
    recipe = make_recipe(tmp_path, "moods", "same", "tags", "scores")
    recipe["tasks"]["moods"]["calibrate"] = False
    ranked = {"pair_encoding": "separate", "head": "cosine", "loss": "cosine_embedding"}
    recipe["tasks"]["same"] |= ranked
    del recipe["tasks"]["same"]["threshold_for"]

    trainer = minbert.finetune(recipe)

    tasks = trainer.model.config.tasks
    assert tasks["tags"]["calibrate"] is True
    assert tasks["moods"]["calibrate"] is False
    assert tasks["same"]["temperature"] is None
    assert "temperature" not in tasks["scores"]
