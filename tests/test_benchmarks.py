"""The benchmarks: same batches, a gate that finds faults, rounds that count, honest tables."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks import gate, run, run_cuda, run_defaults, run_pipeline
from benchmarks.block import run_spec
from benchmarks.flops import flops_per_token
from benchmarks.machine import Snapshot
from benchmarks.measure import Campaign
from benchmarks.peers import Job
from benchmarks.peers.common import make_dataset
from benchmarks.peers.masked import MlmCollator, make_mlm_collator
from benchmarks.records import Log, Race, Settings, valid_rounds
from benchmarks.report import show_command, write_report
from benchmarks.summary import summarize
from benchmarks.targets import MEMORY, TARGETS, verdict
from benchmarks.tasks import TASKS
from benchmarks.workloads import CLS, MASK, SEP, Rows, prepare
from trainers.data.collate import FixedShapes, TaskCollator

# warnings of transformers and sentence-transformers in their own trainers
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

RACE = Race("sst", "tiny", ("minbert", "trainer", "minbert-again"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with small workloads and the tiny model."""
    folder = tmp_path_factory.mktemp("workloads")
    names = ["sst", "sst_grouped", "quora", "sts", "mlm128"]
    prepare(folder, names, ["tiny"], None, batches=4, sentences=300)
    return folder


@pytest.fixture
def settings(tmp_path):
    """Return settings for blocks that are only pretended."""
    return Settings(tmp_path, tmp_path / "blocks.jsonl", rounds=3)


class Blocks:
    """Pretended blocks: minBERT is twice as fast as the others."""

    def __init__(self, foreign=()):
        self.foreign = list(foreign)
        self.order = []

    def __call__(self, spec, _folder):
        """Answer as a block does."""
        quiet = {"foreign": 0.0, "steal": 0.0, "wall": 1.0, "load_before": 0.0}
        if spec["do"] == "gate":
            return {**quiet, "reason": None, "errors": {}}
        self.order.append(spec["peer"])
        if self.foreign:
            quiet["foreign"] = self.foreign.pop(0)
        seconds = 1.0 if spec["peer"].startswith("minbert") else 2.0
        memory = {"peak_mib": 300 * seconds, "step_mib": 100 * seconds}
        return {**quiet, "seconds": seconds, "items": 100, "ms": [1000 * seconds], **memory}


