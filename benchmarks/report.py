"""The report: tables, and the plot beside it."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .plot import AGAIN, draw, make_bars
from .records import Log, Race, Settings
from .summary import MINBERT, Row, summarize
from .targets import MEMORY, TARGETS, Target, verdict

Targets = Mapping[tuple[str, str, str], Target]


def write_report(
    file: Path,
    log: Log,
    races: Sequence[Race],
    settings: Settings,
    facts: Mapping[str, Any],
    more: Sequence[str] = (),
    targets: Targets = TARGETS,
) -> None:
    """Write the tables and the plot.

    Args:
        file: ``RESULTS.md``.
        log: The blocks.
        races: What was measured.
        settings: How it was measured.
        facts: ``command``, ``date``, ``machine`` and ``workloads``.
        more: Further sections.
        targets: Floors, targets and stretch targets of the ratios.
    """
    rows = summarize(log, races, settings)
    plot = file.with_suffix(".png")
    parts = [
        "# Speed and memory results",
        describe(facts, settings, log),
        "## Speed and memory compared with the peers",
        _speed_table(rows, targets),
        _notes(),
        "## Absolute numbers",
        _absolute_table(rows),
        "## Noise",
        _noise_table(rows),
        "## Numerics",
        _gate_table(log),
        "## Workloads",
        _workload_table(facts["workloads"]),
        *more,
    ]
    if draw(plot, make_bars(rows, targets)):
        parts.insert(3, f"![Ratios]({plot.name})")
    file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def describe(facts: Mapping[str, Any], settings: Settings, log: Log) -> str:
    """Describe command, machine, versions and rules.

    Args:
        facts: ``command``, ``date`` and ``machine``.
        settings: How it was measured.
        log: The blocks.
    """
    machine = facts["machine"]
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    blocks = log.find(kind="block")
    loads = [block["load_before"] for block in blocks] or [0.0]
    return "\n".join(
        [
            f"Measured with `{facts['command']}` on {facts['date']}.",
            "",
            f"- Machine: {machine['cpu']}, {settings.threads} threads; {machine['system']}",
            f"- Versions: {versions}",
            f"- Rounds: {settings.rounds}, blocks of about {settings.seconds:g} s after "
            f"{settings.warmup} warmup steps, {_describe_processes(settings)}; order reversed "
            "every round",
            f"- {_describe_noise(settings)} The load was {min(loads):.1f} to {max(loads):.1f}.",
        ]
    )


def _describe_processes(settings: Settings) -> str:
    return "each in a separate process" if settings.isolated else "all in one process"


def show_command(script: str, argv: Sequence[str]) -> str:
    """Return a command line with names of files and folders instead of their paths."""
    return " ".join(["python", script, *(re.sub(r"[^=]*/", "", argument) for argument in argv)])


def _describe_noise(settings: Settings) -> str:
    if math.isinf(settings.max_foreign):
        return "All rounds count, whatever else ran."
    return (
        f"A round counts if other processes used at most {settings.max_foreign:g} processors and "
        f"the host took at most {settings.max_steal:.0%} of one."
    )


def _speed_table(rows: Sequence[Row], targets: Targets) -> str:
    header = (
        "workload", "model", "peer", "speed, minBERT / peer", "floor / target / stretch", "level",
        "peak memory", "level", "training memory", "level",
    )  # fmt: skip
    lines = []
    for row in rows:
        if row.peer in (MINBERT, AGAIN):
            continue
        race = row.race
        target = targets.get((race.workload, race.size, row.peer))
        goal = " / ".join(f"{value:g}" for value in target) if target else ""
        start = (race.workload, race.size, label(row))
        if row.ratio is None:
            lines.append((*start, f"void ({row.reason})", goal, *[""] * 5))
            continue
        memory = [cell for ratio in row.memory for cell in (f"{ratio:.2f}", verdict(ratio, MEMORY))]
        reached = verdict(row.ratio.median, target)
        lines.append((*start, str(row.ratio), goal, reached, *memory))
    return table(header, lines)


def label(row: Row) -> str:
    """Return the name of a peer in a table."""
    peer = row.peer
    if row.race.workload.endswith("_grouped") and peer == "trainer":
        peer = "trainer-grouped"
    return peer if row.ours == MINBERT else f"{peer} (by {row.ours})"


def _notes() -> str:
    return (
        "Speed is real tokens per second (sentences for `encode`): the median of the ratios of the "
        'rounds, with minimum and maximum. "Level" is the highest of floor, target and stretch '
        "that was reached. Memory is the ratio of the peaks, of the whole process and of what "
        "training adds to the loaded model and data; its floor, target and stretch are "
        f"at most {MEMORY.floor:g} / {MEMORY.target:g} / {MEMORY.stretch:g}."
    )


def _absolute_table(rows: Sequence[Row]) -> str:
    header = ("workload", "model", "peer", "items/s", "ms/step", "peak MiB", "training MiB")
    lines = [
        (
            row.race.workload, row.race.size, label(row), f"{row.rate:,.0f}", f"{row.ms:,.0f}",
            f"{row.peak[0]:,.0f}", f"{row.peak[1]:,.0f}",
        )
        for row in rows
        if row.ratio is not None and row.ours == MINBERT
    ]  # fmt: skip
    return table(header, lines)


def _noise_table(rows: Sequence[Row]) -> str:
    lines = [
        (row.race.workload, row.race.size, str(row.ratio or row.reason), str(row.rounds))
        for row in rows
        if row.peer == AGAIN
    ]
    text = "minBERT compared with itself; a difference within this spread is not a gain."
    return f"{text}\n\n" + table(("workload", "model", "ratio", "rounds"), lines)


def _gate_table(log: Log) -> str:
    lines = []
    for gate in log.find(kind="gate"):
        errors = ", ".join(f"{name} {value:.0e}" for name, value in gate.get("errors", {}).items())
        problem = gate.get("error") or gate.get("reason")
        outcome = f"void: {problem}" if problem else "pass"
        lines.append((gate["workload"], gate["size"], gate["peer"], errors, outcome))
    text = (
        "Largest relative errors compared with transformers' BERT in a plain loop: no dropout, "
        "fp32, first step and 20 steps of AdamW. The counts of tokens, sequences and masked tokens "
        "are equal."
    )
    return f"{text}\n\n" + table(("workload", "model", "peer", "errors", "outcome"), lines)


def _workload_table(workloads: Mapping[str, Any]) -> str:
    lines = [
        (name, str(task["rows"]), f"{task['tokens']:,.0f}", f"{task['fill']:.3f}")
        for name, task in workloads["tasks"].items()
    ]
    source = "real texts" if workloads["data_dir"] else "random ids and lengths"
    text = f"Batches of {source}. Fill is the share of real tokens in a padded batch."
    return f"{text}\n\n" + table(("workload", "rows", "real tokens per step", "fill"), lines)


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
