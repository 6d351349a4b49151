"""``minbert experiments``: checks before a run starts, runs that are skipped, resumed or failed."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from minbert_cli import experiments, finetune
from minbert_cli.experiment_plan import QUICKSTART
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


def check(rows, recipe):
    """Check the runs of rows; returns their settings."""
    Path("rows.yaml").write_text(json.dumps({"rows": rows, "output_dir": "out", "base": recipe}))
    runs = experiments.order_runs(experiments.read_file(["rows.yaml"])[1])
    experiments.find_states(runs)
    return [experiments.check_run(run)[0] for run in runs]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"tasks.moods.losss": "mse"}, "a, seed 42: task 'moods': unknown key 'losss'"),
        ({"tasks.moods.train_file": "no.tsv"}, "a, seed 42: no.tsv: there is no such file"),
        ({"push_to_hub": True}, "a, seed 42: push_to_hub would send every row and seed to one"),
    ],
)
def test_a_wrong_run_is_refused_before_any_run(recipe, overrides, message):
    with pytest.raises(ValueError, match=message):
        check({"good": {}, "a": {"overrides": overrides}}, recipe)

    assert not Path("out").exists()


def test_settings_are_those_that_the_run_itself_records(recipe):
    changes = {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "moods_loss"}
    (settings,) = check({"a": {"overrides": changes}}, recipe)

    (row,) = experiments.read_file(["rows.yaml"])[1]
    assert finetune.finetune(row.runs[42].recipe, is_dry=True).settings == settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_experiments_file_is_accepted(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    sample = path == QUICKSTART
    named = "" if sample else f" {path.relative_to(ROOT / 'recipes').with_suffix('')}"
    where = [] if sample else ["--model_name_or_path", "weights", "--data_dir", str(tmp_path)]
    for name in ("ids-sst", "ids-cfimdb", "quora", "sts"):
        for split in ("train", "dev"):
            (tmp_path / f"{name}-{split}.csv").write_text("rows")
    write_glue(tmp_path)

    rows = experiments.read_file([str(path), *where])[1]
    runs = experiments.order_runs(rows)
    settings = {run.name: experiments.check_run(run)[0] for run in runs}

    assert first.startswith("# ")
    assert first.endswith(".")
    assert second.startswith(f"# minbert experiments{named}")
    if path.stem in ("ablation", "table"):  # equal chances to choose the weights
        compared = [run.name for row in rows if row.reference for run in row.runs.values()]
        best = {settings[name]["load_best_model_at_end"] for name in compared}
        assert best <= {False}


# Replaces the programs: records its call, and follows its recipe.
STUB = """
import json, os, signal, sys
from pathlib import Path
import yaml

recipe = yaml.safe_load(Path(sys.argv[1]).read_text())
folder = Path(recipe["output_dir"])
with open("calls.jsonl", "a") as calls:
    print(json.dumps([recipe["output_dir"], sys.argv[-2]]), file=calls)
if recipe.get("refuse"):
    print("loading 3\\n", file=sys.stderr)
    print("stub: error: " + recipe["refuse"], file=sys.stderr)
    sys.exit(2)
folder.mkdir(parents=True, exist_ok=True)
note = lambda done: (folder / "run.json").write_text(json.dumps(
    {"finished": done, "settings": recipe, "data": {"sst": "x"}}))
note(False)
(folder / "checkpoint-1").mkdir(exist_ok=True)
if recipe.get("die") and not Path("alive").exists():
    print("about to die")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
if recipe.get("hang"):
    Path("begun").open("w").close()  # waits for a reader
    signal.pause()
if recipe.get("forget"):
    sys.exit(0)