def test_workloads_are_the_same_for_the_same_seed_only(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        prepare(tmp_path / name, ["quora"], [], None, batches=2, sentences=300, seed=seed)
    first, same, other = (Rows.load(tmp_path / name / "quora.npz") for name in "abc")
    assert np.array_equal(first.ids, same.ids)
    assert np.array_equal(first.labels, same.labels)
    assert not np.array_equal(first.starts, other.starts)


def test_a_folder_of_other_workloads_is_refused(tmp_path):
    prepare(tmp_path, [], [], None, batches=2, sentences=300)
    with pytest.raises(ValueError, match="delete it or give another --work_dir"):
        prepare(tmp_path, [], [], None, batches=3, sentences=300)


def test_lengths_equal_the_table(tmp_path):
    prepare(tmp_path, ["sst"], [], None, batches=64, sentences=300)
    lengths = Rows.load(tmp_path / "sst.npz").lengths
    mean, sd, longest = TASKS["sst"].lengths
    assert lengths.mean() == pytest.approx(mean, rel=0.05)
    assert lengths.std() == pytest.approx(sd, rel=0.15)
    assert lengths.max() <= longest


def test_grouped_batches_hold_distinct_rows_and_less_padding(folder):
    random, grouped = (Rows.load(folder / f"{name}.npz") for name in ("sst", "sst_grouped"))
    assert len(set(grouped.batches.flat)) == grouped.batches.size
    assert grouped.fill() > random.fill() + 0.05


def test_masks_spare_special_tokens_and_keep_the_originals_as_labels(folder):
    rows = Rows.load(folder / "mlm128.npz")
    chosen = rows.labels >= 0
    assert 0.12 < chosen.mean() < 0.18
    assert not np.isin(rows.labels[chosen], [CLS, SEP]).any()
    assert 0.7 < (rows.ids[chosen] == MASK).mean() < 0.9
    assert (rows.ids[rows.starts[:-1]] == CLS).all()


@pytest.mark.parametrize(
    ("workload", "peers"),
    [
        ("sst", ["minbert", "minbert-padded", "trainer", "reference"]),
        ("mixed", ["minbert", "trainer", "reference"]),
        ("sts", ["minbert", "sentence-transformers"]),
        ("mlm128", ["minbert", "reference"]),
    ],
)
def test_peers_compute_the_same_on_the_same_rows(folder, tmp_path, workload, peers):
    if "sentence-transformers" in peers:
        pytest.importorskip("sentence_transformers")
    job = Job(folder, workload, "tiny", steps=3, rows=3, dropout=False)
    gate.record("bare", job, tmp_path / "reference")
    for peer in peers:
        gate.record(peer, job, tmp_path / "own")
        outcome = gate.compare(tmp_path / "own", tmp_path / "reference", job)
        assert outcome["reason"] is None, peer


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("losses", lambda value: value * (1 + 1e-4), "first loss: 1.0e-04"),
        (
            "gradient bert.encoder.layer.1.output.dense.weight",
            lambda value: value * 1.001,
            "gradients: 1.0e-03 at bert.encoder.layer.1.output.dense.weight",
        ),
        ("weight classifier.weight", lambda value: value * 1.001, "weights: .* at classifier"),
        ("gradient classifier.bias", None, r"classifier.bias \(missing\)"),
        ("count tokens", lambda value: value - 1, "tokens: .* instead of"),
    ],
)
def test_the_gate_finds_faults(folder, tmp_path, name, change, reason):
    job = Job(folder, "sst", "tiny", steps=2, rows=2, dropout=False)
    gate.record("bare", job, tmp_path / "reference")
    tensors = load_file(tmp_path / "reference")
    if change is None:
        del tensors[name]
    else:
        tensors[name] = change(tensors[name])
    save_file(tensors, tmp_path / "own")
    outcome = gate.compare(tmp_path / "own", tmp_path / "reference", job)
    assert re.search(reason, outcome["reason"])


def test_the_gate_finds_dropout_that_should_be_off(folder, tmp_path):
    job = Job(folder, "sst", "tiny", steps=2, rows=2, dropout=False)
    gate.record("bare", job, tmp_path / "reference")
    gate.record("bare", dataclasses.replace(job, dropout=True), tmp_path / "own")
    outcome = gate.compare(tmp_path / "own", tmp_path / "reference", job)
    assert "gradients" in outcome["reason"]


def test_a_block_measures_the_steps_after_the_warmup(folder):
    job = dataclasses.asdict(Job(folder, "quora", "tiny", steps=4)) | {"folder": str(folder)}
    threads = torch.get_num_threads()
    spec = {"do": "measure", "peer": "bare", "job": job, "threads": threads, "seed": 0, "warmup": 1}
    block = run_spec(spec)
    rows = Rows.load(folder / "quora.npz")
    assert block["items"] == sum(rows.tokens(batch) for batch in (1, 2, 3))
    assert len(block["ms"]) == 3
    assert block["seconds"] == pytest.approx(sum(block["ms"]) / 1000)
    assert block["peak_mib"] >= block["step_mib"]


def test_encoders_give_the_same_vectors(folder):
    job = Job(folder, "encode", "tiny", steps=0, rows=40)
    assert gate.compare_encoders("minbert", job)["reason"] is None


def test_rounds_alternate_their_order(settings):
    blocks = Blocks()
    Campaign(settings, [RACE], Log.open(settings.results, resume=False), blocks).run()
    assert blocks.order[0] == "trainer"  # the calibration
    rounds = [tuple(blocks.order[start : start + 3]) for start in (1, 4, 7)]
    assert rounds == [RACE.peers, RACE.peers[::-1], RACE.peers]


