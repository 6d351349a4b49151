"""The benchmarks: same inputs, a check that finds faults, rounds that count, honest tables."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import check, run
from benchmarks.block import Job, output_file, run_block
from benchmarks.report import summarize, write_report
from benchmarks.rounds import Campaign, Log, Race, Settings, TimeIsUpError
from benchmarks.workloads import Rows, Sources, prepare

# warnings of transformers and sentence-transformers in their own trainers
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

RACE = Race("sst", "tiny", ("trainer", "minbert", "minbert again"))
FACTS = {
    "command": "run", "date": "today", "instructions": [],
    "machine": {"cpu": "x", "system": "y", "versions": {}},
    "workloads": {"tasks": {}, "data_dir": "None"},
}  # fmt: skip
SMALL = Sources(batches=4, sentences=120, kilobytes=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with small workloads and the tiny model."""
    folder = tmp_path_factory.mktemp("workloads")
    names = ["sst", "sst_grouped", "quora", "sts", "mlm128"]
    prepare(folder, names, ["tiny"], SMALL)
    return folder


@pytest.fixture
def settings(tmp_path):
    """Return settings for blocks that are only pretended."""
    return Settings(tmp_path, rounds=3)


def make_job(folder, workload="sst", contender="bare", units=2, **fields):
    threads = torch.get_num_threads()
    return Job(folder, workload, "tiny", contender, units, threads=threads, **fields)


class Blocks:
    """Pretended blocks: minBERT is twice as fast as the others."""

    def __init__(self, foreign=(), error=None):
        self.foreign, self.error = list(foreign), error
        self.order = []

    def __call__(self, _do, job, deadline):
        if deadline == 0:
            raise TimeIsUpError
        quiet = {"foreign": 0.0, "steal": 0.0, "load_before": 0.0}
        if job.is_check:
            arrays = {"losses": np.ones(2), "gradient x": np.ones(2), "weight x": np.ones(2)}
            if job.contender == self.error:
                arrays["losses"] = np.full(2, 1.5)
            np.savez(output_file(job), **arrays)
            return quiet
        self.order.append(job.contender)
        if self.foreign:
            quiet["foreign"] = self.foreign.pop(0)
        seconds = 1.0 if job.contender.startswith("minbert") else 2.0
        memory = {"peak_mib": 300 * seconds, "added_mib": 100 * seconds}
        work = {"flops": 1e9, "products": 2e9}
        return {**quiet, "seconds": seconds, "items": 100, "ms": [1000 * seconds], **memory, **work}


def run_campaign(settings, blocks, *, resume=False, deadline=1.0):
    log = Log.open(settings.folder / "blocks.jsonl", resume=resume)
    Campaign(settings, [RACE], log, blocks, deadline).run()
    return log


def test_workloads_are_the_same_for_the_same_seed_only(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        prepare(tmp_path / name, ["quora"], [], dataclasses.replace(SMALL, seed=seed))
    first, same, other = (Rows.load(tmp_path / name / "quora.npz") for name in "abc")
    assert np.array_equal(first.ids, same.ids)
    assert np.array_equal(first.labels, same.labels)
    assert not np.array_equal(first.starts, other.starts)


def record(job):
    """Run a check, and return its arrays."""
    run_block(job)
    with np.load(output_file(job)) as stored:
        return {name: stored[name] for name in stored.files}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("losses", lambda value: value * (1 + 1e-4), "first loss: 1.0e-04"),
        (
            "gradient bert.encoder.layer.1.output.dense.weight",
            lambda value: value * 1.001,
            "gradients: 1.0e-03 bert.encoder.layer.1.output.dense.weight",
        ),
        ("weight classifier.weight", lambda value: value * 1.001, "weights: .* classifier"),
        ("gradient classifier.bias", None, r"classifier.bias \(missing\)"),
        ("surplus tokens", lambda value: value - 1, "-1 tokens too many"),
    ],
)
def test_the_check_finds_faults(folder, name, change, reason):
    exact = record(make_job(folder, rows=2, is_check=True))
    arrays = {key: value for key, value in exact.items() if key != name}
    if change is not None:
        arrays[name] = change(exact[name])

    assert check.compare_training(exact, exact)["reason"] is None
    assert re.search(reason, check.compare_training(arrays, exact)["reason"])


def test_a_round_with_other_load_is_repeated_and_does_not_count(settings):
    log = run_campaign(settings, Blocks(foreign=[0, 0, 0.5]))
    assert len(log.find(kind="block")) == 4 * len(RACE.contenders)
    counted = [blocks["minbert"]["round"] for blocks in log.valid_rounds(RACE, settings)]
    assert counted == [1, 2, 3]


def test_resuming_does_only_missing_runs(settings):
    run_campaign(settings, Blocks())
    file = settings.folder / "blocks.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    blocks = Blocks()
    run_campaign(settings, blocks, resume=True)
    assert blocks.order == ["minbert again"]
    assert len(file.read_text().splitlines()) == len(lines)
    run_campaign(settings, Blocks())  # a new one keeps the old one aside
    assert len(file.with_suffix(".old.jsonl").read_text().splitlines()) == len(lines)


def test_a_report_has_ratios_of_rounds_reasons_of_void_rows_and_raw_numbers(settings, tmp_path):
    log = run_campaign(settings, Blocks())
    rows = {row.contender: row for row in summarize(log, RACE, settings)}
    assert rows["minbert"].speed == rows["minbert again"].speed == (2, 2, 2)
    names = ("/ baseline", "added / baseline", "of the matrix rate")
    shown = [rows["minbert"].cells[name] for name in names]
    assert shown == ["0.50", "0.50", "0.50 [0.50, 0.50]"]

    log = run_campaign(settings, Blocks(error="minbert"))
    log.find(kind="block", contender="minbert again")[1]["error"] = "out of memory"
    write_report(tmp_path / "R.md", log, [RACE], settings, FACTS, ["onnx in encode: missing"])

    text = (tmp_path / "R.md").read_text()
    assert "void (minbert: first loss: 5.0e-01; losses: 5.0e-01)" in text
    assert "- onnx in encode: missing" in text
    raw = json.loads((tmp_path / "R.json").read_text())
    assert len(raw["records"]) == len(log.records)


def run_tiny(suite, tmp_path, *flags):
    """Run a suite in its tiny mode; return the report."""
    argv = [suite, "--tiny", "--threads", str(torch.get_num_threads()), *flags]
    return run.main([*argv, "--work_dir", str(tmp_path)]).read_text()


SUITES = (
    *("training", "pretraining", "encode", "predict", "pairs", "corpus", "parts", "methods"),
    *("encoders", "vocabulary"),
)


@pytest.mark.parametrize(
    "suite", ["bfloat16", *(pytest.param(name, marks=pytest.mark.slow) for name in SUITES)]
)
def test_all_contenders_of_a_suite_run_and_pass_the_check(tmp_path, suite):
    text = run_tiny(suite, tmp_path, "--here")

    assert "void" not in text
    raw = json.loads((tmp_path / "RESULTS.json").read_text())
    measured = {(record["workload"], record["contender"]) for record in raw["records"]}
    assert all(
        (race["workload"], name) in measured for race in raw["races"] for name in race["contenders"]
    )
    if suite == "parts":
        assert re.search(r"\| attention \| [\d.]+ % \| (?!0\.0)", text)


@pytest.mark.slow
def test_blocks_are_processes_of_their_own(tmp_path):
    text = run_tiny("startup", tmp_path)
    assert "void" not in text
    assert Path(tmp_path / "result.json").exists()
