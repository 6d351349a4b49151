"""Recipes and flags: reading, writing, overriding, and errors."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest
from transformers import TrainingArguments

from datasets_scripts import CorpusData, TaskData
from minbert_cli import FinetuneArguments, PretrainArguments, format_recipe, read_recipe
from minbert_cli.experiment_plan import check_disjoint
from minbert_cli.recipe import PATHS, override
from tests.small_run import parse_recipe
from trainers import UsageError


@dataclass
class OwnArguments:
    """Fields of every kind that a script of ours has."""

    tasks: dict[str, dict[str, Any]] | None = None
    only: list[str] | None = None
    stop: str = "shortest"
    gamma: float | None = None
    mode: Literal["finetune", "frozen"] = "finetune"


@pytest.fixture
def parse(tmp_path):
    """Parse a recipe given as text, with flags."""

    def parse(text, *flags):
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        argv = [str(path), "--use_cpu", *flags]
        return parse_recipe([OwnArguments, TrainingArguments], argv)

    return parse


def test_a_recipe_fills_every_dataclass(parse):
    text = """
    tasks:
      sst: {dataset: sst, loss_weight: 1e-1}
      mine: {train_file: a.tsv, labels: ["no", "yes"]}
    only: [sst]
    learning_rate: 2e-5
    num_train_epochs: 3
    eval_strategy: no
    bf16: false
    """

    own, args = parse(text)

    assert own.tasks["sst"] == {"dataset": "sst", "loss_weight": 0.1}
    assert own.tasks["mine"]["labels"] == ["no", "yes"]
    assert own.only == ["sst"]
    assert args.learning_rate == 2e-5
    assert args.num_train_epochs == 3.0
    assert args.eval_strategy == "no"
    assert args.use_cpu is True


@pytest.mark.parametrize("flags", [["--stop", "5"], ["--stop=5"], ["--max_steps", "1", "--stop=5"]])
def test_a_flag_can_replace_keys_of_the_recipe(parse, monkeypatch, flags):
    monkeypatch.setattr(OwnArguments, "replaced_keys", {"stop": ("gamma",)}, raising=False)

    assert parse("gamma: 0.5", *flags)[0].gamma is None
    assert parse("gamma: 0.5", *flags, "--gamma", "0.7")[0].gamma == 0.7
    assert parse("gamma: 0.5", "--mode", "frozen")[0].gamma == 0.5
    assert parse("gamma: 0.5", "--stop", "null")[0].gamma == 0.5


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(["--full_determinism"], True), (["--full_determinism", "false"], False), ([], False)],
)
def test_booleans_need_no_value(parse, flags, expected):
    _, args = parse("{max_steps: 1}", *flags)

    assert args.full_determinism is expected


def test_lists_mappings_numbers_as_texts_anchors_and_merges(parse):
    recipe = (
        "use_cpu: null\nstop: 300\ntasks:\n  a: &a {dataset: sst}\n  b: {<<: *a, batch_size: 4}\n"
    )
    own, _ = parse(recipe, "--only", "sst", "sts")
    flag, _ = parse(recipe, "--tasks", "{sst: {batch_size: 8}}")

    assert own.stop == "300"
    assert own.tasks["b"] == {"dataset": "sst", "batch_size": 4}
    assert own.only == ["sst", "sts"]
    assert flag.tasks == {"sst": {"batch_size": 8}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: 2", "unknown key 1"),
        ("only: sst", "only='sst'; expected .*list"),
        ("eval_strategy: never", "eval_strategy='never'; known: no, steps, epoch"),
        ("a: b: c", r"recipe.yaml:1: mapping values are not allowed here"),
    ],
)
def test_mistakes_in_a_recipe_are_named(parse, text, message):
    """The messages of others are among the frozen ones."""
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tasks", "sst"], "--tasks='sst'; expected keys and values, as in {key: value}"),
        (["--tasks", "{sst"], "'{sst' is not YAML"),
        (["second.yaml"], "--use_cpu='second.yaml'; expected true or false"),
    ],
)
def test_mistakes_in_flags_are_named(parse, flags, message):
    with pytest.raises(ValueError, match=message):
        parse("{max_steps: 1}", *flags)


def test_a_flag_selects_tasks_and_changes_one_of_them(parse):
    flags = ["--tasks.sts.loss=null", "--tasks", "sts"]

    assert parse(format_recipe(RECIPE), *flags)[0].tasks == {"sts": {"dataset": "sts"}}
    assert parse(format_recipe(RECIPE), "--tasks", "null")[0].tasks is None
    both = parse(format_recipe(RECIPE), "--tasks", "sts", "sst")[0].tasks
    assert list(both) == ["sts", "sst"]
    with pytest.raises(ValueError, match=r"the recipe has no 'my\.yaml'"):
        parse(format_recipe(RECIPE), "--tasks", "sst", "my.yaml")
    whole = ["--tasks.sst.loss", "mse", "--tasks", "{sst: {dataset: x}}"]
    assert parse(format_recipe(RECIPE), *whole)[0].tasks == {"sst": {"dataset": "x", "loss": "mse"}}


@pytest.mark.parametrize(
    "value",
    [
        *(1e-5, 3.0, 7, True, None, "no", "2e-5", "1e5", "true", "null", "", "a: b # c", "über"),
        [1, "no", None],
        {"sst": {"dataset": "sst", "labels": ["no", "yes"], "score_range": [0, 5.0]}},
        {},
    ],
    ids=repr,
)
def test_what_is_written_is_read_again(tmp_path, value):
    path = tmp_path / "recipe.yaml"

    path.write_text(format_recipe({"first": value, "again": value}), encoding="utf-8")

    assert read_recipe(path) == {"first": value, "again": value}
    assert type(read_recipe(path)["first"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!bool maybe", "a tag does not fit its value"),
        ('a: !!int ""', "a tag does not fit its value"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("[" * 3000, "too many levels"),
        ("a: &a [*a]", "recursive"),
        ("&a {b: *a}", "recursive"),
        ("{a: 1}: 2", "unhashable"),
    ],
    ids=lambda text: text[:20],
)
def test_hostile_yaml_is_one_error(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)

    with pytest.raises(ValueError, match=message):
        read_recipe(path)


def test_paths_of_a_recipe_are_expanded_as_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("DATA", "/data")
    path = tmp_path / "recipe.yaml"
    path.write_text("""
