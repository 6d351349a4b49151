"""Every problem type, end to end: train, evaluate, save, load, predict, report, compare, resume."""

import json
import shutil
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file

from datasets_scripts import FORMATS
from minbert_cli import finetune
from minbert_cli.experiments.compare import compare
from modeling_minbert import TASKS, MinBertForMultiTask, heads
from tests import small_run
from tests.problem_examples import EXAMPLES
from trainers import PROBLEMS, ProblemType, write_report

HALF = 3  # steps of the first of two epochs


def test_the_three_packages_have_the_same_problem_types():
    assert list(TASKS) == list(FORMATS) == list(PROBLEMS)
    assert get_args(ProblemType) == get_args(heads.ProblemType) == tuple(TASKS)
    assert TASKS.keys() == EXAMPLES.keys()
    for name, problem in PROBLEMS.items():
        assert problem.problem_type == name


@pytest.fixture(scope="module", params=EXAMPLES)
def run(request, tmp_path_factory):
    """Train a task of each problem type beside a classification; returns type and folder."""
    folder = tmp_path_factory.mktemp(request.param)
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    task = {"problem_type": request.param, "batch_size": 4}
    task |= EXAMPLES[request.param].write(folder)
    recipe["tasks"] = {"own": task, "moods": recipe["tasks"]["moods"]}
    recipe |= {"steps_per_epoch": str(HALF), "num_train_epochs": 2, "seed": 5}
    finetune.main([small_run.write_recipe(folder, recipe)])
    return request.param, folder


def read_metrics(folder):
    return json.loads((folder / "out" / "metrics.json").read_text())["validation"]


def test_it_is_trained_and_measured_by_its_own_metrics(run):
    kind, folder = run
    own = {name for name in read_metrics(folder)["metrics"] if name.startswith("own_")}
    state = json.loads((folder / "out" / f"checkpoint-{2 * HALF}/trainer_state.json").read_text())
    logged = {name for entry in state["log_history"] for name in entry}

    assert f"own_{PROBLEMS[kind].metrics[0].name}" in own
    assert {
        f"eval_{name}" for name in own
    } <= logged  # one way to measure, in training and at the end
    assert "loss_own" in logged


def test_a_saved_model_predicts_it(run):
    kind, folder = run
    model = MinBertForMultiTask.from_pretrained(folder / "out")
    example = EXAMPLES[kind]

    assert type(model.config.task("own")) is TASKS[kind]
    if example.rows is None:
        with pytest.raises(ValueError, match=f"task 'own' is .*{kind}"):
            model.predict("own", ["a text"])
        return
    (prediction,) = model.predict("own", example.rows)
    rows = prediction if isinstance(prediction, list) else [prediction]
    assert all(row.keys() == example.predictions for row in rows)


def test_its_page_is_made_from_the_files_of_the_run(run, tmp_path):
    kind, folder = run
    (tmp_path / "out").mkdir()
    for name in ("metrics.json", "report.json"):
        shutil.copy(folder / "out" / name, tmp_path / "out")

    page = write_report(tmp_path / "out").read_text()
    assert page == (folder / "out" / "report.html").read_text()
    metric = f"own_{PROBLEMS[kind].metrics[0].name}"
    assert f"{read_metrics(folder)['metrics'][metric]:.4f}" in page


def test_a_run_compared_with_a_copy_does_not_differ(run, tmp_path):
    kind, folder = run
    shutil.copytree(folder / "out", tmp_path / "out")
    table = compare([str(folder / "out"), str(tmp_path / "out"), "--resamples", "50"])

    lines = [line for line in table.splitlines() if line.startswith("| own ")]
    assert len(lines) == EXAMPLES[kind].is_compared
    assert all("+0.0000" in line and "1.0000" in line for line in lines)


def test_a_resumed_run_equals_the_whole_one(run):
    _, folder = run
    checkpoint, again = folder / "out" / f"checkpoint-{HALF}", folder / "again"
    flags = ["--output_dir", str(again), "--resume_from_checkpoint", str(checkpoint)]

    finetune.main([str(folder / "recipe.yaml"), *flags])
    whole, resumed = (load_file(path / "model.safetensors") for path in (folder / "out", again))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
