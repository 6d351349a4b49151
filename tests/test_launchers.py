"""Launchers: a run of accelerate that starts again after a failure, and one of two machines."""

import subprocess
import sys

import pytest

from tests.processes import ENVIRONMENT, ROOT, run_python
from tests.runs import checkpoints, free_port, write_recipe

# Kills the last process once, after a step.
PROGRAM = """
import os, signal, sys
import transformers
from minbert_cli import finetune

class Kill(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print("STEP", args.output_dir, state.global_step, flush=True)
        is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        is_last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
        if is_first and is_last and state.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)

transformers.trainer.DEFAULT_CALLBACKS.append(Kill)
finetune.main(sys.argv[2:])
"""


def launch(folder, step, *flags):
    """Run a program whose last process is killed at a step; return the result."""
    (folder / "program.py").write_text(PROGRAM)
    command = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--main_process_port", str(free_port()), "--max_restarts", "2"]
    # without either, a restarted process may find the addresses of those that were killed
    command += ["--rdzv_backend", "c10d"]
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    words = [*command, "program.py", step, *flags]
    return run_python(*words, folder=folder, environment=ENVIRONMENT | store)


@pytest.mark.slow
def test_a_restarted_run_ends_as_one_that_was_not_disturbed(tmp_path):
    recipe = write_recipe(tmp_path, processes=2, num_train_epochs=2).name
    flags = [recipe, "--resume_from_checkpoint", "true", "--output_dir"]
    launch(tmp_path, 0, *flags, "whole")

    done = launch(tmp_path, 7, *flags, "restarted")

    assert "exitcode: -9" in done.stderr
    left, right = (tmp_path / name / "model.safetensors" for name in ("whole", "restarted"))
    assert left.read_bytes() == right.read_bytes()


# Two machines without a shared disk, simulated by two launchers with folders of their own

BEST = ("--eval_strategy", "steps", "--eval_steps", "2", "--load_best_model_at_end", "true")


def launch_machines(folder, *flags):
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
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [machine.communicate(timeout=250)[0] for machine in machines]
    return [machine.returncode for machine in machines], outputs


@pytest.mark.slow
def test_the_first_machine_has_the_results(tmp_path):
    statuses, outputs = launch_machines(tmp_path)

    assert statuses == [0, 0], outputs
    assert (tmp_path / "machine-0" / "run" / "metrics.json").is_file()
    assert len(checkpoints(tmp_path / "machine-0" / "run")) == 2  # the default of save_total_limit
    assert not (tmp_path / "machine-1" / "run" / "model.safetensors").exists()

    statuses, outputs = launch_machines(tmp_path, "--resume_from_checkpoint", "true")

    assert 0 not in statuses
    assert "rng_state_1.pth is missing" in outputs[0]


@pytest.mark.slow
def test_what_needs_a_shared_disk_says_so(tmp_path):
    statuses, outputs = launch_machines(tmp_path, *BEST, "--metric_for_best_model", "mean")

    assert 0 not in statuses
    assert any("is not the same folder on all machines" in output for output in outputs), outputs
