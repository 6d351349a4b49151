"""The benchmarks: same inputs, a check that finds faults, rounds that count, honest tables."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import check, flops, inference, run
from benchmarks.block import Job, Meter, Name, find, output_file, run_block
from benchmarks.contenders import WORKLOADS
from benchmarks.machine import Snapshot
from benchmarks.report import show_command, summarize, write_report
from benchmarks.rounds import Campaign, Log, Race, Settings, TimeIsUpError, run_here
from benchmarks.training import MlmCollator, Work, count_batch, make_dataset
from benchmarks.workloads import CLS, MASK, SEP, TASKS, Rows, Sources, prepare
from trainers import FixedShapes, TaskCollator, TaskDataset

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


def test_a_folder_of_other_workloads_is_refused(folder):
    with pytest.raises(ValueError, match="delete it or give another --work_dir"):
        prepare(folder, [], [], dataclasses.replace(SMALL, batches=3))


def test_lengths_equal_the_table(tmp_path):
    prepare(tmp_path, ["sst"], [], dataclasses.replace(SMALL, batches=64))
    lengths = Rows.load(tmp_path / "sst.npz").lengths
    mean, sd, longest = TASKS["sst"].lengths
    assert lengths.mean() == pytest.approx(mean, rel=0.05)
    assert lengths.std() == pytest.approx(sd, rel=0.15)
    assert lengths.max() <= longest


def test_real_texts_are_read_from_the_files_of_the_course(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
    (data / "vocab.txt").write_text("\n".join(words) + "\n")
    (data / "ids-sst-train.csv").write_text("\tsentence\tsentiment\n0\tA good film\t4\n1\tBad\t\n")
    pairs = "\tsentence1\tsentence2\t{}\n0\tA film\tA bad film\t1\n"
    (data / "quora-train.csv").write_text(pairs.format("is_duplicate"))
    for split in ("train", "dev"):
        (data / f"sts-{split}.csv").write_text(pairs.format("similarity"))

    prepare(tmp_path / "work", ["sst", "quora"], [], dataclasses.replace(SMALL, data_dir=data))

    rows = Rows.load(tmp_path / "work" / "sst.npz")
    assert rows.sequence(rows.ids, 0) == [CLS, 5, 6, 8, SEP]
    assert set(rows.labels) == {4}
    sentences = (tmp_path / "work" / "sentences.txt").read_text().splitlines()
    assert sorted(sentences) == ["A bad film", "A film", "A good film"]
    assert json.loads((tmp_path / "work" / "sts.json").read_text()) == [
        [1.0, ["A film", "A bad film"]]
    ]
    with pytest.raises(ValueError, match=r"has no wiki-train\.txt; leave it out to draw lengths"):
        prepare(tmp_path / "work", ["mlm128"], [], dataclasses.replace(SMALL, data_dir=data))


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


def test_errors_in_bfloat16_are_compared_with_those_of_transformers():
    exact, half, wrong = (
        {"losses": np.full(2, 1 + error), "gradient x": np.full(2, 1 + error)}
        for error in (0.0, 0.01, 0.013)
    )
    assert check.compare_half(half, half, exact)["reason"] is None
    assert check.compare_half(wrong, half, exact)["reason"] == (
        "bf16 gradients: 1.3e+00 of the error of transformers"
    )


def test_vectors_are_compared_by_direction_and_only_float32_has_a_limit():
    vectors = np.array([[1.0, 0.0], [0.0, 2.0]])
    other = {"vectors": vectors + np.array([[0, 0.1], [0, 0]])}

    assert check.compare_outputs({"vectors": 3 * vectors}, {"vectors": vectors}, "float32") == {
        "errors": {"vectors": 0.0},
        "reason": None,
    }
    assert (
        "vectors"
        in check.compare_outputs(other, {"vectors": vectors}, precision="float32")["reason"]
    )
    assert check.compare_outputs(other, {"vectors": vectors}, "int8")["reason"] is None


def test_a_block_measures_the_units_after_the_warmup(folder):
    job = make_job(folder, "quora", units=2, warmup=1, rows=4, seconds=0)
    block = run_block(job)
    work = Work(job)
    assert block["items"] == sum(work.count(step)["tokens"] for step in (1, 2))
    assert len(block["ms"]) == 2
    assert block["seconds"] == pytest.approx(sum(block["ms"]) / 1000)
    assert block["peak_mib"] >= block["added_mib"]


def test_single_sentences_are_all_different(folder):
    seen = []
    sentences = make_job(folder).read_sentences()

    inference.run(
        make_job(folder, "encode_one", units=10, warmup=2), Meter(), lambda _: seen.append
    )

    assert seen == sentences[:12]
    with pytest.raises(ValueError, match="different sentences, 502 are needed"):
        inference.run(make_job(folder, "encode_one", units=500, warmup=2), Meter(), lambda _: print)


def test_names_of_contenders_say_peer_precision_and_mode():
    assert Name.parse("minbert+graphs bfloat16 again") == (
        "minbert", "bfloat16", "reduce-overhead", True,
    )  # fmt: skip
    assert Name.parse("SMART (public code)") == ("SMART (public code)", "float32", None, False)


def test_every_contender_exists_and_every_suite_is_one_of_known_contenders():
    for workload in WORKLOADS.values():
        targets = [workload.runner, *(c.target for c in workload.contenders.values())]
        targets += [c.prepare for c in workload.contenders.values()]
        assert all(callable(find(target)) for target in targets if target)
    races, _ = run.plan(run.parse([*run.SUITES, "--peer_python", "python"]))
    assert {race.workload for race in races} == {*WORKLOADS}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--workloads", "sts2"], "unknown workload 'sts2'; known: sst"),
        (["training", "--contenders", "hf"], "unknown contender 'hf' of sst; known: minbert"),
    ],
)
def test_unknown_names_are_refused(argv, message):
    with pytest.raises(ValueError, match=message):
        run.plan(run.parse(argv))


def test_contenders_that_cannot_run_are_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr("benchmarks.contenders.find_spec", lambda _: None)

    races, skipped = run.plan(run.parse(["encode", "compiled"]))

    assert "sentence-transformers in encode: sentence_transformers is not installed" in skipped
    assert "openvino int8 in encode_one: needs --peer_python" in skipped
    assert "minbert+graphs bfloat16 in sst: is compiled on a GPU only" in skipped
    assert races[0].contenders[0] == "transformers"


def test_rounds_alternate_their_order(settings):
    blocks = Blocks()
    run_campaign(settings, blocks)
    assert blocks.order[0] == "trainer"  # the calibration
    rounds = [tuple(blocks.order[start : start + 3]) for start in (1, 4, 7)]
    assert rounds == [RACE.contenders, RACE.contenders[::-1], RACE.contenders]


def test_a_round_with_other_load_is_repeated_and_does_not_count(settings):
    log = run_campaign(settings, Blocks(foreign=[0, 0, 0.5]))
    assert len(log.find(kind="block")) == 4 * len(RACE.contenders)
    counted = [blocks["minbert"]["round"] for blocks in log.valid_rounds(RACE, settings)]
    assert counted == [1, 2, 3]


def test_a_baseline_that_does_not_run_leaves_its_place_to_the_next(settings):
    class Small(Blocks):
        def __call__(self, do, job, deadline):
            if job.contender == "trainer" and not job.is_check:
                return {"error": "OutOfMemoryError: too large"}
            return super().__call__(do, job, deadline)

    rows = summarize(run_campaign(settings, Small()), RACE, settings)

    assert [row.contender for row in rows] == [*RACE.contenders]
    assert rows[0].reason == "OutOfMemoryError: too large"
    assert all(row.reason is None and row.rounds == settings.rounds for row in rows[1:])
    assert rows[1].speed.median == 1


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


def test_no_block_starts_after_the_deadline(settings):
    with pytest.raises(TimeIsUpError):
        run_campaign(settings, Blocks(), deadline=0)
    with pytest.raises(TimeIsUpError):
        run_here("run", make_job(settings.folder), 0)


def test_a_report_has_ratios_of_rounds_reasons_of_void_rows_and_raw_numbers(settings, tmp_path):
    log = run_campaign(settings, Blocks())
    rows = {row.contender: row for row in summarize(log, RACE, settings)}
    assert rows["minbert"].speed == rows["minbert again"].speed == (2, 2, 2)
    assert (rows["minbert"].peak, rows["minbert"].added) == (0.5, 0.5)
    assert rows["minbert"].share == (0.5, 0.5, 0.5)

    log = run_campaign(settings, Blocks(error="minbert"))
    log.find(kind="block", contender="minbert again")[1]["error"] = "out of memory"
    write_report(tmp_path / "R.md", log, [RACE], settings, FACTS, ["onnx in encode: missing"])

    text = (tmp_path / "R.md").read_text()
    assert "void (minbert: first loss: 5.0e-01; losses: 5.0e-01)" in text
    assert "- onnx in encode: missing" in text
    raw = json.loads((tmp_path / "R.json").read_text())
    assert len(raw["records"]) == len(log.records)


def test_the_picture_is_written_where_there_are_ratios(settings, tmp_path):
    log = run_campaign(settings, Blocks())
    write_report(tmp_path / "R.md", log, [RACE], settings, FACTS)
    assert (tmp_path / "R.png").stat().st_size > 1000
    assert "![Ratios](R.png)" in (tmp_path / "R.md").read_text()


def test_a_failed_block_makes_its_row_void(settings):
    log = run_campaign(settings, Blocks())
    log.find(kind="block", contender="minbert")[1]["error"] = "out of memory"
    rows = {row.contender: row for row in summarize(log, RACE, settings)}
    assert rows["minbert"].reason == "minbert: out of memory"
    assert rows["minbert again"].speed == (2, 2, 2)


def test_a_report_names_no_folders_of_its_machine():
    argv = ["--data_dir", "/home/me/data", "--work_dir=/tmp/x", "--rounds", "3"]
    shown = show_command("benchmarks/run.py", argv)
    assert shown == "python benchmarks/run.py --data_dir data --work_dir=x --rounds 3"


def test_processors_of_others_are_counted():
    before = Snapshot(wall=0, busy=10, steal=0, own=5, load=0)
    after = Snapshot(wall=10, busy=30, steal=1, own=20, load=1)
    assert before.until(after)["foreign"] == pytest.approx(0.5)
    assert before.until(after)["steal"] == pytest.approx(0.1)


def test_packed_batches_with_fixed_shapes_keep_tokens_and_labels(folder):
    work = Work(make_job(folder, "mlm128", "minbert+compile", device="cuda"))
    rows = make_dataset(work.data["mlm128"], TASKS["mlm128"], columns=True)
    batch = [rows[row] for row in range(5)]
    plain = MlmCollator(Work(make_job(folder, "mlm128", "minbert")), packed=True)(batch)
    fixed = MlmCollator(work, packed=True)(batch)
    tokens = plain["input_ids"].shape[1]
    assert fixed["input_ids"].shape[1] % 32 == 0
    for name in ("input_ids", "token_type_ids", "position_ids", "labels"):
        assert torch.equal(fixed[name][:, :tokens], plain[name])
    assert (fixed["labels"][:, tokens:] == -100).all()
    assert torch.equal(fixed["cu_seq_lens_q"][:6], plain["cu_seq_lens_q"])


def test_the_count_of_a_check_leaves_fillers_out(folder):
    rows = make_dataset(Rows.load(folder / "quora.npz"), TASKS["quora"], columns=False)
    batch = TaskDataset({"quora": rows}).__getitems__(list(range(5)))
    shapes = FixedShapes({"quora": 400})
    fixed, plain = (
        count_batch(TaskCollator(0, packed=True, fixed_shapes=shape)(batch))
        for shape in (shapes, None)
    )
    assert fixed == plain
    assert plain["sequences"] == 10


def test_operations_follow_the_formula():
    lengths = np.full(100, 25)
    base = {"hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 30522}
    minilm = {"hidden_size": 384, "num_hidden_layers": 6, "vocab_size": 30522}
    for shape, expected in ((base, 512.4), (minilm, 64.4)):
        per_token = 3 * flops.count_flops(lengths, shape) / lengths.sum()
        assert per_token / 1e6 == pytest.approx(expected, abs=0.1)
    masked = 3 * flops.count_flops(lengths, base, masked=375) / lengths.sum()
    assert masked / 1e6 == pytest.approx(534.0, abs=0.1)


@pytest.mark.parametrize(("backward", "factor"), [(False, 1), (True, 3)])
def test_the_matrix_rate_counts_all_products(monkeypatch, backward, factor):
    monkeypatch.setattr(flops, "measure_seconds", lambda *_: 2.0)
    shape = {"hidden_size": 8, "num_hidden_layers": 2}

    rate = flops.measure_products(shape, 10, torch.bfloat16, backward=backward)

    # 12 H^2 weights a layer
    assert rate == factor * 2 * 10 * 2 * 12 * 8**2 / 2


def test_spearman_follows_the_order_of_cosines():
    first = np.array([[1, 0], [1, 0], [1, 0]])
    second = np.array([[1, 0], [1, 1], [0, 5]])
    assert inference.spearman(first, second, [5, 3, 1]) == pytest.approx(1)
    assert inference.spearman(first, second, [1, 3, 5]) == pytest.approx(-1)


def run_tiny(suite, tmp_path, *flags):
    """Run a suite in its tiny mode; return the report."""
    argv = [suite, "--tiny", "--threads", str(torch.get_num_threads()), *flags]
    return run.main([*argv, "--work_dir", str(tmp_path)]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite",
    ["training", "pretraining", "bfloat16", "encode", "predict", "pairs", "corpus", "parts"],
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
def test_all_methods_run(tmp_path):
    assert "void" not in run_tiny("methods", tmp_path, "--here")


@pytest.mark.slow
def test_the_gpu_suite_runs_its_logic_on_a_processor(tmp_path):
    text = run_tiny("cuda", tmp_path, "--here", "--workloads", "sst,mlm128_large")
    assert "## sst, tiny" in text
    assert "## mlm128_large, tiny" in text
    assert "void" not in text


def test_training_runs_in_tiny_mode(tmp_path):
    text = run_tiny(
        "training", tmp_path, "--here", "--workloads", "sst", "--contenders", "trainer,minbert"
    )
    assert re.search(r"\| minbert \| [\d,.]+ \| [\d.]+ \[", text)
    assert "void" not in text


@pytest.mark.slow
def test_blocks_are_processes_of_their_own(tmp_path):
    text = run_tiny("startup", tmp_path)
    assert "void" not in text
    assert Path(tmp_path / "result.json").exists()
