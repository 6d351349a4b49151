"""Every picture by matplotlib: the figures of a page in SVG, ``history.png``, and their look.

The four colors of series have the hues of Okabe and Ito (2008, "Color Universal Design"), which
color-blind readers can tell apart: as published on a dark page, and darker on a white one, where
the published ones are too pale to read. Dashes and marks differ too, so color is never alone.
"""

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, zip_longest
from math import isfinite
from typing import Any

from trainers.data.dataset import spread_numbers
from trainers.files import replaced_when_done
from trainers.problems.base import Problem
from trainers.problems.blocks import Figure, Points

# By the name of the variable in the style sheet: ``dev`` is held out, ``train`` is training.
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
DARK = {
    "page": "#15171b",
    "panel": "#1f2228",
    "ink": "#e8eaed",
    "quiet": "#b2b8c1",
    "line": "#454b55",
    "dev": "#56b4e9",
    "train": "#e69f00",
    "third": "#009e73",
    "fourth": "#cc79a7",
    "link": "#8cc8ff",
}
SERIES = ("dev", "train", "third", "fourth")


@contextmanager
def new_figure(path: str | os.PathLike[str], width: float, height: float) -> Iterator[Any]:
    """Give an empty matplotlib figure of this size in inches, and write it as PNG at the end."""
    # a run that only trains saves the memory of this import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT["page"])
    FigureCanvasAgg(figure)
    yield figure
    with replaced_when_done(path) as temporary:
        figure.savefig(temporary, dpi=150)


