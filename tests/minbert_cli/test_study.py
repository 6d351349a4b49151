"""Searches whose trials depend on earlier ones."""

import csv
import json
from pathlib import Path

import optuna
import pytest
from PIL import Image

from minbert_cli.experiments import program as experiments
from minbert_cli.experiments.search.plot import write_trials
from minbert_cli.experiments.search.points import Search
from minbert_cli.experiments.search.study import NAME, Study, open_storage
from tests import small_run

FIELDS = {"rate": {"loguniform": [1e-5, 1e-1]}, "loss": ["mse", None, {"a": [1]}]}


def make_search(**keys):
    return Search(**{"method": "tpe", "trials": 12, "fields": FIELDS, **keys})


def objective(point):
    """Return the highest value at a rate of 0.001 without a loss."""
    distance = abs(json.loads(json.dumps(point["rate"])) - 1e-3)
    return 1 - min(distance * 100, 0.5) - 0.2 * (point["loss"] is not None)


def finish(study, most=100):
    """Do trials; return their points."""
    points = []
    while len(points) < most and (trial := study.ask()) is not None:
        study.complete(trial, objective(trial.point))
        points.append(trial.point)
    return points


def test_an_interrupted_search_has_the_trials_of_an_uninterrupted_one(tmp_path):
    whole = finish(Study(tmp_path / "whole", make_search(), {}))

    first = finish(Study(tmp_path / "parts", make_search(), {}), 5)
    begun = Study(tmp_path / "parts", make_search(), {}).ask()
    rest = finish(Study(tmp_path / "parts", make_search(), {}))

    assert [*first, *rest] == whole
    assert rest[0] == begun.point
    assert len(whole) == 12


def test_trials_follow_earlier_results(tmp_path):
    study = Study(tmp_path / "study", make_search(trials=40), {})

    points = finish(study)

    late = [objective(point) for point in points[-15:]]
    early = [objective(point) for point in points[:10]]
    assert sum(late) / 15 > sum(early) / 10
    assert study.best.value == max(map(objective, points))
    assert study.importances().keys() == FIELDS.keys()


def test_a_grid_and_random_draws_have_the_points_that_they_have_without_a_study(tmp_path):
    grid = Search(fields={"a": [1, "x"], "b": [None, [2]]}, prune=True)
    draws = make_search(method="random", prune=True)

    for search in (grid, draws):
        study = Study(tmp_path / search.method, search, {})
        points = []
        while (trial := study.ask()) is not None:
            study.complete(trial, 0.5)
            points.append(trial.point)
        assert points == search.points()


def test_values_have_few_digits(tmp_path):
    points = finish(Study(tmp_path / "study", make_search(), {}))

    assert all(point["rate"] == float(f"{point['rate']:.4g}") for point in points)


def test_failed_trials_are_resumed_by_the_next_command(tmp_path):
    study = Study(tmp_path / "study", make_search(trials=2), {})
    failed = study.ask()

    other = study.ask([failed.number])
    study.complete(other, 0.1)

    assert study.ask([failed.number]) is None
    assert Study(tmp_path / "study", make_search(trials=2), {}).ask() == failed


def test_a_search_can_be_extended_but_not_changed(tmp_path):
    path = tmp_path / "study"
    finish(Study(path, make_search(trials=2), {"tasks": 1}))

    assert len(finish(Study(path, make_search(trials=3), {"tasks": 1}))) == 1
    with pytest.raises(ValueError, match=r"study' has trials with other settings than this sea"):
        Study(path, make_search(trials=3), {"tasks": 2})
    with pytest.raises(ValueError, match="other settings"):
        Study(path, make_search(trials=3, seed=2), {"tasks": 1})
    assert Study(path, make_search(trials=3), {"tasks": 2}, overwrite=True).trials == []


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "study").write_text("no JSON\n" * 3)

    with pytest.raises(ValueError, match=r"study' cannot be read as a study .*; delete it"):
        Study(tmp_path / "study", make_search(), {})


def test_an_objective_must_be_a_number(tmp_path):
    study = Study(tmp_path / "study", make_search(), {})

    with pytest.raises(ValueError, match="is nan; expected a number"):
        study.complete(study.ask(), float("nan"))


def test_optuna_reads_the_study(tmp_path):
    study = Study(tmp_path / "study", make_search(direction="minimize", trials=3), {})
    finish(study)

    theirs = optuna.load_study(study_name=NAME, storage=open_storage(tmp_path / "study"))

    assert theirs.best_value == study.best.value
    assert theirs.best_trial.user_attrs["point"] == study.best.point


def test_trials_are_written_as_a_table_and_a_picture(tmp_path):
    study = Study(tmp_path / "study", make_search(trials=10), {})
    finish(study, 9)
    pruned = study.ask()
    trial = optuna.trial.Trial(study._study, study._study.trials[pruned.number]._trial_id)
    trial.report(0.25, 1)
    study._study.tell(pruned.number, state=optuna.trial.TrialState.PRUNED)

    write_trials(study, tmp_path, "tuned")

    with (tmp_path / "tuned.trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete"] * 9 + ["pruned"]
    assert [row["mean"] for row in rows][-1] == ""
    assert rows[-1]["evaluations"] == "0.2500"
    assert float(rows[0]["rate"]) == study.trials[0].point["rate"]
    with Image.open(tmp_path / "tuned.trials.png") as picture:
        assert picture.size > (1000, 300)


@pytest.mark.slow
def test_a_bad_trial_is_stopped_early_and_a_finished_search_is_skipped(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    small_run.write_files(tmp_path)
    recipe = Path(small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))).name
    # five good rates, of which none is stopped, and one that learns nothing
    rates = [0.01, 0.011, 0.012, 0.013, 0.014, 1e-9]
    search = {"fields": {"learning_rate": rates}, "prune": True}
    overrides = {"num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "epoch"}
    content = {"output_dir": "out", "base": recipe, "seeds": [1], "overrides": overrides}
    Path("experiments.yaml").write_text(
        json.dumps({**content, "rows": {"tuned": {"search": search}}})
    )

    assert experiments.run(["experiments.yaml"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("to do    tuned: 6 of 6 trials, stopped early below their median")
    assert "Search tuned: 5 trials, 1 more stopped early; the best mean is 0." in printed
    table = Path("out/table.md").read_text()
    assert "learning_rate=0.014" in table
    assert "learning_rate=1e-09" not in table
    stopped = Path("out/tuned-learning_rate=1e-09/seed-1")
    assert not list(stopped.glob("checkpoint-*"))
    assert not (stopped / "metrics.json").exists()
    before = (Path("out/tuned-learning_rate=0.01/seed-1") / "metrics.json").stat().st_mtime_ns

    assert experiments.run(["experiments.yaml"]) == 0

    assert "tuned: 0 of 6 trials" in capsys.readouterr().out
    after = (Path("out/tuned-learning_rate=0.01/seed-1") / "metrics.json").stat().st_mtime_ns
    assert after == before
    assert Path("out/table.md").read_text() == table
