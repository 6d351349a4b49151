"""A page with two runs side by side, made from the files in their folders."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainers.files import write_text
from trainers.problems import make_problems
from trainers.problems.base import Problem

from .escaping import printable
from .evidence import EVIDENCE_FILE
from .page import list_results, page_environment
from .plots.positions import Plot, place_intervals, plot_curves
from .results import name_run, read_metrics
from .wording import count

TEMPLATE = "compare.html"
# The styles of the two runs, in every plot.
STYLES = ("dev", "train")
ALL = "all tasks"


@dataclass(frozen=True)
class PairedDifference:
    """Second minus first run on the same validation rows."""

    task: str  # or ``all tasks``
    metric: str
    low: float  # of the 95 % interval
    high: float
    p_value: float


@dataclass(frozen=True)
class Run:
    """What the page shows of a run."""

    name: str
    facts: dict[str, str]
    problems: dict[str, Problem[Any]]
    scores: dict[tuple[str, str], tuple[float | None, float | None]]  # value and standard error
    curves: dict[str, dict[tuple[str, str], Any]]  # by task, then by title and name


def write_comparison(
    folders: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    settings: Sequence[tuple[str, Any, Any]],
    differences: Sequence[PairedDifference] = (),
    note: str = "",
) -> Path:
    """Write a page that compares two finished runs.

    Args:
        folders: Folders of the two runs, with their ``metrics.json`` and ``report.json``.
        path: The page.
        settings: The settings that differ: key, and its value in each run.
        differences: Paired differences, where both runs predicted the same rows.
        note: Below the metrics: how the differences were computed, or why there are none.

    Returns:
        The page.

    Raises:
        ValueError: If a folder lacks one of these files, or one of them is not JSON.
    """
    first, second = map(_read_run, folders)
    if first.name == second.name:
        first, second = (
            replace(run, name=printable(str(folder)))
            for run, folder in zip((first, second), folders, strict=True)
        )
    rows = _compare_scores(first, second, differences)
    intervals = place_intervals(
        [row["paired"] and (row["paired"].low, row["change"], row["paired"].high) for row in rows]
    )
    text = (
        page_environment()
        .get_template(TEMPLATE)
        .render(
            runs=(first, second),
            styles=STYLES,
            rows=[row | {"interval": one} for row, one in zip(rows, intervals.marks, strict=True)],
            intervals=intervals,
            settings=printable([(key, *map(_show, values)) for key, *values in settings]),
            note=printable(note),
            tasks=[
                {"name": task, "plots": list(_compare_curves(first, second, task))}
                for task in dict.fromkeys((*first.problems, *second.problems))
            ],
        )
    )
    write_text(path, text)
    return Path(path)


def _read_run(folder: str | os.PathLike[str]) -> Run:
    metrics = printable(read_metrics(folder))
    evidence = printable(read_metrics(folder, EVIDENCE_FILE))
    problems = make_problems(evidence["problem_types"], metrics["tasks"] or {}, metrics["metrics"])
    rows = list_results(metrics, problems) if "validation" in metrics else []
    return Run(
        printable(name_run(folder)),
        _describe(metrics, evidence),
        problems,
        {(row["task"], row["metric"]): row["cells"][0] for row in rows},
        {task: dict(_list_curves(plots)) for task, plots in evidence["curves"].items()},
    )


def _describe(metrics: Mapping[str, Any], evidence: Mapping[str, Any]) -> dict[str, str]:
    """Collect the facts of a run that are not settings."""
    seconds = evidence["train_seconds"]
    steps, epochs = metrics["steps"], metrics["epochs"] or 0
    return {
        "length": f"{count(steps, 'optimizer step')}, {count(epochs, 'epoch')}",
        "evaluated step": f"{evidence['evaluated_step']:,}",
        "seed": str(metrics["seed"]),
        "training time": "" if seconds is None else f"{seconds:,.0f} s with evaluations",
        "initial weights": metrics["model_name_or_path"] or "random",
        **{key: evidence["environment"][key] for key in ("date", "device", "precision")},
    }


def _list_curves(plots: Iterable[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield the losses and the first metric of each plot; the table has the other metrics."""
    for curve in plots:
        series = curve["series"] if _is_loss(curve["title"]) else curve["series"][:1]
        yield from (((curve["title"], one["name"]), one) for one in series)


def _compare_scores(
    first: Run, second: Run, differences: Iterable[PairedDifference]
) -> list[dict[str, Any]]:
    """List every metric of the validation rows, a row each, with the difference of the runs."""
    paired = {(one.task, one.metric): one for one in differences}
    rows = []
    for key in dict.fromkeys((*first.scores, *second.scores)):
        cells = [run.scores.get(key, (None, None)) for run in (first, second)]
        (before, _), (after, _) = cells
        change = None if before is None or after is None else after - before
        task, metric = key
        rows.append(
            {
                "task": task,
                "metric": metric,
                "cells": cells,
                "change": change,
                "paired": paired.get(key),
            }
        )
    return rows


def _compare_curves(first: Run, second: Run, task: str) -> Iterable[tuple[str, Plot | None]]:
    """Plot every loss and metric of a task, with a line for each run."""
    found: list[Mapping[tuple[str, str], Any]] = [
        run.curves.get(task, {}) for run in (first, second)
    ]
    for key in dict.fromkeys((*found[0], *found[1])):
        series = [
            {"name": run.name, "style": style, "points": curves[key]["points"]}
            for run, style, curves in zip((first, second), STYLES, found, strict=True)
            if key in curves
        ]
        title, name = key
        shown = f"{title}, {name}" if _is_loss(title) else name
        plot = plot_curves(series, None)
        yield shown, plot and replace(plot, best=None)


def _is_loss(title: str) -> bool:
    return title.lower().endswith("loss")


def _show(value: Any) -> str:
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
