"""The picture of the ratios.

python -m benchmarks.plot benchmarks/RESULTS.md            # again, from the tables of a report
python -m benchmarks.plot benchmarks/RESULTS.md FILE.png   # peers only, without targets
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainers.reports.plots.palette import LIGHT, new_figure, style_axes

from .summary import MINBERT, Row, Spread
from .targets import TARGETS, Target

AGAIN = "minbert-again"
# minBERT against itself: what is not due to a peer.
CONTROLS = (AGAIN, "minbert-padded")
SIZES = {"base": ", BERT-base size"}
WORKLOADS = {
    "sst": "SST fine-tuning",
    "sst_grouped": "SST fine-tuning, grouped by length",
    "quora": "Quora pairs",
    "sts": "STS pairs",
    "mixed": "three tasks together",
    "mlm128": "masked language model, 128 tokens",
    "mlm128_full": "the same without padding",
    "mlm512": "masked language model, 512 tokens",
    "encode": "embedding sentences",
}
PEERS = {
    "trainer": "Transformers' Trainer",
    "trainer-grouped": "Transformers' Trainer",
    "bare": "Transformers' BERT in a plain loop",
    "reference": "a loop as in a course",
    "minbert-padded": "minBERT with padding",
    AGAIN: "minBERT itself (noise)",
}
# Sections of a report whose tables have ratios.
SECTIONS = ("Speed and memory compared with the peers", "Noise")
LINE = re.compile(
    r"\| (?P<workload>\w+) \| (?P<size>\w+) \| (?:(?P<peer>[^|\[\]]+) \| )?"
    r"(?P<median>[\d.]+) \[(?P<low>[\d.]+), (?P<high>[\d.]+)\] \|"
)


class Bar(NamedTuple):
    """A ratio with its spread."""

    label: str
    ratio: Spread
    target: Target | None = None
    is_control: bool = False


def name_pair(workload: str, size: str, peer: str) -> str:
    """Describe what was measured in words."""
    what = WORKLOADS.get(workload, workload) + SIZES.get(
        size, "" if size == "minilm" else f" {size}"
    )
    return f"{what}, beside {PEERS.get(peer, peer)}"


def make_bars(rows: Sequence[Row], targets: Mapping[tuple[str, str, str], Target]) -> list[Bar]:
    """Return the bars of all rows with a ratio."""
    bars = []
    for row in rows:
        if row.ratio is not None and row.peer != MINBERT:
            workload, size = row.race.workload, row.race.size
            name = name_pair(workload, size, row.peer)
            name += "" if row.ours == MINBERT else f" (by {row.ours})"
            target = targets.get((workload, size, row.peer))
            bars.append(Bar(name, row.ratio, target, row.peer in CONTROLS))
    return bars


def read_bars(text: str) -> list[Bar]:
    """Return the bars of the tables in a report; the table of noise has no peers."""
    bars = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        if section.partition("\n")[0] in SECTIONS:
            for found in LINE.finditer(section):
                workload, size, peer = found["workload"], found["size"], found["peer"] or AGAIN
                ratio = Spread(*(float(found[name]) for name in Spread._fields))
                key = (workload, size, peer.removesuffix("-grouped"))
                target = TARGETS.get(key)
                bars.append(Bar(name_pair(*key), ratio, target, peer in CONTROLS))
    return bars


def draw(file: Path, bars: Sequence[Bar]) -> bool:
    """Plot the ratios with their spread, floors and targets; return whether there are any."""
    if not bars:
        return False
    # the largest on top, and the controls at the bottom
    ordered = sorted(bars, key=lambda bar: (not bar.is_control, bar.ratio.median))
    with new_figure(file, 9, 1.1 + 0.36 * len(ordered)) as figure:
        axes = figure.add_subplot()
        style_axes(axes, "Speed of minBERT, as a multiple of the peer's")
        axes.grid(visible=False)
        for place, bar in enumerate(ordered):
            _draw_bar(axes, place, bar)
        axes.set_yticks(range(len(ordered)), [bar.label for bar in ordered], parse_math=False)
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.axvline(1, color=LIGHT["ink"], linewidth=1)
        axes.set_xlim(0, 1.12 * max(bar.ratio.high for bar in ordered))
        figure.supxlabel(_explain(ordered), fontsize=8, color=LIGHT["quiet"])
    return True


def _draw_bar(axes: Any, place: int, bar: Bar) -> None:
    middle, low, high = bar.ratio
    color = LIGHT["quiet" if bar.is_control else "dev"]
    axes.barh(place, middle, height=0.62, color=color, alpha=0.6)
    axes.hlines(place, low, high, color=LIGHT["ink"], linewidth=1)
    axes.text(high + 0.05, place, f"{middle:.1f}x", va="center", fontsize=9, color=LIGHT["ink"])
    marks = (
        [] if bar.target is None else [("train", bar.target.floor), ("third", bar.target.target)]
    )
    for name, value in marks:
        axes.vlines(value, place - 0.42, place + 0.42, color=LIGHT[name], linewidth=2)


def _explain(bars: Sequence[Bar]) -> str:
    text = "bar: median of the rounds; line: minimum to maximum"
    if any(bar.target for bar in bars):
        text += "; orange mark: floor; green mark: target"
    return text + ("; gray: controls" if any(bar.is_control for bar in bars) else "")


def main(argv: Sequence[str]) -> None:
    """Draw the picture of a report beside it, or the short one to a file of another name."""
    report, *other = map(Path, argv)
    bars = read_bars(report.read_text(encoding="utf-8"))
    if other:
        bars = [bar._replace(target=None) for bar in bars if not bar.is_control]
    file = other[0] if other else report.with_suffix(".png")
    if not draw(file, bars):
        raise SystemExit(f"{report} has no table with ratios; expected the report of run.py")


if __name__ == "__main__":
    main(sys.argv[1:])
