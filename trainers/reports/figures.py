"""The figures of a page, drawn as SVG by matplotlib, and their look.

The four colors of series have the hues of Okabe and Ito (2008, "Color Universal Design"), which
color-blind readers can tell apart: as published on a dark page, and darker on a white one, where
the published ones are too pale to read. Dashes and marks differ too, so color is never alone.
"""

import io
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from math import isfinite
from typing import Any

from trainers.data.rows import spread_numbers
from trainers.problems.base import AnyProblem
from trainers.problems.blocks import Figure, Points

# By the name of the variable in the style sheet, which also has those of a dark page: ``dev`` is
# held out, ``train`` is training.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1d21",
    "quiet": "#565b63",
    "line": "#c9cdd3",
    "dev": "#0067a5",
    "train": "#b84a00",
    "third": "#00805d",
    "fourth": "#a8487f",
    "link": "#0059a8",
}
MOST_POINTS = 200


def draw_curves(
    history: Sequence[Mapping[str, float]],
    problem: AnyProblem,
    kept: int | None = None,
) -> list[Figure]:
    """Draw the losses and the metrics of a task that were logged, with long series thinned.

    Args:
        history: Log of the Trainer.
        problem: The problem of the task.
        kept: The step whose weights were kept, which is marked; None for the last one.
    """
    figures = []
    plots = dict(problem.loss_curves)
    # the metrics that are not plotted are in the table
    shown = [metric for metric in problem.reported if metric.is_plotted and not metric.is_loss]
    for title, lower in (("Metrics on held-out rows", False), ("Lower is better", True)):
        names = [metric.name for metric in shown if metric.lower_is_better == lower]
        plots[title] = {name: f"eval_{problem.task}_{name}" for name in names}
    for title, keys in plots.items():
        series: dict[str, Points] = {}
        notes = []
        if kept is not None:
            notes.append(f"The vertical line marks step {kept:,}, whose weights were evaluated.")
        for name, key in keys.items():
            points = [[entry["step"], entry[key]] for entry in history if key in entry]
            if not points:
                continue
            chosen = spread_numbers(len(points), MOST_POINTS)
            series[name] = [points[place] for place in chosen]
            if len(chosen) < len(points):
                count = f"{len(chosen)} of {len(points):,} points"
                notes.append(f"{name}: {count}, evenly spread.")
        if series:
            text = " ".join(notes)
            axes = ("optimizer steps", "")
            figures.append(Figure(title, *axes, series, text, mark=kept))
    return figures


# Of the lines of a figure, one after the other; ``training`` and ``held out`` have theirs.
STYLES: list[dict[str, Any]] = [
    {"color": LIGHT["dev"], "marker": "o"},
    {"color": LIGHT["train"], "marker": "s", "linestyle": "--"},
    {"color": LIGHT["third"], "marker": "^", "linestyle": "-."},
    {"color": LIGHT["fourth"], "marker": "D", "linestyle": ":"},
]
# A series with more points than this is drawn without marks.
MOST_MARKS = 40
GUIDE = {"color": LIGHT["quiet"], "linestyle": (0, (5, 4)), "linewidth": 1.2}
# What a picture within a page does not need.
UNUSED = re.compile(
    r'\s*<(metadata|style)\b.*?</\1>|\s*<!--.*?-->| xmlns(:xlink)?="[^"]*"', re.DOTALL
)


def draw_figure(figure: Figure, number: int, title: str = "") -> str:
    """Draw a figure as SVG that is part of a page, in the colors of its style sheet.

    Args:
        figure: The figure; without a finite point nothing is drawn.
        number: Of the figure on its page, which sets its names apart.
        title: For screen readers, before the names of the series.
    """
    # a run that only trains saves the memory of this import
    from markupsafe import Markup
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import MaxNLocator

    series = {
        name: [point for point in points if isfinite(point[1])]
        for name, points in figure.series.items()
    }
    if not any(series.values()):
        return Markup("<p>No finite value was logged.</p>")
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": str(number), "text.parse_math": False}
    with rc_context(settings | {"axes.unicode_minus": False, "font.size": 9}):
        picture = Picture(figsize=(5, 3.2), layout="constrained")
        axes = picture.subplots()
        is_list = figure.style == "intervals"
        if is_list:
            _draw_intervals(axes, series)
        else:
            _draw_series(axes, figure, series)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(LIGHT["quiet"])
        axes.grid(axis="x" if is_list else "y", color=LIGHT["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8, labelcolor=LIGHT["quiet"], color=LIGHT["quiet"], length=3)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", pad=6)  # apart from the lowest tick of the other axis
        axes.set_xlabel(figure.x, color=LIGHT["quiet"])
        axes.set_ylabel(figure.y, color=LIGHT["quiet"])
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=figure.x == "optimizer steps"))
        if not is_list:
            axes.yaxis.set_major_locator(MaxNLocator(5))
        if figure.style == "lines":
            picture.legend(
                *axes.get_legend_handles_labels(),
                loc="outside upper left",
                ncols=2,
                frameon=False,
                labelcolor=LIGHT["ink"],
            )
        file = io.StringIO()
        picture.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = UNUSED.sub("", text[text.index("<svg") :]).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    for name, color in LIGHT.items():
        text = re.sub(f"(fill|stroke): {color}", rf"\1: var(--{name})", text)
    label = f"{title}: {', '.join(series)}"  # for screen readers
    begin = Markup('<svg role="img" aria-label="{}" viewBox=').format(label)
    return begin + Markup(text[text.index("viewBox=") + len("viewBox=") :])  # noqa: S704


def _draw_series(axes: Any, figure: Figure, series: Mapping[str, Points]) -> None:
    """Draw lines or points, and what is marked among them."""
    styles = cycle(STYLES)
    fixed = {"held out": STYLES[0], "training": STYLES[1]}
    for name, points in series.items():
        style = {**(fixed.get(name) or next(styles)), "markersize": 4, "label": name}
        if len(points) > MOST_MARKS:
            style["marker"] = ""
        if figure.style == "points":
            style |= {"marker": "o", "linestyle": "", "alpha": 0.45}
        columns = list(zip(*points, strict=True)) or [(), ()]
        if len(columns) > 2:
            # an accuracy is never below 0 or above 1
            low = [min(error, value) for _, value, error in points]
            high = [min(error, 1 - value) for _, value, error in points]
            axes.errorbar(*columns[:2], yerr=[low, high], **style)
        else:
            axes.plot(*columns, **style)
    if figure.x == "optimizer steps":
        axes.set_xlim(left=0)
    if figure.has_diagonal:
        if figure.style == "lines":
            axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.axline((axes.get_xlim()[0],) * 2, slope=1, **GUIDE)
    if figure.mark is not None:
        axes.axvline(figure.mark, **GUIDE)


def _draw_intervals(axes: Any, series: Mapping[str, Points]) -> None:
    """Draw an interval for each name, the first one above, around a line at 0."""
    axes.axvline(0, **GUIDE)
    for place, ((low, middle, high),) in enumerate(series.values()):
        ends = [[middle - low], [high - middle]]
        axes.errorbar([middle], [place], xerr=ends, color=LIGHT["dev"], marker="o", markersize=4)
    axes.set_yticks(range(len(series)), [str(place) for place in range(1, len(series) + 1)])
    axes.set_ylim(len(series) - 0.5, -0.5)
