"""The flags of finetune.py and what is checked at once."""

import pytest
from transformers import TrainingArguments

from trainers import AggregateEarlyStopping, FinetuneArguments

TASKS = {"sst": {"dataset": "sst"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": {}}, "tasks is empty"),
        ({"tasks": {1: {}}}, "tasks: 1 is no name; put it in quotes"),
        (
            {"tasks": TASKS, "model_name_or_path": "a/b", "model_config": {"hidden_size": 12}},
            "model_name_or_path='a/b' brings its own sizes",
        ),
        (
            {"tasks": TASKS, "max_tokens_per_batch": 0},
            "max_tokens_per_batch=0; expected 1 or more",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FinetuneArguments(**arguments)


def test_no_sizes_go_with_a_checkpoint():
    arguments = FinetuneArguments(TASKS, model_name_or_path="a/b", model_config={})

    assert arguments.model_name_or_path == "a/b"


@pytest.mark.parametrize(("stop", "expected"), [("longest", "longest"), ("300", 300)])
def test_a_stop_policy_is_a_word_or_a_number(stop, expected):
    assert FinetuneArguments(TASKS, stop=stop).parse_stop() == expected


def make_callbacks(tmp_path, patience, **arguments):
    args = TrainingArguments(str(tmp_path), use_cpu=True, **arguments)
    return FinetuneArguments(TASKS, early_stopping_patience=patience).make_callbacks(args)


def test_early_stopping_is_asked_for(tmp_path):
    best = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"}

    (callback,) = make_callbacks(tmp_path, 3, metric_for_best_model="mean", **best)

    assert isinstance(callback, AggregateEarlyStopping)
    assert callback.early_stopping_patience == 3
    assert make_callbacks(tmp_path, None) == []


@pytest.mark.parametrize(
    ("patience", "message"), [(0, "must be 1 or more"), (2, "needs load_best_model_at_end: true")]
)
def test_early_stopping_needs_something_to_watch(tmp_path, patience, message):
    with pytest.raises(ValueError, match=f"early_stopping_patience={patience} {message}"):
        make_callbacks(tmp_path, patience)
