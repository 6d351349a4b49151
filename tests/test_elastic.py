"""A run that torchrun starts again after a failure goes on from its last checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import free_port, write_recipe

ROOT = Path(__file__).parents[1]
# Kills the last process once, after a step.
PROGRAM = """
import os, signal, sys
import transformers
from minbert_cli.finetune import main

class Kill(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print("STEP", args.output_dir, state.global_step, flush=True)
        is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        is_last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
        if is_first and is_last and state.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)

transformers.trainer.DEFAULT_CALLBACKS.append(Kill)
main(sys.argv[2:])
"""


def torchrun(folder, step, *flags):
    """Run a program whose last process is killed at a step; return the result."""
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", f"localhost:{free_port()}", "--max-restarts", "2"]
    # else a restarted process may find the addresses of those that were killed (torch 2.13)
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.run(
        [*command, "--nproc_per_node", "2", "program.py", str(step), *flags],
        cwd=folder,
        env=os.environ | store | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_restarted_run_ends_as_one_that_was_not_disturbed(tmp_path):
    recipe = write_recipe(tmp_path, processes=2, num_train_epochs=2).name
    flags = [recipe, "--resume_from_checkpoint", "true", "--output_dir"]
    whole = torchrun(tmp_path, 0, *flags, "whole")
    assert whole.returncode == 0, whole.stderr

    done = torchrun(tmp_path, 7, *flags, "restarted")

    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    left, right = (tmp_path / name / "model.safetensors" for name in ("whole", "restarted"))
    assert left.read_bytes() == right.read_bytes()
