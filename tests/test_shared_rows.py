"""Recipes with tasks that share rows, from the file to predictions."""

import csv
import json
import random

import pytest
import torch
import yaml

from datasets_scripts import load_task
from minbert_cli import finetune
from minbert_cli.experiments import program as experiments
from minbert_cli.training.recipe_tasks import complete_keys, load_tasks, parse_labeled
from modeling_minbert import MinBertForMultiTask
from modeling_minbert.calibration import find_temperature

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


def load(**tasks):
    """Load the rows of tasks of a recipe."""
    return load_tasks(parse_labeled(tasks, None))


def texts_of(task, split):
    return set(task.splits[split]["sentence1"])


def test_a_recipe_trains_all_labels_of_a_file_in_one_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # the order of the recipe does not matter
    write_recipe(tmp_path, {"topic": TOPIC, "mood": MOOD, "stars": STARS})

    finetune.main(["mail.yaml"])

    output = capsys.readouterr().out
    assert "encoded once for its labels: mood 58, topic 47, stars 72" in output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert set(metrics["validation"]["standard_errors"]) == {"mood", "topic", "stars"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "mood: each of these 72 rows is encoded once" in page
    model = MinBertForMultiTask.from_pretrained(tmp_path / "run")
    assert set(model.predict_all(["the soup was fine"])) == {"mood", "topic", "stars"}


def test_each_label_has_the_temperature_of_its_own_validation_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks = {"mood": {**MOOD, "validation_share": 0.5}, "topic": TOPIC}
    write_recipe(tmp_path, tasks, calibrate=True, bf16=False, num_train_epochs=3)

    finetune.main(["mail.yaml"])

    model = MinBertForMultiTask.from_pretrained(tmp_path / "run").eval()
    for name, task in load(**tasks).items():
        rows = task.splits["validation"]
        encoded = model.tokenizer(rows["sentence1"][:], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded, task=name).logits.double()
        expected = find_temperature(logits, torch.tensor(rows["label"][:]), is_binary=False)
        assert expected != pytest.approx(1, abs=0.01)
        assert model.config.task(name).temperature == pytest.approx(expected, rel=1e-4)


def test_texts_are_held_out_for_all_tasks_or_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_mail(tmp_path)

    loaded = load(mood=MOOD, topic=TOPIC, stars=STARS)

    held, learned = (
        set.union(*(texts_of(task, split) for task in loaded.values()))
        for split in ("validation", "train")
    )
    assert (len(held), len(learned)) == (8, 72)
    assert not held & learned
    assert all(texts_of(task, "validation") for task in loaded.values())
    assert loaded["stars"].facts["train"]["rows"] == 72
    assert loaded["mood"].facts["train"]["shared_rows"] == 72


def test_every_label_keeps_a_training_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"text {row},{'ab'[row % 2]},{'rare' if row == 3 else 'often'}" for row in range(40)]
    (tmp_path / "mail.csv").write_text("\n".join(["text,mood,topic", *lines]), encoding="utf-8")

    for seed in range(12):
        loaded = load(mood={**MOOD, "sample_seed": seed, "validation_share": 0.5}, topic=TOPIC)
        assert loaded["topic"].facts["train"]["classes"]["rare"] == 1


def test_a_sample_has_the_same_texts_for_all_tasks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_mail(tmp_path)
    mood = {**MOOD, "max_train_samples": 30, "max_eval_samples": 4}

    loaded = load(mood=mood, topic=TOPIC, stars=STARS)

    assert len(loaded["stars"].splits["train"]) == 30
    for task in loaded.values():
        assert texts_of(task, "train") <= texts_of(loaded["stars"], "train")
        assert texts_of(task, "validation") <= texts_of(loaded["stars"], "validation")
    assert len(loaded["stars"].splits["validation"]) == 4


def test_a_task_alone_has_the_rows_that_it_has_in_its_group(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_mail(tmp_path)
    tasks = parse_labeled({"mood": MOOD, "topic": TOPIC}, None)

    alone, together = load_task(tasks["topic"].data), load_tasks(tasks)["topic"]

    assert alone.fingerprint == together.fingerprint


def test_rows_and_tokens_are_those_of_the_other_task():
    leader = {**MOOD, "truncation": "tail", "validation_share": 0.2, "loss": "focal"}

    complete = complete_keys({"mood": leader, "topic": TOPIC})

    taken = {"train_file": "mail.csv", "text_columns": ["text"], "validation_share": 0.2}
    assert complete["topic"] == {**TOPIC, **taken, "truncation": "tail"}
    assert complete["mood"] == leader


def test_runs_with_shared_rows_can_be_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, {"mood": MOOD, "topic": TOPIC})
    for seed in (1, 2):
        finetune.main(["mail.yaml", "--seed", str(seed), "--output_dir", f"run{seed}"])
    capsys.readouterr()

    with pytest.raises(SystemExit, match="0"):
        experiments.main(["compare", "run1", "run2"])

    output = capsys.readouterr().out
    assert "mood" in output
    assert "topic" in output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shares_rows_with": "moods"}, "task 'topic': shares_rows_with: unknown task 'moods'"),
        (
            {"batch_size": 4},
            "task 'topic': batch_size=4, but its rows are in the batches of 'mood'",
        ),
        ({"text_columns": ["topic"]}, "its rows and their tokens are those of 'mood'"),
        ({"train_file": "dev.csv"}, "its rows and their tokens are those of 'mood'"),
        ({"max_train_samples_per_class": 3}, "goes by the labels of one task"),
        ({"shares_rows_with": "topic"}, "names the task itself"),
        ({"problem_type": "token_classification"}, "shares_rows_with='mood' is for tasks of"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, capsys, change, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.csv").write_text("text,mood,topic\na,good,food\nb,bad,travel\n")
    topic = {**TOPIC, **change}
    write_recipe(tmp_path, {"mood": {**MOOD, "validation_file": "dev.csv"}, "topic": topic})

    with pytest.raises(SystemExit):
        finetune.main(["mail.yaml"])

    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_teacher_is_refused_before_rows_are_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, {"mood": MOOD, "topic": TOPIC}, output_dir="first")
    finetune.main(["mail.yaml"])
    capsys.readouterr()
    wrong = MOOD | {"label_column": "nowhere"}  # which would be an error of the file
    write_recipe(tmp_path, {"mood": wrong, "topic": TOPIC}, teacher="first")
    with pytest.raises(SystemExit):
        finetune.main(["mail.yaml"])

    assert "task 'mood' shares rows with other tasks, but" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
