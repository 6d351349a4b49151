"""Smoke tests of experiments: every row once, with few rows of data and few steps."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minbert_cli.launch import shrink
from minbert_cli.run_folder import LOCK_FILE
from trainers import write_text

from .planning import PlannedRun, Row

MARK = "smoke_test.txt"  # in a folder whose runs the next smoke test may replace
NOTE = "The next smoke test replaces the runs in this folder.\n"


def shrink_rows(rows: Sequence[Row]) -> list[Row]:
    """Keep the first selected seed of every row, and shrink its run and its pre-training."""
    shrunk = []
    for row in rows:
        first = next((seed for seed, run in row.runs.items() if run.chosen), None)
        if first is not None:
            shrunk.append(replace(row, runs={first: _shrink_run(row.runs[first])}))
    return shrunk


def _shrink_run(run: PlannedRun) -> PlannedRun:
    after = None if run.after is None else _shrink_run(run.after)
    return replace(run, recipe=run.recipe | shrink(run.recipe), after=after)


def check_smoke_folder(folder: Path) -> None:
    """Raise ValueError if a folder has files that are not of a smoke test."""
    mark = folder / MARK
    known = not folder.exists() or (mark.is_file() and mark.read_bytes() == NOTE.encode())
    if not known and any(path.name != LOCK_FILE for path in folder.iterdir()):
        raise ValueError(
            f"{str(folder)!r} has files that are not of a smoke test; rename it, or choose another "
            "--output_dir"
        )


def mark_smoke_folder(folder: Path) -> None:
    """Allow the next smoke test to replace the runs of this one."""
    write_text(folder / MARK, NOTE)
