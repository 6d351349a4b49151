"""Searches whose trials depend on earlier ones."""

import csv
import json
from pathlib import Path

import optuna
import pytest
import yaml
from PIL import Image

from minbert_cli.experiments import program as experiments
from minbert_cli.experiments.campaign import Campaign
from minbert_cli.experiments.experiment_arguments import parse_experiments
from minbert_cli.experiments.planning import plan_studies
from minbert_cli.experiments.search.plot import write_trials
from minbert_cli.experiments.search.points import Search
from minbert_cli.experiments.search.study import NAME, Study, open_storage
from minbert_cli.experiments.searching import SearchedRow, describe_settings
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
        assert finish_equal(study) == search.points()


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
    with pytest.raises(ValueError, match=r"study' has trials with other settings .*: tasks\. Res"):
        Study(path, make_search(trials=3), {"tasks": 2})
    with pytest.raises(ValueError, match=r"other settings than this search: seed\. Restore"):
        Study(path, make_search(trials=3, seed=2), {"tasks": 1})
    assert Study(path, make_search(trials=3), {"tasks": 2}, overwrite=True).trials == []


def test_a_search_without_results_can_be_changed(tmp_path):
    begun = Study(tmp_path / "study", make_search(objective="acc"), {}).ask()

    study = Study(tmp_path / "study", make_search(objective="mean"), {})

    assert study.trials == []
    assert study.ask().point == begun.point


def test_reading_a_study_does_not_write(tmp_path):
    finish(Study(tmp_path / "study", make_search(trials=2), {}))
    before = (tmp_path / "study").read_bytes()

    assert len(Study(tmp_path / "study", make_search(trials=2), None).trials) == 2
    assert (tmp_path / "study").read_bytes() == before


@pytest.mark.parametrize("left", [1, 30])
def test_a_line_that_was_not_written_to_its_end_is_lost_alone(tmp_path, left):
    path = tmp_path / "study"
    whole = finish(Study(tmp_path / "whole", make_search(trials=4), {}))
    points = finish(Study(path, make_search(trials=4), {}), 2)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + lines[-1][:left])

    for _ in range(2):
        study = Study(path, make_search(trials=4), {})
        assert [trial.point for trial in study.trials[:2]] == points
    assert [*points, *finish(study)] == whole


@pytest.mark.parametrize("keys", [{"trials": 6}, {"method": "random", "prune": True}])
def test_a_kill_at_any_time_loses_no_point(tmp_path, keys):
    """A study of any first lines ends with the same number of different points."""
    search, whole = make_search(**keys), tmp_path / "whole"
    finish(Study(whole, search, {}), 2)
    lines = whole.read_bytes().splitlines(keepends=True)

    for count in range(len(lines)):
        path = tmp_path / f"{count}"
        path.write_bytes(b"".join(lines[:count]))
        study = Study(path, search, {})
        finish(study)
        points = [trial.point for trial in study.trials]
        assert len(points) == search.trials
        assert all(point not in points[:place] for place, point in enumerate(points))
        assert not any(map(study.is_pruned, study.trials))
        if search.method == "random":
            assert points == search.points()


def test_tpe_tries_every_point_once(tmp_path):
    search = Search(method="tpe", trials=6, fields={"a": [1, 2], "b": [None, "x", [3]]})

    points = finish_equal(Study(tmp_path / "study", search, {}))

    assert sorted(points, key=str) == sorted(Search(fields=search.fields).points(), key=str)


