"""The table of experiments."""

import csv
import json
import os

import numpy as np
import pytest
from matplotlib.image import imread
from scipy import stats

from minbert_cli.experiments import table as tables
from minbert_cli.experiments.campaign import Failure
from minbert_cli.experiments.plan import read_file
from minbert_cli.experiments.table import ExperimentTable, Summary, plot_table

KINDS = {"sst": "classification", "sts": "similarity"}
SEEDS = (1, 2, 3)
FOUND = {
    "plain": {1: (0.50, 0.80), 2: (0.53, 0.82), 3: (0.47, 0.87)},
    "better": {1: (0.60, 0.90)},
}


def write_run(folder, sst, sts, tasks=KINDS):
    """Write the metrics of a run of two tasks."""
    folder.mkdir(parents=True)
    metrics = {"sst_accuracy": sst, "sst_macro_f1": 0.1, "sts_pearson": sts, "sts_spearman": 0.2}
    metrics |= {"mean": (sst + sts) / 2, "leaderboard": (sst + (sts + 1) / 2) / 2}
    content = {
        "validation": {"metrics": metrics},
        "tasks": {task: {"problem_type": kind} for task, kind in tasks.items()},
        "steps": 12,
    }
    (folder / "metrics.json").write_text(json.dumps(content))
    write_settings(folder)


def write_settings(folder, tasks=KINDS, **more):
    """Write what a run was made from."""
    content = {"finished": True, "settings": {"tasks": {task: {} for task in tasks}}}
    (folder / "run.json").write_text(json.dumps(content | more))


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make the table of two rows; runs that FOUND lacks are to do."""
    monkeypatch.chdir(tmp_path)
    recipe = {"tasks": {"sst": {"dataset": "sst"}, "sts": {"dataset": "sts"}}}
    (tmp_path / "base.yaml").write_text(json.dumps(recipe))

    def make(reference=None, failed=()):
        keys = {"plain": {"reference": reference}, "better": {"overrides": {"learning_rate": 1}}}
        file = {"rows": keys, "output_dir": "out", "base": "base.yaml", "seeds": SEEDS}
        (tmp_path / "rows.yaml").write_text(json.dumps(file))
        rows = [plan.at({}) for plan in read_file(["rows.yaml"])[1]]
        waiting, failures = [], {}
        for row in rows:
            for seed, run in row.runs.items():
                if seed in FOUND[row.name]:
                    write_run(run.folder, *FOUND[row.name][seed])
                elif (row.name, seed) in failed:
                    log = run.folder.with_suffix(".log")
                    failures[run.folder] = Failure("failed: exit status 1", log, ("ValueError: x",))
                else:
                    waiting.append(run.folder)
        names = {run.folder: run.name for row in rows for run in row.runs.values()}
        return ExperimentTable(rows, failures, waiting, names)

    return make


def list_waiting(table):
    """List the runs of a table that are still to do."""
    folders = [run.folder for row in table.rows for run in row.runs.values()]
    return [folder for folder in folders if folder not in table.results]


def cells(text):
    """Read a Markdown table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_mean_and_sample_standard_deviation_equal_numpy(make):
    head, _, plain, better = cells(make().markdown())

    assert head == ["row", "seeds", "sst accuracy", "sts pearson", "mean", "leaderboard"]
    values = np.array(list(FOUND["plain"].values()))
    means, deviations = values.mean(axis=0), values.std(axis=0, ddof=1)
    expected = [f"{a:.4f} ± {b:.4f}" for a, b in zip(means, deviations, strict=True)]
    assert plain[:4] == ["plain", "3", *expected]
    board = (values[:, 0] + (values[:, 1] + 1) / 2) / 2
    assert plain[5] == f"{board.mean():.4f} ± {board.std(ddof=1):.4f}"
    assert better == ["better", "1 of 3", "0.6000", "0.9000", "0.7500", "0.7750"]


def test_reference_numbers_stand_beside_ours(make):
    head, _, plain, better = cells(make({"sst": 0.4, "mean": 0.6}).markdown())

    assert head[2:7] == ["sst accuracy", "reference", "sts pearson", "mean", "reference"]
    assert (plain[3], plain[6]) == ("0.4000", "0.6000")
    assert (better[3], better[6]) == ("", "")


def test_a_row_without_results_has_its_reference(make, monkeypatch):
    monkeypatch.setitem(FOUND, "plain", {})

    text = make({"sst": 0.4, "sts": 0.6}).markdown()

    assert cells(text)[2][2:6] == ["", "0.4000", "", "0.6000"]


def test_aggregates_of_different_tasks_are_reported(make):
    table = make()
    assert "can be compared" not in table.markdown()
    folder = table.rows[1].runs[1].folder
    settings = {"tasks": {"sst": {"auxiliary": True}, "sts": {}}}
    (folder / "run.json").write_text(json.dumps({"finished": True, "settings": settings}))

    note = "these rows differ from the first, which has sst, sts: better."
    assert note in table.markdown()


def test_rows_of_different_code_than_the_newest_run_are_named(make):
    table = make()
    plain, better = table.rows
    for time, (run, code) in enumerate(
        [(plain.runs[1], "x"), (plain.runs[2], None), (plain.runs[3], "x"), (better.runs[1], "x")]
    ):
        write_settings(run.folder, **({} if code is None else {"code": code}))
        os.utime(run.folder / "run.json", (time, time))
    note = "Made with different code than the newest run, or with unknown code: "

    assert f"{note}plain. To repeat" in table.markdown()
    write_settings(plain.runs[2].folder, code="x")
    assert note not in table.markdown()
    write_settings(plain.runs[2].folder, code="y")
    assert f"{note}plain; better. To repeat" in table.markdown()


