"""One table for each race, one picture of all ratios, and the raw numbers as JSON."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from .contenders import WORKLOADS
from .rounds import Log, Race, Record, Settings, strip_again

INK, QUIET, GRID, BAR, CONTROL = "#1b1d21", "#565b63", "#c9cdd3", "#0067a5", "#8a8f97"


class Spread(NamedTuple):
    """Median, minimum and maximum over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarize values."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Row:
    """A contender beside the baseline of its race.

    Args:
        race: The race.
        contender: The contender.
        cells: Column -> what the table shows; empty where there is nothing to show.
        speed: Its items per second over those of the baseline; None if the row does not count.
        parts: Share of each part of a step, the mean of the rounds.
    """

    race: Race
    contender: str
    cells: Mapping[str, str]
    speed: Spread | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


def summarize(log: Log, race: Race, settings: Settings) -> list[Row]:
    """Compare all contenders of a race with its baseline, the first of those that run."""
    failures, able = log.find_failures(race), log.without_failures(race)
    rounds = list(log.valid_rounds(able, settings))
    rows = []
    for contender in race.contenders:
        reason = failures.get(contender)
        if reason is None:
            reason = find_reason(log, race, (contender, able.contenders[0]), rounds)
        if reason is not None:
            cells = {"contender": contender, "rounds": f"void ({reason})"}
            rows.append(Row(race, contender, cells))
            continue
        blocks = [blocks[contender] for blocks in rounds]
        others = [blocks[able.contenders[0]] for blocks in rounds]
        rows.append(_compare(log, race, contender, blocks, others))
    return rows


def _compare(
    log: Log, race: Race, contender: str, blocks: Sequence[Record], others: Sequence[Record]
) -> Row:
    pairs = list(zip(blocks, others, strict=True))
    times = [[ms for block in part for ms in block["ms"]] for part in (blocks, others)]
    peak, other_peak, added, other_added = (
        max((block[key] for block in part if block.get(key) is not None), default=None)
        for key in ("peak_mib", "added_mib")
        for part in (blocks, others)
    )
    rates = [block["flops"] / block["seconds"] for block in blocks if "flops" in block]
    used = [rate / block["products"] for rate, block in zip(rates, blocks, strict=False)]
    check = next(reversed(find_check(log, race, contender)), {})
    shares = [block["shares"] for block in blocks if "shares" in block]
    names = dict.fromkeys(name for share in shares for name in share)
    rate, tflops = median(map(_rate, blocks)), median(rates) / 1e12 if rates else None
    speed = Spread.of([_rate(block) / _rate(other) for block, other in pairs])
    latency = Spread.of([median(block["ms"]) / median(other["ms"]) for block, other in pairs])
    p99 = float(np.percentile(times[0], 99)) if len(blocks[0]["ms"]) >= 100 else None
    is_latency = race.workload.endswith("_one") or race.workload == "startup"
    cells = {
        "contender": contender,
        f"{WORKLOADS[race.workload].item}/s": show(rate, 1 if rate < 100 else 0),
        "speed / baseline": show(None if is_latency else speed),
        "ms": show(median(times[0]), 1),
        "p99, ms": show(p99),
        "ms / baseline": show(latency if is_latency else None),
        "process MiB": show(peak, 0),
        "/ baseline": show(_ratio(peak, other_peak)),
        "added MiB": show(added, 0),
        "added / baseline": show(_ratio(added, other_added)),
        "folder MiB": show(blocks[0].get("folder_mib"), 0),
        "TFLOP/s": show(tflops, 3 if (tflops or 0) < 10 else 0),
        "of the matrix rate": show(Spread.of(used) if used else None),
        "Spearman, %": show(check.get("quality")),
        "errors": ", ".join(
            f"{key} {value:.1g}" for key, value in (check.get("errors") or {}).items()
        ),
        "rounds": str(len(blocks)),
    }
    parts = {name: sum(share.get(name, 0.0) for share in shares) / len(shares) for name in names}
    return Row(race, contender, cells, speed, parts)


def _rate(block: Record) -> float:
    return block["items"] / max(block["seconds"], 1e-9)


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other or other <= 0 else value / other


def find_check(log: Log, race: Race, contender: str) -> list[Record]:
    """Return the checks that count for a contender of a race."""
    equal, name = WORKLOADS[race.workload].check, strip_again(contender)
    return log.find(kind="check", workload=equal, size=race.size, contender=name)


def find_reason(
    log: Log, race: Race, names: Sequence[str], rounds: Sequence[Mapping[str, Record]]
) -> str | None:
    """Return why a row does not count: a failed check, an error, or no quiet round."""
    for name in dict.fromkeys(names):
        checks = find_check(log, race, name)
        if not checks and WORKLOADS[race.workload].check:
            return f"{name}: not checked"
        if checks and (problem := checks[-1].get("error") or checks[-1].get("reason")):
            return f"{name}: {problem}"
        errors = [blocks[name]["error"] for blocks in rounds if "error" in blocks[name]]
        if errors:
            return f"{name}: {errors[0]}"
    return None if rounds else "no round without other load"


def show(value: Spread | float | None, digits: int = 2) -> str:
    """Format a number."""
    if value is None:
        return ""
    return str(value) if isinstance(value, Spread) else f"{value:,.{digits}f}"


def tabulate(rows: Sequence[Row]) -> str:
    """Format the table of a race; columns without a value are left out."""
    # in the order of a row that counts, if there is one
    longest = max((row.cells for row in rows), key=len)
    kept = [name for name in longest if any(row.cells.get(name) for row in rows)]
    return format_table(kept, [[row.cells.get(name, "") for name in kept] for row in rows])


