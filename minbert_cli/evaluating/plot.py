"""``table.png`` of ``minbert embeddings``: the scores of each checkpoint."""

import os
from collections.abc import Mapping
from typing import Any

from trainers.reports.plots.palette import LIGHT, SERIES, new_figure, style_axes

MARKS = "osD^"
# An axis is not magnified further, so that a tenth of a percent stays small.
LEAST_SPAN = 5.0


def plot_scores(rows: Mapping[str, Mapping[str, float]], path: str | os.PathLike[str]) -> None:
    """Write a PNG picture with a line for each score and a mark for each checkpoint.

    Args:
        rows: Scores in percent, by checkpoint and name; all checkpoints have the same names.
        path: File to write.
    """
    columns = list(next(iter(rows.values())))
    spacing = 0.9 / (len(rows) + 1)
    height = 1.1 + 0.24 * len(rows) + len(columns) * max(0.32, 0.2 * len(rows))
    with new_figure(path, 8.0, height) as figure:
        axes = figure.subplots()
        style_axes(axes, grid="x")
        handles = []
        for number, (name, row) in enumerate(rows.items()):
            shift = spacing * (number - (len(rows) - 1) / 2)
            color = LIGHT[SERIES[number % len(SERIES)]]
            mark = MARKS[(number // len(SERIES) + number) % len(MARKS)]
            places = [place + shift for place in range(len(columns))]
            values = [row[column] for column in columns]
            handles += axes.plot(values, places, mark, ms=5, color=color, label=name)
            for value, place in zip(values, places, strict=True):
                _write_value(axes, value, place)
        axes.set_yticks(range(len(columns)), columns, parse_math=False)
        for place in range(1, len(columns)):
            axes.axhline(place - 0.5, color=LIGHT["line"], linewidth=0.6)
        axes.set_ylim(len(columns) - 0.5, -0.5)  # the first score on top
        axes.set_xlim(*_find_limits([value for row in rows.values() for value in row.values()]))
        axes.set_xlabel("percent", fontsize=9, color=LIGHT["quiet"])
        legend = figure.legend(handles=handles, loc="outside upper left", fontsize=8, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _write_value(axes: Any, value: float, place: float) -> None:
    axes.annotate(
        f"{value:.1f}",
        (value, place),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color=LIGHT["quiet"],
    )


def _find_limits(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    missing = max(0.0, LEAST_SPAN - (high - low)) / 2
    margin = 0.06 * max(high - low, LEAST_SPAN)
    return low - missing - margin, high + missing + 2 * margin
