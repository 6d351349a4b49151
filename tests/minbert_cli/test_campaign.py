"""Doing the runs of experiments: skipped, resumed and failed runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from minbert_cli.experiments import program
from minbert_cli.experiments.plan import read_file
from minbert_cli.experiments.program import (
    describe_runs,
    do_runs,
    find_state,
    order_runs,
    program_command,
    remaining_runs,
)
from minbert_cli.run_folder import RUN_FILE

# Replaces finetune.py and pretrain.py: records its call, and follows its recipe.
STUB = """
import json, os, signal, sys
from pathlib import Path

recipe = {word[2:].split("=")[0]: word.split("=")[1] for word in sys.argv[2:]}
folder = Path(recipe["output_dir"])
with open("calls.jsonl", "a") as calls:
    print(json.dumps([recipe["output_dir"], *sys.argv[-3:-1]]), file=calls)
if recipe.get("refuse"):
    print("loading 1\\rloading 2\\rloading 3\\n", file=sys.stderr)
    print("stub: error: " + recipe["refuse"], file=sys.stderr)
    sys.exit(2)
settings = {"words": sys.argv[1:-3]}
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


RESTART = ["--resume_from_checkpoint=false", "--overwrite_output_dir=true"]
RESUME = ["--resume_from_checkpoint=true", "--overwrite_output_dir=false"]


def stub_command(*_):
    return [sys.executable, "stub.py"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the stub and a recipe, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "program_command", stub_command)
    (tmp_path / "stub.py").write_text(STUB)
    (tmp_path / "base.yaml").write_text("tasks: {sst: {dataset: sst}}\n")
    (tmp_path / "text.yaml").write_text("corpus: {sst: {dataset: sst}}\n")
    return tmp_path


class Stubs:
    """Runs whose programs are the stub."""

    def __init__(self, rows, *flags, seeds=(1, 2), overwrite=False, keep_checkpoints=True):
        content = {"rows": rows, "output_dir": "out", "base": "base.yaml", "seeds": list(seeds)}
        Path("experiments.yaml").write_text(json.dumps(content))
        self.arguments, plans = read_file(["experiments.yaml", *flags])
        self.arguments.overwrite_output_dir = overwrite
        self.arguments.keep_checkpoints = keep_checkpoints
        self.runs = order_runs([plan.at({}) for plan in plans])
        self.states = {
            run.folder: find_state(run, {"words": run.words}, {}, overwrite=overwrite)
            for run in self.runs
        }

    def describe(self):
        return describe_runs(self.runs, self.states)

    def do(self):
        """Do the runs; returns the failures by name."""
        done = do_runs(self.runs, self.states, self.arguments, tqdm(disable=True))
        return {run.name: failure for run, failure in done if failure is not None}


def calls(folder):
    """Folder and flags of every start of the stub."""
    path = folder / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_all_rows_have_their_first_seed_before_any_has_its_second(folder):
    rows = {"a": {}, "b": {"seeds": [7]}, "c": {}}

    assert Stubs(rows).do() == {}

    assert [call[0] for call in calls(folder)] == [
        "out/a/seed-1",
        "out/b/seed-7",
        "out/c/seed-1",
        "out/a/seed-2",
        "out/c/seed-2",
    ]


def test_finished_runs_are_skipped(folder):
    Stubs({"a": {}}).do()
    before = calls(folder)

    stubs = Stubs({"a": {}, "b": {}})

    assert stubs.describe().splitlines() == [
        "done     a, seed 1",
        "to do    b, seed 1",
        "done     a, seed 2",
        "to do    b, seed 2",
    ]
    stubs.do()
    assert [call[0] for call in calls(folder)[len(before) :]] == ["out/b/seed-1", "out/b/seed-2"]
    Stubs({"a": {}, "b": {}}).do()
    assert len(calls(folder)) == 4


def test_a_run_with_different_settings_is_refused_or_overwritten(folder):
    Stubs({"a": {}}, seeds=[1]).do()
    changed = {"a": {"overrides": {"learning_rate": 1}}}

    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with another words"):
        Stubs(changed, seeds=[1])

    stubs = Stubs(changed, seeds=[1], overwrite=True)
    assert stubs.describe() == "repeats  a, seed 1"
    stubs.do()
    assert calls(folder)[1][1:] == RESTART
    Stubs(changed, seeds=[1], overwrite=True).do()  # not again
    assert len(calls(folder)) == 2


@pytest.mark.usefixtures("folder")
def test_a_run_with_different_data_is_refused_or_repeated(monkeypatch):
    Stubs({"a": {}}, seeds=[1]).do()
    (run,) = Stubs({"a": {}}, seeds=[1]).runs

    def find(now, *, overwrite=False):
        monkeypatch.setattr(program, "find_fingerprints", lambda *_: now)
        return find_state(run, {"words": run.words}, {}, overwrite=overwrite)

    assert find({"sst": "x"}) == "done"  # it recorded nothing
    content = json.loads((run.folder / RUN_FILE).read_text())
    noted = {"sst": "x", "text": "y"}  # texts have no fingerprint before a run
    (run.folder / RUN_FILE).write_text(json.dumps(content | {"data": noted}))
    assert find({"sst": "x"}) == "done"
    with pytest.raises(ValueError, match=r"a, seed 1: .* resumes with other data of sst"):
        find({"sst": "z"})
    assert find({"sst": "z"}, overwrite=True) == "changed"


