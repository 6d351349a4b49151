"""The table of experiments: Markdown and a page."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from minbert_cli.run_folder import read_code, read_settings
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
LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """A cell of the table."""

    values: list[float]  # of the seeds
    reference: float | None = None  # published

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return mean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over the seeds."""
        return stdev(self.values) if len(self.values) > 1 else None

    def change_from(self, baseline: "Summary") -> list[float] | None:
        """Return the low end, the middle and the high end of the difference to a baseline.

        They are Welch's interval of the difference of two means; equal without two seeds of both.
        """
        if self.mean is None or baseline.mean is None:
            return None
        change = self.mean - baseline.mean
        if self.deviation is None or baseline.deviation is None:
            return [change] * 3
        # a run that only trains saves the memory of this import
        from scipy.stats import ttest_ind

        with warnings.catch_warnings():
            # seeds with equal scores have no variance, which is right
            warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
            test = ttest_ind(self.values, baseline.values, equal_var=False)
            low, high = map(float, test.confidence_interval(LEVEL))
        return [change] * 3 if math.isnan(low) else [low, change, high]

    def __str__(self) -> str:
        if self.mean is None:
            return ""
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


class ExperimentTable:
    """Results of an experiments file.

    Args:
        rows: Its rows.
        states: States of the runs, by folder; the results of those that are done are read.
        failures: Messages of runs that failed.
    """

    def __init__(self, rows: Sequence[Row], states: States, failures: Sequence[str] = ()) -> None:
        self.rows, self.states, self.failures = rows, states, failures
        self.results = {
            run.folder: read_metrics(run.folder)
            for row in rows
            for run in row.runs.values()
            if states.get(run.folder) == "done"
        }
        problem_types: dict[str, str] = {}
        metrics: dict[str, list[str]] = {}
        measured: set[str] = set()
        for content in self.results.values():
            metrics |= content.get("metrics", {})
            kinds = {task: head["problem_type"] for task, head in content["tasks"].items()}
            problem_types |= {task: kind for task, kind in kinds.items() if kind in PROBLEMS}
            measured.update(_validation(content))
        # name of the task or aggregate, and key of the metric, by column
        self.columns: dict[str, tuple[str, str]] = {}
        for task, problem in make_problems(problem_types, metrics=metrics).items():
            headline = problem.headline[0]
            self.columns[f"{task} {headline}"] = (task, f"{task}_{headline}")
        self.columns |= {name: (name, name) for name in AGGREGATES if name in measured}
        self.summaries: list[dict[str, Summary]] = []  # by column
        for row in rows:
            done = [run.folder for run in row.runs.values() if run.folder in self.results]
            seeds = [_validation(self.results[folder]) for folder in done]
            self.summaries.append({})
            for column, (name, key) in self.columns.items():
                values = [found[key] for found in seeds if key in found]
                self.summaries[-1][column] = Summary(values, row.reference.get(name))

    def list_cells(self) -> list[list[str]]:
        """List the head and the rows of the table."""
        cells = chain(*(summary.items() for summary in self.summaries))
        referenced = {column for column, cell in cells if cell.reference is not None}
        head = ["row", "seeds"]
        for column in self.columns:
            head += [column, "reference"] if column in referenced else [column]
        lines = [head]
        for row, summary in zip(self.rows, self.summaries, strict=True):
            done = sum(run.folder in self.results for run in row.runs.values())
            seeds = str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"
            line = [row.name, seeds]
            for column, cell in summary.items():
                line.append(str(cell))
                if column in referenced:
                    line.append("" if cell.reference is None else f"{cell.reference:.4f}")
            lines.append(line)
        return lines

    def markdown(self) -> str:
        """Format the table, with notes below it."""
        lines = [[line[0].replace("|", "\\|"), *line[1:]] for line in self.list_cells()]
        return "\n\n".join([markdown_table(lines, text_columns=1), *self._describe()]) + "\n"

    def _describe(self) -> Iterator[str]:
        """Explain the table, warn of rows that cannot be compared, and list failures."""
        yield NOTE
        done = {
            row.name: [run.folder for run in row.runs.values() if run.folder in self.results]
            for row in self.rows
        }
        done = {name: folders for name, folders in done.items() if folders}
        yield from self._describe_tasks(done)
        codes = {name: [read_code(folder) for folder in folders] for name, folders in done.items()}
        _, newest = max(chain(*codes.values()), key=lambda code: code[0], default=(0.0, None))
        old = [name for name, runs in codes.items() if any(code != newest for _, code in runs)]
        if newest is not None and old:
            yield (
                f"Made with different code than the newest run, or with unknown code: "
                f"{'; '.join(old)}. To repeat runs with the current code, delete their folders."
            )
        if self.failures:
            yield "\n".join(["```", *self.failures, "```"])
            yield "Repeat the command to retry failed runs from their last checkpoints."

    def _describe_tasks(self, done: Mapping[str, Sequence[Path]]) -> Iterator[str]:
        """Warn of aggregates of different tasks or metrics."""
        tasks: dict[str, set[tuple[str, str]]] = {}  # that count, with their metrics
        for name, folders in done.items():
            keys = read_settings(folders[-1]).get("tasks") or {}
            tasks[name] = {
                (task, str((keys.get(task) or {}).get("metrics")))
                for task in self.results[folders[-1]]["tasks"]
                if not (keys.get(task) or {}).get("auxiliary")
            }
        first = next(iter(tasks.values()), set())
        others = [name for name, counted in tasks.items() if counted != first]
        aggregates = " and ".join(name for name in AGGREGATES if name in self.columns)
        if others and aggregates:
            yield (
                f"Only rows with equal tasks and metrics can be compared by {aggregates}; "
                f"these rows differ from the first, which has "
                f"{', '.join(sorted(task for task, _ in first))}: {'; '.join(others)}."
            )

    def write(self, folder: Path) -> None:
        """Write ``table.md`` and ``table.html``."""
        write_text(folder / "table.md", self.markdown())
        # the page: the table, and figures of the intervals of the differences to the first row
        figures = []
        for column in self.columns:
            baseline, *summaries = (summary[column] for summary in self.summaries)
            changes = [summary.change_from(baseline) for summary in summaries]
            series = {
                printable(row.name): [change]
                for row, change in zip(self.rows[1:], changes, strict=True)
                if change is not None
            }
            if series:
                names = "; ".join(f"{place} {name}" for place, name in enumerate(series, 1))
                title = f"difference to {printable(self.rows[0].name)}"
                figures.append(Figure(column, title, "", series, names, style="intervals"))
        head, *lines = printable(self.list_cells())
        sections = [Section("Table", [NOTE], [Table("", [(name, "") for name in head], lines)])]
        if figures:
            explained = (
                "Difference of the means, with Welch's 95 % interval where both rows have several "
                "seeds."
            )
            sections.append(Section("Differences to the first row", [explained], figures))
        name = printable(folder.resolve().name)
        page = folder / "table.html"
        write_page(
            page, f"{name}: experiments", name, "Made from the metrics.json of each run.", sections
        )


def _validation(content: Mapping[str, Any]) -> dict[str, float]:
    return content["validation"]["metrics"]
