"""From an experiments file to its runs."""

import json
import math
from pathlib import Path

import pytest

from minbert_cli.experiments.experiment_arguments import ExperimentArguments, parse_experiments
from minbert_cli.experiments.planning import plan_rows

FINETUNING = {
    "tasks": {"sst": {"dataset": "sst"}, "sts": {"dataset": "sts", "loss": "bce"}},
    "model_config": {"hidden_size": 8},
    "learning_rate": 1e-4,
    "seed": 9,
    "output_dir": "elsewhere",
}
PRETRAINING = {
    "corpus": {"sst": {"dataset": "sst"}},
    "learning_rate": 1e-3,
    "output_dir": "elsewhere",
    "finetune": {"recipe": "x.yaml"},
}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Plan the rows of an experiments file given as a mapping, with flags."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine.yaml").write_text(json.dumps(FINETUNING))
    (tmp_path / "text.yaml").write_text(json.dumps(PRETRAINING))

    def plan(rows, *flags, **keys):
        content = {"output_dir": "out", "base": "fine.yaml", "rows": rows} | keys
        (tmp_path / "experiments.yaml").write_text(json.dumps(content))
        return plan_rows(*parse_experiments(["experiments.yaml", *flags]))

    return plan


def recipes(rows):
    return [run.recipe for row in rows for run in row.runs.values()]


def test_a_row_is_its_recipe_with_folder_and_seed(plan):
    (row,) = plan({"plain": None}, seeds=[3, 1])

    assert list(row.runs) == [3, 1]
    assert row.runs[1].recipe == FINETUNING | {"seed": 1, "output_dir": "out/plain/seed-1"}
    assert row.runs[1].name == "plain, seed 1"
    assert (row.runs[1].program, row.runs[1].after, row.changes) == ("finetune", None, {})


def test_row_and_flag_win_over_the_file(plan):
    (row,) = plan(
        {"a": {"overrides": {"tasks.sts.loss": "mse"}, "seeds": [5]}},
        "--warmup_steps=7",
        "--tasks.sst.pooling",
        "max",
        "--use_cpu",
        overrides={"learning_rate": 1, "warmup_steps": 3},
    )

    (run,) = row.runs.values()
    assert run.recipe["tasks"] == {
        "sst": {"dataset": "sst", "pooling": "max"},
        "sts": {"dataset": "sts", "loss": "mse"},
    }
    assert (run.recipe["learning_rate"], run.recipe["warmup_steps"]) == (1, 7)
    assert run.recipe["use_cpu"] is True
    assert row.changes == {"tasks.sts.loss": "mse"}


def test_rows_and_seeds_can_be_chosen_on_the_command_line(plan):
    rows = plan({"a": {}, "b": {}, "c": {}}, "--rows", "c,a", "--seeds", "1", "2")

    assert [row.name for row in rows] == ["a", "c"]
    assert [list(row.runs) for row in rows] == [[1, 2]] * 2


def finish(*folders):
    for folder in map(Path, folders):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"finished": true, "settings": {}}')


def test_finished_runs_stay_in_the_table_of_a_selection(plan):
    finish("out/a/seed-1", "out/a/seed-4", "out/g-learning_rate=1/seed-2", "out/b/seed-x")
    Path("out/c/seed-5").mkdir(parents=True)  # begun
    listed = {"a": {}, "b": {}, "c": {}, "g": {"search": {"fields": {"learning_rate": [1, 2]}}}}

    rows = plan(listed, "--rows", "b", "--seeds", "3")

    assert {(row.name, seed): run.chosen for row in rows for seed, run in row.runs.items()} == {
        ("a", 1): False,
        ("a", 4): False,
        ("b", 3): True,
        ("g, learning_rate=1", 2): False,
    }


def test_finished_seeds_stay_beside_selected_ones(plan):
    finish("out/a/seed-1", "out/a/seed-2")

    (row,) = plan({"a": {}}, "--seeds", "3", "2")

    assert {seed: run.chosen for seed, run in row.runs.items()} == {3: True, 2: True, 1: False}


def test_an_unselected_row_is_not_checked(plan):
    finish("out/b/seed-1", "out/c/seed-1")
    listed = {"a": {}, "b": {"overrides": {"learning_rate": 1}}, "c": {"base": "no.yaml"}}

    rows = plan(listed, "--rows", "a", "--learning_rate", "2")

    assert [row.name for row in rows] == ["a"]


def test_rows_of_the_command_line_replace_the_file(plan):
    finish("out/a/seed-1")

    rows = plan({"a": {}}, "--rows", "{b: {}}")

    assert [row.name for row in rows] == ["b"]


