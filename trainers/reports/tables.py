"""Tables of predictions for readers: texts, labels and predictions by name."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets

from trainers.files import write_text
from trainers.problems.problem import Problem

from .results import file_split

TEXTS = ("sentence1", "sentence2")


def write_tables(
    output_dir: str | os.PathLike[str],
    problems: Mapping[str, Problem[Any]],
    rows: Mapping[tuple[str, str], datasets.Dataset],
    outputs: Mapping[tuple[str, str], Any],
    *,
    quotes: bool,
) -> None:
    """Write ``predictions/<task>-<split>.csv`` for held-out rows.

    Args:
        output_dir: Folder of the run.
        problems: By task.
        rows: By task and split, the rows before they were encoded.
        outputs: By task and split, from ``evaluate_run``.
        quotes: Whether the texts may be shown.
    """
    for (task, split), own in rows.items():
        found = outputs.get((task, split))  # none without labels, as in contrastive tasks
        columns = None if found is None else problems[task].tabulate(found)
        if columns is None:
            continue
        texts = [name for name in TEXTS if quotes and name in own.column_names]
        table = {"id": own["id"][:]}
        table |= {_name(number, len(texts)): own[name][:] for number, name in enumerate(texts, 1)}
        table |= columns
        path = Path(output_dir) / "predictions" / f"{task}-{file_split(split)}.csv"
        write_text(path, _format(table))


def _name(number: int, count: int) -> str:
    return "text" if count == 1 else f"text{number}"


def _format(table: Mapping[str, list[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return file.getvalue()
