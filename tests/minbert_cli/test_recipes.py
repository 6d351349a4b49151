"""Recipes and flags: reading, writing, overriding, and errors."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from transformers import TrainingArguments

from minbert_cli.arguments import FinetuneArguments
from minbert_cli.recipe import (
    check_disjoint,
    format_recipe,
    override,
    parse_recipe,
    read_recipe,
    split_dotted,
)
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


def test_paths_of_flags_are_expanded_as_in_a_shell(parse, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    task = "{sst: {train_file: ~/a.tsv}}"

    own, args = parse("max_steps: 5", "--output_dir=$HOME/run", "--tasks", task, "--stop", "~")

    assert args.output_dir == "/home/ann/run"
    assert own.tasks == {"sst": {"train_file": "/home/ann/a.tsv"}}
    assert own.stop == "~"


@pytest.mark.parametrize("flags", [["--stop", "5"], ["--stop=5"], ["--max_steps", "1", "--stop=5"]])
def test_a_flag_can_replace_keys_of_the_recipe(parse, monkeypatch, flags):
    monkeypatch.setattr(OwnArguments, "replaced_keys", {"stop": ("gamma",)}, raising=False)

    assert parse("gamma: 0.5", *flags)[0].gamma is None
    assert parse("gamma: 0.5", *flags, "--gamma", "0.7")[0].gamma == 0.7
    assert parse("gamma: 0.5", "--mode", "frozen")[0].gamma == 0.5
    assert parse("gamma: 0.5", "--stop", "null")[0].gamma == 0.5


def test_a_number_in_the_place_of_text_becomes_text(parse):
    own, _ = parse("stop: 300\n")

    assert own.stop == "300"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--full_determinism"], True),
        (["--full_determinism", "true"], True),
        (["--full_determinism", "false"], False),
        ([], False),
    ],
)
def test_booleans_need_no_value(parse, flags, expected):
    _, args = parse("{max_steps: 1}", *flags)

    assert args.full_determinism is expected


def test_tasks_can_be_given_as_a_flag(parse):
    own, _ = parse("{max_steps: 1}", "--tasks", "{sst: {batch_size: 8}}", "--only", "sst", "sts")

    assert own.tasks == {"sst": {"batch_size": 8}}
    assert own.only == ["sst", "sts"]


def test_anchors_and_merges_work(parse):
    own, _ = parse("tasks:\n  a: &a {dataset: sst}\n  b: {<<: *a, batch_size: 4}\n")

    assert own.tasks["b"] == {"dataset": "sst", "batch_size": 4}


def test_no_recipe_takes_the_default_one(tmp_path):
    path = tmp_path / "quickstart.yaml"
    path.write_text("stop: longest\n")

    (own,) = parse_recipe([OwnArguments], ["--gamma", "0.9"], default_recipe=path)
    (plain,) = parse_recipe([OwnArguments], [])

    assert (own.stop, own.gamma) == ("longest", 0.9)
    assert plain == OwnArguments()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lerning_rate: 1", r"recipe.yaml: unknown key 'lerning_rate'; did you mean 'learning"),
        ("1: 2", "unknown key 1"),
        ("learning_rate: fast", "learning_rate='fast'; expected a number"),
        ("learning_rate: [1]", r"learning_rate=\[1\]; expected a number"),
        ("max_steps: 1.5", "max_steps=1.5; expected a whole number"),
        ("max_steps: true", "max_steps=True; expected a whole number"),
        ("bf16: maybe", "bf16='maybe'; expected true or false"),
        ("bf16: 3", "bf16=3; expected true or false"),
        ("use_cpu: null", "use_cpu=None; expected true or false"),
        ("mode: frosen", "mode='frosen'; did you mean 'frozen'"),
        ("only: sst", "only='sst'; expected .*list"),
        ("only: [[sst]]", "only="),
        ("tasks: [sst]", "tasks="),
        ("eval_strategy: never", "eval_strategy='never'; known: no, steps, epoch"),
        ("tasks:\n  sst: {}\n  sst: {}\n", r"recipe.yaml:3: duplicate key 'sst'"),
        ("stop: a\nmode: frozen\nstop: b\n", r"recipe.yaml:3: duplicate key 'stop'"),
        ("tasks:\n  sst: {]\n", r"recipe.yaml:2: "),
        ("a: b: c", r"recipe.yaml:1: mapping values are not allowed here"),
        ("- a", "expected a mapping from keys to values, got a list"),
        ("", "got nothing"),
        ("tasks: !!python/object:os.system {}", "could not determine a constructor"),
    ],
)
def test_mistakes_in_a_recipe_are_named(parse, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lerning_rate", "1"], "unknown flag --lerning_rate; did you mean '--learning_rate'"),
        (["--learn", "1"], "unknown flag --learn"),
        (["--learning_rate", "fast"], "--learning_rate='fast'; expected a number"),
        (["--max_steps"], "--max_steps: expected a value"),
        (["--tasks", "sst"], "'sst' is not a mapping; write it as '{key: value}'"),
        (["--tasks", "{sst"], "'{sst' is not YAML"),
        (["second.yaml"], "--use_cpu='second.yaml'; expected true or false"),
    ],
)
def test_mistakes_in_flags_are_named(parse, flags, message):
    with pytest.raises(ValueError, match=message):
        parse("{max_steps: 1}", *flags)


def test_a_flag_with_dots_changes_one_key_of_a_mapping(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("output_dir: x\ntasks:\n  a: {dataset: sst, loss: mse}\n  b: {dataset: sts}\n")
    flags = ["--tasks.a.batch_size", "8", "--tasks.a.loss=null", "--tasks.b.max_length", "64"]

    arguments, _ = parse_recipe((FinetuneArguments, TrainingArguments), [str(path), *flags])

    assert arguments.tasks == {
        "a": {"dataset": "sst", "batch_size": 8},
        "b": {"dataset": "sts", "max_length": 64},
    }
    chosen, _ = parse_recipe(
        (FinetuneArguments, TrainingArguments), [str(path), *flags, "--tasks", "a"]
    )
    assert chosen.tasks == {"a": {"dataset": "sst", "batch_size": 8}}


def test_a_flag_for_another_model_leaves_the_revision_of_the_recipe_out(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "output_dir: x\ntasks: {a: {dataset: sst}}\nmodel_name_or_path: own/one\nrevision: v1\n"
    )
    classes, flags = (FinetuneArguments, TrainingArguments), ["--model_name_or_path", "own/two"]

    assert parse_recipe(classes, [str(path)])[0].revision == "v1"
    assert parse_recipe(classes, [str(path), *flags])[0].revision is None
    assert parse_recipe(classes, [str(path), *flags, "--revision", "v2"])[0].revision == "v2"


@pytest.mark.parametrize(
    "value",
    [
        1e-5,
        3.0,
        7,
        True,
        None,
        "no",
        "2e-5",
        "1e5",
        "true",
        "null",
        "",
        "a: b # c",
        "über",
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


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!bool maybe", "a tag does not fit its value"),
        ('a: !!int ""', "a tag does not fit its value"),
        ("a: !!float x", "a tag does not fit its value"),
        ("a: !!timestamp x", "a tag does not fit its value"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("[" * 3000, "nested deeper than 50"),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50"),
        ("a: &a [*a]", "nested deeper than 50"),
        ("a: &a {b: *a}", "nested deeper than 50"),
        (BOMB, "more than 100,000 values"),
        ("a: " + "x" * 1_000_001, "longer than 1,000,000 characters"),
        ("a: \x00", "not a YAML file in UTF-8"),
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
    extra_files: {validation_hard: ~/hard.tsv}
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
                "extra_files": {"validation_hard": "/home/ann/hard.tsv"},
                "labels": ["~/a", "$DATA"],
                "label_column": "$DATA",
            }
        },
        "overrides": {"tasks.own.test_file": "/data/test.tsv"},
        "rows": {"a": {"base": "/home/ann/recipe.yaml"}},
        "unknown_variable": "$NO_SUCH/x",
        "resume_from_checkpoint": "$NO_SUCH/x",
    }


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
