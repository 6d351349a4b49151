"""The table of experiments: Markdown, CSV and a picture."""

import csv
import io
import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.files import write_text
from trainers.metrics.task_metrics import (
    AGGREGATES,
    PRIMARY_METRIC,
    UNLABELLED,
    aggregates,
    headline_metrics,
)
from trainers.reports.model_card import markdown_table
from trainers.reports.results import read_metrics
from trainers.runs.run_folder import read_code

from .campaign import Failure
from .planning import PlannedRun, Row
from .table_plot import Summary, plot_table

logger = logging.getLogger(__name__)

NOTE = (
    "Metrics of the dev sets, on which each run also chose its checkpoint if its recipe says so: "
    "mean ± sample standard deviation over the seeds."
)
# A picture of more would be slow to draw, and nobody could read it.
MOST_DRAWN = 50
# A published aggregate may differ by as much from that of its rounded numbers.
ROUNDING = 0.001


class ExperimentTable:
    """What the runs of an experiments file found.

    Args:
        rows: The rows.
        failures: Why there are no results, by folder of a run.
        waiting: Folders of runs that were not begun yet.
        left_out: Finished runs that are not of these rows any more.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        failures: Mapping[Path, Failure],
        waiting: Collection[Path] = (),
        left_out: Sequence[PlannedRun] = (),
    ) -> None:
        self.rows = rows
        self.failures = failures
        self.waiting = set(waiting)
        self.left_out = left_out
        self.found: dict[Path, dict[str, Any]] = {}
        for row in rows:
            for run in row.runs.values():
                if run.folder not in self.waiting and run.folder not in failures:
                    self.found[run.folder] = read_metrics(run.folder)
        self.kinds = {
            task: keys["problem_type"]
            for content in self.found.values()
            for task, keys in content["tasks"].items()
            if keys["problem_type"] in PRIMARY_METRIC
        }
        chosen = {
            task: names
            for content in self.found.values()
            for task, names in content.get("metric", {}).items()
        }
        self.primary = {
            task: headline_metrics(kind, chosen.get(task, ()))[0]
            for task, kind in self.kinds.items()
        }
        self.columns = {f"{task} {metric}": task for task, metric in self.primary.items()}
        measured = {name for found in self.found.values() for name in _validation(found)}
        self.columns |= {name: name for name in AGGREGATES if name in measured}

    def summarize(self, row: Row) -> dict[str, Summary]:
        """Sum up the seeds of a row, by column."""
        reference = self._complete_reference(row)
        summaries = {}
        for column, name in self.columns.items():
            key = name if name in AGGREGATES else f"{name}_{self.primary[name]}"
            values = {
                seed: _validation(self.found[run.folder])[key]
                for seed, run in row.runs.items()
                if run.folder in self.found and key in _validation(self.found[run.folder])
            }
            summaries[column] = Summary(values, reference.get(name))
        return summaries

    def markdown(self) -> str:
        """Write the table, and under it what it does not say."""
        summaries = [self.summarize(row) for row in self.rows]
        referenced = {
            column
            for summary in summaries
            for column, cell in summary.items()
            if cell.reference is not None
        }
        head = ["row", "seeds"]
        for column in self.columns:
            head += [column, *(["reference"] if column in referenced else [])]
        lines = [head]
        for row, summary in zip(self.rows, summaries, strict=True):
            done = sum(run.folder in self.found for run in row.runs.values())
            count = str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"
            line = [row.name.replace("|", "\\|"), count]
            for column, cell in summary.items():
                line.append(str(cell))
                if column in referenced:
                    line.append("" if cell.reference is None else f"{cell.reference:.4f}")
            lines.append(line)
        notes = [NOTE, *self._explain_picture(), *self._doubt_aggregates()]
        notes += [*self._doubt_references(), *self._doubt_code()]
        notes += [*self._list_left_out(), *self._list_failures()]
        return "\n\n".join([markdown_table(lines, text_columns=1), *notes]) + "\n"

    def write(self, folder: str | os.PathLike[str], *, picture: bool = True) -> None:
        """Write ``table.md``, ``table.csv`` and ``runs.csv``.

        Args:
            folder: Where to.
            picture: Whether to draw ``table.png``, too, if a run is done and the rows are not too
                many; else that of an older table goes.
        """
        folder = Path(folder)
        write_text(folder / "table.md", self.markdown())
        write_text(folder / "table.csv", _csv(self._row_lines()))
        write_text(folder / "runs.csv", _csv(self._run_lines()))
        (folder / "table.png").unlink(missing_ok=True)
        if picture and self.found and len(self.rows) <= MOST_DRAWN:
            self._plot(folder / "table.png")

    def _plot(self, path: Path) -> None:
        """Draw the picture; one that fails must not hide the table, which is printed next."""
        names = [row.name for row in self.rows]
        try:
            plot_table(names, [self.summarize(row) for row in self.rows], path)
        except Exception:
            logger.exception("%s could not be drawn; the numbers are in table.csv", path)

    def _explain_picture(self) -> list[str]:
        if len(self.rows) <= MOST_DRAWN:
            return []
        return [f"{len(self.rows)} rows are too many for a picture; table.csv has the numbers."]

    def _row_lines(self) -> list[dict[str, Any]]:
        lines = []
        for row in self.rows:
            line: dict[str, Any] = {"row": row.name}
            for column, cell in self.summarize(row).items():
                name = column.replace(" ", "_")
                line |= {
                    f"{name}_mean": cell.mean,
                    f"{name}_sd": cell.deviation,
                    f"{name}_seeds": len(cell.values),
                    f"{name}_reference": cell.reference,
                }
            lines.append(line)
        return lines

    def _run_lines(self) -> list[dict[str, Any]]:
        lines = []
        for row in self.rows:
            for seed, run in row.runs.items():
                content = self.found.get(run.folder, {})
                lines.append(
                    {
                        "row": row.name,
                        "seed": seed,
                        "status": self._status(run),
                        **(_validation(content) if content else {}),
                        "steps": content.get("steps"),
                        "changes": json.dumps(row.changes, default=str),
                        "folder": str(run.folder),
                    }
                )
        return lines

    def _status(self, run: PlannedRun) -> str:
        if run.folder in self.found:
            return "done"
        return "failed" if run.folder in self.failures else "to do"

    def _complete_reference(self, row: Row) -> dict[str, float]:
        """Add the aggregates of the reference, if it has a number for every task of the row."""
        (recipe, *_) = (run.recipe for run in row.runs.values())
        tasks = {
            task: self.kinds.get(task)
            for task, keys in recipe["tasks"].items()
            if not keys.get("auxiliary")
        }
        tasks = {task: kind for task, kind in tasks.items() if kind not in UNLABELLED}
        # what kind a task is, is known from the first run that is done
        if not tasks or None in tasks.values() or not tasks.keys() <= row.reference.keys():
            return row.reference
        numbers = {task: (str(kind), row.reference[task]) for task, kind in tasks.items()}
        return row.reference | aggregates(numbers)

    def _doubt_aggregates(self) -> list[str]:
        """Say which rows have aggregates of other tasks than the first row that is done."""
        counted = {}
        for row in self.rows:
            done = [self.found[run.folder] for run in row.runs.values() if run.folder in self.found]
            if done and any(name in _validation(done[0]) for name in AGGREGATES):
                (run, *_) = row.runs.values()
                counted[row.name] = {
                    (task, str(keys.get("metric")))
                    for task, keys in run.recipe["tasks"].items()
                    if task in done[0]["tasks"] and not keys.get("auxiliary")
                }
        first = next(iter(counted.values()), set())
        others = [name for name, tasks in counted.items() if tasks != first]
        if not others:
            return []
        shown = ", ".join(sorted(task for task, _ in first))
        return [
            f"The {' and '.join(name for name in AGGREGATES if name in self.columns)} of a row are "
            f"of its own tasks, and these rows have others than {shown} or another metric, so that "
            f"they cannot be compared with the first: {'; '.join(others)}."
        ]

    def _doubt_references(self) -> list[str]:
        """Say which aggregates of a reference are not those of its own numbers."""
        doubts = []
        for row in self.rows:
            computed = self._complete_reference(row)
            for name in AGGREGATES:
                given = row.reference.get(name)
                if given is not None and abs(given - computed.get(name, given)) > ROUNDING:
                    doubts.append(
                        f"The reference of {row.name} is given with {name} {given:g}, but the "
                        f"{name} of its own numbers is {computed[name]:.4f}, which the table has."
                    )
        return doubts

    def _doubt_code(self) -> list[str]:
        """Say which rows have runs that were made by another code than the newest."""
        made = {folder: read_code(folder) for folder in self.found}
        _, newest = max(made.values(), key=lambda found: found[0], default=(0.0, None))
        others = {folder for folder, (_, code) in made.items() if code != newest}
        names = [
            row.name for row in self.rows if any(run.folder in others for run in row.runs.values())
        ]
        if newest is None or not names:
            return []
        return [
            f"Made by other code than the newest run, or by code that was not noted: "
            f"{'; '.join(names)}. To repeat runs with the code of today, delete their folders."
        ]

    def _list_left_out(self) -> list[str]:
        """Say which finished runs have no row, so that none is missed."""
        if not self.left_out:
            return []
        names = "; ".join(run.name for run in self.left_out)
        return [
            f"Finished with other settings or data than today's, so not in the table: {names}. "
            "Choose these rows and seeds with --overwrite_output_dir true to repeat them."
        ]

    def _list_failures(self) -> list[str]:
        """Show the failures, those of pre-training included, as they were found."""
        names = {run.folder: run.name for row in self.rows for run in row.runs.values()}
        names |= {
            run.after.folder: run.after.name
            for row in self.rows
            for run in row.runs.values()
            if run.after is not None
        }
        shown = [
            f"{names[folder]} {failure.describe()}" for folder, failure in self.failures.items()
        ]
        if not shown:
            return []
        way_on = "The same command begins failed runs again, from their last checkpoints."
        return ["\n".join(["```", *shown, "```"]), way_on]


def _validation(content: Mapping[str, Any]) -> dict[str, float]:
    metrics: dict[str, float] = content["validation"]["metrics"]
    return metrics


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Write mappings as CSV; a column is where the first mapping that has it says."""
    columns: dict[str, None] = {}
    for line in lines:
        columns |= dict.fromkeys(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