def test_a_grid_makes_rows_named_by_their_values(plan):
    fields = {"learning_rate": [1e-5, 0.1], "tasks.sts.loss": ["mse", None]}
    rows = plan({"g": {"search": {"fields": fields}}})

    assert [row.name for row in rows] == [
        "g, learning_rate=1e-05, tasks.sts.loss=mse",
        "g, learning_rate=1e-05, tasks.sts.loss=null",
        "g, learning_rate=0.1, tasks.sts.loss=mse",
        "g, learning_rate=0.1, tasks.sts.loss=null",
    ]
    assert [recipe["tasks"]["sts"].get("loss") for recipe in recipes(rows)] == ["mse", None] * 2
    folders = [run.folder.parent.name for row in rows for run in row.runs.values()]
    assert folders[0] == "g-learning_rate=1e-05-tasks.sts.loss=mse"


def test_long_names_have_short_distinct_folders(plan):
    fields = {"metric_for_best_model": ["x" * 300, "x" * 299 + "y"]}
    rows = plan({"g": {"search": {"fields": fields}}})

    names = {run.folder.parent.name for row in rows for run in row.runs.values()}
    assert len(names) == 2
    assert max(map(len, names)) <= 100


def test_random_draws_make_rows(plan):
    fields = {"learning_rate": {"loguniform": [1e-5, 1e-3]}}
    search = {"method": "random", "trials": 3, "seed": 1, "fields": fields}
    rows = plan({"r": {"search": search}})

    rates = [recipe["learning_rate"] for recipe in recipes(rows)]
    assert len(set(rates)) == 3
    assert [row.changes["learning_rate"] for row in rows] == rates
    assert [float(row.name.partition("=")[2]) for row in rows] == rates


def test_equal_pre_training_is_one_run_for_rows_and_seeds(plan):
    step = {"base": "text.yaml", "overrides": {"mlm_probability": 0.2}}
    first, second, other = plan(
        {
            "a": {"pretrain": step},
            "b": {"pretrain": step, "overrides": {"learning_rate": 1}},
            "c": {"pretrain": {"base": "text.yaml"}},
        },
        seeds=[1, 2],
    )

    before = {run.after.folder for row in (first, second) for run in row.runs.values()}
    assert len(before) == 1
    assert {run.after.folder for run in other.runs.values()}.isdisjoint(before)
    run = first.runs[2]
    assert run.after.program == "pretrain"
    assert run.after.recipe == {
        "corpus": {"sst": {"dataset": "sst"}},
        "learning_rate": 1e-3,
        "mlm_probability": 0.2,
        "output_dir": str(run.after.folder),
    }
    assert run.recipe["model_name_or_path"] == str(run.after.folder)
    assert "model_config" not in run.recipe


def test_pre_training_shares_start_and_data(plan):
    (row,) = plan(
        {"a": {"pretrain": {"base": "text.yaml"}}},
        "--model_name_or_path",
        "weights",
        "--pretrain.max_steps",
        "5",
        overrides={"data_dir": "data", "weight_decay": 0.1},
    )

    (run,) = row.runs.values()
    assert run.after.recipe["model_name_or_path"] == "weights"
    assert run.after.recipe["max_steps"] == 5
    assert "max_steps" not in run.recipe
    assert run.after.recipe["data_dir"] == run.recipe["data_dir"] == "data"
    assert "weight_decay" not in run.after.recipe


def test_a_grid_reaches_the_pre_training(plan):
    step = {"base": "text.yaml"}
    search = {"fields": {"pretrain.mlm_probability": [0.1, 0.2]}}
    rows = plan({"g": {"pretrain": step, "search": search}})

    found = [run.after.recipe["mlm_probability"] for row in rows for run in row.runs.values()]
    assert found == [0.1, 0.2]


def test_a_reference_is_kept(plan):
    (row,) = plan({"a": {"reference": {"sst": 0.52, "mean": 1}}})

    assert row.reference == {"sst": 0.52, "mean": 1.0}


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_reference_is_a_number(plan, number):
    plan({"a": {}})
    rows = {"a": {"base": "fine.yaml", "reference": {"sst": number}}}

    with pytest.raises(ValueError, match=f"reference: sst={number}; expected a number in"):
        plan_rows(ExperimentArguments(rows=rows, output_dir="out"))


