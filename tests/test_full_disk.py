"""A full disk: one line that names the path, nothing half-written, and the run can go on."""

import importlib
import json
import multiprocessing
import os
import resource
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests import small_run
from trainers import WriteError, checkpoint_problem, write_text

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


def run_with_limit(argv, output, event, step, limit):
    """Be a process that cannot write files above ``limit`` bytes after a step, as on a full disk.

    ``event`` is a method of a callback; ``limit`` None changes nothing.
    """
    import transformers

    class Limit(transformers.TrainerCallback):
        """Set the limit."""

    def set_limit(_, __, state, *___, **____):
        if limit is not None and state.global_step >= step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    setattr(Limit, event, set_limit)
    transformers.trainer.DEFAULT_CALLBACKS.append(Limit)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    importlib.import_module("minbert_cli.finetune").main(argv)


def finetune(folder, *flags, event="on_step_end", step=0, limit=None):
    """Fine-tune in a process; return its exit status and its output."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["minbert_cli.finetune"])
    argv = [str(folder / "recipe.yaml"), *flags]
    output, end = context.Pipe(duplex=False)  # a file would be limited, too
    process = context.Process(target=run_with_limit, args=(argv, end, event, step, limit))
    process.start()
    end.close()
    with os.fdopen(os.dup(output.fileno()), encoding="utf-8") as stream:
        text = stream.read()
    process.join(120)
    return process.exitcode, text


def write_recipe(folder):
    folder.mkdir(parents=True, exist_ok=True)
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder) | {"save_strategy": "steps", "save_steps": 2}
    # so that the weights are larger than the code that is saved with them
    recipe["model_config"] |= {"hidden_size": 48, "intermediate_size": 96}
    small_run.write_recipe(folder, recipe)
    return Path(recipe["output_dir"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run that was not disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    output = write_recipe(folder)
    assert finetune(folder)[0] == 0
    return output


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def assert_nothing_half_written(output):
    for path in output.rglob("*"):
        assert "partial" not in path.name
        if path.suffix == ".json" and path.is_file():
            json.loads(path.read_text())
        if path.suffix == ".safetensors":
            load_file(path)
    for folder in output.glob("checkpoint-*"):
        assert checkpoint_problem(folder, 1) is None


FAST = ("on_step_end", 3, "model.safetensors", "checkpoint-4'")
CASES = [  # when the disk is full, by the size of which file, and the path in the message
    ("on_step_end", 0, "model.safetensors", "checkpoint-2'"),
    FAST,
    ("on_step_end", 3, "optimizer.pt", "checkpoint-4'"),
    ("on_step_end", 5, "scheduler.pt", ""),
    ("on_train_end", 0, "model.safetensors", "out'"),
    ("on_train_end", 0, "report.html", ""),
]


def check_case(tmp_path, whole, event, step, limit, name):
    output = write_recipe(tmp_path)

    status, text = finetune(tmp_path, event=event, step=step, limit=limit)

    lines = text.strip().splitlines()
    assert status == 1, text
    assert "Traceback" not in text
    assert lines[-1].startswith("minbert finetune: error: ")
    assert "cannot be written: " in lines[-1]
    assert name in lines[-1]
    assert_nothing_half_written(output)
    last = max((int(path.name[11:]) for path in output.glob("checkpoint-*")), default=None)
    assert ("no checkpoint before" if last is None else f"checkpoint-{last} is comp") in lines[-1]
    assert finetune(tmp_path, "--resume_from_checkpoint", "true")[0] == 0
    for file in ("model.safetensors", "predictions/moods-dev-output.csv"):
        assert (output / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize(
    ("case", "part"),
    [
        pytest.param(case, part, marks=[pytest.mark.slow] * ((case, part) != (FAST, 1.0)))
        for case in CASES
        for part in (0.0, 0.5, 1.0)
    ],
)
def test_a_full_disk_is_one_line_and_the_run_can_go_on(tmp_path, whole, case, part):
    event, step, file, name = case
    known = sizes(whole / "checkpoint-4") | sizes(whole)
    # the largest limit that does not let the file through; below some, another file is the first
    check_case(tmp_path, whole, event, step, int(part * (known[file] - 1)), name if part else "")


@needs_full
def test_a_file_that_cannot_be_written_is_named():
    with pytest.raises(WriteError, match="'/dev/full' cannot be written: No space left on device"):
        write_text(FULL, "text")