def tabulate_parts(rows: Sequence[Row]) -> str:
    """Format the shares of the parts of a step, the largest of the last contender first."""
    rows = [row for row in rows if row.parts]
    shares = [row.parts for row in rows]
    names = dict.fromkeys(name for share in shares for name in share)
    ordered = sorted(names, key=lambda name: -shares[-1].get(name, 0.0))
    lines = [
        [name, *(f"{100 * share.get(name, 0.0):.1f} %" for share in shares)] for name in ordered
    ]
    return format_table(["part of a step", *(row.contender for row in rows)], lines)


def format_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


NOTES = """\
The first contender is the baseline. Ratios are the median of the ratios of the rounds, with minimum
and maximum; a difference smaller than the spread of a contender measured "again" is none. Tokens
are real ones, without padding. Milliseconds are those of a step, a call, or a sentence. Memory is
the peak of the process, loading included, and what the work adds to the loaded model and data. The
share of the matrix rate is the operations that real tokens need per second, over the rate of bare
matrix products of the same shapes in the same process. Errors are those of the check: training
against transformers' BERT in a plain loop, vectors and classes against the baseline."""


def write_report(
    file: Path,
    log: Log,
    races: Sequence[Race],
    settings: Settings,
    facts: Mapping[str, Any],
    skipped: Sequence[str] = (),
) -> None:
    """Write the tables, the picture and the raw numbers.

    Args:
        file: The Markdown file; ``.png`` and ``.json`` are written beside it.
        log: The records.
        races: What was measured.
        settings: How it was measured.
        facts: ``command``, ``date``, ``machine``, ``workloads`` and, on a GPU, ``ceilings``.
        skipped: Contenders that were left out, with the reason.
    """
    parts = ["# Speed and memory", describe(facts, settings, log), NOTES]
    rows: list[Row] = []
    for race in races:
        table = summarize(log, race, settings)
        rows += table
        parts += [f"## {race.workload}, {race.size}", tabulate(table)]
        if any(row.parts for row in table):
            parts.append(tabulate_parts(table))
    if skipped:
        parts += ["## Left out", "\n".join(f"- {line}" for line in skipped)]
    if tasks := facts["workloads"]["tasks"]:
        lines = [
            (name, str(task["rows"]), f"{task['tokens']:,.0f}", f"{task['fill']:.3f}")
            for name, task in tasks.items()
        ]
        header = ("task", "rows", "real tokens per step", "real tokens of a padded batch")
        parts += ["## Batches", format_table(header, lines)]
    if draw(file.with_suffix(".png"), rows):
        parts.insert(3, f"![Ratios]({file.with_suffix('.png').name})")
    file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    raw = {
        "facts": dict(facts),
        "settings": asdict(settings),
        "races": [asdict(race) for race in races],
        "records": log.records,
    }
    file.with_suffix(".json").write_text(json.dumps(raw, default=str), encoding="utf-8")


def describe(facts: Mapping[str, Any], settings: Settings, log: Log) -> str:
    """Describe command, machine, versions and rules."""
    machine = facts["machine"]
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    loads = [block["load_before"] for block in log.find(kind="block")] or [0.0]
    noise = (
        "All rounds count, whatever else ran."
        if math.isinf(settings.max_foreign)
        else f"A round counts if other processes used at most {settings.max_foreign:g} processors "
        f"and the host took at most {settings.max_steal:.0%} of one."
    )
    where = "each in a process of its own" if settings.device == "cpu" else "all in one process"
    source = "real texts" if facts["workloads"]["data_dir"] != "None" else "random texts"
    lines = [
        f"`{facts['command']}`, {facts['date']}.",
        "",
        f"- Machine: {machine['cpu']}, {settings.threads} threads; {machine['system']}; "
        f"{', '.join(facts['instructions'])}",
        f"- Versions: {versions}",
        f"- {settings.rounds} rounds of blocks, {where}; order reversed every round; {source}",
        f"- {noise} The load was {min(loads):.1f} to {max(loads):.1f}.",
    ]
    if ceilings := facts.get("ceilings"):
        lines.append(
            f"- {facts['device']}: {ceilings['tflops']:,.1f} TFLOP/s in a large matrix product, "
            f"{ceilings['copy']:.2f} TB/s in a copy"
        )
    return "\n".join(lines)


def show_command(script: str, argv: Sequence[str]) -> str:
    """Return a command line with names of files and folders instead of their paths."""
    return " ".join(["python", script, *(re.sub(r"[^=]*/", "", argument) for argument in argv)])


def draw(file: Path, rows: Sequence[Row]) -> bool:
    """Plot the speeds of all contenders but the baselines; return whether there are any."""
    bars = [
        (row.speed, f"{row.race.workload}, {row.race.size}: {row.contender}", row)
        for row in rows
        if row.speed is not None and row.speed != Spread(1.0, 1.0, 1.0)
    ]
    if not bars:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.1 + 0.34 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    axes.set_title("Speed, as a multiple of the baseline's", loc="left", fontsize=10, color=INK)
    for place, (speed, _, row) in enumerate(reversed(bars)):
        is_control = row.contender != strip_again(row.contender)
        axes.barh(place, speed.median, height=0.62, color=CONTROL if is_control else BAR, alpha=0.6)
        axes.hlines(place, speed.low, speed.high, color=INK, linewidth=1)
        axes.text(speed.high + 0.03, place, f"{speed.median:.1f}x", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [label for _, label, _ in reversed(bars)], parse_math=False)
    axes.tick_params(labelsize=8, labelcolor=INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(GRID)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xlim(0, 1.1 * max(speed.high for speed, _, _ in bars))
    note = "bar: median of the rounds; line: minimum to maximum; gray: measured again"
    figure.supxlabel(note, fontsize=8, color=QUIET)
    figure.savefig(file, dpi=150)
    return True
