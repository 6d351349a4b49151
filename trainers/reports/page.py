"""``report.html``: one self-contained page about a run, made from the files in its folder."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from trainers.files import write_text
from trainers.problems import make_problems
from trainers.problems.base import Problem
from trainers.problems.metrics import AGGREGATES
from trainers.training.multitask import MultiTaskTrainer

from .escaping import printable
from .evidence import EVIDENCE_FILE, write_evidence
from .plots.palette import DARK, LIGHT
from .plots.positions import place_strip, plot_calibration, plot_curves, plot_scatter
from .results import name_run, read_metrics
from .wording import count

logger = logging.getLogger(__name__)

REPORT_FILE = "report.html"
# The most important split comes first, where a phone shows it.
SPLITS = {"validation": "validation rows", "test": "test rows", "train": "training rows"}
KINDS = tuple(SPLITS)
MOST_BAD_ROWS = 50
FIRST_ERRORS = 5  # the others are collapsed


def report_run(trainer: MultiTaskTrainer, *args: Any, **kwargs: Any) -> Path | None:
    """Write ``report.json`` and ``report.html`` of a run whose results are already written.

    A failure must not cost the run: it is logged with its traceback, and None is returned.
    ``args`` are those of ``write_evidence``.
    """
    folder = Path(str(trainer.args.output_dir))
    try:
        write_evidence(trainer, *args, **kwargs)
        return write_report(folder)
    except Exception:
        logger.exception(
            "%s could not be written; the results of the run are complete; continuing without it",
            folder / REPORT_FILE,
        )
        return None


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write ``report.html`` of a finished run.

    Args:
        folder: Folder of the run, with its ``metrics.json`` and ``report.json``.

    Returns:
        The page.

    Raises:
        ValueError: If the folder lacks one of these files, or one of them is not JSON.
    """
    metrics = printable(read_metrics(folder))
    evidence = printable(read_metrics(folder, EVIDENCE_FILE))
    environment = page_environment()
    environment.filters["epoch"] = partial(
        _find_epoch, steps=metrics["steps"], epochs=metrics["epochs"] or 0
    )
    problems = make_problems(evidence["problem_types"], metrics["tasks"] or {}, metrics["metrics"])
    tasks = [
        {"number": number, **_describe_task(problem, metrics, evidence)}
        for number, problem in enumerate(problems.values(), start=1)
    ]
    usual = ("train", "validation", "test")
    text = environment.get_template(REPORT_FILE).render(
        name=printable(name_run(folder)),
        metrics=metrics,
        evidence=evidence,
        tasks=tasks,
        results=list_results(metrics, problems),
        splits={split: _name_split(split) for split in _find_splits(metrics)},
        data_splits=[*usual, *sorted(set(chain(*evidence["splits"].values())) - {*usual})],
        texts=_list_texts(metrics["text"]),
        most_bad_rows=MOST_BAD_ROWS,
        first_errors=FIRST_ERRORS,
        name_split=_name_split,
        plot_calibration=plot_calibration,
        plot_scatter=plot_scatter,
    )
    path = Path(folder) / REPORT_FILE
    write_text(path, text)
    return path


def page_environment() -> Any:
    """Return the Jinja environment of all pages, which escapes every value."""
    # a run that only trains saves the memory of this import
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trainers.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"light": LIGHT, "dark": DARK}
    environment.filters["counted"] = count
    return environment


def _find_epoch(step: int, steps: int, epochs: float) -> str:
    """Return the epoch at whose end, or in which, a step was."""
    return f"{step * epochs / max(1, steps):.3g}"


def _find_splits(metrics: Mapping[str, Any]) -> list[str]:
    """List the measured splits, each with its other sets, such as ``validation_hard``."""
    found = [split for split in metrics if split.partition("_")[0] in KINDS]
    return sorted(found, key=lambda split: (KINDS.index(split.partition("_")[0]), split))


def _name_split(split: str) -> str:
    kind, _, name = split.partition("_")
    return f"{SPLITS[kind]} ({name})" if name else SPLITS[kind]


def list_results(
    metrics: Mapping[str, Any], problems: Mapping[str, Problem[Any]]
) -> list[dict[str, Any]]:
    """List every metric, a row each, with its values and standard errors by split."""
    splits = [metrics[split] for split in _find_splits(metrics)]
    keys = {
        (task, metric.name): (f"{task}_{metric.name}", metric.name == problem.headline[0])
        for task, problem in problems.items()
        for metric in problem.reported
    }
    keys |= {("all tasks", name): (name, False) for name in _list_aggregates(problems)}
    rows = []
    for (task, metric), (key, is_headline) in keys.items():
        cells = [
            (found["metrics"].get(key), found["standard_errors"].get(task) if is_headline else None)
            for found in splits
        ]
        if any(value is not None for value, _ in cells):
            rows.append({"task": task, "metric": metric, "cells": cells})
    return rows


def _list_aggregates(problems: Mapping[str, Problem[Any]]) -> Sequence[str]:
    """List the aggregates to show; of one task, the mean would only repeat its metric."""
    return AGGREGATES if len(problems) > 1 else ("glue",)


def _describe_task(
    problem: Problem[Any], metrics: Mapping[str, Any], evidence: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect the facts of a task."""
    task, metric = problem.task, problem.headline[0]
    scores = {
        split: (metrics[split]["metrics"][f"{task}_{metric}"], errors[task])
        for split in _find_splits(metrics)
        # the headline metric can be undefined
        if task in (errors := metrics[split]["standard_errors"])
    }
    styles = {"train": scores.get("train"), "dev": scores.get("validation")}
    # the evaluated step is marked if it is not the last
    evaluated = evidence["evaluated_step"]
    marked = evaluated if evaluated != metrics["steps"] else None
    return {
        "name": task,
        "problem": problem,
        "data": metrics["data"].get(task, ""),
        "splits": evidence["splits"].get(task, {}),
        "metric": metric,
        "scores": scores,
        "measured": {split: metrics[split]["rows"][task] for split in scores},
        "strip": place_strip({style: found for style, found in styles.items() if found}),
        "plots": [
            {
                "title": curve["title"],
                "plot": plot_curves(
                    curve["series"], marked, lower_is_better=curve["lower_is_better"]
                ),
                "thinned": [one for one in curve["series"] if one["logged"] > len(one["points"])],
            }
            for curve in evidence["curves"][task]
        ],
        "analysis": evidence["analyses"].get(task),
    }


def _list_texts(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the facts of texts, a row for each split; there may be several texts."""
    is_one = all(
        not isinstance(fact, Mapping) for found in facts.values() for fact in found.values()
    )
    texts = {"": facts} if is_one else facts
    return [
        {"name": f"{name} {split}".strip(), **found}
        for name, splits in texts.items()
        for split, found in splits.items()
    ]
