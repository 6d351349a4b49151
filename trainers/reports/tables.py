"""Tables of predictions for readers: texts, labels and predictions by name."""

import csv
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets

from trainers.files import write_text
from trainers.problems.base import Problem

from .results import file_split

TEXTS = ("sentence1", "sentence2", "choices")


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
        table = {**quote_texts(own, quotes=quotes), **columns}
        path = Path(output_dir) / "predictions" / f"{task}-{file_split(split)}.csv"
        write_text(path, format_table(table))


def quote_texts(rows: datasets.Dataset, *, quotes: bool) -> dict[str, list[Any]]:
    """Return the ids of rows and, with ``quotes``, their texts, as columns of a table."""
    texts = [name for name in TEXTS if quotes and name in rows.column_names]
    named = {_name(name, len(texts)): rows[name][:] for name in texts}
    return {"id": rows["id"][:], **named}


def _name(column: str, count: int) -> str:
    return "text" if count == 1 else column.replace("sentence", "text")


def format_table(table: Mapping[str, list[Any]]) -> str:
    """Format columns of equal length as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(map(_to_cell, row) for row in zip(*table.values(), strict=True))
    return file.getvalue()


def _to_cell(value: Any) -> Any:
    """Write a list of texts as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
