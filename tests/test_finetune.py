"""``minbert finetune`` from a recipe to a folder that others can use."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from minbert_cli import finetune
from tests import small_run
from tests.trainers.pages import read_blocks


def train(folder, recipe, *flags):
    """Run finetune.py; return its output."""
    return small_run.train(small_run.write_recipe(folder, recipe), *flags)


def read_weights(folder):
    return load_file(Path(folder) / "model.safetensors")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the rows."""
    folder = tmp_path_factory.mktemp("files")
    small_run.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def recipe(files):
    """Return a recipe of six steps whose learning rate decays."""
    recipe = small_run.make_recipe(files) | {"lr_scheduler_type": "linear"}
    if find_spec("tensorboard"):
        recipe["report_to"] = "tensorboard"
    recipe["tasks"]["scores"]["max_train_samples"] = 20
    return recipe


@pytest.fixture(scope="module")
def run(files, recipe):
    """Run the recipe once; return the folder."""
    train(files, recipe)
    return files / "out"


@pytest.fixture(scope="module")
def metrics(run):
    """Read metrics.json."""
    return json.loads((run / "metrics.json").read_text())


def test_the_card_holds_results_limits_data_command_and_recipe(run, metrics):
    text = (run / "README.md").read_text()

    parts = ["## Limits", "## Use", "validation:", "train:", "## Training"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    results = {(one.task_name, one.metric_type): one for one in ModelCard(text).data.eval_results}
    validation = metrics["validation"]
    expected = validation["metrics"]["pairs_accuracy"]
    assert results["pairs", "accuracy"].metric_value == expected
    assert results["pairs", "accuracy"].dataset_name == "pairs-train.tsv"
    assert len(results) == 7
    value, error = validation["metrics"]["scores_pearson"], validation["standard_errors"]["scores"]
    assert re.search(rf"\| scores +\| pearson +\| {value:.4f} \| +{error:.4f} \| +9 \|", text)
    for part in ("learning_rate: 0.01", f'path = "{run}"\n', metrics["command"]):
        assert part in text


def test_the_report_shows_errors_of_the_validation_file(run, metrics):
    text = (run / "report.html").read_text()

    for value in metrics["validation"]["metrics"].values():
        assert f"{value:.4f}" in text
    errors = read_blocks(run, "pairs")["Worst errors"]["rows"]
    rows = {row[0]: row for row in small_run.make_rows("dev")}
    assert errors
    for error in errors:
        assert error["texts"] == list(rows[error["id"]][1:3])


def test_training_rows_and_texts_can_be_left_out(run, files, recipe):
    folder = files / "sparing"

    train(files, recipe | small_run.QUICK, "--output_dir", str(folder))

    assert "train" not in json.loads((folder / "metrics.json").read_text())
    table = (folder / "predictions" / "pairs-dev.csv").read_text()
    assert table.startswith("id,label,prediction,probability\n")
    assert "this garden was" in (run / "report.json").read_text()
    for name in ("report.json", "report.html"):
        assert "garden" in (run / name).read_text()
        assert "garden" not in (folder / name).read_text()
    weights, expected = read_weights(folder), read_weights(run)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def prepare(files, recipe, *flags):
    """Build the run of a recipe, without training."""
    folder = str(files / "prepared")
    argv = [small_run.write_recipe(files, recipe), "--output_dir", folder, *flags]
    return finetune.finetune(argv, is_dry=True)


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ("5", 5),
        ("shortest", 12),
        # 24, 24 and 20 rows in batches of 6, 4 and 4
        ("longest", 18),
        (
            'longest --task_sampling weighted --sampling_weights {"moods":1,"pairs":1,"scores":6}',
            48,
        ),
    ],
)
def test_flags_choose_the_sampling_of_tasks_and_the_end_of_an_epoch(files, recipe, flags, steps):
    sampler = prepare(files, recipe, "--steps_per_epoch", *flags.split(" ")).trainer.train_sampler

    assert sampler.steps == steps


# A training file alone

NOTE = "validation: 10 % of the training rows, at most 10,000, chosen at random (2 of 20)"


def test_the_run_says_what_was_held_out(tmp_path):
    rows = [(f"the {n} is {'fine' if n % 2 else 'dull'}", n % 2) for n in range(20)]
    small_run.write_tsv(tmp_path / "train.tsv", ("text", "mood"), rows)
    recipe = small_run.make_recipe(tmp_path) | small_run.QUICK | {"max_steps": 2}
    moods = recipe["tasks"]["moods"] | {"train_file": str(tmp_path / "train.tsv")}
    for key in ("validation_file", "test_file"):
        del moods[key]
    recipe["tasks"] = {"moods": moods}

    printed = train(tmp_path, recipe)

    folder = tmp_path / "out"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert f"moods: {NOTE}\n" in printed
    assert metrics["notes"]["moods"][0] == NOTE
    assert metrics["validation"]["rows"] == {"moods": 2}
    assert metrics["splits"]["moods"]["validation"]["held_out_of"] == 20
    assert f"moods: {NOTE}" in (folder / "report.html").read_text()
    assert f"moods: {NOTE}" in (folder / "README.md").read_text()
    assert "| 18 / 2 / none |" in (folder / "README.md").read_text()


# Trackers

METRICS = {"eval/moods_accuracy", "eval/pairs_f1", "eval/scores_pearson", "eval/mean"}
LOSSES = {"train/loss_moods", "train/loss_pairs", "train/loss_scores"}


def test_tensorboard_hears_of_every_task(run, metrics):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = metrics["validation"]["metrics"]["scores_pearson"]  # of the last weights
    (folder,) = (run / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()

    assert set(events.Tags()["scalars"]) >= METRICS | LOSSES
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("test/")]
    values = events.Scalars("eval/scores_pearson")
    assert [value.step for value in values] == [3, 6]
    assert values[-1].value == pytest.approx(expected)
