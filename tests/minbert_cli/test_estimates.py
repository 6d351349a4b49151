"""Estimates of the remaining runs: one trial for all that cost the same."""

import json
import sys
from pathlib import Path

import pytest

from minbert_cli.experiments.campaign import Campaign, Failure, order_runs
from minbert_cli.experiments.estimates import (
    Estimate,
    describe_estimates,
    group_runs,
    try_groups,
)
from minbert_cli.experiments.experiment_arguments import ExperimentArguments
from minbert_cli.experiments.planning import plan_rows

# Replaces the trial: records what it gets, and has the steps of its recipe.
STUB = """
import json, sys
import yaml

program, path, result = sys.argv[1:]
recipe = yaml.safe_load(open(path))
with open("calls.jsonl", "a") as calls:
    print(json.dumps([program, recipe]), file=calls)
if recipe.get("refuse"):
    sys.exit("stub: error: " + recipe["refuse"])
steps = recipe.get("max_steps", 100)
json.dump({
    "steps": steps, "rows": 4 * steps, "seconds_left": 30.0 * steps,
    "hardware": "cpu in float32", "may_stop_early": bool(recipe.get("early_stopping_patience")),
}, open(result, "w"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the stub and two recipes, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stub.py").write_text(STUB)
    (tmp_path / "base.yaml").write_text("tasks: {sst: {dataset: sst}}\n")
    (tmp_path / "text.yaml").write_text("corpus: {sst: {dataset: sst}}\n")
    return tmp_path


def plan(rows, *, done=(), seeds=(1, 2)):
    arguments = ExperimentArguments(
        rows=rows, output_dir="out", base="base.yaml", seeds=list(seeds)
    )
    planned = plan_rows(arguments)
    runs = order_runs(planned)
    states = {run.folder: "done" if run.name in done else "new" for run in runs}
    return planned, Campaign(runs, states, {})


def try_all(folder, campaign):
    """Return the results of all trials by the name of the first run, and what the trials got."""
    trials = folder / "trials"
    trials.mkdir()
    command = [sys.executable, str(folder / "stub.py")]
    tried = try_groups(group_runs(campaign), campaign.states, command, trials)
    found = {group[0].name: result for group, result in tried}
    lines = Path("calls.jsonl").read_text().splitlines() if Path("calls.jsonl").exists() else []
    return found, [json.loads(line) for line in lines]


def names(groups):
    return [[run.name for run in group] for group in groups]


@pytest.mark.usefixtures("folder")
def test_seeds_and_rates_share_a_trial_and_finished_runs_have_none():
    rows = {
        "a": {"search": {"fields": {"learning_rate": [0.1, 0.2]}}},
        "b": {"overrides": {"max_steps": 5}},
    }

    _, campaign = plan(rows, done=["a, learning_rate=0.1, seed 1", "b, seed 2"])

    assert names(group_runs(campaign)) == [
        [
            "a, learning_rate=0.2, seed 1",
            "a, learning_rate=0.1, seed 2",
            "a, learning_rate=0.2, seed 2",
        ],
        ["b, seed 1"],
    ]


def test_another_order_of_tasks_is_another_trial(folder):
    for name, tasks in (("one", "x: {}, y: {}"), ("two", "y: {}, x: {}")):
        (folder / f"{name}.yaml").write_text(f"tasks: {{{tasks}}}\n")

    _, campaign = plan({"a": {"base": "one.yaml"}, "b": {"base": "two.yaml"}}, seeds=[1])

    assert names(group_runs(campaign)) == [["a, seed 1"], ["b, seed 1"]]


def test_the_time_of_a_trial_is_added_to_what_it_leaves_out(folder):
    _, campaign = plan({"a": {"overrides": {"max_steps": 5, "early_stopping_patience": 1}}})

    found, calls = try_all(folder, campaign)

    estimate = found["a, seed 1"]
    assert (estimate.steps, estimate.rows, estimate.may_stop_early) == (5, 20, True)
    assert 150 < estimate.seconds < 170
    ((program, recipe),) = calls
    assert program == "finetune"
    assert recipe["output_dir"] == str(folder / "trials" / "0")
    assert not Path("out").exists()


def test_a_fine_tuning_starts_from_the_trial_of_its_pre_training(folder):
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    _, campaign = plan(rows)

    found, calls = try_all(folder, campaign)

    assert len(found) == 2
    assert [program for program, _ in calls] == ["pretrain", "finetune"]
    assert calls[1][1]["model_name_or_path"] == calls[0][1]["output_dir"]


def test_a_fine_tuning_starts_from_a_finished_pre_training(folder):
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    _, campaign = plan(rows)
    campaign.states[campaign.runs[0].folder] = "done"

    _, ((_, recipe),) = try_all(folder, campaign)

    assert recipe["model_name_or_path"] == str(campaign.runs[0].folder)


def test_a_failed_trial_does_not_stop_the_others(folder):
    refused = {"overrides": {"refuse": "bad rows"}}
    rows = {"a": {"pretrain": {"base": "text.yaml"} | refused}, "b": refused, "c": {}}
    planned, campaign = plan(rows, seeds=[1])

    found, calls = try_all(folder, campaign)

    pretraining, first, second, third = found.values()
    assert all(isinstance(each, Failure) for each in (pretraining, first, second))
    assert pretraining.reason == "failed: exit status 1"
    assert pretraining.tail == ("stub: error: bad rows",)
    assert first.reason == f"not tried: {campaign.runs[0].name} failed"
    assert isinstance(third, Estimate)
    assert len(calls) == 3
    shown = describe_estimates(planned, campaign, {campaign.runs[-1].folder: third})
    assert "| b " in shown
    assert "1 of 4 runs, each counted in full: 100 steps" in shown


@pytest.mark.usefixtures("folder")
def test_rows_and_sums_are_shown():
    rows = {"a": {}, "b": {"pretrain": {"base": "text.yaml"}}, "c": {}}
    planned, campaign = plan(rows, done=["a, seed 2", "c, seed 1", "c, seed 2"])
    place = {run.name: run.folder for run in campaign.runs}
    pretraining = campaign.runs[1]
    long = Estimate(2000, 64_000, 5400.0, "cpu in float32", may_stop_early=False)
    short = Estimate(10, 40, 30.0, "cpu in float32", may_stop_early=True)
    estimates = {place["a, seed 1"]: short, pretraining.folder: long}
    estimates |= {place[f"b, seed {seed}"]: short for seed in (1, 2)}

    *table, _, total = describe_estimates(planned, campaign, estimates).splitlines()

    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert cells == [
        [pretraining.name, "1", "2,000", "64,000", "1 h 30 min", "1 h 30 min"],
        ["a", "1", "10", "40", "less than 1 min", "less than 1 min"],
        ["b", "2", "10", "40", "less than 1 min", "1 min"],
        ["c", "0", "", "", "", ""],
    ]
    assert total == (
        "4 runs, each counted in full: at most 2,030 steps, 64,120 training rows, 1 h 32 min, on "
        "cpu in float32"
    )
