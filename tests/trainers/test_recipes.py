"""Recipes and flags: reading and errors."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from transformers import TrainingArguments

from minbert_cli.arguments import FinetuneArguments
from minbert_cli.recipe import parse_recipe


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


def test_flags_win_over_the_recipe(parse):
    own, args = parse("max_steps: 5\nstop: longest\n", "--max_steps", "7", "--stop=300")

    assert (args.max_steps, own.stop) == (7, "300")


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


def test_optional_booleans_need_no_value_either(parse):
    _, args = parse("{max_steps: 1}", "--ddp_find_unused_parameters", "--max_steps", "2")

    assert args.ddp_find_unused_parameters is True


def test_tasks_can_be_given_as_a_flag(parse):
    own, _ = parse("{max_steps: 1}", "--tasks", "{sst: {batch_size: 8}}", "--only", "sst", "sts")

    assert own.tasks == {"sst": {"batch_size": 8}}
    assert own.only == ["sst", "sts"]


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("a, b", ["a, b"]),
        ("c,a, b", ["c", "a, b"]),
        ("a , c", ["a", "c"]),
        ("a, b, c,a", ["a, b, c", "a"]),
        ("d: e, f", ["d: e, f"]),
        ("[g], c", ["[g]", "c"]),
    ],
)
def test_names_with_commas_can_be_chosen(parse, flag, expected):
    names = ["a", "a, b", "a, b, c", "c", "d: e, f", "[g]"]
    text = json.dumps({"tasks": {name: {} for name in names}})

    own, _ = parse(text, "--tasks", flag)

    assert list(own.tasks) == expected


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


def test_a_missing_recipe_is_named():
    with pytest.raises(FileNotFoundError, match=r"recipe 'nope.yaml' is not a file; expected"):
        parse_recipe([OwnArguments], ["nope.yaml"])


def test_a_recipe_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"stop: \xff\xfe")

    with pytest.raises(ValueError, match="not a YAML file in UTF-8"):
        parse_recipe([OwnArguments], [str(path)])


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


def test_a_flag_with_dots_names_a_part_that_is_there(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("output_dir: x\ntasks:\n  a: {dataset: sst}\n")

    with pytest.raises(ValueError, match=r"tasks\.c\.loss: the recipe has no tasks\.c; known: a"):
        parse_recipe((FinetuneArguments, TrainingArguments), [str(path), "--tasks.c.loss", "mse"])


def test_a_flag_for_another_model_leaves_the_revision_of_the_recipe_out(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "output_dir: x\ntasks: {a: {dataset: sst}}\nmodel_name_or_path: own/one\nrevision: v1\n"
    )
    classes, flags = (FinetuneArguments, TrainingArguments), ["--model_name_or_path", "own/two"]

    assert parse_recipe(classes, [str(path)])[0].revision == "v1"
    assert parse_recipe(classes, [str(path), *flags])[0].revision is None
    assert parse_recipe(classes, [str(path), *flags, "--revision", "v2"])[0].revision == "v2"
