"""Rows whose trials optuna chooses."""

import json
import shutil
from pathlib import Path

import pytest
from tqdm import tqdm

from minbert_cli.experiments import program as experiments
from minbert_cli.experiments.plan import ExperimentArguments, RowPlan, Search
from minbert_cli.experiments.program import RunningSearch, find_point, open_study
from tests import small_run

FIELDS = {"rate": {"loguniform": [1e-5, 1e-1]}, "loss": ["mse", None, "bce"]}
GRID = {"a": [1, "x"], "b": [None, True, 0.5]}


@pytest.fixture
def start(tmp_path):
    """Start a search over a row whose runs are never done."""
    base = tmp_path / "base.yaml"
    base.write_text("tasks: {sst: {dataset: sst}}\n")

    def start(name="row", *, flags=None, overwrite=False, **keys):
        planned = Search(**{"method": "tpe", "trials": 8, "fields": FIELDS, **keys})
        plan = RowPlan(name, tmp_path / name, base, flags or {}, {}, [1], planned)
        started = RunningSearch(plan, overwrite=overwrite)
        started.start()
        return started

    return start


def objective(point):
    """Return the highest value at a rate of 0.001 without a loss."""
    distance = abs(point.get("rate", 0) - 1e-3)
    return 1 - min(distance * 100, 0.5) - 0.2 * (point.get("loss") is not None)


def finish(started, most=100):
    """Do trials; return their points."""
    points = []
    while len(points) < most and (trial := started.ask(set())) is not None:
        point = find_point(started.search, trial)
        started.study.tell(trial.number, objective(point))
        points.append(point)
    return points


def test_an_interrupted_search_has_the_trials_of_an_uninterrupted_one(start):
    whole = finish(start("whole"))

    first = finish(start("parts"), 3)
    begun = find_point(start("parts").search, start("parts").ask(set()))
    rest = finish(start("parts"))

    assert [*first, *rest] == whole
    assert rest[0] == begun
    assert len(whole) == 8


def test_trials_follow_earlier_results(start):
    values = list(map(objective, finish(start(trials=40))))

    assert sum(values[-15:]) / 15 > sum(values[:10]) / 10


def test_a_grid_has_every_combination_once(start):
    points = finish(start(fields=GRID, method="grid", trials=None))

    assert len(points) == 6
    assert {(str(point["a"]), str(point["b"])) for point in points} == {
        (str(a), str(b)) for a in GRID["a"] for b in GRID["b"]
    }


def test_failed_trials_are_resumed_by_the_next_command(start):
    started = start(trials=2)
    failed = started.ask(set())
    started.study.tell(started.ask({failed.number}).number, 0.1)

    assert started.ask({failed.number}) is None
    again = start(trials=2).ask(set())
    assert (again.number, again.params) == (failed.number, failed.params)


def test_a_search_can_be_extended_but_not_changed(start):
    finish(start(trials=2))

    assert len(finish(start(trials=3))) == 1
    with pytest.raises(ValueError, match=r"has trials with other settings .*: flags\. Restore"):
        start(trials=3, flags={"seed": ["--x=1"]})
    with pytest.raises(ValueError, match=r"other settings than this search: seed\. Restore"):
        start(trials=3, seed=2)
    assert start(trials=3, seed=2, overwrite=True).study.trials == []


def test_a_changed_recipe_is_another_search(start, tmp_path):
    finish(start(), 1)
    (tmp_path / "base.yaml").write_text("tasks: {sst: {dataset: sst, loss: mse}}\n")

    with pytest.raises(ValueError, match=r"other settings than this search: recipe\. Restore"):
        start()


def test_a_search_without_results_can_be_changed(start):
    start(objective="acc").ask(set())

    assert start(objective="mean").study.trials == []


@pytest.mark.parametrize("left", [1, 30])
def test_a_line_that_was_not_written_to_its_end_is_lost_alone(start, left):
    whole = finish(start("whole", trials=4))
    points = finish(started := start("row", trials=4), 2)
    path = started.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + lines[-1][:left])

    assert [*points, *finish(start("row", trials=4))] == whole


