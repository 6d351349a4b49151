"""Keys of a recipe and flags: what cannot be is refused, and what is left out fits the run."""

import pytest
import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from minbert_cli import (
    FinetuneArguments,
    ProgramTrainingArguments,
    describe_settings,
    read_settings,
)
from minbert_cli.arguments import BEST, PROVISIONAL
from minbert_cli.recipe_tasks import parse_tasks
from minbert_cli.run_folder import check_output_dir, start_run
from modeling_minbert import bfloat16_is_fast
from tests.small_run import parse_recipe
from trainers import AggregateEarlyStopping, FastTrainingArguments

TASKS = {"sst": {"dataset": "sst"}}
BEST_OF_EPOCHS = {"load_best_model_at_end": True, "eval_strategy": "epoch"}
STEPS = ("steps", "steps")
PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau"}
BEST_OF_EPOCHS |= {"save_strategy": "epoch", "metric_for_best_model": "mean"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"revision": "v1"}, "revision='v1' has no effect without a model_name_or_path on"),
        ({"revision": "v1", "model_name_or_path": "."}, "revision='v1' has no effect without"),
    ],
)
def test_a_revision_without_effect_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FinetuneArguments(**{"tasks": TASKS} | arguments)


def test_early_stopping_needs_something_to_watch(tmp_path):
    arguments = FinetuneArguments(tasks=TASKS, early_stopping_patience=3)

    args = TrainingArguments(str(tmp_path), use_cpu=True, **BEST_OF_EPOCHS)
    (callback,) = arguments.make_callbacks(args)

    assert isinstance(callback, AggregateEarlyStopping)
    assert callback.early_stopping_patience == 3


def parse(tmp_path, recipe, *flags, kind=FastTrainingArguments):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"output_dir: {tmp_path / 'run'}\n{recipe}\n", encoding="utf-8")
    (arguments,) = parse_recipe([kind], [path, *flags])
    return arguments


def test_without_cuda_only_the_logs_differ_from_transformers(tmp_path):
    fast = parse(tmp_path, "use_cpu: true")
    plain = TrainingArguments(str(tmp_path / "run"), use_cpu=True)

    ours, theirs = (describe_settings(arguments, {}) for arguments in (fast, plain))
    assert fast.bf16 is False
    assert fast.logging_steps == 0.05
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing == {"logging_steps"}


@pytest.mark.usefixtures("default_precision")
def test_bfloat16_is_on_where_it_is_fast_and_stays_in_a_resumed_run(tmp_path):
    made = {
        flags: parse(tmp_path, "use_cpu: true", *flags, kind=ProgramTrainingArguments)
        for flags in ((), ("--bf16",), ("--bf16", "false"))
    }

    assert [args.bf16 for args in made.values()] == [
        bfloat16_is_fast(torch.device("cpu")),
        True,
        False,
    ]
    fast, slow = (describe_settings(made[flags], {}) for flags in list(made)[1:])
    start_run(tmp_path / "run", fast, {})
    assert read_settings(tmp_path / "run")["bf16"] is True
    with pytest.raises(ValueError, match="resumes with another bf16"):
        check_output_dir(tmp_path / "run", slow, resume=True)
    check_output_dir(tmp_path / "run", fast, resume=True)


@pytest.mark.parametrize(
    ("launched", "given", "expected"),
    [
        ("bf16", "seed: 1", (True, False, "bf16")),
        ("bf16", "bf16: false", (False, False, "no")),
        ("fp16", "seed: 1", (False, False, "no")),  # which no CPU has
        ("no", "bf16: true", (True, False, "bf16")),
    ],
)
def test_the_precision_of_the_launcher_is_that_of_the_run(
    tmp_path, monkeypatch, launched, given, expected
):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched)
    args = parse(tmp_path, f"use_cpu: true\n{given}", kind=ProgramTrainingArguments)

    # the first two are settings of the run, which a resumed one must have, too
    assert (args.bf16, args.fp16, args.mixed_precision) == expected


@pytest.mark.cuda
def test_on_cuda_the_device_is_not_waited_for(tmp_path):
    fast = parse(tmp_path, "accelerator_config: {even_batches: false}")
    told = parse(tmp_path, "bf16: false", "--accelerator_config", "{non_blocking: false}")

    assert fast.bf16 is torch.cuda.is_bf16_supported(including_emulation=False)
    assert fast.accelerator_config.non_blocking is True
    assert fast.accelerator_config.even_batches is False
    assert told.bf16 is False
    assert told.accelerator_config.non_blocking is False
    assert parse(tmp_path, "fp16: true").bf16 is False


def test_refused_arguments_leave_no_deepspeed_behind(tmp_path):
    """transformers keeps the configuration in a global, by which models are loaded."""
    with pytest.raises(ValueError, match="deepspeed=") as caught:
        FastTrainingArguments(str(tmp_path), deepspeed={"train_batch_size": "?"}, use_cpu=True)

    assert not is_deepspeed_zero3_enabled()
    del caught  # the error keeps the refused arguments until here


def make(tmp_path, **given):
    return ProgramTrainingArguments(str(tmp_path), use_cpu=True, **given)


