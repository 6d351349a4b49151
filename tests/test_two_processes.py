"""Two processes equal one process with twice the batch."""

import csv
import json

import pytest
from safetensors.torch import load_file

from tests.runs import (
    BATCH_SIZES,
    ROWS,
    finetune,
    read_batches,
    read_log,
    read_output,
    write_pretraining,
    write_recipe,
)
from tests.small_tokenizers import TOKENIZERS, save_start

# The mean of two gradients rounds otherwise than the gradient of the whole batch: 1e-7, relative.
# Adam makes it grow where a gradient is nothing but rounding, as that of the biases of the keys,
# which it divides by its own size: there the weights were 4e-7 apart at the end, losses 6e-7.
LOSS = 1e-5  # relative
WEIGHTS = 1e-5  # absolute
RUNS = {
    "plain": {},
    "activation checkpointing": {"activation_checkpointing": True},
    "methods": {
        "r_drop": 1.0,
        "head_learning_rate": 0.01,
    },
    "accumulation": {"gradient_accumulation_steps": 2, "steps_per_epoch": 14},
    "drawn": {"task_sampling": "proportional", "steps_per_epoch": "longest"},
    "roberta": {},
    "modernbert": {},
    "by length": {"train_sampling_strategy": "group_by_length", "steps_per_epoch": "longest"},
    "taught": {},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that gives the folders of a run of one process and of one of two."""
    done = {}

    def get(name):
        if name not in done:
            folder = tmp_path_factory.mktemp("runs")
            outputs = [folder / "one" / "run", folder / "two" / "run"]
            for processes, output in enumerate(outputs, start=1):
                output.parent.mkdir()
                recipe = write_settings(folder, processes, name)
                status = finetune(recipe, output, processes=processes)
                assert status == 0, read_output(output, processes - 1)
            done[name] = outputs
        return done[name]

    return get


def write_settings(folder, processes, name):
    settings = {"num_train_epochs": 2, "max_grad_norm": 0.5} | RUNS[name]
    if name in TOKENIZERS:  # from a checkpoint of that type
        rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        save_start(folder / "start", name, **rates, attention_dropout=0.0)
        settings["model"] = folder / "start"
    if name == "taught":
        teacher = folder / "teacher" / "run"
        if not teacher.exists():
            teacher.parent.mkdir()
            assert finetune(write_recipe(folder, dropout=0.0), teacher) == 0, read_output(teacher)
        settings |= {"teacher": str(teacher), "seed": 8}
    dropout = 1e-9 if "r_drop" in settings else 0.0  # which drops nothing
    return write_recipe(folder, processes=processes, dropout=dropout, **settings)


def numbers(log, key):
    return [entry[key] for entry in log if key in entry]


def predictions(output, task):
    """Ids and predictions of the validation rows of a task."""
    with (output / "predictions" / f"{task}-dev-output.csv").open() as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)][1:]
    return [row[0] for row in rows], [float(row[-1]) for row in rows]


def assert_equal_runs(one, two):
    tasks = [task for task, _ in read_batches(one.parent)]
    for rank in range(2):
        batches = read_batches(two.parent, rank)
        assert [task for task, _ in batches] == tasks
        assert all(rows == BATCH_SIZES[task] // 2 for task, rows in batches)
    logs = read_log(one), read_log(two)
    for key in ("loss", "grad_norm", *(f"loss_{task}" for task in ROWS)):
        left, right = (numbers(log, key) for log in logs)
        assert len(left) > 3
        assert left == pytest.approx(right, rel=LOSS), key
    weights = [load_file(output / "model.safetensors") for output in (one, two)]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert (value - weights[1][name]).abs().max() < WEIGHTS, name


def assert_equal_results(one, two):
    for task, (_, rows, _) in ROWS.items():
        (ids, left), (other_ids, right) = (predictions(output, task) for output in (one, two))
        assert len(ids) == rows
        assert ids == other_ids
        assert left == pytest.approx(right, abs=1e-5)
    left, right = (
        json.loads((output / "metrics.json").read_text())["validation"] for output in (one, two)
    )
    assert left["rows"] == right["rows"] == {task: rows for task, (_, rows, _) in ROWS.items()}
    assert left["metrics"] == pytest.approx(right["metrics"], abs=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "plain")) for name in RUNS]
)
def test_two_processes_train_as_one_with_twice_the_batch(runs, name):
    one, two = runs(name)

    assert_equal_runs(one, two)
    assert_equal_results(one, two)
    if name == "plain":
        norms = numbers(read_log(one), "grad_norm")
        assert min(norms) < 0.5 < max(norms)  # some steps are clipped


@pytest.mark.parametrize("objective", ["mlm", "mlm_nsp"])
def test_two_processes_pre_train_as_one_with_twice_the_batch(tmp_path, objective):
    logs, weights = [], []
    for processes in (1, 2):
        output = tmp_path / str(processes) / "run"
        output.parent.mkdir()
        recipe = write_pretraining(
            tmp_path, processes=processes, dropout=0.0, objective=objective, max_grad_norm=0.5,
            packing="doc_sentences" if objective == "mlm" else None,
        )  # fmt: skip
        status = finetune(recipe, output, processes=processes)
        assert status == 0, read_output(output, processes - 1)
        logs.append(read_log(output))
        weights.append(load_file(output / "model.safetensors"))

    for key in ("loss", "grad_norm", "loss_text"):
        left, right = (numbers(log, key) for log in logs)
        assert len(left) > 7
        assert left == pytest.approx(right, rel=LOSS), key
    for name, value in weights[0].items():
        assert (value - weights[1][name]).abs().max() < WEIGHTS, name
