"""What a recipe leaves out has a default that fits the run; what it says stays."""

import pytest

from minbert_cli.arguments import BEST, PROVISIONAL, ProgramTrainingArguments
from minbert_cli.run_folder import describe_settings


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
        ({"save_strategy": "no"}, ("steps", "no", False, None)),
        ({"save_strategy": "best"}, ("steps", "best", False, "mean")),
        ({"eval_steps": 10, "save_steps": 20}, ("steps", "steps", False, None)),
        ({"load_best_model_at_end": False}, ("steps", "steps", False, None)),
        ({"metric_for_best_model": "a_loss"}, ("steps", "steps", True, "a_loss")),
        (
            {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True},
            ("epoch", "epoch", True, "mean"),
        ),
    ],
)
def test_evaluation_and_saving_go_together(tmp_path, given, expected):
    assert plan_of(make(tmp_path, **given)) == expected


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


@pytest.mark.parametrize("name", sorted(PROVISIONAL))
def test_what_a_recipe_gives_is_decided(tmp_path, name):
    value = {"learning_rate": 2e-3, "num_train_epochs": 2}.get(name, 7)

    args = make(tmp_path, **{name: value})

    assert getattr(args, name) == value
    others = {"save_steps", "eval_steps"} if name.endswith("_steps") else {name}
    assert args.undecided == {*PROVISIONAL, *BEST} - others


def test_settings_leave_open_what_the_rows_decide(tmp_path):
    """A run that resumes has not read its rows when its settings are compared."""
    before = make(tmp_path)
    after = make(tmp_path)
    after.decide({"learning_rate": 1e-3, "num_train_epochs": 9.0})

    assert describe_settings(after, {}) == describe_settings(before, {})
    assert describe_settings(after, {})["learning_rate"] is None
    assert describe_settings(make(tmp_path, learning_rate=1e-3), {})["learning_rate"] == 1e-3


def test_the_last_weights_stay_if_no_metric_says_which_are_best(tmp_path):
    chosen, given = make(tmp_path), make(tmp_path, load_best_model_at_end=True)

    for args in (chosen, given):
        args.keep_last_without(["a_loss"])

    assert plan_of(chosen) == ("steps", "steps", False, None)
    assert chosen.greater_is_better is None
    assert plan_of(given) == ("steps", "steps", True, "mean")
