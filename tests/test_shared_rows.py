"""Recipes with tasks that share rows, from the file to predictions."""

import csv
import json
import random

import pytest
import yaml

from datasets_scripts import TaskData, load_task
from minbert_cli import finetune, label_issues
from minbert_cli.training.shared_tasks import complete_keys
from modeling_minbert import MinBertForMultiTask

MOODS = {"good": ("fine", "lovely"), "bad": ("dull", "bleak")}
TOPICS = {"food": ("soup", "bread"), "travel": ("train", "road")}
SMALL = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
MOOD = {
    "problem_type": "classification",
    "text_columns": ["text"],
    "label_column": "mood",
    "train_file": "mail.csv",
}
TOPIC = {"problem_type": "classification", "label_column": "topic", "shares_rows_with": "mood"}
STARS = {"problem_type": "regression", "label_column": "stars", "shares_rows_with": "mood"}


def write_mail(folder, count=80):
    """Write mails, every fifth without a mood and every third without a topic."""
    generator = random.Random(0)
    with (folder / "mail.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "mood", "topic", "stars"])
        for number in range(count):
            mood, topic = generator.choice(list(MOODS)), generator.choice(list(TOPICS))
            words = generator.choice(TOPICS[topic]), generator.choice(MOODS[mood])
            writer.writerow(
                [
                    f"mail {number}: the {words[0]} was {words[1]}",
                    mood if number % 5 else "",
                    topic if number % 3 else "",
                    5 if mood == "good" else 1,
                ]
            )


def write_recipe(folder, tasks, **keys):
    write_mail(folder)
    recipe = {"tasks": tasks, "model_config": SMALL, "output_dir": "run", "use_cpu": True}
    recipe |= {"num_train_epochs": 1, "per_device_train_batch_size": 8, **keys}
    (folder / "mail.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")


def load(tasks, name, folder, other=None):
    keys = complete_keys(tasks)[name]
    keys = {key: value for key, value in keys.items() if key != "shares_rows_with"}
    data = TaskData.from_recipe(name, keys | {"max_invalid_fraction": 1.0})
    return load_task(data, folder / "cache", held_out_with=other)


def test_a_recipe_trains_all_labels_of_a_file_in_one_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # the order of the recipe does not matter
    write_recipe(tmp_path, {"topic": TOPIC, "mood": MOOD, "stars": STARS})

    finetune.main(["mail.yaml"])

    output = capsys.readouterr().out
    assert "encoded once for its labels: mood 57, topic 48, stars 73" in output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert set(metrics["validation"]["standard_errors"]) == {"mood", "topic", "stars"}
    model = MinBertForMultiTask.from_pretrained(tmp_path / "run")
    assert set(model.predict_all(["the soup was fine"])) == {"mood", "topic", "stars"}


def test_tasks_that_share_rows_hold_the_same_ones_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_mail(tmp_path)
    tasks = {"mood": MOOD, "stars": STARS}

    mood = load(tasks, "mood", tmp_path)
    stars = load(tasks, "stars", tmp_path, other=mood)

    held = set(mood.splits["validation"]["sentence1"])
    assert held == set(stars.splits["validation"]["sentence1"])
    assert not held & set(stars.splits["train"]["sentence1"])
    assert len(stars.splits["train"]) == 80 - len(held)


def test_rows_and_tokens_come_from_the_other_task_unless_given():
    leader = {**MOOD, "truncation": "tail", "validation_share": 0.2, "loss": "focal"}
    own = {"problem_type": "ordinal", "train_file": "other.csv", "text_columns": ["body"]}
    tasks = {"mood": leader, "topic": TOPIC, "grade": {**own, "shares_rows_with": "mood"}}

    complete = complete_keys(tasks)

    taken = {"train_file": "mail.csv", "text_columns": ["text"], "validation_share": 0.2}
    assert complete["topic"] == {**TOPIC, **taken, "truncation": "tail"}
    assert complete["grade"] == {**tasks["grade"], "truncation": "tail"}
    assert complete["mood"] == leader


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shares_rows_with": "moods"}, "task 'topic': shares_rows_with: unknown task 'moods'"),
        (
            {"batch_size": 4},
            "task 'topic': batch_size=4, but its rows are in the batches of 'mood'",
        ),
        ({"text_columns": ["topic"]}, "none of its training rows has the tokens"),
        ({"problem_type": "token_classification"}, "shares_rows_with='mood' is for tasks of"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, capsys, change, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.csv").write_text("text,mood,topic\na,good,food\nb,bad,travel\n")
    topic = {**TOPIC, **change, "validation_file": "dev.csv"}
    write_recipe(tmp_path, {"mood": {**MOOD, "validation_file": "dev.csv"}, "topic": topic})

    with pytest.raises(SystemExit):
        finetune.main(["mail.yaml"])

    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_folds_of_tasks_that_share_rows_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, {"mood": MOOD, "topic": TOPIC})

    with pytest.raises(SystemExit):
        label_issues.main(["mail.yaml"])

    assert "task 'topic' has shares_rows_with" in capsys.readouterr().err
