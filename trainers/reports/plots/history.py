"""``history.png``: losses and scores over the steps of a run, a panel for each."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import isfinite
from typing import Any

from trainers.problems.base import Problem

from .curves import Points, find_points
from .palette import LIGHT, new_figure, style_axes

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
    def best(self) -> tuple[float, float]:
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
        handles = [_handle(name) for name in LINES if any(name in one.lines for one in panels)]
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


def _handle(name: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=name, **LINES[name])