@pytest.mark.parametrize("method", ["tpe", "random", "grid"])
def test_a_kill_at_any_time_loses_no_trial(start, method):
    """A study of any first lines of its file ends with all trials."""
    keys = {"fields": GRID, "trials": None} if method == "grid" else {"trials": 4}
    keys["method"] = method
    whole = finish(started := start(**keys))
    path = started.path
    lines = path.read_bytes().splitlines(keepends=True)

    for count in range(len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        started = start(**keys)
        finish(started)
        trials = [trial for trial in started.study.trials if trial.state.name == "COMPLETE"]
        points = [find_point(started.search, trial) for trial in trials]
        assert len(points) == len(started.study.trials) == len(whole)
        if method == "grid":
            assert sorted(points, key=str) == sorted(whole, key=str)


def test_a_damaged_file_is_refused(start):
    path = start().path
    path.write_text("no JSON\n" * 3)

    with pytest.raises(ValueError, match=r"cannot be read as a study .*; delete it"):
        start()


def test_reading_a_study_does_not_write(start):
    finish(started := start(), 2)
    path = started.path
    before = path.read_bytes()

    assert "6 of 8 trials, chosen by" in RunningSearch(started.plan).describe()
    assert path.read_bytes() == before


def do(started, monkeypatch, value):
    """Do the trials of a search, all with the same value; return the runs and the failures."""
    runs = []

    def do_runs(planned, states, *_):
        for run in planned:
            runs.append(run)
            states[run.folder] = "done"
            yield run, None

    monkeypatch.setattr(experiments, "do_runs", do_runs)
    metrics = {"validation": {"metrics": {"mean": value}}}
    monkeypatch.setattr(experiments, "read_metrics", lambda _: metrics)
    arguments = ExperimentArguments(rows={"a": {}}, output_dir="out")
    done = list(started.do({}, arguments, tqdm(disable=True)))
    return runs, [failure for _, failure in done if failure]


def test_equal_points_are_run_once_and_bad_values_are_failures(start, monkeypatch):
    started = start(method="random", trials=5, fields={"a": [1, 2]})
    runs, failures = do(started, monkeypatch, 0.5)

    assert [trial.value for trial in started.study.trials] == [0.5] * 5
    assert (len(runs), len(started.rows), failures) == (2, 2, [])

    _, (failure,) = do(start("other", trials=1), monkeypatch, float("nan"))
    assert failure.endswith("failed: mean is nan; expected a number")


def test_optuna_reads_the_study(start):
    started = start(trials=10)
    points = finish(started, 9)

    assert open_study(started.path).best_value == max(map(objective, points))
    assert "9 trials; the best mean is" in started.conclude()


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write an experiments file with a searched and another row."""
    monkeypatch.chdir(tmp_path)
    small_run.write_files(tmp_path)
    recipe = Path(small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))).name

    def write(seeds=(1,), **keys):
        fields = {"learning_rate": {"loguniform": [1e-3, 1e-1]}}
        keys = {"fields": fields, "method": "tpe", "trials": 1, **keys}
        content = {"output_dir": "out", "base": recipe, "seeds": seeds}
        content["overrides"] = {"num_train_epochs": 1}
        rows = {"plain": {}, "tuned": {"search": keys}}
        Path("experiments.yaml").write_text(json.dumps({**content, "rows": rows}))
        return "experiments.yaml"

    return write


def test_an_objective_is_checked_before_any_run(file, capsys):
    with pytest.raises(SystemExit):
        experiments.run([file(objective="moods_acc")])

    errors = capsys.readouterr().err
    assert "search: unknown objective 'moods_acc'; did you mean 'moods_accuracy'?" in errors
    assert not Path("out").exists()


@pytest.mark.slow
def test_finished_trials_stay_in_the_table_and_are_those_of_the_search(file, capsys):
    assert experiments.run([file()]) == 0
    assert Path("out/table.md").read_text().count("| tuned, learning_rate") == 1
    weights = Path("out/tuned/trial-0/seed-1/model.safetensors")
    before = weights.stat().st_mtime_ns

    assert experiments.run([file(trials=2), "--rows", "tuned"]) == 0
    shown = capsys.readouterr().out
    assert "tuned: 1 of 2 trials" in shown
    assert "Search tuned: 2 trials; the best mean is" in shown
    assert Path("out/table.md").read_text().count("| tuned, learning_rate") == 2
    assert weights.stat().st_mtime_ns == before

    with pytest.raises(SystemExit):
        experiments.run([file(seeds=[1, 2])])
    assert "other settings than this search: seeds. Restore them" in capsys.readouterr().err

    dev = Path("moods-dev.tsv")
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SystemExit):
        experiments.run([file(trials=2), "--rows", "tuned"])
    assert "tuned, learning_rate=" in capsys.readouterr().err

    argv = [file(trials=1), "--rows", "tuned", "--overwrite_output_dir", "true"]
    assert experiments.run(argv) == 0
    assert Path("out/table.md").read_text().count("| tuned, learning_rate") == 1
    assert weights.stat().st_mtime_ns > before

    # a trial without its folder counts, and its row is empty
    shutil.rmtree("out/tuned")
    assert experiments.run(argv[:3]) == 0
    assert "tuned: 0 of 1 trials" in capsys.readouterr().out
    assert "| 0 of 1 |" in Path("out/table.md").read_text()
