"""The report of the precisions: ``RESULTS_PRECISION.md`` and its picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.records import Log, Race, Settings
from benchmarks.report import describe, table
from benchmarks.summary import Spread

from .contenders import AGAIN, CONTENDERS, Contender
from .picture import draw, make_points
from .summary import Line, find_reference, score, summarize_race
from .targets import GOALS

TITLES = {
    "encode": ("Encoding sentences", "Spearman on STS dev"),
    "predict": ("Predicting classes", "accuracy on SST dev"),
}


def write_report(
    file: Path, log: Log, races: Sequence[Race], settings: Settings, facts: Mapping[str, Any]
) -> None:
    """Write the tables and the picture.

    Args:
        file: ``RESULTS_PRECISION.md``.
        log: The blocks.
        races: What was measured.
        settings: How it was measured.
        facts: ``command``, ``date``, ``machine``, ``instructions`` and ``encoder``.
    """
    parts = ["# Speed, latency and quality by precision", _describe(facts, settings, log)]
    parts += ["## Targets", _target_table(log, races, settings)]
    for race in races:
        if race.workload in CONTENDERS:
            lines = summarize_race(log, race, settings)
            title, quality = TITLES[race.workload]
            parts += [f"## {title}", _apply_table(lines, race, quality)]
            picture = file.with_suffix(".png")
            if race.workload == "encode" and draw(picture, make_points(lines)):
                parts.insert(-1, f"![Speed and quality]({picture.name})")
    training = [race for race in races if race.workload not in CONTENDERS]
    if training:
        parts += ["## Training", _training_table(log, training, settings)]
    parts += ["## What was measured", NOTES, "## Numerics", _gate_table(log)]
    file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _describe(facts: Mapping[str, Any], settings: Settings, log: Log) -> str:
    lines = [describe(facts, settings, log), f"- Instruction sets: {facts['instructions'] or '?'}"]
    others = log.find(kind="versions", error=None)
    if others:
        versions = ", ".join(f"{name} {value}" for name, value in others[-1]["versions"].items())
        lines.append(f"- Versions of the environment of ONNX and OpenVINO: {versions}")
    lines.append(f"- Encoder: {facts['encoder']}")
    return "\n".join(lines)


def _target_table(log: Log, races: Sequence[Race], settings: Settings) -> str:
    lines = [
        (
            goal.what, shown, " / ".join(f"{value:g}" for value in goal.target), level,
        )
        for goal, shown, level in score(GOALS, log, races, settings)
    ]  # fmt: skip
    return table(("minBERT", "value", "floor / target / stretch", "level"), lines)


def _apply_table(lines: Sequence[Line], race: Race, quality: str) -> str:
    base = find_reference(race)
    header = (
        "peer", "precision", "sentences/s", f"speed / {base}", "one sentence: p50, ms", "p99, ms",
        "p50 / the same", f"{quality}, %", "loss, %", "share of the matrix rate", "peak MiB",
        "peak / the same",
    )  # fmt: skip
    return table(header, [_apply_cells(line) for line in lines])


def _apply_cells(line: Line) -> tuple[str, ...]:
    peer, precision = Contender.parse(line.name)
    start = (peer + (" (again)" if line.name.endswith(AGAIN) else ""), precision)
    row = line.row
    if row.ratio is None:
        return (*start, f"void ({row.reason})", *[""] * 9)
    return (
        *start, f"{row.rate:,.0f}", str(row.ratio), _show(line.p50), _show(line.p99),
        _show(line.single), _show(line.quality), _show(line.loss), _show(line.share),
        f"{row.peak[0]:,.0f}", f"{row.memory[0]:.2f}",
    )  # fmt: skip


def _training_table(log: Log, races: Sequence[Race], settings: Settings) -> str:
    header = (
        "workload", "precision", "peer", "tokens/s", "ms/step", "speed / Trainer",
        "share of the matrix rate", "accuracy on SST dev after an epoch, %", "peak MiB",
        "peak / Trainer",
    )  # fmt: skip
    lines = []
    for race in races:
        workload, precision = race.workload.split(" ")
        for line in summarize_race(log, race, settings):
            row, start = line.row, (workload, precision, line.name)
            if row.ratio is None:
                lines.append((*start, f"void ({row.reason})", *[""] * 6))
                continue
            # the epoch has batches in random order
            quality = line.quality if workload == "sst" else None
            lines.append((
                *start, f"{row.rate:,.0f}", f"{row.ms:,.0f}", str(row.ratio), _show(line.share),
                _show(quality), f"{row.peak[0]:,.0f}", f"{row.memory[0]:.2f}",
            ))  # fmt: skip
    return table(header, lines)


def _show(value: Spread | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _gate_table(log: Log) -> str:
    lines = []
    for gate in log.find(kind="gate"):
        errors = gate.get("errors") or {}
        shown = ", ".join(f"{name} {value:.2g}" for name, value in errors.items())
        problem = gate.get("error") or gate.get("reason")
        outcome = f"void: {problem}" if problem else "pass"
        lines.append((gate["workload"], gate["peer"], shown, outcome))
    text = (
        "Encoders: relative error of the vectors, scaled to length 1, compared with the first row "
        "of their table; a limit applies in float32 only. Classifiers: share of other classes. "
        "Training: relative errors compared with a plain loop, and in bfloat16 the error as a "
        "multiple of that of transformers in bfloat16: at most 1.2 for gradients, 2 for losses."
    )
    return f"{text}\n\n" + table(("workload", "peer", "errors", "outcome"), lines)


NOTES = """\
Ratios are the median of the ratios of the rounds, with minimum and maximum. Encoding and
predicting: one call with many sentences, then one call each for hundreds of different ones,
tokenization included; the medians over the rounds of p50 and p99. "Loss" is the share of the
quality of the first row that is lost. Memory is the peak of the process until the end of the first
call, loading and imports included.

The share of the matrix rate is the operations of the encoder per second (`flops.py`: real tokens,
all layers in full), divided by the rate of bare matrix products in the same process and precision:
the products of all layers with the real tokens of a batch of 32 rows, for training also those of
the backward pass. What minBERT saves in its last layer counts as computed. Encoding includes
tokenization.

The picture connects the precisions of a peer.

- minBERT int8 is loaded from a folder that was saved quantized; bfloat16 is `precision="bfloat16"`.
- ONNX int8: `export_dynamic_quantized_onnx_model` for the best instruction set of the processor.
- OpenVINO int8: `export_static_quantized_openvino_model`, calibrated on 300 other sentences.
- OpenVINO computes float32 models in bfloat16 if the processor has instructions for it. That is
  its row bfloat16; float32 needs the hint `INFERENCE_PRECISION_HINT`.
- Training and predicting begin with the same weights; the head is that of an epoch of minBERT in
  float32. Accuracies are of one seed."""