def finish_equal(study):
    """Do trials with the same result; return their points."""
    points = []
    while (trial := study.ask()) is not None:
        study.complete(trial, 0.5)
        points.append(trial.point)
    return points


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


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write an experiments file with a searched and another row."""
    monkeypatch.chdir(tmp_path)
    small_run.write_files(tmp_path)
    recipe = Path(small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))).name

    def write(recipe=recipe, seeds=(1,), **search):
        fields = {"learning_rate": {"loguniform": [1e-3, 1e-1]}}
        search = {"fields": fields, "method": "tpe", "trials": 1, **search}
        overrides = {"num_train_epochs": 1}
        content = {"output_dir": "out", "base": recipe, "seeds": seeds, "overrides": overrides}
        rows = {"plain": {}, "tuned": {"search": search}}
        Path("experiments.yaml").write_text(json.dumps({**content, "rows": rows}))
        return "experiments.yaml"

    write.recipe = recipe
    return write


def plan(file):
    """Return the plan of the searched row of a file."""
    arguments, flags, of_file = parse_experiments([file], experiments.QUICKSTART)
    (found,) = plan_studies(arguments, flags, of_file)
    return found


def test_all_of_a_recipe_but_the_searched_fields_is_a_setting(file):
    fields = {"tasks.moods.dropout": [0.1, 0.2]}
    settings = describe_settings(plan(file(fields=fields, trials=2)))

    recipe = yaml.safe_load(Path(file.recipe).read_text())
    assert settings["tasks"]["moods"] == {
        key: value for key, value in recipe["tasks"]["moods"].items() if key != "dropout"
    }
    assert settings["tasks"].keys() == recipe["tasks"].keys()
    recipe["tasks"]["moods"]["batch_size"] = 3
    Path(file.recipe).write_text(json.dumps(recipe))
    changed = describe_settings(plan(file(fields=fields, trials=2)))
    assert changed != settings
    others = {"tasks.moods.dropout": [0.5]}
    assert describe_settings(plan(file(fields=others))) == changed


def test_an_objective_is_checked_before_any_run(file, capsys):
    path = file(objective="moods_acc")
    with pytest.raises(SystemExit):
        experiments.run([path])
    errors = capsys.readouterr().err
    assert "search: unknown objective 'moods_acc'; did you mean 'moods_accuracy'?" in errors
    with pytest.raises(SystemExit):
        experiments.run([file(objective="moods_loss")])
    assert not Path("out").exists()


@pytest.mark.slow
def test_finished_trials_stay_in_the_table_and_are_those_of_the_search(file, capsys):
    assert experiments.run([file()]) == 0
    table = Path("out/table.md").read_text()
    assert table.count("tuned, learning_rate") == 1

    assert experiments.run(["experiments.yaml", "--rows", "plain"]) == 0
    assert Path("out/table.md").read_text().count("tuned, learning_rate") == 1

    with pytest.raises(SystemExit):
        experiments.run([file(seeds=[1, 2])])
    assert "other settings than this search: seeds. Restore them" in capsys.readouterr().err

    (folder,) = Path("out").glob("tuned-*")
    folder.rename("moved")
    assert experiments.run([file(trials=2)]) == 0
    shown = capsys.readouterr().out
    assert "Search tuned: 2 trials (1 without results in the folder are not in the" in shown
    assert Path("out/table.md").read_text().count("| tuned, learning_rate") == 1

    Path("moved").rename(folder)
    dev = Path("moods-dev.tsv")
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SystemExit):
        experiments.run([file(trials=3), "--rows", "tuned"])
    assert "tuned, learning_rate=" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trial_may_have_several_seeds(file):
    assert experiments.run([file(seeds=[1, 2])]) == 0

    with Path("out/runs.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["row"].startswith("tuned")]
    assert len(rows) == 2


def test_a_resumed_trial_with_other_data_is_a_failure_in_the_table(file):
    search = SearchedRow.open(plan(file()), dict, overwrite=False)
    trial = search.study.ask()

    def refuse(_):
        raise ValueError("other data")

    (run,) = plan(file()).at(trial.point).runs.values()
    run.folder.mkdir(parents=True)
    search.find_states = refuse
    assert not experiments.run_campaign([], Campaign([], {}, {}), Path("out"), [search])
    assert "other data" in Path("out/table.md").read_text()
