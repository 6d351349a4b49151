"""Changes of a recipe by dotted paths."""

import pytest

from minbert_cli.recipe import check_disjoint, override, split_dotted
from trainers import UsageError

RECIPE = {
    "tasks": {"sst": {"dataset": "sst"}, "sts": {"dataset": "sts", "loss": "bce"}},
    "learning_rate": 1e-4,
    "report_to": ["none"],
}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("learning_rate", 2e-5, RECIPE | {"learning_rate": 2e-5}),
        ("warmup_steps", 0.1, RECIPE | {"warmup_steps": 0.1}),
        (
            "tasks.sts.loss",
            "mse",
            RECIPE | {"tasks": RECIPE["tasks"] | {"sts": {"dataset": "sts", "loss": "mse"}}},
        ),
        (
            "tasks.sts.loss",
            None,
            RECIPE | {"tasks": RECIPE["tasks"] | {"sts": {"dataset": "sts"}}},
        ),
        ("tasks.sts", None, RECIPE | {"tasks": {"sst": {"dataset": "sst"}}}),
        (
            "tasks.sst",
            {"dataset": "x"},
            RECIPE | {"tasks": RECIPE["tasks"] | {"sst": {"dataset": "x"}}},
        ),
        ("tasks", {}, RECIPE | {"tasks": {}}),
        ("report_to", ["a", "b"], RECIPE | {"report_to": ["a", "b"]}),
        ("learning_rate", None, {key: RECIPE[key] for key in ("tasks", "report_to")}),
        ("max_steps", None, RECIPE),
        ("model_config.hidden_size", 8, RECIPE | {"model_config": {"hidden_size": 8}}),
    ],
)
def test_a_path_changes_one_field(path, value, expected):
    assert override("row", RECIPE, {path: value}) == expected


def test_the_recipe_and_the_value_stay_as_they_are():
    value = {"dataset": "sst"}
    changed = override("row", RECIPE, {"tasks.sst": value, "tasks.sst.pooling": "mean"})

    assert changed["tasks"]["sst"] == {"dataset": "sst", "pooling": "mean"}
    assert value == {"dataset": "sst"}
    assert RECIPE["tasks"]["sst"] == {"dataset": "sst"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "tasks.stz.loss",
            r"row: tasks.stz.loss: the recipe has no tasks.stz; did you mean 'sts' or 'sst'\?",
        ),
        (
            "tasks.sts.loss.x",
            "tasks.sts.loss is 'bce', not a mapping; give tasks.sts.loss as a whole",
        ),
        ("report_to.0", r"report_to is \['none'\], not a mapping; give report_to as a whole"),
        ("tasks..loss", "'tasks..loss' is not a path; expected one like tasks.sts.loss"),
        ("", "'' is not a path"),
    ],
)
def test_an_invalid_path_is_refused(path, message):
    with pytest.raises(ValueError, match=message):
        override("row", RECIPE, {path: 1})


@pytest.mark.parametrize(
    ("left", "right", "clash"),
    [
        (["a.b"], ["a.c"], None),
        (["ab"], ["a"], None),
        (["a.b"], ["a.b"], "a.b is set twice"),
        (["a.b"], ["a"], "a.b and a is set twice"),
        (["a"], ["a.b.c"], "a and a.b.c is set twice"),
    ],
)
def test_a_field_has_one_value(left, right, clash):
    if clash is None:
        check_disjoint("row", left, right, "twice")
        return
    with pytest.raises(ValueError, match=f"row: {clash}; leave one out"):
        check_disjoint("row", left, right, "twice")


@pytest.mark.parametrize(
    ("flags", "plain", "dotted"),
    [
        (["--seed", "1"], ["--seed", "1"], {}),
        (["--tasks.sts.loss", "mse", "--seed", "1"], ["--seed", "1"], {"tasks.sts.loss": "mse"}),
        (["--tasks.sts.loss=mse"], [], {"tasks.sts.loss": "mse"}),
        (["--tasks.sts.dropout", "1e-1"], [], {"tasks.sts.dropout": 0.1}),
        (["--tasks.sts.auxiliary"], [], {"tasks.sts.auxiliary": True}),
        (["--tasks.sts.loss", "null"], [], {"tasks.sts.loss": None}),
        (
            ["--output_dir", "runs/a.b", "--seed=1.5"],
            ["--output_dir", "runs/a.b", "--seed=1.5"],
            {},
        ),
    ],
)
def test_flags_with_dots_are_split_from_the_others(flags, plain, dotted):
    assert split_dotted(flags) == (plain, dotted)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--a.b", "1", "2"], "--a.b: expected one value, found 1 2"),
        (["--a.b", "{x: ["], "is not YAML"),
        (["--a.b", "1", "--a.b=2"], "--a.b is given twice"),
    ],
)
def test_a_wrong_flag_with_dots_is_a_usage_error(flags, message):
    with pytest.raises(UsageError, match=message):
        split_dotted(flags)