output_dir: ~/runs/one
model_name_or_path: owner/name
run_name: ~
data_dir: $DATA/cs224n
tasks:
  own:
    train_file: ${DATA}/train.tsv
    labels: [~/a, $DATA]
    label_column: $DATA
overrides: {tasks.own.test_file: $DATA/test.tsv}
rows: {a: {base: ~/recipe.yaml}}
unknown_variable: $NO_SUCH/x
resume_from_checkpoint: $NO_SUCH/x
""")

    recipe = read_recipe(path)

    assert recipe == {
        "output_dir": "/home/ann/runs/one",
        "model_name_or_path": "owner/name",
        "run_name": None,
        "data_dir": "/data/cs224n",
        "tasks": {
            "own": {
                "train_file": "/data/train.tsv",
                "labels": ["~/a", "$DATA"],
                "label_column": "$DATA",
            }
        },
        "overrides": {"tasks.own.test_file": "/data/test.tsv"},
        "rows": {"a": {"base": "/home/ann/recipe.yaml"}},
        "unknown_variable": "$NO_SUCH/x",
        "resume_from_checkpoint": "$NO_SUCH/x",
    }


@pytest.mark.parametrize("kind", [TaskData, CorpusData, FinetuneArguments, PretrainArguments])
def test_every_key_of_a_path_is_expanded(kind):
    names = {entry.name for entry in fields(kind)}
    assert {name for name in names if name.endswith(("_file", "_dir", "_path"))} <= PATHS


RECIPE = {
    "tasks": {"sst": {"dataset": "sst"}, "sts": {"dataset": "sts", "loss": "bce"}},
    "learning_rate": 1e-4,
    "report_to": ["none"],
}


TASKS, SST = RECIPE["tasks"], {"sst": {"dataset": "sst"}}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("learning_rate", 2e-5, {"learning_rate": 2e-5}),
        ("tasks.sts.loss", "mse", {"tasks": SST | {"sts": {"dataset": "sts", "loss": "mse"}}}),
        ("tasks.sts.loss", None, {"tasks": SST | {"sts": {"dataset": "sts"}}}),
        ("tasks.sts", None, {"tasks": SST}),
        ("tasks.sst", {"dataset": "x"}, {"tasks": TASKS | {"sst": {"dataset": "x"}}}),
        ("tasks", {}, {"tasks": {}}),
        ("report_to", ["a", "b"], {"report_to": ["a", "b"]}),
        ("max_steps", None, {}),
        ("model_config.hidden_size", 8, {"model_config": {"hidden_size": 8}}),
    ],
)
def test_a_path_changes_one_field(path, value, expected):
    assert override("row", RECIPE, {path: value}) == RECIPE | expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tasks.sts.loss.x", "tasks.sts.loss is 'bce', not a mapping; give tasks.sts.loss as a"),
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
        (["a.b"], ["a.b"], "a.b is set on the command line and in the row"),
        (["a.b"], ["a"], "a.b and a is set on the command line and in the row"),
        (["a"], ["a.b.c"], "a and a.b.c is set on the command line and in the row"),
    ],
)
def test_a_field_has_one_value(left, right, clash):
    if clash is None:
        check_disjoint("row", left, right)
        return
    with pytest.raises(ValueError, match=f"row: {clash}; leave one out"):
        check_disjoint("row", left, right)


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--tasks.sts.loss", "mse", "--seed", "1"], {"loss": "mse"}),
        (["--seed", "1", "--tasks.sts.loss=mse"], {"loss": "mse"}),
        (["--tasks.sts.dropout", "1e-1"], {"loss": "bce", "dropout": 0.1}),
        (["--tasks.sts.auxiliary"], {"loss": "bce", "auxiliary": True}),
        (["--tasks.sts.loss", "null"], {}),
        (["--tasks", "{sst: {dataset: sst}, sts: {dataset: sts}}", "--tasks.sts.x", "1"], {"x": 1}),
        (["--output_dir", "runs/a.b", "--warmup_steps=1.5"], {"loss": "bce"}),
    ],
)
def test_flags_with_dots_change_one_key(parse, flags, changes):
    own, _ = parse(format_recipe(RECIPE), *flags)

    assert own.tasks == SST | {"sts": {"dataset": "sts", **changes}}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--a.b", "1", "2"], "--a.b: expected one value, found 1 2"),
        (["--a.b", "{x: ["], "is not YAML"),
        (["--a.b", "1", "--a.b=2"], "--a.b is given twice"),
    ],
)
def test_a_wrong_flag_with_dots_is_a_usage_error(parse, flags, message):
    with pytest.raises(UsageError, match=message):
        parse(format_recipe(RECIPE), *flags)


TEXTS = (
    *("010", "08", "1:30", "1:30:00.5", "2024-01-02", "2001-12-14t21:59:43.10-05:00", "1_000"),
    *("1_0.5", "0x1F", "0o17", "0b101", "+5", "-0", "-012", "=", "yes", "No", "on", "off", "y"),
)
VALUES = {"7": 7, "-7": -7, "0": 0, "2e-5": 2e-5, "1.5": 1.5, "+1.5": 1.5, "true": True}
VALUES |= {"null": None, "~": None, "": None, ".5": 0.5}


def test_only_numbers_of_json_and_switches_are_no_texts(tmp_path):
    path = tmp_path / "recipe.yaml"
    for text in TEXTS:
        path.write_text(f"x: {text}\nz: [{text}, a]\n{text}: 1\n", encoding="utf-8")
        assert read_recipe(path) == {"x": text, "z": [text, "a"], text: 1}
    for text, value in VALUES.items():
        path.write_text(f"x: {text}\n", encoding="utf-8")
        assert read_recipe(path) == {"x": value}
