"""Losses and metrics over the steps of a run, out of the log of the Trainer."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainers.data.task_dataset import spread_numbers
from trainers.data.text import TEXT_TYPES
from trainers.metrics.task_metrics import metric_names

Points = list[tuple[float, float]]
MOST_POINTS = 200
# On another scale than the shares and correlations beside them.
LOWER_IS_BETTER = ("alignment", "uniformity")


def find_points(history: Sequence[Mapping[str, float]], key: str) -> Points:
    """Collect (step, value) of what was logged as ``key``."""
    return [(entry["step"], entry[key]) for entry in history if key in entry]


def task_curves(
    history: Sequence[Mapping[str, float]],
    task: str,
    problem_type: str,
    chosen: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Collect what a page plots of a task: its losses, and its metrics on the held-out rows.

    Args:
        history: ``trainer.state.log_history``.
        task: Its name.
        problem_type: A key of ``METRIC_NAMES``.
        chosen: The metrics that stand for the task, where they are not those of its problem type.

    Returns:
        For each plot its ``title`` and its ``series``: ``name`` and ``points``, (step, value). A
        series of more than ``MOST_POINTS`` is thinned evenly, and ``logged`` says how many points
        it had. Plots and series without points are left out.
    """
    is_text = problem_type in TEXT_TYPES
    names = metric_names(problem_type, chosen)
    plots = {}
    for loss in [name for name in names if name.endswith("_loss")] if is_text else ["loss"]:
        part = loss.removesuffix("_loss") if problem_type == "pretraining" else ""
        title = loss.removesuffix("_loss").upper() + " loss" if is_text else "Loss"
        trained = "_".join(filter(None, ("loss", task, part)))
        plots[title] = {"training": trained, "held out": f"eval_{task}_{loss}"}
    # neither a share: the table has them
    others = ("_loss", "_threshold", "perplexity")
    shown = [name for name in names if not name.endswith(others)]
    for title, lower in (("Metrics on held-out rows", False), ("Lower is better", True)):
        chosen = [name for name in shown if (name in LOWER_IS_BETTER) == lower]
        plots[title] = {name: f"eval_{task}_{name}" for name in chosen}
    found = []
    for title, keys in plots.items():
        series = [_thin(name, find_points(history, key)) for name, key in keys.items()]
        if kept := [one for one in series if one["points"]]:
            found.append({"title": title, "series": kept})
    return found


def _thin(name: str, points: Points) -> dict[str, Any]:
    chosen = spread_numbers(len(points), MOST_POINTS)
    return {"name": name, "points": [points[place] for place in chosen], "logged": len(points)}
