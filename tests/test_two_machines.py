"""Two machines without a shared disk, simulated by two launchers with folders of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import checkpoints, free_port, write_recipe

ROOT = Path(__file__).parents[1]
BEST = ("--eval_strategy", "steps", "--eval_steps", "2", "--load_best_model_at_end", "true")


def launch(folder, *flags):
    """Run finetune.py on two machines of one process each; return statuses and outputs."""
    recipe, port = write_recipe(folder, processes=2, num_train_epochs=1), str(free_port())
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    command += ["--master_addr", "127.0.0.1", "--master_port", port]
    program = [str(ROOT / "finetune.py"), str(recipe)]
    machines = []
    for rank in range(2):
        home = folder / f"machine-{rank}"
        home.mkdir(exist_ok=True)
        machines.append(
            subprocess.Popen(
                [*command, "--node_rank", str(rank), *program, "--output_dir", "run", *flags],
                cwd=home,
                env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [machine.communicate(timeout=250)[0] for machine in machines]
    return [machine.returncode for machine in machines], outputs


@pytest.mark.slow
def test_the_first_machine_has_the_results(tmp_path):
    statuses, outputs = launch(tmp_path)

    assert statuses == [0, 0], outputs
    assert (tmp_path / "machine-0" / "run" / "metrics.json").is_file()
    assert len(checkpoints(tmp_path / "machine-0" / "run")) == 2  # the default of save_total_limit
    assert not (tmp_path / "machine-1" / "run" / "model.safetensors").exists()

    statuses, outputs = launch(tmp_path, "--resume_from_checkpoint", "true")

    assert 0 not in statuses
    assert "rng_state_1.pth is missing" in outputs[0]


@pytest.mark.slow
def test_what_needs_a_shared_disk_says_so(tmp_path):
    statuses, outputs = launch(tmp_path, *BEST, "--metric_for_best_model", "mean")

    assert 0 not in statuses
    assert any("is not the same folder on all machines" in output for output in outputs), outputs
