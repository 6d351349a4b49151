"""From an experiments file to its runs: what each is, and what is refused before the first."""

import json
from pathlib import Path

import pytest

from minbert_cli import fill_arguments, load_kinds
from minbert_cli.experiment_plan import read_file

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
    "train_tokenizer": True,
    "vocab_size": 100,
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
        return read_file(["experiments.yaml", *flags])[1]

    return plan


def read(run):
    """Read the recipe of a run as its program does."""
    arguments, args = fill_arguments(load_kinds(run.program), run.recipe, where=run.name)
    return vars(args) | vars(arguments)


def read_all(rows):
    return [read(run) for row in rows for run in row.runs.values()]


def test_epochs_of_a_row_replace_the_steps_of_its_recipe(plan, tmp_path):
    (tmp_path / "fine.yaml").write_text(json.dumps(FINETUNING | {"max_steps": 7}))

    first, second = plan({"plain": None, "long": {"overrides": {"num_train_epochs": 2}}})

    assert [run["max_steps"] for run in read_all([first, second])] == [7, -1]


def test_a_row_is_its_recipe_with_folder_and_seed(plan):
    (row,) = plan({"plain": None}, seeds=[3, 1])

    assert list(row.runs) == [3, 1]
    run = row.runs[1]
    assert (run.program, run.name, run.after) == ("finetune", "plain, seed 1", None)
    assert run.folder == Path("out/plain/seed-1")
    recipe = read(run)
    assert {key: recipe[key] for key in FINETUNING} == FINETUNING | {
        "seed": 1,
        "output_dir": "out/plain/seed-1",
    }


def test_row_and_flag_win_over_the_file(plan):
    (row,) = plan(
        {"a": {"overrides": {"tasks.sts.loss": "mse"}, "seeds": [5]}},
        "--warmup-steps=7",
        "--tasks.sst.pooling",
        "max",
        "--use_cpu",
        overrides={"learning_rate": 1, "warmup_steps": 3},
    )

    (recipe,) = read_all([row])
    assert recipe["tasks"] == {
        "sst": {"dataset": "sst", "pooling": "max"},
        "sts": {"dataset": "sts", "loss": "mse"},
    }
    assert (recipe["learning_rate"], recipe["warmup_steps"], recipe["use_cpu"]) == (1, 7, True)


def test_rows_and_seeds_can_be_chosen_on_the_command_line(plan):
    listed = {"a": {}, "b": {"base": "no.yaml"}, "c": {}}
    rows = plan(listed, "--rows", "c,a", "--seeds", "1", "2")

    assert [row.name for row in rows] == ["c", "a"]
    assert [list(row.runs) for row in rows] == [[1, 2]] * 2
    assert list(plan({"a": {"seeds": [5]}}, "--seeds", "1")[0].runs) == [1]
    assert [row.name for row in plan({"a": {}}, "--rows", "{b: {}}")] == ["b"]


def test_equal_pre_training_is_one_run_for_rows_and_seeds(plan):
    step = {"base": "text.yaml", "overrides": {"mlm_probability": 0.2, "objective": "mlm"}}
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
    recipe = read(run.after)
    assert recipe["corpus"] == {"sst": {"dataset": "sst"}}
    assert (recipe["mlm_probability"], recipe["objective"]) == (0.2, "mlm")
    assert recipe["learning_rate"] == 1e-3
    assert recipe["output_dir"] == str(run.after.folder)
    assert read(run)["model_name_or_path"] == str(run.after.folder)
    assert read(run)["model_config"] is None


