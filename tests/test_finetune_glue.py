"""``minbert finetune`` on GLUE: both dev sets of MNLI, and the score."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import small_run
from tests.glue_files import write_glue

RECIPES = Path(__file__).parents[1] / "recipes" / "glue"
TASKS = ("cola", "mrpc", "stsb", "mnli")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a tiny model on four tasks of the recipe of all; returns its folder."""
    folder = tmp_path_factory.mktemp("run")
    write_glue(folder / "data")
    flags = {
        "data_dir": folder / "data",
        "model_config": json.dumps(small_run.make_recipe(folder)["model_config"]),
        "max_length": 32,
        "output_dir": folder / "out",
        "steps_per_epoch": 4,
        "num_train_epochs": 1,
        "learning_rate": 0.01,
        "per_device_train_batch_size": 6,
        "logging_steps": 1,
        "evaluate_train": "false",
        "report_examples": 0,
        "disable_tqdm": "true",
        "report_to": "none",
        "use_cpu": "true",
    }
    words = [str(word) for key, value in flags.items() for word in (f"--{key}", value)]
    small_run.train(RECIPES / "all.yaml", "--tasks", ",".join(TASKS), *words)
    return folder / "out"


def test_the_official_metrics_stand_for_the_tasks_and_both_sets_of_mnli_count(run):
    metrics = json.loads((run / "metrics.json").read_text())
    found = metrics["validation"]["metrics"]
    first = ("cola_matthews_correlation", "mrpc_f1", "stsb_pearson", "mnli_accuracy")

    assert found["mean"] == pytest.approx(np.mean([found[name] for name in first]))
    assert metrics["validation"]["standard_errors"].keys() == set(TASKS)
    assert metrics["metrics"]["mrpc"] == ["f1", "accuracy"]
    other = metrics["validation_mismatched"]["metrics"]  # counts in the score of GLUE alone
    assert set(other) == {"mnli_accuracy", "mnli_macro_f1"}
    assert metrics["validation_mismatched"]["rows"] == {"mnli": 10}
    assert found["glue"] == pytest.approx(
        np.mean(
            [
                found["cola_matthews_correlation"],
                (found["mrpc_f1"] + found["mrpc_accuracy"]) / 2,
                (found["stsb_pearson"] + found["stsb_spearman"]) / 2,
                (found["mnli_accuracy"] + other["mnli_accuracy"]) / 2,
            ]
        )
    )
