"""The table of experiments: Markdown and a page."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from minbert_cli.run_folder import read_settings
from trainers.files import write_text
from trainers.problems import PROBLEMS, make_problems
from trainers.problems.blocks import Figure, Table
from trainers.problems.metrics import AGGREGATES
from trainers.reports.page import Section, write_page
from trainers.reports.results import read_metrics
from trainers.reports.texts import markdown_table, printable

from .plan import Row, States

NOTE = (
    "Metrics of the dev sets, on which each run also chose its checkpoint if its recipe does so: "
    "mean ± sample standard deviation over the seeds."
)


class ExperimentTable:
    """Results of the runs of an experiments file that are done, and messages of failures."""

    def __init__(self, rows: Sequence[Row], states: States, failures: Sequence[str] = ()) -> None:
        self.rows, self.failures = rows, failures
        # by row and by folder
        self.results: list[dict[Path, dict[str, Any]]] = [
            {
                run.folder: read_metrics(run.folder)
                for run in row.runs.values()
                if states.get(run.folder) == "done"
            }
            for row in rows
        ]
        types: dict[str, str] = {}
        metrics: dict[str, list[str]] = {}
        measured: set[str] = set()
        for content in chain(*(results.values() for results in self.results)):
            kinds = {task: head["problem_type"] for task, head in content["tasks"].items()}
            types |= {task: kind for task, kind in kinds.items() if kind in PROBLEMS}
            metrics |= content.get("metrics", {})
            measured.update(content["validation"]["metrics"])
        # name of the task or aggregate, and key of the metric, by column
        self.columns: dict[str, tuple[str, str]] = {}
        for task, problem in make_problems(types, metrics=metrics).items():
            headline = problem.headline[0]
            self.columns[f"{task} {headline}"] = (task, f"{task}_{headline}")
        self.columns |= {name: (name, name) for name in AGGREGATES if name in measured}

    def read_values(self, place: int, key: str) -> list[float]:
        """Return the values of a metric for the seeds of a row."""
        found = [content["validation"]["metrics"] for content in self.results[place].values()]
        return [metrics[key] for metrics in found if key in metrics]

    def list_cells(self) -> list[list[str]]:
        """List the head and the rows of the table."""
        referenced = set(chain(*(row.reference for row in self.rows)))
        head = ["row", "seeds"]
        for column, (name, _) in self.columns.items():
            head += [column, "reference"] if name in referenced else [column]
        lines = [head]
        for place, row in enumerate(self.rows):
            done = len(self.results[place])
            line = [row.name, str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"]
            for name, key in self.columns.values():
                values = self.read_values(place, key)
                spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
                line.append(f"{mean(values):.4f}{spread}" if values else "")
                if name in referenced:
                    line.append(f"{row.reference[name]:.4f}" if name in row.reference else "")
            lines.append(line)
        return lines

    def markdown(self) -> str:
        """Format the table, with notes below it."""
        parts = [markdown_table(self.list_cells(), text_columns=1), NOTE]
        tasks: dict[str, set[tuple[str, str]]] = {}  # that count, with their metrics
        for row, results in zip(self.rows, self.results, strict=True):
            for folder, content in results.items():
                keys = read_settings(folder).get("tasks") or {}
                tasks[row.name] = {
                    (task, str((keys.get(task) or {}).get("metrics")))
                    for task in content["tasks"]
                    if not (keys.get(task) or {}).get("auxiliary")
                }
        first = next(iter(tasks.values()), set())
        others = [name for name, counted in tasks.items() if counted != first]
        aggregates = " and ".join(name for name in AGGREGATES if name in self.columns)
        if others and aggregates:
            parts.append(
                f"Only rows with equal tasks and metrics can be compared by {aggregates}; "
                f"these rows differ from the first, which has "
                f"{', '.join(sorted(task for task, _ in first))}: {'; '.join(others)}."
            )
        if self.failures:
            parts.append("\n".join(["```", *self.failures, "```"]))
            parts.append("Repeat the command to retry failed runs from their last checkpoints.")
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``table.md``, and ``table.html`` with the table and a figure of each column."""
        write_text(folder / "table.md", self.markdown())
        head, *lines = printable(self.list_cells())
        names = [line[0] for line in lines]
        note = "; ".join(f"{place} {name}" for place, name in enumerate(names, 1))
        figures = []
        for column, (_, key) in self.columns.items():
            series = {
                name: [[place, value] for value in self.read_values(place - 1, key)]
                for place, name in enumerate(names, 1)
            }
            figures.append(Figure(column, "row", column, series, note, style="points"))
        table = Table("", [(name, "") for name in head], lines)
        sections = [Section("Table", [NOTE], [table])]
        if figures:
            sections.append(Section("Seeds", ["Each point is a run."], figures))
        name = printable(folder.resolve().name)
        page, source = folder / "table.html", "Made from the metrics.json of each run."
        write_page(page, f"{name}: experiments", name, source, sections)