def plan_of(args):
    strategies = args.eval_strategy.value, args.save_strategy.value
    return *strategies, args.load_best_model_at_end, args.metric_for_best_model


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("steps", "steps", True, "mean")),
        ({"eval_strategy": "epoch"}, ("epoch", "epoch", True, "mean")),
        ({"save_strategy": "epoch"}, ("epoch", "epoch", True, "mean")),
        ({"eval_strategy": "no"}, ("no", "steps", False, None)),
        ({"save_strategy": "epoch", "eval_steps": 2}, ("steps", "epoch", False, None)),
        ({"eval_strategy": "epoch", "save_steps": 2}, ("epoch", "steps", False, None)),
        ({"save_strategy": "no"}, ("steps", "no", False, None)),
        ({"save_strategy": "best"}, ("steps", "best", False, "mean")),
        ({"eval_steps": 10, "save_steps": 20}, ("steps", "steps", False, None)),
        ({"eval_steps": 10, "save_steps": 20, "greater_is_better": True}, (*STEPS, True, "mean")),
        (
            {"eval_steps": 5, "save_steps": 9, "load_best_model_at_end": False},
            (*STEPS, False, None),
        ),
        ({"save_strategy": "no", "metric_for_best_model": "a"}, ("steps", "no", False, "a")),
        ({"load_best_model_at_end": False}, ("steps", "steps", False, None)),
        (PLATEAU | {"load_best_model_at_end": False}, (*STEPS, False, "mean")),
        ({"metric_for_best_model": "a_loss"}, ("steps", "steps", True, "a_loss")),
        (BEST_OF_EPOCHS, ("epoch", "epoch", True, "mean")),
    ],
)
def test_evaluation_and_saving_go_together(tmp_path, given, expected):
    assert plan_of(make(tmp_path, **given)) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"eval_steps": 20, "save_steps": 30, "metric_for_best_model": "mean"},
        {"eval_steps": 20, "save_steps": 30, "greater_is_better": True},
        {"eval_strategy": "steps", "save_strategy": "epoch", "metric_for_best_model": "mean"},
    ],
)
def test_a_metric_of_the_best_weights_needs_an_evaluation_at_each_saving(tmp_path, given):
    with pytest.raises(ValueError, match="load_best_model_at_end requires the sav"):
        make(tmp_path, **given)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"eval_steps": 30}, (30, 30)),
        ({"save_steps": 40, "save_strategy": "steps"}, (40, 40)),
        ({"eval_strategy": "no", "save_steps": 40}, (None, 40)),
    ],
)
def test_one_interval_is_that_of_both(tmp_path, given, steps):
    args = make(tmp_path, **given)

    assert (args.eval_steps if steps[0] else None, args.save_steps) == steps
    assert not args.undecided & {"eval_steps", "save_steps"}


@pytest.mark.parametrize("value", ["true", "false", "runs/mine"])
def test_a_recipe_may_say_that_a_run_goes_on(tmp_path, value):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"{{output_dir: run, use_cpu: true, resume_from_checkpoint: {value}}}")

    (args,) = parse_recipe([ProgramTrainingArguments], [path])

    assert args.resume_from_checkpoint == value


def test_a_folder_that_no_dataset_needs_is_reported(caplog):
    own = {"problem_type": "classification", "train_file": "a.tsv", "text_columns": "text"}
    own |= {"label_column": "label"}
    parse_tasks(FinetuneArguments(tasks=TASKS | {"own": own}, data_dir="data"))
    assert caplog.text == ""
    parse_tasks(FinetuneArguments(tasks={"own": own}, data_dir="data"))
    assert "data_dir='data' has no effect" in caplog.text


@pytest.mark.parametrize("name", sorted(PROVISIONAL))
def test_what_a_recipe_gives_is_decided(tmp_path, name):
    value = {"learning_rate": 2e-3, "num_train_epochs": 2}.get(name, 7)

    args = make(tmp_path, **{name: value})

    assert getattr(args, name) == value
    others = {"save_steps", "eval_steps"} if name.endswith("_steps") else {name}
    assert args.undecided == {*PROVISIONAL, *BEST} - others


def test_settings_leave_open_what_the_rows_decide(tmp_path):
    """A run that resumes has not read its rows when its settings are compared."""
    before, after = make(tmp_path), make(tmp_path)
    after.decide({"learning_rate": 1e-3, "num_train_epochs": 9.0})

    assert describe_settings(after, {}) == describe_settings(before, {})
    assert describe_settings(after, {})["learning_rate"] is None
    assert describe_settings(make(tmp_path, learning_rate=1e-3), {})["learning_rate"] == 1e-3


def test_the_last_weights_stay_if_no_metric_says_which_are_best(tmp_path):
    chosen, given = make(tmp_path), make(tmp_path, load_best_model_at_end=True)
    scheduled = make(tmp_path, **PLATEAU)

    for args in (chosen, given, scheduled):
        args.keep_last_without(["a_loss"])

    assert plan_of(chosen) == ("steps", "steps", False, None)
    assert chosen.greater_is_better is None
    assert plan_of(given) == ("steps", "steps", True, "mean")
    assert plan_of(scheduled) == ("steps", "steps", False, "mean")  # of which it is a plateau


@pytest.mark.parametrize("key", ["do_train", "do_eval", "do_predict", "logging_nan_inf_filter"])
def test_what_would_have_no_effect_is_no_key(tmp_path, key):
    with pytest.raises(ValueError, match=f"unknown key.* '?{key}"):
        parse(tmp_path, f"{key}: false", kind=ProgramTrainingArguments)
