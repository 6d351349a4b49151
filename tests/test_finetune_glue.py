"""``minbert finetune`` on GLUE: both dev sets of MNLI, the score, and the server's files."""

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests import small_run
from tests.glue_files import NLI, write_glue

RECIPES = Path(__file__).parents[1] / "recipes" / "glue"
TASKS = ("cola", "mrpc", "stsb", "mnli")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a tiny model on four tasks of the recipe of all; returns its folder and its words."""
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
    printed = small_run.train(RECIPES / "all.yaml", "--tasks", ",".join(TASKS), *words)
    return folder / "out", printed


def test_the_official_metrics_stand_for_the_tasks_and_both_sets_of_mnli_count(run):
    metrics = json.loads((run[0] / "metrics.json").read_text())
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


def test_the_files_for_the_server_match_the_predictions(run):
    folder, printed = run
    with zipfile.ZipFile(folder / "glue" / "submission.zip") as archive:
        names = archive.namelist()
        files = {name: archive.read(name).decode().splitlines() for name in names}

    assert names == [*("AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "STS-B.tsv")]
    sizes = {name: len(lines) - 1 for name, lines in files.items()}
    assert sizes == dict.fromkeys(names, 5) | {"AX.tsv": 4, "MNLI-mm.tsv": 6}
    assert {line.split("\t")[1] for line in files["MNLI-mm.tsv"][1:]} <= set(NLI)
    predicted = (folder / "predictions" / "mnli-test_mismatched-output.csv").read_text()
    numbers = [int(line.split(" , ")[1]) for line in predicted.splitlines()[1:]]
    assert [line.split("\t")[1] for line in files["MNLI-mm.tsv"][1:]] == [
        NLI[number] for number in numbers
    ]
    assert all(re.fullmatch(r"\d\t[0-5]\.\d{3}", line) for line in files["STS-B.tsv"][1:])
    assert "it also needs QNLI, QQP, RTE, SST-2, WNLI" in printed