def test_a_round_with_other_load_is_repeated_and_does_not_count(settings):
    log = Log.open(settings.results, resume=False)
    Campaign(settings, [RACE], log, Blocks(foreign=[0, 0, 0.5])).run()
    assert Counter(record["kind"] for record in log.records)["block"] == 4 * len(RACE.peers)
    counted = [found["minbert"]["round"] for found in valid_rounds(log, RACE, settings)]
    assert counted == [1, 2, 3]


def test_resuming_does_only_missing_runs(settings):
    Campaign(settings, [RACE], Log.open(settings.results, resume=False), Blocks()).run()
    lines = settings.results.read_text().splitlines(keepends=True)
    settings.results.write_text("".join(lines[:-1]))
    blocks = Blocks()
    Campaign(settings, [RACE], Log.open(settings.results, resume=True), blocks).run()
    assert blocks.order == ["minbert-again"]
    assert len(settings.results.read_text().splitlines()) == len(lines)


def test_blocks_of_an_earlier_run_are_kept_aside(settings):
    Log.open(settings.results, resume=False).add({"kind": "block"})
    assert not Log.open(settings.results, resume=False).records
    assert json.loads(settings.results.with_suffix(".old.jsonl").read_text()) == {"kind": "block"}


def test_a_report_names_no_folders_of_its_machine():
    argv = ["--data_dir", "/home/me/data", "--work_dir=/tmp/x", "--rounds", "3"]
    shown = show_command("benchmarks/run.py", argv)
    assert shown == "python benchmarks/run.py --data_dir data --work_dir=x --rounds 3"


def test_ratios_are_of_rounds_and_void_rows_have_a_reason(settings, tmp_path):
    log = Log.open(settings.results, resume=False)
    Campaign(settings, [RACE], log, Blocks()).run()
    rows = {row.peer: row for row in summarize(log, [RACE], settings)}
    assert rows["trainer"].ratio == (2, 2, 2)
    assert rows["trainer"].memory == (0.5, 0.5)
    assert rows["minbert-again"].ratio == (1, 1, 1)
    log.add({**log.find(kind="gate", peer="trainer")[0], "reason": "losses: 1.0e-01"})
    rows = {row.peer: row for row in summarize(log, [RACE], settings)}
    assert rows["trainer"].ratio is None
    facts = {"command": "run", "date": "today", "machine": {"cpu": "x", "system": "y"}}
    facts["machine"]["versions"] = {}
    facts["workloads"] = {"tasks": {}, "data_dir": None}
    write_report(tmp_path / "RESULTS.md", log, [RACE], settings, facts)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| sst | tiny | trainer | void (trainer: losses: 1.0e-01) |" in text
    assert (tmp_path / "RESULTS.png").stat().st_size > 1000


def test_compiled_minbert_is_compared_with_others_only(settings):
    race = Race("sst", "tiny", ("minbert", "minbert+compile", "trainer"))
    log = Log.open(settings.results, resume=False)
    Campaign(settings, [race], log, Blocks()).run()
    pairs = [(row.ours, row.peer) for row in summarize(log, [race], settings)]
    ours = [("minbert", peer) for peer in race.peers]
    assert pairs == [*ours, ("minbert+compile", "trainer")]


def test_a_failed_block_makes_its_row_void(settings):
    log = Log.open(settings.results, resume=False)
    Campaign(settings, [RACE], log, Blocks()).run()
    log.find(kind="block", peer="trainer")[1]["error"] = "out of memory"
    rows = {row.peer: row for row in summarize(log, [RACE], settings)}
    assert rows["trainer"].reason == "trainer: out of memory"
    assert rows["minbert-again"].ratio == (1, 1, 1)


