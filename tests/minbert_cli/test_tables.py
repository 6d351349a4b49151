"""The table of experiments."""

import json
from dataclasses import replace

import numpy as np
import pytest

from minbert_cli import experiments
from tests.trainers.pages import PageReader

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
        "validation": {"metrics": metrics, "rows": dict.fromkeys(tasks, 100)},
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
        rows = experiments.read_file(["rows.yaml"])[1]
        states, failures = {}, []
        for row in rows:
            for seed, run in row.runs.items():
                if seed in FOUND[row.name]:
                    write_run(run.folder, *FOUND[row.name][seed])
                    states[run.folder] = "done"
                elif (row.name, seed) in failed:
                    states[run.folder] = "failed"
                    failures.append(f"{run.name} failed: exit status 1\n    ValueError: x")
                else:
                    states[run.folder] = "new"
        return experiments.ExperimentTable(rows, states, failures)

    return make


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


def test_aggregates_of_different_tasks_are_reported(make):
    table = make()
    assert "can be compared" not in table.markdown()
    folder = table.rows[1].runs[1].folder
    settings = {"tasks": {"sst": {"auxiliary": True}, "sts": {}}}
    (folder / "run.json").write_text(json.dumps({"finished": True, "settings": settings}))

    note = "these rows differ from the first, which has sst, sts: better."
    assert note in table.markdown()


@pytest.mark.parametrize("change", ["rows", "problem type"])
def test_means_over_other_rows_or_types_are_reported(make, change):
    folder = make().rows[1].runs[1].folder
    path = folder / "metrics.json"
    content = json.loads(path.read_text())
    if change == "rows":
        content["validation"]["rows"]["sst"] = 50
    else:
        content["tasks"]["sts"]["problem_type"] = "regression"
    path.write_text(json.dumps(content))
    rows = experiments.read_file(["rows.yaml"])[1]
    states = {run.folder: "done" for seed, run in rows[0].runs.items()} | {folder: "done"}

    table = experiments.ExperimentTable(rows, states)

    assert "these rows differ from the first, which has sst, sts: better." in table.markdown()
    assert ("sts r2" in table.columns) == (change == "problem type")


def test_a_reference_stands_beside_the_metric_that_a_row_has_as_its_headline(make):
    table = make({"sst": 0.4})
    runs = [[*row.runs.values()] for row in table.rows]
    path = runs[1][0].folder / "metrics.json"
    content = json.loads(path.read_text()) | {"metrics": {"sst": ["macro_f1"]}}
    path.write_text(json.dumps(content))
    states = {run.folder: "done" for run in (*runs[0], runs[1][0])}

    table = experiments.ExperimentTable(table.rows, states)

    head, plain, _ = table.list_cells()
    shown = dict(zip(head, plain[1:], strict=False))  # what follows a column
    assert head.count("reference") == 2
    assert (shown["sst accuracy"], shown["sst macro_f1"]) == ("0.4000", "")


@pytest.mark.parametrize("name", ["plain", "$x_{ <script>alert(1)</script> $"])
def test_the_page_has_the_table_and_the_seeds(make, tmp_path, name):
    table = make({"sst": 0.4})
    table.rows[0] = replace(table.rows[0], name=name)

    table.write(tmp_path)

    page = PageReader((tmp_path / "table.html").read_text(encoding="utf-8"))
    assert page.faults == []
    assert page.find("script") == []
    rows = [" ".join(row.split()) for row in page.texts["tr"]]
    assert f"{name}30.5000 ± 0.03000.4000" in rows[1]
    labels = [svg["aria-label"] for svg in page.find("svg", role="img")]
    assert [label.partition(" of ")[0] for label in labels] == [*table.columns]
    assert "better" in labels[0]
