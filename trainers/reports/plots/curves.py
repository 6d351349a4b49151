"""Losses and metrics over the steps of a run, from the log of the Trainer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainers.data.dataset import spread_numbers
from trainers.problems.base import Problem

Points = list[tuple[float, float]]
MOST_POINTS = 200


def find_points(history: Sequence[Mapping[str, float]], key: str) -> Points:
    """Collect (step, value) of everything logged as ``key``."""
    return [(entry["step"], entry[key]) for entry in history if key in entry]


def task_curves(
    history: Sequence[Mapping[str, float]], problem: Problem[Any]
) -> list[dict[str, Any]]:
    """Collect the plots of a task, with a ``title`` and thinned ``series``; none without points."""
    found = []
    for lower, plots in ((True, problem.loss_curves), *_metric_plots(problem)):
        for title, keys in plots.items():
            series = [_thin(name, find_points(history, key)) for name, key in keys.items()]
            if kept := [one for one in series if one["points"]]:
                found.append({"title": title, "lower_is_better": lower, "series": kept})
    return found


def _metric_plots(problem: Problem[Any]) -> Iterator[tuple[bool, dict[str, dict[str, str]]]]:
    """Yield for each direction whether lower is better, and the plot of its metrics."""
    # metrics that are not plotted are in the table
    shown = [metric for metric in problem.reported if metric.is_plotted and not metric.is_loss]
    for title, lower in (("Metrics on held-out rows", False), ("Lower is better", True)):
        names = [metric.name for metric in shown if metric.lower_is_better == lower]
        yield lower, {title: {name: f"eval_{problem.task}_{name}" for name in names}}


def _thin(name: str, points: Points) -> dict[str, Any]:
    chosen = spread_numbers(len(points), MOST_POINTS)
    return {"name": name, "points": [points[place] for place in chosen], "logged": len(points)}
