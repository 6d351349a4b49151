"""The table of experiments: Markdown, CSV and a picture."""

import csv
import io
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from minbert_cli.run_folder import read_code
from trainers.files import write_text
from trainers.problems import PROBLEMS, make_problems
from trainers.problems.metrics import AGGREGATES, aggregates
from trainers.reports.results import read_metrics
from trainers.reports.texts import markdown_table

from .campaign import Failure
from .planning import PlannedRun, Row
from .table_plot import Summary, plot_table

logger = logging.getLogger(__name__)

NOTE = (
    "Metrics of the dev sets, on which each run also chose its checkpoint if its recipe does so: "
    "mean ± sample standard deviation over the seeds."
)
# A plot of more rows would be slow to draw and hard to read.
MOST_DRAWN = 50
# Tolerance for published aggregates, which were computed from unrounded numbers.
ROUNDING = 0.001


class ExperimentTable:
    """Results of an experiments file.

    The finished runs ``left_out`` no longer match its rows; ``searches`` are notes about trials.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        failures: Mapping[Path, Failure],
        waiting: Collection[Path] = (),
        left_out: Sequence[PlannedRun] = (),
        searches: Sequence[str] = (),
    ) -> None:
        self.rows = rows
        self.failures = failures
        self.left_out = left_out
        self.searches = searches
        unfinished = {*waiting, *failures}
        self.found = {
            run.folder: read_metrics(run.folder)
            for row in rows
            for run in row.runs.values()
            if run.folder not in unfinished
        }
        problem_types: dict[str, str] = {}
        metrics: dict[str, list[str]] = {}
        for content in self.found.values():
            metrics |= content.get("metrics", {})
            kinds = {task: head["problem_type"] for task, head in content["tasks"].items()}
            problem_types |= {task: kind for task, kind in kinds.items() if kind in PROBLEMS}
        self.problems = make_problems(problem_types, metrics=metrics)
        self.columns = {
            f"{task} {problem.headline[0]}": task for task, problem in self.problems.items()
        }
        measured = set(chain(*map(_validation, self.found.values())))
        self.columns |= {name: name for name in AGGREGATES if name in measured}

    def summarize(self, row: Row) -> dict[str, Summary]:
        """Summarize the seeds of a row, by column."""
        reference = self._complete_reference(row)
        summaries = {}
        for column, name in self.columns.items():
            key = name if name in AGGREGATES else f"{name}_{self.problems[name].headline[0]}"
            values = {
                seed: _validation(self.found[run.folder])[key]
                for seed, run in row.runs.items()
                if run.folder in self.found and key in _validation(self.found[run.folder])
            }
            summaries[column] = Summary(values, reference.get(name))
        return summaries

    def markdown(self) -> str:
        """Format the table, with notes below it."""
        summaries = list(map(self.summarize, self.rows))
        cells = chain(*(summary.items() for summary in summaries))
        referenced = {column for column, cell in cells if cell.reference is not None}
        head = ["row", "seeds"]
        for column in self.columns:
            head += [column, "reference"] if column in referenced else [column]
        lines = [head]
        for row, summary in zip(self.rows, summaries, strict=True):
            line = [row.name.replace("|", "\\|"), self._count_runs(row)]
            for column, cell in summary.items():
                line += [str(cell), cell.show_reference()] if column in referenced else [str(cell)]
            lines.append(line)
        return "\n\n".join([markdown_table(lines, text_columns=1), *self._notes()]) + "\n"

    def _count_runs(self, row: Row) -> str:
        done = len(self.found.keys() & {run.folder for run in row.runs.values()})
        return str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"

    def _notes(self) -> Iterator[str]:
        yield NOTE
        yield from self.searches
        if len(self.rows) > MOST_DRAWN:
            yield f"{len(self.rows)} rows are too many for a picture; table.csv has the numbers."
        yield from self._doubt_aggregates()
        yield from self._doubt_references()
        yield from self._doubt_code()
        if self.left_out:
            names = "; ".join(run.name for run in self.left_out)
            yield (
                f"Finished with different settings or data, so not in the table: {names}. "
                "Choose these rows and seeds with --overwrite_output_dir true to repeat them."
            )
        yield from self._list_failures()

    def write(self, folder: Path, *, picture: bool = True) -> None:
        """Write ``table.md``, ``table.csv`` and ``runs.csv``; draw or remove ``table.png``."""
        write_text(folder / "table.md", self.markdown())
        write_text(folder / "table.csv", _csv(self._row_lines()))
        write_text(folder / "runs.csv", _csv(self._run_lines()))
        (folder / "table.png").unlink(missing_ok=True)
        if picture and self.found and len(self.rows) <= MOST_DRAWN:
            names, summaries = [row.name for row in self.rows], map(self.summarize, self.rows)
            try:
                plot_table(names, list(summaries), folder / "table.png")
            except Exception:  # the table must still be printed
                logger.exception("table.png could not be drawn; the numbers are in table.csv")

    def _row_lines(self) -> Iterator[dict[str, Any]]:
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
            yield line

    def _run_lines(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            for seed, run in row.runs.items():
                content = self.found.get(run.folder, {})
                status = "failed" if run.folder in self.failures else "to do"
                line = {"row": row.name, "seed": seed, "status": "done" if content else status}
                line |= _validation(content) if content else {}
                line["steps"] = content.get("steps")
                line["changes"] = json.dumps(row.changes, default=str)
                yield line | {"folder": str(run.folder)}

    def _complete_reference(self, row: Row) -> dict[str, float]:
        """Add aggregates to the reference, if it has a value for every task of the row."""
        # a task has a problem once a run is finished
        problems = {task: self.problems.get(task) for task in _count_tasks(row)}
        labeled = {
            task: (problem, row.reference.get(task))
            for task, problem in problems.items()
            if problem is not None and problem.has_labels
        }
        if not labeled or None in problems.values() or not labeled.keys() <= row.reference.keys():
            return row.reference
        return row.reference | aggregates(labeled)

    def _doubt_aggregates(self) -> Iterator[str]:
        """List the rows with different tasks in their aggregates than the first finished row."""
        counted = {}
        for row in self.rows:
            done = [self.found[run.folder] for run in row.runs.values() if run.folder in self.found]
            if done and not _validation(done[0]).keys().isdisjoint(AGGREGATES):
                counted[row.name] = {
                    (task, metrics)
                    for task, metrics in _count_tasks(row).items()
                    if task in done[0]["tasks"]
                }
        first = next(iter(counted.values()), set())
        others = [name for name, tasks in counted.items() if tasks != first]
        if others:
            shown = ", ".join(sorted(task for task, _ in first))
            yield (
                f"Only rows with equal tasks and metrics can be compared by "
                f"{' and '.join(name for name in AGGREGATES if name in self.columns)}; these rows "
                f"differ from the first, which has {shown}: {'; '.join(others)}."
            )

    def _doubt_references(self) -> Iterator[str]:
        """List the aggregates of references that do not match their tasks."""
        for row in self.rows:
            computed = self._complete_reference(row)
            for name in AGGREGATES:
                given = row.reference.get(name)
                if given is not None and abs(given - computed.get(name, given)) > ROUNDING:
                    yield (
                        f"The reference of {row.name} has {name} {given:g}, but the {name} of its "
                        f"tasks is {computed[name]:.4f}, which the table shows."
                    )

    def _doubt_code(self) -> Iterator[str]:
        """List the rows with runs of different code than the newest run."""
        made = {folder: read_code(folder) for folder in self.found}
        _, newest = max(made.values(), key=lambda found: found[0], default=(0.0, None))
        others = {folder for folder, (_, code) in made.items() if code != newest}
        names = [
            row.name for row in self.rows if any(run.folder in others for run in row.runs.values())
        ]
        if newest is not None and names:
            yield (
                f"Made with different code than the newest run, or with unknown code: "
                f"{'; '.join(names)}. To repeat runs with the current code, delete their folders."
            )

    def _list_failures(self) -> Iterator[str]:
        """Show the failed runs, including pre-training."""
        runs = [run for row in self.rows for run in row.runs.values()]
        names = {run.folder: run.name for run in runs}
        names |= {run.after.folder: run.after.name for run in runs if run.after is not None}
        shown = [
            f"{names[folder]} {failure.describe()}" for folder, failure in self.failures.items()
        ]
        if shown:
            yield "\n".join(["```", *shown, "```"])
            yield "Repeat the command to retry failed runs from their last checkpoints."


def _count_tasks(row: Row) -> dict[str, str]:
    """Return the tasks of a row that count in aggregates, with their metrics."""
    recipe = next(iter(row.runs.values())).recipe
    return {
        task: str(keys.get("metrics"))
        for task, keys in recipe["tasks"].items()
        if not keys.get("auxiliary")
    }


def _validation(content: Mapping[str, Any]) -> dict[str, float]:
    return content["validation"]["metrics"]


def _csv(lines: Iterable[Mapping[str, Any]]) -> str:
    """Format mappings as CSV, with columns in the order of their first occurrence."""
    rows, text = list(lines), io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(chain(*rows)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
