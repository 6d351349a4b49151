"""A page with two runs side by side, made from the files in their folders."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainers.problems import read_problems
from trainers.problems.base import Problem
from trainers.problems.blocks import Figure, Points, Table

from .page import EVIDENCE_FILE, Section, list_results, show_value, write_page
from .results import name_run, read_metrics
from .texts import count, printable

ALL = "all tasks"


@dataclass(frozen=True)
class PairedDifference:
    """Second minus first run on the same validation rows."""

    task: str  # or ``all tasks``
    metric: str
    rows: int
    first: float
    second: float
    low: float  # of the 95 % interval of the difference
    high: float
    p_value: float  # two-sided


@dataclass(frozen=True)
class Run:
    """What the page shows of a run."""

    name: str
    facts: dict[str, str]
    problems: dict[str, Problem[Any]]
    scores: dict[tuple[str, str], tuple[float | None, float | None]]  # value and standard error
    curves: dict[str, dict[tuple[str, str], Points]]  # by task, then by title and name


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
    titles = [("setting", ""), (first.name, ""), (second.name, "")]
    facts = [[fact, first.facts[fact], second.facts[fact]] for fact in first.facts]
    differing = [[key, *map(_show, values)] for key, *values in printable(list(settings))]
    if differing:
        changed = Section("Settings that differ", blocks=[Table("", titles, differing)])
    else:
        changed = Section("Settings that differ", ["None: the runs have equal settings."])
    sections = [
        Section("Runs", blocks=[Table("", [("run", ""), *titles[1:]], facts)]),
        _compare_scores(first, second, differences, printable(note)),
        changed,
        *(
            _compare_curves(first, second, task)
            for task in dict.fromkeys((*first.problems, *second.problems))
        ),
    ]
    names = [first.name, second.name]
    title = f"{first.name} and {second.name}: two runs"
    subtitle = "Made from metrics.json, report.json, run.json and the predictions of both runs."
    write_page(path, title, names, subtitle, sections)
    return Path(path)


def _read_run(folder: str | os.PathLike[str]) -> Run:
    metrics = printable(read_metrics(folder))
    evidence = printable(read_metrics(folder, EVIDENCE_FILE))
    problems = read_problems(metrics, evidence["problem_types"])
    rows = list_results(metrics, problems) if "validation" in metrics else []
    return Run(
        printable(name_run(folder)),
        _describe(metrics, evidence),
        problems,
        {(row["task"], row["metric"]): row["cells"][0] for row in rows},
        {task: _list_curves(plots) for task, plots in evidence["curves"].items()},
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


def _list_curves(plots: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Points]:
    """List the losses and the first metric of each plot; the table has the other metrics."""
    found = {}
    for curve in plots:
        series = list(curve["series"].items())
        for name, points in series if _is_loss(curve["title"]) else series[:1]:
            found[curve["title"], name] = points
    return found


def _compare_scores(
    first: Run, second: Run, differences: Iterable[PairedDifference], note: str
) -> Section:
    """List every metric of the validation rows, a row each, with the difference of the runs."""
    paired = {(difference.task, difference.metric): difference for difference in differences}
    rows, intervals = [], {}
    for key in dict.fromkeys((*first.scores, *second.scores)):
        cells = [run.scores.get(key, (None, None)) for run in (first, second)]
        (before, _), (after, _) = cells
        change = None if before is None or after is None else after - before
        interval, p_value = None, None
        if key in paired and change is not None:
            found = paired[key]
            interval, p_value = f"[{found.low:+.4f}, {found.high:+.4f}]", found.p_value
            intervals[" ".join(key)] = [found.low, change, found.high]
        rows.append([*key, *(show_value(*cell) for cell in cells), change, interval, p_value])
    columns = [("task", ""), ("metric", ""), ("first", ".4f"), ("second", ".4f")]
    columns += [("difference", "+.4f"), ("95 % interval of the difference", "+.4f"), ("p", ".4f")]
    text = (
        "After ± is the standard error over the choice of rows. The difference is second minus "
        "first."
    )
    blocks: list[Any] = [Table("", columns, rows, text)]
    if intervals:
        text = "In the order of the table; the dashed line is no difference."
        title = "Differences with their 95 % intervals"
        series = {name: [[float(end) for end in ends]] for name, ends in intervals.items()}
        blocks.append(Figure(title, "second minus first", "", series, text, style="intervals"))
    return Section("Metrics on validation rows", [note] if note else [], blocks)


def _compare_curves(first: Run, second: Run, task: str) -> Section:
    """Plot every loss and metric of a task, with a line for each run."""
    curves = [run.curves.get(task, {}) for run in (first, second)]
    figures = []
    for key in dict.fromkeys((*curves[0], *curves[1])):
        title, name = key
        series = {
            place: found[key]
            for place, found in zip(("first", "second"), curves, strict=True)
            if key in found
        }
        shown = f"{title}, {name}" if _is_loss(title) else name
        figures.append(Figure(shown, "optimizer steps", "", series))
    return Section(task, [] if figures else ["Nothing was logged."], figures)


def _is_loss(title: str) -> bool:
    return title.lower().endswith("loss")


def _show(value: Any) -> str:
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