def test_pre_training_shares_start_and_data(plan):
    (row,) = plan(
        {"a": {"pretrain": {"base": "text.yaml"}}},
        "--model_name_or_path",
        "owner/name",
        "--revision",
        "branch",
        overrides={"data_dir": "data", "weight_decay": 0.1},
    )

    (run,) = row.runs.values()
    recipe, before = read(run), read(run.after)
    assert (before["model_name_or_path"], before["revision"]) == ("owner/name", "branch")
    assert recipe["revision"] is None
    assert before["data_dir"] == recipe["data_dir"] == "data"
    assert (before["weight_decay"], recipe["weight_decay"]) == (0.01, 0.1)
    (row,) = plan({"a": {"pretrain": {"base": "text.yaml"}}}, "--revision", "branch")
    assert read(row.runs[42].after)["revision"] is None  # of a new model
    start = {"model_name_or_path": "owner/name"}
    (row,) = plan({"a": {"pretrain": TEXT}}, "--revision", "branch", overrides=start)
    assert read(row.runs[42].after)["revision"] == "branch"
    other = {"model_name_or_path": "owner/other"}
    new = {"model_name_or_path": None, "train_tokenizer": True}
    for own in (other, other | {"revision": "tag"}, new):
        rows = {"a": {"pretrain": TEXT | {"overrides": own}}}
        (row,) = plan(rows, "--revision", "branch", overrides=start)
        assert read(row.runs[42].after)["revision"] == own.get("revision")


TEXT = {"base": "text.yaml"}
ROWS = [
    ({}, "rows is empty; name at least one"),
    ({"a": {"bse": "x"}}, "row 'a': unknown key 'bse'; did you mean 'base'?"),
    ({"a": {"seeds": []}}, r"row 'a': seeds=\[\]; expected integers"),
    ({"a": {"seeds": [2**32]}}, r"seeds=\[4294967296\]; expected integers"),
    ({"a": {"overrides": {"seed": 1}}}, "row 'a': leave out seed, which"),
    ({"a": {"overrides": {"output_dir": "x"}}}, "row 'a': leave out output_dir"),
    ({"a": {"overrides": {"tasks.stz.loss": "mse"}}}, "has no tasks.stz; did you mean 'sts'"),
    ({"a": {"pretrain": TEXT | {"overrides": {"output_dir": "x"}}}}, "pretrain: leave out output_"),
    ({"a": {"reference": {"sst": 52}}}, r"row 'a': reference: sst=52; .* in \[-1, 1\]"),
    ({"a b": {}, "a-b": {}}, "row 'a-b': its folder 'a-b' is reserved or that of another"),
    ({"pretrained": {}}, "row 'pretrained': its folder 'pretrained' is reserved"),
    ({"a": {"pretrain": {"base": "no.yaml"}}}, "recipe 'no.yaml' is not a file"),
    (
        {"a": {"pretrain": TEXT, "overrides": {"model_config.hidden_size": 1}}},
        "model_config.hidden_size is set by its pre-training; write it into the overrides of pre",
    ),
    (
        {"a": {"pretrain": TEXT, "overrides": {"revision": "x"}}},
        "revision is set by its pre-training",
    ),
]


@pytest.mark.parametrize(("rows", "message"), ROWS)
def test_an_invalid_row_is_refused(plan, rows, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        plan(rows)


def test_sizes_of_all_rows_are_refused_where_a_pre_training_sets_them(plan):
    with pytest.raises(ValueError, match=r"row 'a': model_config\.hidden_size is set by its"):
        plan({"a": {"pretrain": TEXT}}, "--model_config.hidden_size", "8")


def test_a_recipe_of_another_program_is_refused():
    """The messages of the other programs are among the frozen ones."""
    message = "mlm.yaml is not a recipe for minbert experiments; use it with minbert pretrain"
    with pytest.raises(ValueError, match=message):
        read_file([str(Path(__file__).parents[2] / "recipes/mlm.yaml")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learning_rate", "1"], "learning_rate is set on the command line and in the row"),
        (["--rows", "a,b"], "the recipe has no"),
        (["--seed", "3"], "leave out seed, which is .* give seeds"),
        (["--dropout", "1", "--dropout=2"], "--dropout is given twice"),
        (["stray"], "unexpected argument 'stray'"),
    ],
)
def test_a_wrong_flag_is_refused(plan, flags, message):
    with pytest.raises(ValueError, match=message):
        plan({"a": {"overrides": {"learning_rate": 3}}}, *flags)