def test_failures_are_under_the_table(make):
    text = make(failed=[("better", 2)]).markdown()

    assert "better, seed 2 failed: exit status 1\n    ValueError: x\n" in text
    assert "full log: out/better/seed-2.log" in text
    assert "Repeat the command to retry failed runs" in text


def test_there_is_a_line_for_every_run_and_every_row(make, tmp_path):
    make({"sst": 0.4}, failed=[("better", 2)]).write(tmp_path)

    with (tmp_path / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert [run["status"] for run in runs] == ["done"] * 4 + ["failed", "to do"]
    assert (runs[1]["row"], runs[1]["seed"]) == ("plain", "2")
    assert (runs[1]["sst_accuracy"], runs[1]["sts_spearman"]) == ("0.53", "0.2")
    assert runs[4]["sst_accuracy"] == ""
    assert json.loads(runs[3]["changes"]) == {"learning_rate": 1}
    with (tmp_path / "table.csv").open() as file:
        plain, better = csv.DictReader(file)
    assert float(plain["sst_accuracy_sd"]) == pytest.approx(0.03)
    assert plain["sst_accuracy_reference"] == "0.4"
    assert (plain["sts_pearson_seeds"], better["sts_pearson_seeds"]) == ("3", "1")
    assert better["sts_pearson_sd"] == ""


def test_the_picture_is_light_and_has_something_on_it(make, tmp_path):
    make({"sst": 0.4}).write(tmp_path)

    image = imread(tmp_path / "table.png")[..., :3]
    assert image[0, 0].tolist() == [1, 1, 1]
    assert 0.005 < (image.min(axis=-1) < 0.5).mean() < 0.5


def test_a_difference_has_the_interval_of_welch():
    baseline, row = Summary({1: 0.50, 2: 0.52, 3: 0.51}), Summary({1: 0.53, 2: 0.55})

    text = row.describe_change(baseline)

    # standard error sqrt(0.01^2 / 3 + 0.0141421^2 / 2), 1.67 degrees of freedom
    low, high = map(float, text.partition("[")[2].rstrip("]").split(","))
    degrees = (1e-4 / 3 + 2e-4 / 2) ** 2 / ((1e-4 / 3) ** 2 / 2 + (2e-4 / 2) ** 2 / 1)
    half = stats.t.ppf(0.975, degrees) * (1e-4 / 3 + 2e-4 / 2) ** 0.5
    assert text.startswith("n=2  +0.0300 [")
    assert (low, high) == pytest.approx((0.03 - half, 0.03 + half), abs=1e-4)


def test_equal_scores_of_all_seeds_are_no_problem():
    baseline, row = Summary({1: 17 / 30, 2: 17 / 30}), Summary({1: 17 / 30, 2: 17 / 30 + 0.02})

    # standard error sqrt(2e-4 / 2), one degree of freedom, whose 97.5 % quantile is 12.706
    assert row.describe_change(baseline) == "n=2  +0.0100 [-0.1171, +0.1371]"


@pytest.mark.parametrize(
    ("row", "baseline", "text"),
    [
        ({1: 0.5}, {1: 0.4, 2: 0.4}, "n=1  +0.1000"),
        ({1: 0.5, 2: 0.5}, {1: 0.4}, "n=2  +0.1000"),
        ({1: 0.5, 2: 0.5}, {}, "n=2"),
        ({}, {1: 0.4}, ""),
    ],
)
def test_one_seed_has_no_interval(row, baseline, text):
    assert Summary(row).describe_change(Summary(baseline)) == text


@pytest.mark.parametrize("name", ["$5 a row", "a $x_{ and } $", "$\\no_formula$", "50 % _x_ ^2"])
def test_a_name_in_the_picture_is_no_formula(tmp_path, name):
    plot_table([name], [{f"{name} accuracy": Summary({1: 0.5})}], tmp_path / "table.png")

    assert (tmp_path / "table.png").is_file()


def test_a_failed_picture_is_logged_and_costs_nothing_else(make, tmp_path, monkeypatch, caplog):
    (tmp_path / "table.png").touch()

    def fail(*_):
        raise ValueError("no font")

    monkeypatch.setattr(tables, "plot_table", fail)

    make().write(tmp_path)

    assert "table.png could not be drawn; the numbers are in table.csv" in caplog.text
    assert not (tmp_path / "table.png").exists()
    assert (tmp_path / "table.csv").is_file()


def test_many_rows_have_a_note_instead_of_a_picture(make, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST_DRAWN", 1)

    make().write(tmp_path)

    assert not (tmp_path / "table.png").exists()
    assert "\n2 rows are too many for a picture" in (tmp_path / "table.md").read_text()


def test_without_any_result_there_is_no_picture(make, tmp_path, monkeypatch):
    monkeypatch.setitem(FOUND, "plain", {})
    monkeypatch.setitem(FOUND, "better", {})

    make().write(tmp_path)

    assert not (tmp_path / "table.png").exists()
    assert cells((tmp_path / "table.md").read_text())[2] == ["plain", "0 of 3"]


def test_a_result_that_cannot_be_read_is_named(make):
    table = make()
    folder = table.rows[0].runs[1].folder
    (folder / "metrics.json").write_text("{")

    with pytest.raises(ValueError, match=r"metrics.json' cannot be read .*; repeat the run"):
        ExperimentTable(table.rows, {}, list_waiting(table))
