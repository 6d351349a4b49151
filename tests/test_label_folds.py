"""minbert label-issues: folds of the training rows, and lists of the labels that they doubt."""

import csv
import random

import numpy as np
import pytest

from minbert_cli import label_issues
from minbert_cli.label_folds import split_folds, split_tasks
from modeling_minbert import MinBertForMultiTask
from tests import small_run


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe of classes, pairs and scores."""
    small_run.write_files(tmp_path)
    return small_run.make_recipe(tmp_path)


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_task_with_classes_gets_a_list_of_its_training_rows(tmp_path, recipe, capsys):
    path = small_run.write_recipe(tmp_path, recipe)

    label_issues.main([path, "--folds", "2", "--num_train_epochs", "1", "--seed", "3"])

    out, printed = tmp_path / "out-label-issues", capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert {each.name for each in out.iterdir()} == {"moods-train.csv", "pairs-train.csv"}
    assert "fold 2 of 2" in printed
    texts = {}
    for task in ("moods", "pairs"):
        rows = read_table(out / f"{task}-train.csv")
        assert f"{task}: {len(rows)} of 24 training rows; about" in printed
        assert all(row["id"].startswith("train") for row in rows)
        assert all(row["label"] != row["suggested_label"] for row in rows)
        margins = [float(row["margin"]) for row in rows]
        assert margins == sorted(margins)
        texts[task] = rows
    lines = (tmp_path / "moods-train.tsv").read_text().splitlines()[1:]
    given = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    assert all([row["text"], row["label"]] == given[row["id"]] for row in texts["moods"])


def test_nothing_is_fitted_to_the_labels_that_are_checked(tmp_path, recipe):
    del recipe["tasks"]["scores"]
    flags = ["--folds", "2", "--num_train_epochs", "1"]
    label_issues.main([small_run.write_recipe(tmp_path, recipe), *flags])
    lists = [path.read_text() for path in sorted((tmp_path / "out-label-issues").iterdir())]

    recipe["tasks"]["pairs"]["threshold_for"] = {"precision": 0.9}
    recipe["tasks"]["moods"]["calibrate"] = True
    label_issues.main([small_run.write_recipe(tmp_path, recipe), *flags, "--calibrate", "true"])

    again = [path.read_text() for path in sorted((tmp_path / "out-label-issues").iterdir())]
    assert again == lists
    assert any(len(text.splitlines()) > 1 for text in lists)


def test_folds_of_a_calibrated_checkpoint_fit_no_temperature(tmp_path, recipe):
    moods = split_tasks({"tasks": recipe["tasks"]}, 2)["moods"]

    assert moods.write(tmp_path, 0)["calibrate"] is False


def test_pairs_of_classes_are_refused(tmp_path, recipe, capsys):
    recipe["tasks"]["moods"]["class_pairs"] = 2
    with pytest.raises(SystemExit):
        label_issues.main([small_run.write_recipe(tmp_path, recipe)])
    assert (
        "has class_pairs, which puts each row into pairs of every fold" in capsys.readouterr().err
    )


def test_each_model_is_measured_on_rows_that_it_did_not_see(tmp_path, recipe, monkeypatch):
    from minbert_cli import label_folds

    del recipe["tasks"]["scores"], recipe["tasks"]["pairs"]
    seen = []

    def read_folds(trainer, task):
        ids = [
            trainer.train_dataset._datasets[0]["input_ids"],
            trainer.eval_dataset[task]["input_ids"],
        ]
        seen.append([{tuple(row) for row in rows} for rows in ids])
        seen[-1].append(len(trainer.eval_dataset[task]))
        assert isinstance(trainer.model, MinBertForMultiTask)
        return predict(trainer, task)

    predict = label_folds.predict
    monkeypatch.setattr(label_folds, "predict", read_folds)

    label_issues.main([small_run.write_recipe(tmp_path, recipe), "--folds", "3"])

    assert len(seen) == 3
    assert all(not train & held_out for train, held_out, _ in seen)
    assert sum(count for *_, count in seen) == 24


def test_the_command_finds_labels_that_were_flipped(tmp_path, recipe):
    rng = random.Random(0)
    rows = []
    for number in range(240):
        is_good = rng.random() < 0.5
        words = rng.choices(small_run.GOOD if is_good else small_run.BAD, k=2)
        rows.append((f"r{number}", f"the song {number} is {' and '.join(words)}", is_good))
    flipped = {name for name, *_ in rng.sample(rows, 12)}
    moods = [(name, text, ("bad", "good")[good ^ (name in flipped)]) for name, text, good in rows]
    small_run.write_tsv(tmp_path / "moods-train.tsv", ("id", "text", "mood"), moods)
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    del recipe["steps_per_epoch"]
    sizes = {"hidden_size": 24, "num_hidden_layers": 1}
    recipe |= {"num_train_epochs": 5, "model_config": recipe["model_config"] | sizes}

    label_issues.main([small_run.write_recipe(tmp_path, recipe), "--folds", "2"])

    found = {row["id"] for row in read_table(tmp_path / "out-label-issues" / "moods-train.csv")}
    assert len(found & flipped) >= 0.8 * len(flipped)
    assert len(found & flipped) > 0.5 * len(found)


def test_folds_have_equal_shares_of_classes_and_keep_equal_texts_together():
    labels = np.asarray([0] * 40 + [1] * 11)
    texts = [f"text {number // 2}" if number < 40 else f"rare {number}" for number in range(51)]

    parts = split_folds("it", labels, texts, 4, 0)

    counts = np.asarray([np.bincount(labels[parts == part], minlength=2) for part in range(4)])
    assert np.ptp(counts, axis=0).tolist() <= [2, 1]
    assert all(parts[place] == parts[place + 1] for place in range(0, 40, 2))
    assert np.array_equal(parts, split_folds("it", labels, texts, 4, 0))
    assert not np.array_equal(parts, split_folds("it", labels, texts, 4, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["moods"]}, "expected tasks and their keys"),
        ({"output_dir": None}, "output_dir is missing"),
        ({"teacher": "runs/one"}, "a teacher may have learned the very labels"),
        ({"tasks": "only scores"}, "no task has labels that are classes; expected one of the"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused(tmp_path, recipe, capsys, changes, message):
    if changes.get("tasks") == "only scores":
        changes = {"tasks": {"scores": recipe["tasks"]["scores"]}}

    with pytest.raises(SystemExit):
        label_issues.main([small_run.write_recipe(tmp_path, recipe | changes)])

    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_a_class_with_fewer_rows_than_folds_is_refused(tmp_path, recipe, capsys):
    rows = [("r1", "a b", "good"), ("r2", "c d", "good"), ("r3", "e f", "good"), ("r4", "g", "bad")]
    small_run.write_tsv(tmp_path / "moods-train.tsv", ("id", "text", "mood"), rows)

    with pytest.raises(SystemExit):
        label_issues.main([small_run.write_recipe(tmp_path, recipe), "--folds", "2"])

    assert "task 'moods': a class has only 1 different training rows" in capsys.readouterr().err
