"""Temperatures from the recipe to the report, measured again by hand."""

import random

import pytest

import minbert
from minbert_cli import finetune, recipe_tasks
from modeling_minbert import parse_task
from tests import small_run

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
    topics |= {"label_column": "topics"}
    tasks = {
        "moods": moods | files,
        "same": {"problem_type": "paraphrase", **PAIRS, **files},
        "topics": topics | files,
        "tags": {"problem_type": "token_classification", **files},
        "scores": {"problem_type": "similarity", "score_range": [0, 1], **PAIRS, **files},
    }
    recipe = small_run.make_recipe(folder) | {"tasks": {name: tasks[name] for name in names}}
    recipe |= small_run.QUICK | {"calibrate": True, "per_device_train_batch_size": 8}
    return recipe | {"steps_per_epoch": 8, "num_train_epochs": 1, **keys}


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

    trainer = minbert.finetune(recipe)

    tasks = trainer.model.config.tasks
    assert tasks["tags"]["calibrate"] is True
    assert tasks["moods"]["calibrate"] is False
    assert tasks["same"]["temperature"] is None
    assert "temperature" not in tasks["scores"]


def test_a_threshold_that_was_chosen_by_hand_is_not_lost_without_a_word(caplog):
    fields = {"problem_type": "paraphrase", "thresholds": [0.7]}

    recipe_tasks.warn_of_threshold("same", parse_task("same", fields))
    several = {"problem_type": "multi_label_classification", "labels": ["a", "b"]}
    several["thresholds"] = [0.4, 0.5]
    recipe_tasks.warn_of_threshold("topics", parse_task("topics", several))  # fitted again

    (message,) = caplog.messages
    assert "task 'same': the checkpoint decides at the probability 0.7" in message
