"""A run that torchrun starts again after a failure goes on from its last checkpoint."""

import pytest

from tests.processes import ENVIRONMENT, run_python
from tests.runs import free_port, write_recipe

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


def torchrun(folder, step, *flags):
    """Run a program whose last process is killed at a step; return the result."""
    (folder / "program.py").write_text(PROGRAM)
    command = ["-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", f"localhost:{free_port()}", "--max-restarts", "2"]
    # else a restarted process may find the addresses of those that were killed (torch 2.13)
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    words = [*command, "--nproc_per_node", "2", "program.py", step, *flags]
    return run_python(*words, folder=folder, environment=ENVIRONMENT | store)


@pytest.mark.slow
def test_a_restarted_run_ends_as_one_that_was_not_disturbed(tmp_path):
    recipe = write_recipe(tmp_path, processes=2, num_train_epochs=2).name
    flags = [recipe, "--resume_from_checkpoint", "true", "--output_dir"]
    torchrun(tmp_path, 0, *flags, "whole")

    done = torchrun(tmp_path, 7, *flags, "restarted")

    assert "exitcode: -9" in done.stderr
    left, right = (tmp_path / name / "model.safetensors" for name in ("whole", "restarted"))
    assert left.read_bytes() == right.read_bytes()