@pytest.mark.parametrize(
    ("value", "target", "words"),
    [
        (1.6, TARGETS["sst", "minilm", "trainer"], "below the floor"),
        (2.1, TARGETS["sst", "minilm", "trainer"], "target"),
        (0.6, MEMORY, "target"),
        (1.1, MEMORY, "below the floor"),
        (1.1, None, ""),
    ],
)
def test_verdicts(value, target, words):
    assert verdict(value, target) == words


def test_processors_of_others_are_counted():
    before = Snapshot(wall=0, busy=10, steal=0, own=5, load=0)
    after = Snapshot(wall=10, busy=30, steal=1, own=20, load=1)
    assert before.until(after)["foreign"] == pytest.approx(0.5)
    assert before.until(after)["steal"] == pytest.approx(0.1)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown workload 'sts2'; known: sst"):
        run.plan("sts2", "minilm", "")
    with pytest.raises(ValueError, match="unknown peer 'hf'; known: minbert"):
        run.plan("", "minilm", "hf")


def test_packed_batches_with_fixed_shapes_keep_tokens_and_labels(folder):
    job = Job(folder, "mlm128", "tiny", steps=1, compile="default", device="cuda")
    rows = make_dataset(job.data["mlm128"], TASKS["mlm128"])
    batch = [rows[row] for row in range(5)]
    plain = MlmCollator(TaskCollator(0, packed=True))(batch)
    fixed = make_mlm_collator(job, packed=True)(batch)
    tokens = plain["input_ids"].shape[1]
    assert fixed["input_ids"].shape[1] % 32 == 0
    for name in ("input_ids", "token_type_ids", "position_ids", "labels"):
        assert torch.equal(fixed[name][:, :tokens], plain[name])
    assert (fixed["labels"][:, tokens:] == -100).all()
    assert torch.equal(fixed["cu_seq_lens_q"][:6], plain["cu_seq_lens_q"])
    assert fixed["cu_seq_lens_q"][-1] == fixed["input_ids"].shape[1]
    assert fixed["cu_seq_lens_q"].diff().min() > 0
    assert fixed["label_positions"].shape[0] % 64 == 0
    labels = fixed["labels"][0, fixed["label_positions"]]
    assert torch.equal(labels[labels != -100], plain["labels"][plain["labels"] != -100])


def test_the_count_of_a_gate_leaves_fillers_out(folder):
    rows = make_dataset(Rows.load(folder / "quora.npz"), TASKS["quora"])
    batch = [{"task": "quora", **rows[row]} for row in range(5)]
    shapes = FixedShapes({"quora": 400})
    fixed, plain = (
        gate.count_batch(TaskCollator(0, packed=True, fixed_shapes=shape)(batch))
        for shape in (shapes, None)
    )
    assert fixed == plain
    assert plain["sequences"] == 10


def test_the_cuda_command_runs_its_logic_on_a_processor(tmp_path):
    argv = ["--device", "cpu", "--tiny", "--workloads", "sst", "--peers", "minbert,trainer"]
    argv += ["--work_dir", str(tmp_path), "--output", str(tmp_path / "RESULTS.md")]
    text = run_cuda.main(argv).read_text()
    assert "| sst | tiny | trainer | " in text
    assert "void" not in text
    assert "## Use of the GPU" in text


def test_operations_of_a_token_follow_the_formula(folder):
    rows = Rows.load(folder / "sst.npz")
    constant = dataclasses.replace(rows, starts=np.arange(0, 2501, 25))
    assert flops_per_token(constant, "sst", "base") / 1e6 == pytest.approx(512.4, abs=0.1)
    assert flops_per_token(constant, "sst", "minilm") / 1e6 == pytest.approx(64.4, abs=0.1)
    masked = np.where(np.arange(2500) % 20 < 3, 1000, -100)
    masked_rows = dataclasses.replace(constant, labels=masked)
    assert flops_per_token(masked_rows, "mlm128", "base") / 1e6 == pytest.approx(534.0, abs=0.1)


