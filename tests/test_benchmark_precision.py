"""The benchmark of precisions: what counts, what is void, what the report and the picture show."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import run_precision
from benchmarks.peers import Job
from benchmarks.precision import block, picture, products, quality
from benchmarks.precision.campaign import Options, PrecisionCampaign, judge_half, plan
from benchmarks.precision.contenders import AGAIN, CONTENDERS, REFERENCE, Contender
from benchmarks.precision.epoch import to_bert
from benchmarks.precision.prepare import prepare_all
from benchmarks.precision.report import write_report
from benchmarks.precision.summary import compare, score
from benchmarks.precision.targets import GOALS
from benchmarks.records import Log, Race, Settings

ROOT = Path(__file__).parents[1]
RACE = Race("encode", "encoder", (REFERENCE, "minbert float32", "minbert int8"))
SHAPE = {"hidden_size": 8, "num_hidden_layers": 2}


class Blocks:
    """Pretended blocks: int8 is four times as fast, loses quality, and answers twice as fast."""

    def __init__(self, foreign=(), error=None, wrong=()):
        self.foreign, self.error, self.wrong = list(foreign), error, wrong
        self.specs = []

    def __call__(self, spec, folder):
        self.specs.append(spec)
        quiet = {"wall": 1.0, "steal": 0.0, "load_before": 0.0}
        quiet["foreign"] = self.foreign.pop(0) if self.foreign else 0.0
        if spec["peer"] == self.error:
            return {**quiet, "error": "no such precision"}
        if spec["do"] not in CONTENDERS:
            return {**quiet, "quality": 50.0, "versions": {"x": "1"}}
        fast = spec["peer"].endswith("int8")
        record = {"seconds": 0.5 if fast else 2.0, "items": 100, "ms": [1.0]}
        record |= {"peak_mib": 400.0 if fast else 500.0, "step_mib": 1.0}
        record |= {"p50": 2.0 if fast else 4.0, "p99": 9.0, "flops": 3e9, "products": 4e9}
        if spec["quality"]:
            record["quality"] = 79.6 if fast else 80.0
            outputs = np.ones((2, 3, 4))
            outputs[0, 0, 0] += 0.1 if spec["peer"] in self.wrong else 0
            np.save(quality.output_file(folder, spec["do"], spec["peer"]), outputs)
        return {**quiet, **record}


@pytest.fixture
def settings(tmp_path):
    return Settings(tmp_path, tmp_path / "blocks.jsonl", rounds=2)


def run(settings, blocks, race=RACE, *, resume=False):
    log = Log.open(settings.results, resume=resume)
    PrecisionCampaign(settings, [race], log, Options(), blocks).run()
    return log


def measured(blocks):
    return [spec["peer"] for spec in blocks.specs if spec["do"] == "encode"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precision")
    prepare_all(folder, None, None, quick=True)
    return folder


def test_rounds_alternate_and_quality_is_measured_once(settings):
    blocks = Blocks()

    run(settings, blocks)

    assert measured(blocks) == [*RACE.peers, *RACE.peers[::-1]]
    asked = [spec["quality"] for spec in blocks.specs if spec["do"] == "encode"]
    assert asked == [True] * 3 + [False] * 3


def test_a_block_with_other_load_is_repeated_and_the_repeat_counts(settings):
    # the first block is the export of int8
    blocks = Blocks(foreign=[0, 0, 0.5])

    log = run(settings, blocks)

    assert measured(blocks)[:4] == [REFERENCE, *["minbert float32"] * 2, "minbert int8"]
    assert compare(log, RACE, "minbert int8", REFERENCE, settings).row.rounds == 2


def test_resuming_does_only_missing_runs(settings):
    run(settings, Blocks())
    lines = settings.results.read_text().splitlines(keepends=True)
    settings.results.write_text("".join(lines[:-1]))
    blocks = Blocks()

    run(settings, blocks, resume=True)

    assert [spec["peer"] for spec in blocks.specs] == [REFERENCE]


def test_a_line_has_the_ratios_of_speed_latency_memory_and_quality(settings):
    log = run(settings, Blocks())

    line = compare(log, RACE, "minbert int8", REFERENCE, settings)

    assert (line.row.ratio, line.row.rate) == ((4, 4, 4), 200)
    assert (line.single, line.p50, line.p99) == ((0.5, 0.5, 0.5), 2, 9)
    assert (line.row.memory[0], line.row.peak[0]) == (0.8, 400)
    assert line.share == (0.75, 0.75, 0.75)
    assert (line.quality, line.loss) == (79.6, pytest.approx(0.5))


def test_targets_have_values_and_levels(settings):
    log = run(settings, Blocks())

    scores = {found.goal.what: found for found in score(GOALS, log, [RACE], settings)}

    assert scores[f"encode int8, speed / {REFERENCE}"].level == "target"
    assert scores[f"encode int8, loss of Spearman, % of {REFERENCE}"].level == "below the floor"
    assert scores["encode float32, share of the matrix rate"].level == "floor"
    assert scores[f"one sentence int8, p50 / {REFERENCE}"].level == "stretch"
    assert scores[f"encode int8, peak memory / {REFERENCE}"].level == "floor"
    # peers that did not run have no row
    assert "encode int8, speed / onnx int8" not in scores


def test_every_target_names_contenders_that_run():
    races = {race.workload: race for race in plan(("encode", "predict", "train"), elsewhere=True)}

    for goal in GOALS:
        assert {goal.own, goal.other or goal.own} <= set(races[goal.workload].peers)


def test_float32_vectors_that_differ_make_a_row_void_but_those_of_int8_do_not(settings):
    log = run(settings, Blocks(wrong=("minbert float32", "minbert int8")))

    assert "vectors: " in compare(log, RACE, "minbert float32", REFERENCE, settings).row.reason
    assert compare(log, RACE, "minbert int8", REFERENCE, settings).row.reason is None


def test_the_report_shows_values_void_rows_and_targets(settings, tmp_path):
    log = run(settings, Blocks(error="minbert float32"))
    facts = {"command": "run", "date": "today", "instructions": "amx_int8", "encoder": "small"}
    facts["machine"] = {"cpu": "x", "system": "y", "versions": {}}

    write_report(tmp_path / "R.md", log, [RACE], settings, facts)

    text = (tmp_path / "R.md").read_text()
    assert "| minbert | int8 | 200 | 4.00 [4.00, 4.00] | 2.00 | 9.00 | 0.50" in text
    assert "| minbert | float32 | void (minbert float32: no such precision) |" in text
    assert "- Instruction sets: amx_int8" in text
    assert "![Speed and quality](R.png)" in text
    assert (tmp_path / "R.png").stat().st_size > 1000


def test_training_races_compare_trainers_of_one_precision():
    races = plan(["train"], elsewhere=False)

    assert [race.workload for race in races][:2] == ["sst float32", "sst bfloat16"]
    assert all(race.peers == ("minbert", "trainer") for race in races)


def test_peers_of_the_other_environment_need_its_interpreter():
    here, there = (plan(["encode"], elsewhere=value)[0].peers for value in (False, True))

    assert not [name for name in here if name.startswith(("onnx", "openvino"))]
    assert set(there) == set(CONTENDERS["encode"])
    assert there[0] == REFERENCE


def test_blocks_of_other_libraries_run_in_the_other_interpreter(settings):
    blocks = Blocks()
    race = Race("encode", "encoder", (REFERENCE, "onnx int8"))
    log = Log.open(settings.results, resume=False)

    PrecisionCampaign(settings, [race], log, Options(peer_python="other"), blocks).run()

    pythons = {spec["peer"]: spec["python"] for spec in blocks.specs}
    assert pythons == {REFERENCE: sys.executable, "onnx": "other", "onnx int8": "other"}


def test_the_block_imports_only_what_both_environments_have():
    code = (
        "import sys, benchmarks.precision.block, benchmarks.precision.contenders\n"
        "print(*sorted({'transformers', 'datasets', 'modeling_minbert'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_minbert_and_transformers_compute_the_same_vectors(folder):
    spec = {"do": "encode", "folder": str(folder), "threads": 1, "sentences": 40, "singles": 5}
    spec |= {"quality": True, "products": True}
    pairs = {"first": ["one film", "two films"], "second": ["a film", "the end"], "scores": [1, 2]}
    (folder / "sts.json").write_text(json.dumps(pairs))

    names = ("transformers float32", "minbert float32")
    records = [block.apply_block({**spec, "peer": name}) for name in names]

    assert quality.compare_outputs(folder, "encode", *names)["vectors"] < 1e-5
    for record in records:
        assert record["items"] == 40
        assert record["p50"] <= record["p99"]
        assert record["flops"] > 0


@pytest.mark.parametrize(
    ("gradients", "losses", "reason"),
    [
        (1.1, 1.4, None),
        (1.3, 1.4, "bf16 gradients: 1.30 times the error of transformers"),
        (1.1, float("nan"), "bf16 losses: nan times the error of transformers"),
    ],
)
def test_training_in_bfloat16_has_limits(gradients, losses, reason):
    record = {"errors": {"bf16 gradients": gradients, "bf16 losses": losses}, "reason": "x"}
    assert judge_half(record)["reason"] == reason
    assert judge_half({"error": "out of memory"}) == {"error": "out of memory"}


def test_weights_that_were_not_trained_are_refused(folder):
    job = Job(folder / "epoch", "sst", "encoder", steps=1)
    with pytest.raises(ValueError, match=r"the trained model has no bert\.embeddings"):
        to_bert({}, job)


def test_single_sentences_are_all_different():
    seen = []
    sentences = [f"sentence {index // 2}" for index in range(60)]

    block.time_singles(seen.append, sentences, 10)

    assert len(seen) == len(set(seen)) == block.SINGLES_WARMUP + 10
    with pytest.raises(ValueError, match="30 different sentences are left, 31 are needed"):
        block.time_singles(seen.append, sentences, 31)


@pytest.mark.parametrize(("backward", "factor"), [(False, 1), (True, 3)])
def test_the_matrix_rate_counts_all_products(monkeypatch, backward, factor):
    seconds = iter(range(100))
    monkeypatch.setattr(products, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))

    rate = products.measure_products(SHAPE, 10, "bfloat16", backward=backward)

    # every pass takes a second; 12 H^2 weights a layer
    assert rate == factor * 2 * 10 * 2 * 12 * 8**2


def test_spearman_follows_the_order_of_cosines():
    first = np.array([[1, 0], [1, 0], [1, 0]], dtype=np.float32)
    second = np.array([[1, 0], [1, 1], [0, 5]], dtype=np.float32)

    assert quality.spearman(first, second, [5, 3, 1]) == pytest.approx(1)
    assert quality.spearman(first, second, [1, 3, 5]) == pytest.approx(-1)


def test_lengths_of_vectors_do_not_matter_and_directions_do(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4))
    for name, array in (("a", vectors), ("b", 7 * vectors), ("c", vectors[::-1])):
        np.save(quality.output_file(tmp_path, "encode", name), array)

    assert quality.compare_outputs(tmp_path, "encode", "b", "a")["vectors"] < 1e-6
    assert quality.compare_outputs(tmp_path, "encode", "c", "a")["vectors"] > 0.1
    assert quality.compare_outputs(tmp_path, "encode", "missing", "a") == {}


def test_arrays_come_from_tensors_of_any_precision():
    expected = np.array([1.5], dtype=np.float32)
    for vectors in (torch.tensor([1.5], dtype=torch.bfloat16), np.array([1.5])):
        array = quality.to_array(vectors)
        assert (array == expected).all()
        assert array.dtype == np.float32


def test_names_have_a_peer_and_a_precision():
    assert Contender.parse(f"minbert float32{AGAIN}") == ("minbert", "float32")


def test_another_encoder_in_the_same_folder_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="another encoder; delete it"):
        prepare_all(folder, None, tmp_path, quick=True)


def test_labels_of_the_picture_do_not_overlap():
    peers = ["minbert", "transformers", "onnx", "openvino", "sentence-transformers"]
    near = [picture.Point(Contender(p, "float32"), 1 + 0.02 * i, 80.8) for i, p in enumerate(peers)]
    far = [picture.Point(Contender("minbert", "int8"), 4.0, 80.5)]
    figure = Figure(figsize=(9, 5))
    FigureCanvasAgg(figure)

    picture.plot(figure, [*near, *far])

    renderer = figure.canvas.get_renderer()
    boxes = [picture.find_box(text, renderer) for text in figure.axes[0].texts]
    assert len(boxes) == len(peers)
    for place, box in enumerate(boxes):
        assert not any(box.overlap(other) for other in boxes[place + 1 :])


def test_points_without_quality_and_controls_are_not_drawn(settings, tmp_path):
    log = run(settings, Blocks())
    lines = [compare(log, RACE, name, REFERENCE, settings) for name in RACE.peers]
    again = lines[0]._replace(name=f"minbert float32{AGAIN}")

    points = picture.make_points([lines[0]._replace(quality=None), again, lines[2]])

    assert points == [picture.Point(Contender("minbert", "int8"), 4, 79.6)]
    assert not picture.draw(tmp_path / "none.png", [])


def test_unknown_parts_are_refused(capsys):
    with pytest.raises(SystemExit):
        run_precision.parse(["--parts", "encode,decode"])
    assert "unknown parts decode; known: encode, predict, train" in capsys.readouterr().err
