"""The flags of finetune.py and their checks."""

import pytest
import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from minbert_cli.arguments import FinetuneArguments, PretrainArguments
from minbert_cli.recipe import parse_recipe
from minbert_cli.run_folder import describe_settings
from trainers import AggregateEarlyStopping, FastTrainingArguments

TASKS = {"sst": {"dataset": "sst"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": {}}, "tasks is empty"),
        ({"tasks": {1: {}}}, "tasks: 1 is not a name; put it in quotes"),
        (
            {"tasks": TASKS, "model_name_or_path": "a/b", "model_config": {"hidden_size": 12}},
            "model_name_or_path='a/b' determines the sizes",
        ),
        (
            {"tasks": TASKS, "max_tokens_per_batch": 0},
            "max_tokens_per_batch=0; expected a whole number from 1 to",
        ),
        ({"tasks": TASKS, "sampling_cap": 9}, "sampling_cap=9 has no effect with task_sampling="),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FinetuneArguments(**arguments)


@pytest.mark.parametrize("start", [None, "."])
def test_a_revision_is_that_of_a_model_on_the_hub(start):
    with pytest.raises(ValueError, match="revision='v1' has no effect without a model_name_or_pa"):
        FinetuneArguments(tasks=TASKS, model_name_or_path=start, revision="v1")

    assert FinetuneArguments(tasks=TASKS, model_name_or_path="a/b", revision="v1").revision == "v1"


def make_callbacks(tmp_path, patience, **arguments):
    args = TrainingArguments(str(tmp_path), use_cpu=True, **arguments)
    return FinetuneArguments(tasks=TASKS, early_stopping_patience=patience).make_callbacks(args)


def test_early_stopping_is_asked_for(tmp_path):
    best = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"}

    (callback,) = make_callbacks(tmp_path, 3, metric_for_best_model="mean", **best)

    assert isinstance(callback, AggregateEarlyStopping)
    assert callback.early_stopping_patience == 3
    assert make_callbacks(tmp_path, None) == []


@pytest.mark.parametrize(
    ("patience", "message"),
    [(0, "; expected a whole number of at least 1"), (2, " needs load_best_model_at_end: true")],
)
def test_early_stopping_needs_something_to_watch(tmp_path, patience, message):
    with pytest.raises(ValueError, match=f"early_stopping_patience={patience}{message}"):
        make_callbacks(tmp_path, patience)


def parse(tmp_path, recipe, *flags):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"output_dir: run\n{recipe}\n", encoding="utf-8")
    (arguments,) = parse_recipe([FastTrainingArguments], [str(path), *flags])
    return arguments


def test_without_cuda_only_the_logs_differ(tmp_path):
    fast = parse(tmp_path, "use_cpu: true")
    plain = TrainingArguments("run", use_cpu=True)

    ours, theirs = (describe_settings(arguments, {}) for arguments in (fast, plain))
    assert fast.bf16 is False
    assert {name for name in ours if ours[name] != theirs[name]} == {
        "logging_nan_inf_filter",
        "logging_steps",
    }


@pytest.mark.parametrize(
    ("recipe", "flags"),
    [
        ("use_cpu: true\nbf16: true\nlogging_nan_inf_filter: true", []),
        ("use_cpu: true\nbf16: false", ["--bf16", "true", "--logging_nan_inf_filter"]),
        ("use_cpu: true", ["--bf16", "--logging_nan_inf_filter", "true"]),
    ],
)
def test_what_a_user_gives_wins(tmp_path, recipe, flags):
    arguments = parse(tmp_path, recipe, *flags)

    assert arguments.bf16 is True
    assert arguments.logging_nan_inf_filter is True


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


CORPUS = {"mine": {"train_file": "my.txt"}}


@pytest.mark.parametrize("given", ["model_size", "tokenizer_name_or_path"])
def test_a_checkpoint_brings_sizes_and_tokenizer(given):
    with pytest.raises(ValueError, match=f"has its own sizes and tokenizer.*leave {given} out"):
        PretrainArguments(corpus=CORPUS, model_name_or_path="a/b", **{given: "tiny"})


@pytest.mark.parametrize(("given", "expected"), [({}, 0.05), ({"logging_steps": 500}, 500)])
def test_logging_is_a_share_of_the_run_unless_a_number_is_given(tmp_path, given, expected):
    args = FastTrainingArguments(str(tmp_path), use_cpu=True, eval_strategy="steps", **given)

    assert args.logging_steps == expected
    assert args.eval_steps == 500  # the default of transformers


def test_refused_arguments_leave_no_deepspeed_behind(tmp_path):
    """transformers keeps the configuration in a global, by which models are loaded."""
    with pytest.raises(ValueError, match="deepspeed=") as caught:
        FastTrainingArguments(str(tmp_path), deepspeed={"train_batch_size": "?"}, use_cpu=True)

    assert not is_deepspeed_zero3_enabled()
    del caught  # the error keeps the refused arguments until here
