"""Doing the runs of experiments: skipped, resumed and failed runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minbert_cli.experiments.campaign import (
    Campaign,
    drop_needless,
    find_state,
    leave_out,
    order_runs,
    program_command,
)
from minbert_cli.experiments.experiment_arguments import ExperimentArguments
from minbert_cli.experiments.planning import plan_rows
from minbert_cli.run_folder import RUN_FILE

# Replaces finetune.py and pretrain.py: records its call, and follows its recipe.
STUB = """
import json, os, signal, sys
from pathlib import Path
import yaml

recipe = yaml.safe_load(open(sys.argv[1]))
folder = Path(recipe["output_dir"])
with open("calls.jsonl", "a") as calls:
    print(json.dumps([recipe["output_dir"], *sys.argv[2:]]), file=calls)
if recipe.get("refuse"):
    print("loading 1\\rloading 2\\rloading 3\\n", file=sys.stderr)
    print("stub: error: " + recipe["refuse"], file=sys.stderr)
    sys.exit(2)
settings = json.loads(json.dumps(recipe))
folder.mkdir(parents=True, exist_ok=True)
note = lambda done: (folder / "run.json").write_text(
    json.dumps({"finished": done, "settings": settings, "files": ["checkpoint-1"]}))
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
(folder / "metrics.json").write_text("{}")
note(True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the stub and a recipe, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stub.py").write_text(STUB)
    (tmp_path / "base.yaml").write_text("tasks: {sst: {dataset: sst}}\n")
    (tmp_path / "text.yaml").write_text("corpus: {sst: {dataset: sst}}\n")
    return tmp_path


def make_campaign(folder, rows, *, seeds=(1, 2), overwrite=False, **keys):
    arguments = ExperimentArguments(
        rows=rows, output_dir="out", base="base.yaml", seeds=list(seeds)
    )
    runs = order_runs(plan_rows(arguments))
    states = {run.folder: find_state(run, run.recipe, overwrite=overwrite) for run in runs}
    command = [sys.executable, str(folder / "stub.py")]
    programs = {"finetune": command, "pretrain": command}
    return Campaign(runs, states, programs, overwrite=overwrite, **keys)


def do(campaign):
    """Do the runs; returns the failures by name."""
    return {run.name: failure for run, failure in campaign.do() if failure is not None}


def calls(folder):
    """Folder and flags of every start of the stub."""
    path = folder / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_all_rows_have_their_first_seed_before_any_has_its_second(folder):
    rows = {"a": {}, "b": {"seeds": [7]}, "c": {}}

    assert do(make_campaign(folder, rows)) == {}

    assert [call[0] for call in calls(folder)] == [
        "out/a/seed-1",
        "out/b/seed-7",
        "out/c/seed-1",
        "out/a/seed-2",
        "out/c/seed-2",
    ]


def test_finished_runs_are_skipped(folder):
    do(make_campaign(folder, {"a": {}}))
    before = calls(folder)

    campaign = make_campaign(folder, {"a": {}, "b": {}})

    assert campaign.describe().splitlines() == [
        "done     a, seed 1",
        "to do    b, seed 1",
        "done     a, seed 2",
        "to do    b, seed 2",
    ]
    do(campaign)
    assert [call[0] for call in calls(folder)[len(before) :]] == ["out/b/seed-1", "out/b/seed-2"]
    do(make_campaign(folder, {"a": {}, "b": {}}))
    assert len(calls(folder)) == 4


def test_unselected_runs_are_shown_if_finished_with_equal_settings(folder):
    step = {"base": "text.yaml"}
    listed = {"a": {}, "b": {}, "c": {"pretrain": step}}
    do(make_campaign(folder, listed, seeds=[1]))
    listed["b"] = {"overrides": {"learning_rate": 1}}
    arguments = ExperimentArguments(rows={"a": {}}, output_dir="out", base="base.yaml", seeds=[2])

    rows = plan_rows(arguments, of_file=listed)

    runs = order_runs(rows)
    assert [run.name for run in runs] == ["a, seed 2", "b, seed 1", "c, seed 1", "a, seed 1"]
    states = {run.folder: find_state(run, run.recipe, overwrite=True) for run in runs}
    shown, left_out = leave_out(rows, states)
    assert {row.name: list(row.runs) for row in shown} == {"a": [2, 1], "c": [1]}
    assert [run.name for run in left_out] == ["b, seed 1"]
    described = Campaign(runs[:1], states, {}, left_out=left_out).describe()
    assert described.splitlines() == ["to do    a, seed 2", "changed  b, seed 1 (not in the table)"]


def test_a_run_gets_its_whole_recipe_and_no_bars(folder):
    do(make_campaign(folder, {"a": {"overrides": {"learning_rate": 1e-5}}}, seeds=[1]))

    assert calls(folder) == [["out/a/seed-1", "--disable_tqdm", "true"]]
    text = (folder / "out/a/seed-1.yaml").read_text()
    assert text.startswith("# a, seed 1\n")
    assert "learning_rate: 1.0e-05" in text


def test_a_run_with_different_settings_is_refused_or_overwritten(folder):
    do(make_campaign(folder, {"a": {}}, seeds=[1]))
    changed = {"a": {"overrides": {"learning_rate": 1}}}

    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with another learning_rate"):
        make_campaign(folder, changed, seeds=[1])

    do(make_campaign(folder, changed, seeds=[1], overwrite=True))
    assert calls(folder)[1][1:] == ["--disable_tqdm", "true", "--overwrite_output_dir", "true"]


def test_a_run_with_different_data_is_refused_or_repeated(folder):
    (run,) = make_campaign(folder, {"a": {}}, seeds=[1]).runs
    do(make_campaign(folder, {"a": {}}, seeds=[1]))

    def find(now, *, overwrite=False):
        keys = {"overwrite": overwrite, "read_data": lambda: now}
        return find_state(run, run.recipe, **keys)

    assert find({"sst": "x"}) == "done"  # it recorded nothing
    content = json.loads((run.folder / RUN_FILE).read_text())
    noted = {"sst": "x", "text": "y"}  # texts have no fingerprint before a run
    (run.folder / RUN_FILE).write_text(json.dumps(content | {"data": noted}))
    assert find({"sst": "x"}) == "done"
    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with other data of sst"):
        find({"sst": "z"})
    assert find({"sst": "z"}, overwrite=True) == "new"

    def fail():
        raise OSError("no network")

    with pytest.raises(ValueError, match="a, seed 1: no network"):
        find_state(run, run.recipe, overwrite=False, read_data=fail)


def test_a_done_run_is_not_overwritten(folder):
    do(make_campaign(folder, {"a": {}}, seeds=[1]))

    do(make_campaign(folder, {"a": {}}, seeds=[1], overwrite=True))

    assert len(calls(folder)) == 1


def test_a_killed_run_resumes(folder):
    rows = {"a": {"overrides": {"die": True}}, "b": {}}

    failures = do(make_campaign(folder, rows, seeds=[1]))

    assert list(failures) == ["a, seed 1"]
    failure = failures["a, seed 1"]
    assert failure.reason == "failed: ended by SIGKILL (often out of memory)"
    assert failure.tail == ("about to die",)
    (folder / "alive").touch()
    campaign = make_campaign(folder, rows, seeds=[1])
    assert campaign.describe().splitlines()[0] == "resumes  a, seed 1"
    assert do(campaign) == {}
    assert calls(folder)[-1] == [
        "out/a/seed-1",
        "--disable_tqdm",
        "true",
        "--resume_from_checkpoint",
        "true",
    ]


def test_a_run_whose_results_are_broken_is_done_again(folder):
    do(make_campaign(folder, {"a": {}}, seeds=[1]))
    (folder / "out/a/seed-1/metrics.json").write_text("{")

    campaign = make_campaign(folder, {"a": {}}, seeds=[1])

    assert campaign.describe() == "resumes  a, seed 1"


def test_a_failure_has_the_last_lines_of_its_log_and_the_others_go_on(folder):
    rows = {"a": {"overrides": {"refuse": "no such loss"}}, "b": {}}

    failures = do(make_campaign(folder, rows))

    assert list(failures) == ["a, seed 1", "a, seed 2"]
    assert failures["a, seed 1"].describe() == "\n".join(
        [
            "failed: exit status 2",
            "    loading 3",
            "    stub: error: no such loss",
            f"    full log: {Path('out/a/seed-1.log')}",
        ]
    )
    assert [call[0] for call in calls(folder)][1::2] == ["out/b/seed-1", "out/b/seed-2"]


def test_a_failure_shows_the_log_of_this_time_only(folder):
    rows = {"a": {"overrides": {"refuse": "first"}}}
    do(make_campaign(folder, rows, seeds=[1]))
    rows = {"a": {"overrides": {"refuse": "second"}}}

    (failure,) = do(make_campaign(folder, rows, seeds=[1])).values()

    assert failure.tail == ("loading 3", "stub: error: second")
    assert "first" in (folder / "out/a/seed-1.log").read_text()


def test_a_program_that_ends_without_results_has_failed(folder):
    (failure,) = do(
        make_campaign(folder, {"a": {"overrides": {"forget": True}}}, seeds=[1])
    ).values()

    assert failure.reason == "failed: it ended without an error, but without results"


def test_shared_pre_training_runs_once_and_right_before_it_is_needed(folder):
    step = {"base": "text.yaml"}
    rows = {"plain": {}, "a": {"pretrain": step}, "b": {"pretrain": step}}

    do(make_campaign(folder, rows))

    starts = [call[0].split("/")[1] for call in calls(folder)]
    assert starts == ["plain", "pretrained", "a", "b", "plain", "a", "b"]


def test_rows_of_a_failed_pre_training_are_not_started(folder):
    step = {"base": "text.yaml", "overrides": {"refuse": "no text"}}

    failures = do(make_campaign(folder, {"a": {"pretrain": step}, "b": {}}, seeds=[1]))

    (first, second) = failures
    assert first.startswith("pre-training text-")
    assert second == "a, seed 1"
    assert failures[second].describe() == f"not started: {first} failed"
    assert len(calls(folder)) == 2


def test_a_pre_training_that_no_run_needs_is_not_repeated(folder):
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    campaign = make_campaign(folder, rows, seeds=[1])
    do(campaign)
    first, second = campaign.runs
    shutil.rmtree(first.folder)

    again, more = (make_campaign(folder, rows, seeds=seeds) for seeds in ([1], [1, 2]))

    assert [run.folder for run in drop_needless(again.runs, again.states)] == [second.folder]
    assert drop_needless(more.runs, more.states) == more.runs


def test_finished_runs_stay_finished_if_their_pre_training_fails_later(folder):
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    campaign = make_campaign(folder, rows, seeds=[1])
    do(campaign)
    shutil.rmtree(campaign.runs[0].folder)
    (folder / "stub.py").write_text("raise SystemExit(1)")

    failures = do(make_campaign(folder, rows, seeds=[1, 2]))

    assert [name.partition("-")[0] for name in failures] == ["pre", "a, seed 2"]


@pytest.mark.parametrize("keep", [True, False])
def test_checkpoints_are_kept_on_request(folder, keep):
    do(make_campaign(folder, {"a": {}}, seeds=[1]))
    (folder / "out/a/seed-1/checkpoint-best").mkdir()  # a copy of the user
    do(make_campaign(folder, {"a": {}}, seeds=[1], keep_checkpoints=keep))

    assert (folder / "out/a/seed-1/checkpoint-best").exists()
    assert (folder / "out/a/seed-1/checkpoint-1").exists() == keep
    assert (folder / "out/a/seed-1" / RUN_FILE).is_file()


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_the_campaign(folder):
    text = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.minbert_cli.test_campaign import do, make_campaign\n"
        "do(make_campaign(Path.cwd(), {'a': {'overrides': {'hang': True}}}, seeds=[1]))\n"
    )
    os.mkfifo("begun")
    command = [sys.executable, "-c", text, str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        Path("begun").open().close()  # waits for the run
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    campaign = make_campaign(folder, {"a": {"overrides": {"hang": True}}}, seeds=[1])
    assert campaign.describe() == "resumes  a, seed 1"


def test_several_processes_are_launched_by_accelerate():
    assert program_command("minbert_cli.finetune", 1) == [
        sys.executable,
        "-m",
        "minbert_cli.finetune",
    ]
    assert program_command("minbert_cli.finetune", 2)[1:] == [
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "-m",
        "minbert_cli.finetune",
    ]
