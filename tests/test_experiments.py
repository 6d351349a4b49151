"""``minbert experiments``: checks before a run starts, and two real runs."""

import csv
import json
import signal
from pathlib import Path

import pytest

from minbert_cli.experiments import program as experiments
from minbert_cli.experiments.compare import load_labels
from minbert_cli.experiments.plan import read_file
from tests import small_run
from tests.glue_files import write_glue

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for path in sorted((ROOT / "recipes").glob("*/*.yaml"))
    if "# minbert experiments" in path.read_text(encoding="utf-8")
]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Write the recipe of three small tasks, and go where it is."""
    monkeypatch.chdir(tmp_path)
    small_run.write_files(tmp_path)
    return Path(small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))).name


def plan_runs(argv):
    """Plan all runs of a file, and examples of those of searches."""
    return experiments.order_runs([row for plan in read_file(argv)[1] for row in plan.examples()])


def check(rows, recipe):
    content = {"rows": rows, "output_dir": "out", "base": recipe}
    Path("experiments.yaml").write_text(json.dumps(content))
    return experiments.check_runs(plan_runs(["experiments.yaml"]), 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learning_rte": 1}, "a, seed 42: unknown flag --learning_rte; did you mean '--learning"),
        ({"tasks.moods.losss": "mse"}, "a, seed 42: task 'moods': unknown key 'losss'"),
        ({"tasks.moods.train_file": "no.tsv"}, "a, seed 42: no.tsv: there is no such file"),
        ({"tasks": {}}, "a, seed 42: tasks is empty"),
        ({"learning_rate": "fast"}, "a, seed 42: --learning_rate='fast'; expected a number"),
        (
            {"metric_for_best_model": "x"},
            "a, seed 42: metric_for_best_model: unknown metric 'x'; known: ",
        ),
        ({"push_to_hub": True}, "a, seed 42: push_to_hub would send every row and seed to one"),
        ({"hub_model_id": "me/it"}, "a, seed 42: hub_model_id would .*with `--hub_model_id null`"),
    ],
)
def test_a_field_that_no_recipe_has_is_refused_before_any_run(recipe, overrides, message):
    with pytest.raises(ValueError, match=message):
        check({"good": {}, "a": {"overrides": overrides}}, recipe)

    assert not Path("out").exists()


def test_the_program_leaves_signals_as_they_were(recipe, capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        experiments.main([recipe])  # which has no rows

    assert "minbert experiments: error:" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_grid_is_checked_as_a_whole(recipe):
    with pytest.raises(
        ValueError, match=r"a, learning_rate=b, seed 42: --learning_rate='b'; expected a number"
    ):
        check({"a": {"search": {"fields": {"learning_rate": [1e-3, "b"]}}}}, recipe)


def test_pre_training_is_checked(recipe):
    text = Path("text.yaml")
    text.write_text("corpus: {mine: {dataset: sample_text}}\nobjective: mlm\n")

    with pytest.raises(ValueError, match=r"pre-training text-\w{8}: a new model needs one voc"):
        check({"a": {"pretrain": {"base": "text.yaml"}}}, recipe)
    changes = {"train_tokenizer": True, "vocab_size": 50, "x": 1}
    with pytest.raises(ValueError, match=r"pre-training text-\w{8}: unknown flag --x"):
        check({"a": {"pretrain": {"base": "text.yaml", "overrides": changes}}}, recipe)


@pytest.mark.parametrize(
    "overrides",
    [
        {"tasks.moods.class_weights": [1.0, 2.0]},
        {"tasks.pairs": None},
        {"push_to_hub": False, "hub_model_id": None},
    ],
    ids=str,
)
def test_valid_settings_are_accepted(recipe, overrides):
    assert len(check({"a": {"overrides": overrides}}, recipe)) == 1


def test_settings_equal_the_recorded_ones(recipe):
    (settings,) = check({"a": {"overrides": {"tasks.moods.pooling": "cls"}}}, recipe)

    assert settings["processes"] == 1
    assert settings["tasks"]["moods"]["pooling"] == "cls"
    assert settings["output_dir"] == "out/a/seed-42"
    assert settings["seed"] == 42


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_experiments_file_is_accepted(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    sample = path == experiments.QUICKSTART
    named = "" if sample else f" {path.relative_to(ROOT / 'recipes').with_suffix('')}"
    where = [] if sample else ["--model_name_or_path", "weights", "--data_dir", str(tmp_path)]
    for name in ("ids-sst", "ids-cfimdb", "quora", "sts"):
        for split in ("train", "dev"):
            (tmp_path / f"{name}-{split}.csv").write_text("rows")
    write_glue(tmp_path)

    runs = plan_runs([str(path), *where])
    settings = experiments.check_runs(runs, 1)

    assert first.startswith("# ")
    assert first.endswith(".")
    assert second.startswith(f"# minbert experiments{named}")
    assert len(settings) == len(runs)


@pytest.mark.parametrize("name", ["ablation", "table"])
def test_rows_that_are_compared_have_equal_chances_to_choose_their_weights(name, monkeypatch):
    monkeypatch.chdir(ROOT)

    runs = plan_runs([f"recipes/report/{name}.yaml", "--model_name_or_path", "weights"])

    settings = experiments.check_runs(runs, 1)
    chooses = {
        each["load_best_model_at_end"]
        for run, each in zip(runs, settings, strict=True)
        if run.program == "finetune"
    }
    assert chooses == {False}


def test_auxiliary_tasks_are_not_compared(tmp_path):
    write_glue(tmp_path)
    tasks = {"rte": {"dataset": "rte"}, "cola": {"dataset": "cola", "auxiliary": True}}
    content = {"finished": True, "settings": {"tasks": tasks, "data_dir": str(tmp_path)}}
    (tmp_path / "run.json").write_text(json.dumps(content))

    assert list(load_labels(tmp_path)) == ["rte"]


def test_a_comparison_needs_two_runs(tmp_path):
    with pytest.raises(ValueError, match="expected two folders of runs"):
        experiments.compare([str(tmp_path)])
    with pytest.raises(ValueError, match=r"is not a run; expected a folder with a run.json"):
        experiments.compare([str(tmp_path), str(tmp_path / "other")])
    with pytest.raises(ValueError, match=r"compare needs two runs, but both are"):
        experiments.compare([str(tmp_path), f"{tmp_path}/../{tmp_path.name}"])


def test_rows_are_read_once_and_have_current_fingerprints(recipe, monkeypatch):
    row = {"overrides": {"tasks.moods.max_train_samples": 3, "learning_rate": 1.0}}
    settings = check({"a": {"seeds": [1, 2]}, "b": row}, recipe)
    read = []
    load = experiments.load_task
    monkeypatch.setattr(experiments, "load_task", lambda data: read.append(data.name) or load(data))
    known = {}

    first, other, second = (experiments.find_fingerprints(found, known) for found in settings)

    assert list(first) == ["moods", "pairs", "scores"]
    assert sorted(read) == ["moods", "moods", "pairs", "scores"]
    assert first == second
    assert {name for name in first if first[name] != other[name]} == {"moods"}
    path = Path(settings[0]["tasks"]["pairs"]["train_file"])
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    changed = experiments.find_fingerprints(settings[0], {})
    assert {name for name in first if first[name] != changed[name]} == {"pairs"}


def test_initial_weights_have_a_fingerprint(recipe, tmp_path):
    (settings,) = check({"a": {}}, recipe)
    settings |= {"model_name_or_path": str(tmp_path)}
    (tmp_path / "model.safetensors").write_text("a")
    first = experiments.find_fingerprints(settings, {})
    (tmp_path / "model.safetensors").write_text("b")
    second = experiments.find_fingerprints(settings, {})

    assert {name for name in first if first[name] != second[name]} == {"model_name_or_path"}


def test_a_dry_run_lists_the_runs_and_writes_nothing(recipe, capsys):
    Path("experiments.yaml").write_text(
        json.dumps({"rows": {"a": {}}, "output_dir": "out", "base": recipe, "seeds": [1, 2]})
    )
    before = sorted(Path().iterdir())

    assert experiments.run(["experiments.yaml", "--dry_run"]) == 0

    assert capsys.readouterr().out == "to do    a, seed 1\nto do    a, seed 2\n"
    assert sorted(Path().iterdir()) == before


@pytest.mark.slow
def test_runs_are_done_once_compared_and_skipped(recipe, capsys):
    rows = {
        "plain": {"base": recipe, "reference": {"moods": 0.5}},
        "fast": {"base": recipe, "overrides": {"learning_rate": 0.02, "tasks.pairs.loss": "bce"}},
    }
    content = {"output_dir": "out", "rows": rows, "seeds": [1], "keep_checkpoints": False}
    Path("experiments.yaml").write_text(json.dumps(content))

    status = experiments.run(["experiments.yaml"])

    table = Path("out/table.md").read_text()
    assert status == 0
    assert table in capsys.readouterr().out
    with Path("out/runs.csv").open() as file:
        runs = {run["row"]: run for run in csv.DictReader(file)}
    assert [run["status"] for run in runs.values()] == ["done", "done"]
    found = json.loads(Path("out/fast/seed-1/metrics.json").read_text())["validation"]["metrics"]
    assert float(runs["fast"]["leaderboard"]) == found["leaderboard"]
    assert not list(Path("out").glob("*/*/checkpoint-*"))

    weights = [Path(f"out/{row}/seed-1/model.safetensors") for row in rows]
    before = [path.stat().st_mtime_ns for path in weights]
    status = experiments.run(["experiments.yaml"])

    assert status == 0
    assert capsys.readouterr().out.startswith("done     plain, seed 1\ndone     fast, seed 1\n")
    assert [path.stat().st_mtime_ns for path in weights] == before

    printed = experiments.compare(["out/plain/seed-1", "out/fast/seed-1", "--resamples", "99"])

    lines = [line.split("|")[1:3] for line in printed.splitlines() if line.startswith("| ")][2:]
    assert [task.strip() for task, _ in lines] == ["moods", "pairs", "scores", *["all tasks"] * 2]