TEXT = {"base": "text.yaml"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "rows is empty; name at least one"),
        ({"a": {"bse": "x"}}, "row 'a': unknown key 'bse'; did you mean 'base'?"),
        ({"a": 3}, "row 'a': expected keys and values"),
        ({"a": {"search": []}}, r"row 'a': search=\[\]; expected dict"),
        ({"a": {"search": {"fields": {}}}}, "row 'a': search: fields is empty"),
        ({"a": {"search": {"trials": 1.5}}}, "row 'a': search: trials=1.5; expected int"),
        ({"a": {"search": {"trial": 2}}}, "row 'a': search: unknown key 'trial'; did you mean 't"),
        ({"a": {"search": {"method": "x"}}}, "row 'a': search: method='x'; expected"),
        (
            {"a": {"search": {"method": "random", "trials": 2, "fields": {"x": {"choice": [1]}}}}},
            "row 'a': search: trials=2, but only 1",
        ),
        (
            {"a": {"overrides": {"x": 1}, "search": {"fields": {"x": [2]}}}},
            "x is set in the overrides and in",
        ),
        ({"a": {"seeds": []}}, r"row 'a': seeds=\[\]; expected integers"),
        ({"a": {"seeds": [1, 1]}}, "give each seed once"),
        ({"a": {"seeds": [-1]}}, "expected integers from 0"),
        ({"a": {"overrides": {"seed": 1}}}, "row 'a': leave out seed; give seeds"),
        ({"a": {"seeds": [2**32]}}, r"seeds=\[4294967296\]; expected integers"),
        ({"a": {"overrides": {"seed.x": 1}}}, "row 'a': leave out seed; give seeds"),
        ({"a": {"overrides": {"output_dir": "x"}}}, "row 'a': leave out output_dir"),
        ({"a": {"overrides": {"output_dir.x": 1}}}, "row 'a': leave out output_dir.x"),
        (
            {"a": {"search": {"fields": {"resume_from_checkpoint.x": [1]}}}},
            "leave out resume_from_checkpoint.x",
        ),
        ({"a": {"overrides": {"tasks.x.loss": 1}}}, "the recipe has no tasks.x; known: sst, sts"),
        ({"a": {"reference": {"sts-b": 1}}}, "unknown name 'sts-b'; did you mean 'sts'"),
        ({"a": {"reference": {"sst": "52 %"}}}, "reference: sst='52 %'; expected a number"),
        ({"a": {"reference": {"sst": 52}}}, r"reference: sst=52; expected a number in \[-1, 1\]"),
        ({"a b": {}, "a-b": {}}, "rows 'a b' and 'a-b' have the same folder 'out/a-b'"),
        ({"table.md": {}}, "row 'table.md': the folder 'out/table.md' is reserved; rename the row"),
        ({"Runs": {}, "runs.csv ": {}}, "row 'runs.csv ': the folder 'out/runs.csv' is reserved"),
        ({"pretrained": {}}, "row 'pretrained': the folder 'out/pretrained' is reserved"),
        ({"a": {"pretrain": {}}}, "row 'a': pretrain: base is missing"),
        ({"a": {"pretrain": TEXT | {"seeds": [1]}}}, "row 'a': pretrain: unknown key 'seeds'"),
        ({"a": {"overrides": {"pretrain.x": 1}}}, "pretrain.x has no effect without pretrain"),
        (
            {"a": {"pretrain": TEXT, "overrides": {"model_name_or_path": "x"}}},
            "is set by its pre-training; write pretrain.model_name_or_path",
        ),
        (
            {"a": {"pretrain": TEXT, "overrides": {"model_config.hidden_size": 1}}},
            "write pretrain.model_config.hidden_size",
        ),
    ],
)
def test_an_invalid_row_is_refused(plan, rows, message):
    with pytest.raises(ValueError, match=message):
        plan(rows)


def test_a_missing_recipe_is_named(plan):
    with pytest.raises(FileNotFoundError, match=r"row 'a': base: recipe 'no.yaml' is not a file"):
        plan({"a": {"base": "no.yaml"}})
    with pytest.raises(FileNotFoundError, match=r"row 'a': pretrain: base: recipe 'no.yaml'"):
        plan({"a": {"pretrain": {"base": "no.yaml"}}})
    with pytest.raises(ValueError, match="row 'a': base is missing"):
        plan({"a": {}}, base=None)


def test_duplicate_rows_are_refused(tmp_path):
    path = tmp_path / "experiments.yaml"
    path.write_text("output_dir: out\nrows:\n  a: {}\n  a: {}\n")

    with pytest.raises(ValueError, match=r"experiments.yaml:4: duplicate key 'a'"):
        parse_experiments([str(path)])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learning_rate", "1"], "learning_rate is set on the command line and in the row"),
        (["--learning_rate", "1", "2"], "--learning_rate: expected one value, found 1 2"),
        (["--x", "{a: ["], "--x '{a: \\[' is not YAML"),
        (["--processes", "0"], "processes=0; expected 1 to 10,000"),
        (["--rows", "a,b"], "the recipe has no"),
        (["--output_dir="], "output_dir is empty; name a folder"),
        (["--seeds", "4294967296"], "expected integers from 0 to 2"),
        (["stray"], "unexpected argument 'stray'"),
    ],
)
def test_a_wrong_flag_is_refused(plan, flags, message):
    with pytest.raises(ValueError, match=message):
        plan({"a": {"overrides": {"learning_rate": 3}}}, *flags)