@pytest.mark.slow
def test_the_command_writes_a_report(tmp_path):
    argv = ["--quick", "--workloads", "quora", "--peers", "trainer", "--work_dir", str(tmp_path)]
    text = run.main(argv).read_text()
    assert "| quora | tiny | trainer | " in text
    lines = (tmp_path / "blocks.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["gate", "gate", "calibration", *["block"] * 4]


@pytest.mark.slow
def test_the_data_of_pre_training_is_measured(tmp_path):
    output = tmp_path / "PIPELINE.md"
    run_pipeline.main(
        ["--megabytes", "1,2", "--seconds", "0.1", "--rounds", "2", "--output", str(output)]
    )

    text = output.read_text()
    assert "| 1 MB |" in text
    assert "| 2 MB |" in text
    assert "| minbert, 2 workers |" in text


def result(task, setting, metric, value, seed=42):
    metrics = {f"{task}_{metric}": value}
    row = {"name": f"{task} {setting} {seed}", "task": task, "setting": setting, "seed": seed}
    return {**row, "metrics": metrics, "standard_errors": {task: 0.02}}


def test_defaults_are_compared_with_the_best_of_the_search():
    results = [
        result("sst", "defaults", "accuracy", 0.40),
        result("sst", "rate 1e-4", "accuracy", 0.43),
        result("sst", "rate 2e-4", "accuracy", 0.41),
        result("sts", "rate 1e-4", "pearson", 0.8),
    ]

    lines = run_defaults.show_search(results).splitlines()[2:]

    assert lines == ["| sst | accuracy | 0.400 | 0.430 | 0.020 | -1.5 | rate 1e-4 |"]


def test_a_task_together_with_others_is_compared_with_itself_alone():
    common = {"name": "together 1", "task": "together", "seed": 1, "metrics": {"sts_pearson": 0.8}}
    alone = [
        result("sts", "alone", "pearson", value, seed) for value, seed in ((0.82, 1), (0.9, 2))
    ]

    lines = run_defaults.show_together([common, *alone]).splitlines()[2:]

    assert lines == ["| sts | 1 | 0.800 | 0.820 | 0.020 | -1.0 |"]


def test_official_files_become_csv_files(tmp_path):
    folder = tmp_path / "senteval" / "TREC"
    folder.mkdir(parents=True)
    rows = [f"NUM:dist How far is {n} ?" for n in range(1005)]
    (folder / "train_5500.label").write_text("\n".join(rows) + "\n", encoding="utf-8")

    keys = run_defaults.write_csv("trec", tmp_path, tmp_path)

    held_out = Path(keys["validation_file"]).read_text(encoding="utf-8").splitlines()
    train = Path(keys["train_file"]).read_text(encoding="utf-8").splitlines()
    assert held_out[0] == train[0] == "question,kind"
    assert (len(held_out), len(train)) == (1001, 6)
    assert sorted(held_out[1:] + train[1:]) == sorted(f"How far is {n} ?,num" for n in range(1005))


def test_a_search_holds_pairs_only_where_there_are_pairs(tmp_path):
    for name in ("cs224n", "conll2003", "glue"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "links").mkdir()
    flags = ["--data_dir", str(tmp_path / "data"), "--model", "m", "--output", "o"]
    args = run_defaults.parse([*flags, "--tasks", "sst", "sts", "--rows", "7"])

    jobs = run_defaults.list_jobs(args, tmp_path / "links")

    settings = {task: [job.setting for job in jobs if job.task == task] for task in ("sst", "sts")}
    assert settings["sts"] == ["defaults", *run_defaults.SEARCH]
    assert set(settings["sts"]) - set(settings["sst"]) == {"joint pairs", "separate pairs"}
    assert jobs[0].recipe["tasks"] == {
        "sst": {"dataset": "sst", "max_train_samples": 7, "max_eval_samples": 1000}
    }
    assert "learning_rate" not in jobs[0].recipe