def style_axes(axes: Any, title: str = "", *, grid: str = "y") -> None:
    """Draw thin lines across one axis only, without a frame; a dollar begins no formula."""
    axes.set_title(title, loc="left", fontsize=10, color=LIGHT["ink"], parse_math=False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(LIGHT["quiet"])
    axes.grid(axis=grid, color=LIGHT["line"], linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, labelcolor=LIGHT["quiet"], color=LIGHT["quiet"], length=3)
    axes.tick_params(axis="y", length=0)


MOST_POINTS = 200


def find_points(history: Sequence[Mapping[str, float]], key: str) -> Points:
    """Collect (step, value) of everything logged as ``key``."""
    return [[entry["step"], entry[key]] for entry in history if key in entry]


def draw_curves(
    history: Sequence[Mapping[str, float]],
    problem: Problem[Any],
    kept: int | None = None,
    pace: float = 0.0,
) -> list[Figure]:
    """Draw the losses and the metrics of a task that were logged, with long series thinned.

    Args:
        history: Log of the Trainer.
        problem: The problem of the task.
        kept: The step whose weights were kept, which is marked; None for the last one.
        pace: Epochs per step.
    """
    figures = []
    for title, keys, lower in _list_plots(problem):
        logged = {name: find_points(history, key) for name, key in keys.items()}
        logged = {name: points for name, points in logged.items() if points}
        if not logged:
            continue
        series, notes, ring = {}, [], None
        if kept is not None:
            notes.append(f"The vertical line marks step {kept:,}, whose weights were evaluated.")
        for name, points in logged.items():
            chosen = spread_numbers(len(points), MOST_POINTS)
            series[name] = [list(points[place]) for place in chosen]
            finite = [point for point in points if isfinite(point[1])]
            if ring is None and name != "training" and len(finite) > 1:
                best = (min if lower else max)(finite, key=lambda point: point[1])
                ring, value = list(best), f"{best[1]:.4g} at step {int(best[0]):,}"
                value += f", epoch {best[0] * pace:.3g}"
                of_what = "held-out loss" if name == "held out" else name
                notes.append(f"Ringed: the best {of_what}, {value}.")
            if len(chosen) < len(points):
                count = f"{len(chosen)} of {len(points):,} points"
                notes.append(f"{name}: {count}, evenly spread.")
        text = " ".join(notes)
        figures.append(Figure(title, "optimizer steps", "", series, text, mark=kept, ring=ring))
    return figures


def _list_plots(problem: Problem[Any]) -> list[tuple[str, dict[str, str], bool]]:
    """List the plots of a task: title, keys of the log by name of the line, is lower better."""
    # metrics that are not plotted are in the table
    shown = [metric for metric in problem.reported if metric.is_plotted and not metric.is_loss]
    plots = [(title, keys, True) for title, keys in problem.loss_curves.items()]
    for title, lower in (("Metrics on held-out rows", False), ("Lower is better", True)):
        names = [metric.name for metric in shown if metric.lower_is_better == lower]
        plots.append((title, {name: f"eval_{problem.task}_{name}" for name in names}, lower))
    return plots


# Of the lines of a figure, one after the other; ``training`` and ``held out`` have theirs.
STYLES: list[dict[str, Any]] = [
    {"color": LIGHT["dev"], "marker": "o"},
    {"color": LIGHT["train"], "marker": "s", "linestyle": "--"},
    {"color": LIGHT["third"], "marker": "^", "linestyle": "-."},
    {"color": LIGHT["fourth"], "marker": "D", "linestyle": ":"},
]
# A series with more points than this is drawn without marks.
MOST_MARKS = 40
# What a picture within a page does not need.
UNUSED = re.compile(
    r'\s*<(metadata|style)\b.*?</\1>|\s*<!--.*?-->| xmlns(:xlink)?="[^"]*"', re.DOTALL
)


def draw_figure(figure: Figure, number: int, title: str = "") -> str:
    """Draw a figure as SVG that is part of a page, in the colors of its style sheet.

    Args:
        figure: The figure; without a finite point nothing is drawn.
        number: Of the figure on its page, which sets its names apart.
        title: For screen readers, before a summary of each series.
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
        if figure.style == "intervals":
            _draw_intervals(axes, series)
        else:
            _draw_series(axes, figure, series)
        style_axes(axes, grid="x" if figure.style == "intervals" else "y")
        axes.tick_params(axis="x", pad=6)  # apart from the lowest tick of the other axis
        axes.set_xlabel(figure.x, color=LIGHT["quiet"])
        axes.set_ylabel(figure.y, color=LIGHT["quiet"])
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=figure.x == "optimizer steps"))
        if figure.style != "intervals":
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
    names = {color: name for name, color in LIGHT.items()}
    text = re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})",
        lambda part: f"{part[1]}: var(--{names[part[2]]})" if part[2] in names else part[0],
        text,
    )
    label = "; ".join(_summarize(name, points) for name, points in series.items())
    begin = Markup('<svg role="img" aria-label="{}" viewBox=').format(f"{title}. {label}")
    return begin + Markup(text[text.index("viewBox=") + len("viewBox=") :])  # noqa: S704


def _draw_series(
    axes: Any, figure: Figure, series: Mapping[str, Sequence[Sequence[float]]]
) -> None:
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
    guide = {"color": LIGHT["quiet"], "linestyle": (0, (5, 4)), "linewidth": 1.2}
    if figure.x == "optimizer steps":
        axes.set_xlim(left=0)
    if figure.has_diagonal:
        if figure.style == "lines":
            axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.axline((axes.get_xlim()[0],) * 2, slope=1, **guide)
    if figure.mark is not None:
        axes.axvline(figure.mark, **guide)
    if figure.ring:
        ring = {"marker": "o", "markersize": 10, "fillstyle": "none", "color": LIGHT["ink"]}
        axes.plot(*([value] for value in figure.ring), **ring)


def _draw_intervals(axes: Any, series: Mapping[str, Points]) -> None:
    """Draw an interval for each name, the first one above, around a line at 0."""
    axes.axvline(0, color=LIGHT["quiet"], linestyle=(0, (5, 4)), linewidth=1.2)
    for place, ((low, middle, high),) in enumerate(series.values()):
        ends = [[middle - low], [high - middle]]
        axes.errorbar([middle], [place], xerr=ends, color=LIGHT["dev"], marker="o", markersize=4)
    axes.set_yticks(range(len(series)), [str(place) for place in range(1, len(series) + 1)])
    axes.set_ylim(len(series) - 0.5, -0.5)


def _summarize(name: str, points: Points) -> str:
    """Describe the course of a series for screen readers."""
    if not points:
        return f"{name}: no finite value"
    values = [point[1] for point in points]
    return (
        f"{name}: {values[0]:.4g} at {points[0][0]:,.4g}, {values[-1]:.4g} at "
        f"{points[-1][0]:,.4g}, between {min(values):.4g} and {max(values):.4g}"
    )


MEAN = "mean of all tasks"
MOST_COLUMNS = 4
# As on the page: color, dashes and mark of each line; only held-out scores are points.
LINES: dict[str, dict[str, Any]] = {
    "training": {"color": LIGHT["train"], "linestyle": "--", "linewidth": 1.2},
    "held out": {"color": LIGHT["dev"], "marker": "o", "markersize": 4},
}


@dataclass(frozen=True)
class Panel:
    """A small plot; losses of different scales share no axis."""

    title: str
    lines: dict[str, Points]  # by name in ``LINES``
    is_loss: bool = True
    lower_is_better: bool = False  # of scores

    @property
    def best(self) -> list[float]:
        """Step and value of the best held-out score."""
        choose = min if self.lower_is_better else max
        return choose(self.lines["held out"], key=lambda point: point[1])


def plot_history(
    log_history: Sequence[Mapping[str, float]],
    problems: Mapping[str, Problem[Any]],
    path: str | os.PathLike[str],
) -> None:
    """Plot the losses and the headline metric of each task over the steps to a PNG file.

    Nothing is written for a log without losses or evaluations, such as of a very short run.
    """
    panels = [panel for panel in find_panels(log_history, problems) if panel.lines]
    if not panels:
        return
    from matplotlib.lines import Line2D  # here, as above

    rows = arrange(panels, one_group=len(problems) == 1)
    columns = max(map(len, rows))
    with new_figure(path, 0.6 + 3.2 * columns, 0.5 + 2.3 * len(rows)) as figure:
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for line, row in zip(grid, rows, strict=True):
            for axes, panel in zip_longest(line, row):
                axes.set_visible(panel is not None)
                if panel is not None:
                    _draw(axes, panel)
        figure.supxlabel("optimizer steps", fontsize=9, color=LIGHT["quiet"])
        shown = {name for panel in panels for name in panel.lines}
        handles = [Line2D([], [], label=name, **LINES[name]) for name in LINES if name in shown]
        figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=9, frameon=False)


def arrange(panels: Sequence[Panel], *, one_group: bool) -> list[list[Panel]]:
    """Arrange panels in rows: losses, then scores from a new row on, unless all are one group."""
    losses = [panel for panel in panels if panel.is_loss or one_group]
    scores = [panel for panel in panels if not (panel.is_loss or one_group)]
    return [
        group[start : start + MOST_COLUMNS]
        for group in (losses, scores)
        for start in range(0, len(group), MOST_COLUMNS)
    ]


def find_panels(
    history: Sequence[Mapping[str, float]], problems: Mapping[str, Problem[Any]]
) -> list[Panel]:
    """Collect the panels of all tasks, with the finite values that were logged."""

    def collect(keys: Mapping[str, str]) -> dict[str, Points]:
        lines = {
            name: [point for point in find_points(history, key) if isfinite(point[1])]
            for name, key in keys.items()
        }
        return {name: points for name, points in lines.items() if points}

    losses, scores = [], []
    for task, problem in problems.items():
        for title, keys in problem.loss_curves.items():
            losses.append(Panel(f"{task}: {title[:1].lower()}{title[1:]}", collect(keys)))
        for name in problem.plotted:
            lines = collect({"held out": f"eval_{task}_{name}"})
            title = f"{task}: {name.replace('_', ' ')}"
            lower = any(one.lower_is_better for one in problem.reported if one.name == name)
            scores.append(Panel(title, lines, is_loss=False, lower_is_better=lower))
    if len(problems) > 1:
        scores.append(Panel(MEAN, collect({"held out": "eval_mean"}), is_loss=False))
    return losses + scores


def _draw(axes: Any, panel: Panel) -> None:
    title = panel.title
    for name, points in panel.lines.items():
        axes.plot(*zip(*points, strict=True), **LINES[name])
    if not panel.is_loss:
        step, value = panel.best
        title += f"\nbest {value:.3f} at step {step:,}"
        ring = {"marker": "o", "markersize": 10, "fillstyle": "none", "color": LIGHT["ink"]}
        axes.plot([step], [value], **ring)
    style_axes(axes, title)
    axes.margins(x=0.05, y=0.12)
    axes.set_xlim(left=0)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    axes.yaxis.get_major_locator().set_params(nbins=5)
