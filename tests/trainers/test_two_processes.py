"""Two processes equal one process with twice the batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainers.tiny import CHECKPOINTING
from trainers import last_complete_checkpoint

ROOT = Path(__file__).parents[2]
OPTIONS = {
    "own": {"steps_per_epoch": 8},
    "gradient_accumulation_steps": 2,
    CHECKPOINTING: True,
    "save_strategy": "steps",
    "save_steps": 5,
    "per_device_train_batch_size": 3,
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The batches of both ranks at every step, and their weights, logs and metrics."""
    return run_ranks(tmp_path_factory.mktemp("two"), OPTIONS)


def run_ranks(folder, options):
    """Train in two processes; return the folder and the record of each."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["-m", "tests.trainers.two_processes", str(folder), json.dumps(options)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, *launch, *script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


def losses(log):
    kept = [{key: entry[key] for key in entry if key.startswith("loss")} for entry in log]
    return [entry for entry in kept if entry]


@pytest.mark.slow
def test_both_ranks_have_the_same_task_and_other_rows(ranks):
    _, (left, right) = ranks

    assert [task for task, _ in left["tasks"]] == [task for task, _ in right["tasks"]]
    assert [rows for _, rows in left["tasks"]] != [rows for _, rows in right["tasks"]]
    assert {task for task, _ in left["tasks"]} == {"moods", "pairs", "scores"}


@pytest.mark.slow
def test_weights_and_losses_equal_one_process_with_twice_the_batch(ranks, make_trainer):
    _, (left, right) = ranks
    one = make_trainer(**(OPTIONS | {"per_device_train_batch_size": 6, "save_strategy": "no"}))

    one.train()

    torch.testing.assert_close(left["weights"], right["weights"], rtol=0, atol=0)
    torch.testing.assert_close(left["weights"], dict(one.model.state_dict()), rtol=1e-4, atol=1e-5)
    assert losses(left["log"]) == [
        pytest.approx(entry, rel=1e-4) for entry in losses(one.state.log_history)
    ]


@pytest.mark.slow
def test_metrics_count_every_row_once(ranks, make_trainer):
    _, (left, _) = ranks
    one = make_trainer(per_device_eval_batch_size=2)
    one.model.load_state_dict(left["weights"])

    metrics = one.evaluate()

    for name in ("eval_mean", "eval_pairs_f1", "eval_scores_spearman"):
        assert left["metrics"][name] == pytest.approx(metrics[name], rel=1e-5)


@pytest.mark.slow
def test_a_resumed_run_of_two_ranks_is_bit_identical(ranks):
    folder, (left, right) = ranks

    torch.testing.assert_close(left["resumed"], left["weights"], rtol=0, atol=0)
    torch.testing.assert_close(right["resumed"], right["weights"], rtol=0, atol=0)
    assert last_complete_checkpoint(folder / "run", 2) is not None
    assert last_complete_checkpoint(folder / "run", 1) is None


@pytest.mark.slow
def test_ranks_that_draw_other_noise_stay_equal(tmp_path):
    """SMART's search begins with noise; the weights, and what Bregman's term compares, are one."""
    methods = {"smart": {"bregman_weight": 0.5}, "weight_averaging": "swa"}
    options = OPTIONS | {"own": {"steps_per_epoch": 8, "methods": methods}, "dropout": 0.1}

    _, (left, right) = run_ranks(tmp_path, options)

    torch.testing.assert_close(left["weights"], right["weights"], rtol=0, atol=0)
    torch.testing.assert_close(left["resumed"], left["weights"], rtol=0, atol=0)
    divergences = [
        entry["smart_divergence_moods"]
        for entry in left["log"]
        if "smart_divergence_moods" in entry
    ]
    assert divergences
    assert min(divergences) > 0