def test_a_killed_run_resumes(folder):
    rows = {"a": {"overrides": {"die": True}}, "b": {}}

    failures = Stubs(rows, seeds=[1]).do()

    assert list(failures) == ["a, seed 1"]
    message = "a, seed 1 failed: ended by SIGKILL (often out of memory)\n    about to die\n"
    assert failures["a, seed 1"].startswith(message)
    (folder / "alive").touch()
    stubs = Stubs(rows, seeds=[1])
    assert stubs.describe().splitlines()[0] == "resumes  a, seed 1"
    assert stubs.do() == {}
    assert calls(folder)[-1] == ["out/a/seed-1", *RESUME]


def test_a_run_whose_results_are_broken_is_done_again(folder):
    Stubs({"a": {}}, seeds=[1]).do()
    (folder / "out/a/seed-1/metrics.json").write_text("{")

    stubs = Stubs({"a": {}}, seeds=[1])

    assert stubs.describe() == "resumes  a, seed 1"


def test_a_failure_has_the_last_lines_of_its_log_and_the_others_go_on(folder):
    rows = {"a": {"overrides": {"refuse": "no such loss"}}, "b": {}}

    failures = Stubs(rows).do()

    assert list(failures) == ["a, seed 1", "a, seed 2"]
    assert failures["a, seed 1"] == "\n".join(
        [
            "a, seed 1 failed: exit status 2",
            "    loading 3",
            "    stub: error: no such loss",
            f"    full log: {Path('out/a/seed-1.log')}",
        ]
    )
    assert [call[0] for call in calls(folder)][1::2] == ["out/b/seed-1", "out/b/seed-2"]


def test_a_failure_shows_the_log_of_this_time_only(folder):
    rows = {"a": {"overrides": {"refuse": "first"}}}
    Stubs(rows, seeds=[1]).do()
    rows = {"a": {"overrides": {"refuse": "second"}}}

    (failure,) = Stubs(rows, seeds=[1]).do().values()

    assert failure.splitlines()[1:3] == ["    loading 3", "    stub: error: second"]
    assert "first" in (folder / "out/a/seed-1.log").read_text()


@pytest.mark.usefixtures("folder")
def test_a_program_that_ends_without_results_has_failed():
    (failure,) = Stubs({"a": {"overrides": {"forget": True}}}, seeds=[1]).do().values()

    assert "failed: it ended without an error, but without results" in failure


def test_shared_pre_training_runs_once_and_right_before_it_is_needed(folder):
    step = {"base": "text.yaml"}
    rows = {"plain": {}, "a": {"pretrain": step}, "b": {"pretrain": step}}

    Stubs(rows).do()

    starts = [call[0].split("/")[1] for call in calls(folder)]
    assert starts == ["plain", "pretrained", "a", "b", "plain", "a", "b"]


def test_rows_of_a_failed_pre_training_are_not_started(folder):
    step = {"base": "text.yaml", "overrides": {"refuse": "no text"}}

    failures = Stubs({"a": {"pretrain": step}, "b": {}}, seeds=[1]).do()

    (first, second) = failures
    assert first.startswith("pre-training text-")
    assert second == "a, seed 1"
    assert failures[second] == f"a, seed 1 not started: {first} failed"
    assert len(calls(folder)) == 2


@pytest.mark.usefixtures("folder")
def test_a_pre_training_that_no_run_needs_is_not_repeated():
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    stubs = Stubs(rows, seeds=[1])
    stubs.do()
    first, second = stubs.runs
    shutil.rmtree(first.folder)

    again, more = (Stubs(rows, seeds=seeds) for seeds in ([1], [1, 2]))

    assert remaining_runs(again.runs, again.states) == []
    assert again.describe() == f"done     {second.name}"
    assert [run.folder for run in remaining_runs(more.runs, more.states)] == [
        first.folder,
        Path("out/a/seed-2"),
    ]


def test_finished_runs_stay_finished_if_their_pre_training_fails_later(folder):
    rows = {"a": {"pretrain": {"base": "text.yaml"}}}
    stubs = Stubs(rows, seeds=[1])
    stubs.do()
    shutil.rmtree(stubs.runs[0].folder)
    (folder / "stub.py").write_text("raise SystemExit(1)")

    failures = Stubs(rows, seeds=[1, 2]).do()

    assert [name.partition("-")[0] for name in failures] == ["pre", "a, seed 2"]


@pytest.mark.parametrize("keep", [True, False])
def test_checkpoints_are_kept_on_request(folder, keep):
    Stubs({"a": {}}, seeds=[1]).do()
    (folder / "out/a/seed-1/checkpoint-best").mkdir()  # a copy of the user
    Stubs({"a": {}}, seeds=[1], keep_checkpoints=keep).do()

    assert (folder / "out/a/seed-1/checkpoint-best").exists()
    assert (folder / "out/a/seed-1/checkpoint-1").exists() == keep
    assert (folder / "out/a/seed-1" / RUN_FILE).is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_ctrl_c_ends_the_run_and_the_campaign():
    text = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.minbert_cli.test_campaign import Stubs, program, stub_command\n"
        "program.program_command = stub_command\n"
        "Stubs({'a': {'overrides': {'hang': True}}}, seeds=[1]).do()\n"
    )
    os.mkfifo("begun")
    command = [sys.executable, "-c", text, str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        Path("begun").open().close()  # waits for the run
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    stubs = Stubs({"a": {"overrides": {"hang": True}}}, seeds=[1])
    assert stubs.describe() == "resumes  a, seed 1"


def test_several_processes_are_launched_by_accelerate():
    module = ["-m", "minbert_cli.finetune"]
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    assert program_command("finetune", 1) == [sys.executable, *module]
    assert program_command("finetune", 2) == [sys.executable, *launcher, *module]
