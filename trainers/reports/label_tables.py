"""Tables of rows whose label is probably wrong, for people who correct them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from trainers.files import write_text
from trainers.problems.analysis import LabelIssues
from trainers.problems.base import Problem

from .tables import format_table, quote_texts

FOLDER = "label_issues"
# Above this share of the rows, it is more likely that the model is wrong than that labels are.
LARGE_SHARE = 0.15


def write_label_issues(
    output_dir: str | os.PathLike[str],
    problems: Mapping[str, Problem[Any]],
    rows: Mapping[str, datasets.Dataset],
    outputs: Mapping[tuple[str, str], Any],
    *,
    quotes: bool,
) -> list[str]:
    """Write ``label_issues/<task>-dev.csv`` for the validation rows of each task.

    Args:
        output_dir: Folder of the run.
        problems: By task.
        rows: By task, the validation rows before they were encoded.
        outputs: By task and split, from ``evaluate_run``.
        quotes: Whether the texts may be shown.

    Returns:
        A line for each task whose labels are classes.
    """
    lines = []
    for task, own in rows.items():
        problem, found = problems[task], outputs.get((task, "validation"))
        issues = None if found is None else problem.find_label_issues(found)
        if issues is None:
            continue
        path = Path(output_dir) / FOLDER / f"{task}-dev.csv"
        write_text(path, format_issues(problem, own, issues, quotes=quotes))
        line = f"{task}: {len(issues.rows):,} of {issues.counted:,} validation rows; {path}"
        if len(issues.rows) > LARGE_SHARE * issues.counted:
            line += " (so many mean that the model is weak, rather than the labels wrong)"
        lines.append(line)
    return lines


def format_issues(
    problem: Problem[Any], rows: datasets.Dataset, issues: LabelIssues, *, quotes: bool
) -> str:
    """Format suspicious rows of ``rows`` as CSV, the most suspicious first."""
    classes = np.concatenate([issues.given, issues.suggested])
    names = problem.name_classes(int(classes.max(initial=0)) + 1)
    table = {
        **quote_texts(rows.select(issues.rows), quotes=quotes),
        "label": [names[label] for label in issues.given],
        "suggested_label": [names[label] for label in issues.suggested],
        "label_probability": [f"{value:.4f}" for value in issues.confidences],
        "margin": [f"{value:.4f}" for value in issues.margins],
    }
    return format_table(table)