content = {"validation": {"metrics": {"sst_accuracy": 0.5}, "rows": {"sst": 9}}, "steps": 1}
content["tasks"] = {"sst": {"problem_type": "classification"}}
(folder / "metrics.json").write_text(json.dumps(content))
note(True)
"""


class Data:
    """Rows of a task."""

    data = "sst"
    fingerprint = "x"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the stub and recipes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    use_stub(monkeypatch.setattr)
    (tmp_path / "stub.py").write_text(STUB)
    (tmp_path / "base.yaml").write_text("tasks: {sst: {dataset: sst}}\n")
    (tmp_path / "text.yaml").write_text("corpus: {sst: {dataset: sst}}\n")
    return tmp_path


def use_stub(replace=setattr):
    """Let runs be the stub, whose settings are its recipe."""
    settings = {"model_name_or_path": None}
    replace(experiments, "program_command", lambda _: [sys.executable, "stub.py"])
    replace(experiments, "check_run", lambda run: (settings | run.recipe, {"sst": Data}))
    replace(experiments, "load_tasks", lambda _: {"sst": Data})


class Stubs:
    """Runs whose programs are the stub."""

    def __init__(self, rows, *flags, seeds=(1, 2)):
        content = {"rows": rows, "output_dir": "out", "base": "base.yaml", "seeds": list(seeds)}
        content["overrides"] = {"model_name_or_path": None}
        Path("rows.yaml").write_text(json.dumps(content))
        self.arguments, self.rows = experiments.read_file(["rows.yaml", *flags])
        self.runs = experiments.order_runs(self.rows)
        self.states = experiments.find_states(self.runs)

    def describe(self):
        return experiments.describe_runs(self.runs, self.states).splitlines()

    def do(self):
        return list(experiments.do_runs(self.arguments, self.rows, self.states).failures)


def calls(folder):
    """Folder and first flag of every start of the stub."""
    path = folder / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_all_rows_have_their_first_seed_first_and_finished_runs_are_skipped(folder):
    assert Stubs({"a": {}, "b": {"seeds": [7]}}).do() == []

    names = [call[0] for call in calls(folder)]
    assert names == [f"out/{name}" for name in ("a/seed-1", "b/seed-7", "a/seed-2")]
    assert "| a | 2 |" in " ".join(Path("out/table.md").read_text().split())

    stubs = Stubs({"a": {}, "c": {}})
    listed = ["done     a, seed 1", "to do    c, seed 1"]
    assert stubs.describe() == [*listed, "done     a, seed 2", "to do    c, seed 2"]
    stubs.do()
    assert [call[0] for call in calls(folder)[3:]] == ["out/c/seed-1", "out/c/seed-2"]
    Stubs({"a": {}, "c": {}}).do()
    assert len(calls(folder)) == 5


@pytest.mark.usefixtures("folder")
def test_a_run_with_different_settings_is_refused():
    Stubs({"a": {}}, seeds=[1]).do()

    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with another learning_rate"):
        Stubs({"a": {"overrides": {"learning_rate": 1}}}, seeds=[1])


@pytest.mark.usefixtures("folder")
def test_a_run_with_different_data_is_refused(monkeypatch):
    Stubs({"a": {}}, seeds=[1]).do()
    assert Stubs({"a": {}}, seeds=[1]).describe() == ["done     a, seed 1"]
    monkeypatch.setattr(Data, "fingerprint", "z")

    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with other data of sst"):
        Stubs({"a": {}}, seeds=[1])


@pytest.mark.parametrize("key", ["teacher", "model_name_or_path"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_run_does_not_stay_done_if_the_one_it_was_made_from_is_made_again(folder, key, order):
    rows = {"a": {}, "b": {"overrides": {key: "out/a/seed-1"}}}
    Stubs(rows, seeds=[1]).do()
    shutil.rmtree(folder / "out/a/seed-1")
    rows = {name: rows[name] for name in order}

    with pytest.raises(ValueError, match="b, seed 1: 'out/b/seed-1' was made from 'out/a/seed-1'"):
        Stubs(rows, seeds=[1])

    shutil.rmtree(folder / "out/b/seed-1")
    assert {line.split()[0] for line in Stubs(rows, seeds=[1]).describe()} == {"to"}


def test_a_killed_run_and_one_with_broken_results_resume(folder):
    rows = {"a": {"overrides": {"die": True}}, "b": {}}

    (failure,) = Stubs(rows, seeds=[1]).do()

    message = "a, seed 1 failed: ended by SIGKILL (often out of memory)\n    about to die\n"
    assert failure.startswith(message)
    (folder / "alive").touch()
    (folder / "out/b/seed-1/metrics.json").write_text("{")
    stubs = Stubs(rows, seeds=[1])
    assert stubs.describe() == ["resumes  a, seed 1", "resumes  b, seed 1"]
    assert stubs.do() == []
    assert calls(folder)[-2] == ["out/a/seed-1", "--resume_from_checkpoint=true"]


def test_a_failure_has_the_last_lines_of_its_log_and_the_others_go_on(folder):
    Stubs({"a": {"overrides": {"refuse": "first"}}}, seeds=[1]).do()

    failures = Stubs({"a": {"overrides": {"refuse": "second"}}, "b": {}}).do()

    assert [failure.partition(" failed")[0] for failure in failures] == ["a, seed 1", "a, seed 2"]
    assert failures[0].splitlines() == [
        "a, seed 1 failed: exit status 2",
        "    loading 3",
        "    stub: error: second",
        f"    full log: {Path('out/a/seed-1.log')}",
    ]
    assert "first" in (folder / "out/a/seed-1.log").read_text()
    assert [call[0] for call in calls(folder)][2::2] == ["out/b/seed-1", "out/b/seed-2"]


def test_shared_pre_training_runs_once_and_right_before_it_is_needed(folder):
    step = {"base": "text.yaml"}

    Stubs({"plain": {}, "a": {"pretrain": step}, "b": {"pretrain": step}}).do()

    starts = [call[0].split("/")[1] for call in calls(folder)]
    assert starts == ["plain", "pretrained", "a", "b", "plain", "a", "b"]


@pytest.mark.slow
def test_runs_are_listed_done_once_and_skipped(recipe, capsys):
    rows = {
        "plain": {"base": recipe, "reference": {"moods": 0.5}},
        "fast": {"base": recipe, "overrides": {"learning_rate": 0.02, "tasks.pairs.loss": "bce"}},
    }
    content = {"output_dir": "out", "rows": rows, "seeds": [1], "keep_checkpoints": False}
    Path("rows.yaml").write_text(json.dumps(content))
    before = sorted(Path().iterdir())

    assert experiments.run(["rows.yaml", "--dry_run"]) == 0

    assert capsys.readouterr().out == "to do    plain, seed 1\nto do    fast, seed 1\n"
    assert sorted(Path().iterdir()) == before

    assert experiments.run(["rows.yaml"]) == 0

    assert Path("out/table.md").read_text() in capsys.readouterr().out
    found = json.loads(Path("out/fast/seed-1/metrics.json").read_text())["validation"]["metrics"]
    assert f"{found['leaderboard']:.4f} |" in Path("out/table.md").read_text()
    assert not list(Path("out").glob("*/*/checkpoint-*"))

    assert experiments.run(["rows.yaml"]) == 0
    assert capsys.readouterr().out.startswith("done     plain, seed 1\ndone     fast, seed 1\n")
