"""A run that was killed and resumed ends with the bits of the run that was not stopped."""

import json
import shutil

import pytest
import torch

from tests.runs import (
    TASKS,
    Moment,
    checkpoints,
    finetune,
    read_batches,
    read_log,
    read_output,
    read_state,
    write_pretraining,
    write_recipe,
    write_text,
)

RESUME = ("--resume_from_checkpoint", "true")
# As small as a folder that a kill can leave; every run saves at step 2, 4, ... and epochs have 6.
LAST = "checkpoint-8"
BEST = {
    "eval_strategy": "steps",
    "eval_steps": 2,
    "load_best_model_at_end": True,
    "save_total_limit": 1,
}
# Settings of the runs; all have dropout.
RUNS = {
    "plain": {},
    "frequent": {"save_total_limit": 1},
    # this loss rises from the start
    "best is early": BEST | {"metric_for_best_model": "moods_loss"},
    "best of two processes": BEST
    | {"metric_for_best_model": "mean", "processes": 2, "save_total_limit": 2},
    "schedules": {
        "lr_scheduler_type": "cosine",
        "train_sampling_strategy": "group_by_length",
        "dataloader_num_workers": 1,
        "steps_per_epoch": "longest",
        "num_train_epochs": 1.5,
        "save_steps": 4,
        "eval_strategy": "epoch",
    },
    "pre-training": {"program": "pretrain"},
    "pre-training, two processes": {
        "program": "pretrain",
        "processes": 2,
        "dataloader_num_workers": 1,
        "train_sampling_strategy": "group_by_length",
    },
    "drawn": {"with_text": True, "steps_per_epoch": 7, "task_sampling": "proportional"},
    "accumulation": {
        "with_text": True,
        "gradient_accumulation_steps": 2,
        "steps_per_epoch": 9,
        "save_steps": 1,
    },
    "early stopping": {
        "early_stopping_patience": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "metric_for_best_model": "moods_loss",
        "load_best_model_at_end": True,
    },
}


def add_text(folder, recipe):
    """Add two tasks that learn from text to a recipe."""
    keys = {"corpus": {"own": write_text(folder)}, "batch_size": 4}
    return json.loads(recipe.read_text())["tasks"] | {
        "words": {"problem_type": "masked_lm", "whole_word_mask": True, **keys},
        "both": {"problem_type": "pretraining", **keys},
    }


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Return a function that gives (recipe, folder, processes) of a run that was not stopped."""
    done = {}

    def get(name):
        if name not in done:
            folder = tmp_path_factory.mktemp("run")
            settings = dict(RUNS[name])
            write = write_recipe
            if settings.pop("program", None) == "pretrain":
                write = write_pretraining
            if settings.pop("with_text", False):
                settings["tasks"] = add_text(folder, write(folder))
            recipe = write(folder, **settings)
            processes = settings.get("processes", 1)
            output = folder / "whole" / "run"
            output.parent.mkdir()
            assert finetune(recipe, output, processes=processes) == 0, read_output(output)
            done[name] = recipe, output, processes
        return done[name]

    return get


@pytest.fixture
def output(tmp_path):
    """The folder of the run that is killed."""
    return tmp_path / "run"


def kill(run, output, moment, *flags):
    recipe, _, processes = run
    assert finetune(recipe, output, *flags, processes=processes, moment=moment) == -9, read_output(
        output
    )


def resume(run, output, *flags):
    """Resume a run and return the output of its first process."""
    recipe, _, processes = run
    assert finetune(recipe, output, *RESUME, *flags, processes=processes) == 0, read_output(output)
    return read_output(output)


def assert_same_run(output, whole):
    """Compare all that a run leaves, but for times, commands and logs of the progress."""
    names = [path.name for path in checkpoints(output)]
    assert names == [path.name for path in checkpoints(whole)]
    for name in (".", *names):
        left, right = (
            (folder / name / "model.safetensors").read_bytes() for folder in (output, whole)
        )
        assert left == right, f"the weights in {name} differ"
    for path in sorted((whole / names[-1]).glob("*.pt*")):
        left, right = (
            torch.load(folder / names[-1] / path.name, weights_only=False)
            for folder in (output, whole)
        )
        assert_equal(left, right, path.name)
    assert read_log(output) == read_log(whole)
    for key in ("best_metric", "best_global_step", "global_step", "epoch"):
        assert read_state(output)[key] == read_state(whole)[key]
    predictions = sorted(path.name for path in whole.glob("predictions/*"))
    tasks = json.loads((whole / "metrics.json").read_text())["tasks"]
    assert len(predictions) == (4 * len(TASKS) if tasks else 0)
    for name in predictions:
        left, right = ((folder / "predictions" / name).read_bytes() for folder in (output, whole))
        assert left == right, f"{name} differs"
    left, right = (
        json.loads((folder / "metrics.json").read_text())["validation"]
        for folder in (output, whole)
    )
    assert left == right


def assert_equal(left, right, where):
    """Compare tensors and arrays in nested dictionaries and lists, to the bit."""
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_equal(left[key], right[key], f"{where}, {key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_equal(one, other, f"{where}, {index}")
    elif hasattr(left, "shape"):
        same = torch.equal if isinstance(left, torch.Tensor) else lambda a, b: (a == b).all()
        assert same(left, right), where
    else:
        assert left == right, where


def test_a_run_killed_in_its_second_epoch_ends_as_if_it_had_not_been(whole_run, output):
    run = whole_run("plain")

    kill(run, output, Moment(step=9))
    assert checkpoints(output)[-1].name == LAST
    resume(run, output)

    assert_same_run(output, run[1])
    assert len(read_batches(output.parent)) == 18 - 8


def test_pre_training_goes_on_as_if_it_had_not_been_killed(whole_run, output):
    run = whole_run("pre-training")

    kill(run, output, Moment(step=7))
    resume(run, output)

    assert_same_run(output, run[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("best is early", (9, 15)),
        ("best of two processes", (5, 13)),
        ("schedules", (6, 27)),
        ("early stopping", (5,)),
        ("pre-training, two processes", (3, 7)),
        ("drawn", (6, 13)),
        ("accumulation", (3, 8)),
    ],
)
def test_it_may_be_killed_again_and_again(whole_run, output, name, steps):
    run = whole_run(name)

    kill(run, output, Moment(step=steps[0]))
    for step in steps[1:]:
        kill(run, output, Moment(step=step), *RESUME)
    resume(run, output)

    assert_same_run(output, run[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        Moment(event="os.mkdir", path=LAST),
        Moment(event="open", path=f"{LAST}/config.json"),
        Moment(event="open", path=f"{LAST}/trainer_state.json"),
        Moment(event="shutil.rmtree", path="checkpoint-6"),
        Moment(event="os.mkdir", path="run/predictions"),
    ],
    ids=["folder", "weights", "state", "deletes the one before", "results"],
)
def test_it_may_be_killed_while_it_writes(whole_run, output, moment):
    run = whole_run("frequent")

    kill(run, output, moment)
    resume(run, output)

    assert_same_run(output, run[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "best is early", "early stopping"])
def test_resuming_a_finished_run_changes_nothing(whole_run, output, name):
    run = whole_run(name)
    shutil.copytree(run[1], output)

    resume(run, output)

    assert_same_run(output, run[1])
    # at its end a run with `save_total_limit: 1` deletes all checkpoints but the best one
    assert name == "best is early" or read_batches(output.parent) == []
