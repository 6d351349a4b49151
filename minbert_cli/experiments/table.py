"""The table of experiments: Markdown, CSV and a picture."""

import csv
import io
import json
import logging
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any

from minbert_cli.run_folder import read_code, read_settings
from trainers.files import write_text
from trainers.problems import PROBLEMS, make_problems
from trainers.problems.metrics import AGGREGATES
from trainers.reports.figures import LIGHT, new_figure, style_axes
from trainers.reports.results import read_metrics
from trainers.reports.texts import markdown_table

from .campaign import Failure
from .plan import Row

logger = logging.getLogger(__name__)

NOTE = (
    "Metrics of the dev sets, on which each run also chose its checkpoint if its recipe does so: "
    "mean ± sample standard deviation over the seeds."
)
LEVEL = 0.95
MOST_DRAWN = 50  # rows; a picture of more would be slow to draw and hard to read
MOST_COLUMNS = 3
# Axes are not magnified further, so that noise in the fourth decimal stays small.
LEAST_SPAN = 0.02


@dataclass(frozen=True)
class Summary:
    """A cell of the table."""

    values: dict[int, float]  # by seed
    reference: float | None = None  # published

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return mean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over the seeds."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def ends(self) -> list[float]:
        """Return the values that a plot has to show."""
        shown = list(self.values.values())
        if self.mean is not None and self.deviation is not None:
            shown += [self.mean - self.deviation, self.mean + self.deviation]
        return [*shown, self.reference] if self.reference is not None else shown

    def describe_change(self, baseline: "Summary") -> str:
        """Describe the runs and their difference to those of the baseline.

        The interval of the difference of two means is Welch's, which needs two seeds of both.
        """
        if self.mean is None:
            return ""
        count = f"n={len(self.values)}"
        if baseline.mean is None:
            return count
        change = f"{count}  {self.mean - baseline.mean:+.4f}"
        if self.deviation is None or baseline.deviation is None:
            return change
        # a run that only trains saves the memory of this import
        from scipy.stats import ttest_ind

        values = [list(summary.values.values()) for summary in (self, baseline)]
        with warnings.catch_warnings():
            # seeds with equal scores have no variance, which is right
            warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
            low, high = ttest_ind(*values, equal_var=False).confidence_interval(LEVEL)
        return change if math.isnan(low) else f"{change} [{low:+.4f}, {high:+.4f}]"

    def __str__(self) -> str:
        if self.mean is None:
            return ""
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


class ExperimentTable:
    """Results of an experiments file.

    Args:
        rows: Its rows; those of searches, too.
        failures: Failures of runs, by folder.
        waiting: Folders of runs that are not done.
        names: Names of the runs, by folder.
        notes: Sentences below the table.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        failures: Mapping[Path, Failure],
        waiting: Collection[Path] = (),
        names: Mapping[Path, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.rows, self.failures = rows, failures
        self.names, self.notes = names or {}, notes
        unfinished = {*waiting, *failures}
        folders = [run.folder for row in rows for run in row.runs.values()]
        self.results = {
            folder: read_metrics(folder) for folder in folders if folder not in unfinished
        }
        problem_types: dict[str, str] = {}
        metrics: dict[str, list[str]] = {}
        for content in self.results.values():
            metrics |= content.get("metrics", {})
            kinds = {task: head["problem_type"] for task, head in content["tasks"].items()}
            problem_types |= {task: kind for task, kind in kinds.items() if kind in PROBLEMS}
        problems = make_problems(problem_types, metrics=metrics)
        # name of the task or aggregate, and key of the metric, by column
        self.columns = {
            f"{task} {problem.headline[0]}": (task, f"{task}_{problem.headline[0]}")
            for task, problem in problems.items()
        }
        measured = set(chain(*map(_validation, self.results.values())))
        self.columns |= {name: (name, name) for name in AGGREGATES if name in measured}
        self.summaries = [self._summarize(row) for row in rows]

    def _summarize(self, row: Row) -> dict[str, Summary]:
        """Summarize the seeds of a row, by column."""
        found = {
            seed: _validation(self.results[run.folder])
            for seed, run in row.runs.items()
            if run.folder in self.results
        }
        return {
            column: Summary(
                {seed: metrics[key] for seed, metrics in found.items() if key in metrics},
                row.reference.get(name),
            )
            for column, (name, key) in self.columns.items()
        }

    def markdown(self) -> str:
        """Format the table, with notes below it."""
        cells = chain(*(summary.items() for summary in self.summaries))
        referenced = {column for column, cell in cells if cell.reference is not None}
        head = ["row", "seeds"]
        for column in self.columns:
            head += [column, "reference"] if column in referenced else [column]
        lines = [head]
        for row, summary in zip(self.rows, self.summaries, strict=True):
            done = sum(run.folder in self.results for run in row.runs.values())
            seeds = str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"
            line = [row.name.replace("|", "\\|"), seeds]
            for column, cell in summary.items():
                line.append(str(cell))
                if column in referenced:
                    line.append("" if cell.reference is None else f"{cell.reference:.4f}")
            lines.append(line)
        return "\n\n".join([markdown_table(lines, text_columns=1), *self._describe()]) + "\n"

    def _describe(self) -> Iterator[str]:
        """Explain the table, warn of rows that cannot be compared, and list failures."""
        yield NOTE
        yield from self.notes
        if len(self.rows) > MOST_DRAWN:
            yield f"{len(self.rows)} rows are too many for a picture; table.csv has the numbers."
        counted = {
            row.name: _count_tasks(run.folder, self.results[run.folder])
            for row in self.rows
            for run in row.runs.values()
            if run.folder in self.results
        }
        first = next(iter(counted.values()), set())
        if others := [name for name, tasks in counted.items() if tasks != first]:
            aggregates = " and ".join(name for name in AGGREGATES if name in self.columns)
            if aggregates:
                yield (
                    f"Only rows with equal tasks and metrics can be compared by {aggregates}; "
                    f"these rows differ from the first, which has "
                    f"{', '.join(sorted(task for task, _ in first))}: {'; '.join(others)}."
                )
        made = {folder: read_code(folder) for folder in self.results}
        _, newest = max(made.values(), key=lambda code: code[0], default=(0.0, None))
        old = [
            row.name
            for row in self.rows
            if any(made.get(run.folder, (0, newest))[1] != newest for run in row.runs.values())
        ]
        if newest is not None and old:
            yield (
                f"Made with different code than the newest run, or with unknown code: "
                f"{'; '.join(old)}. To repeat runs with the current code, delete their folders."
            )
        if self.failures:
            shown = [
                f"{self.names.get(folder, folder)} {failure.describe()}"
                for folder, failure in self.failures.items()
            ]
            yield "\n".join(["```", *shown, "```"])
            yield "Repeat the command to retry failed runs from their last checkpoints."

    def write(self, folder: Path, *, picture: bool = True) -> None:
        """Write ``table.md``, ``table.csv`` and ``runs.csv``; draw or remove ``table.png``."""
        table, runs = [], []
        for row, summary in zip(self.rows, self.summaries, strict=True):
            line: dict[str, Any] = {"row": row.name}
            for column, cell in summary.items():
                name = column.replace(" ", "_")
                line |= {f"{name}_mean": cell.mean, f"{name}_sd": cell.deviation}
                line |= {f"{name}_seeds": len(cell.values), f"{name}_reference": cell.reference}
            table.append(line)
            for seed, run in row.runs.items():
                content = self.results.get(run.folder)
                status = "failed" if run.folder in self.failures else "to do"
                line = {"row": row.name, "seed": seed, "status": "done" if content else status}
                line |= {**_validation(content), "steps": content["steps"]} if content else {}
                line |= {"changes": json.dumps(row.changes, default=str)}
                runs.append(line | {"folder": str(run.folder)})
        write_text(folder / "table.md", self.markdown())
        for name, lines in (("table.csv", table), ("runs.csv", runs)):
            text = io.StringIO()
            writer = csv.DictWriter(text, dict.fromkeys(chain(*lines)), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
            write_text(folder / name, text.getvalue())
        (folder / "table.png").unlink(missing_ok=True)
        if picture and self.results and len(self.rows) <= MOST_DRAWN:
            try:
                plot_table([row.name for row in self.rows], self.summaries, folder / "table.png")
            except Exception:  # the table must still be printed
                logger.exception("table.png could not be drawn; the numbers are in table.csv")


def _validation(content: Mapping[str, Any]) -> dict[str, float]:
    return content["validation"]["metrics"]


def _count_tasks(folder: Path, content: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the tasks of a run that count in its aggregates, with their metrics."""
    keys = read_settings(folder).get("tasks") or {}
    return {
        (task, str((keys.get(task) or {}).get("metrics")))
        for task in content["tasks"]
        if not (keys.get(task) or {}).get("auxiliary")
    }


def plot_table(
    names: Sequence[str], summaries: Sequence[Mapping[str, Summary]], path: Path
) -> None:
    """Draw a panel for each column: seeds, mean, standard deviation and reference of each row.

    All panels have the same scale, so equal lengths are equal differences. Beside each row are its
    number of runs and the difference to the first row.
    """
    columns = list(summaries[0])
    ends = {column: list(chain(*(row[column].ends for row in summaries))) for column in columns}
    widths = [max(values) - min(values) for values in ends.values() if values]
    span = 1.2 * max(LEAST_SPAN, *widths)
    across = min(MOST_COLUMNS, len(columns))
    down = -(-len(columns) // across)
    legend: dict[str, Any] = {}
    with new_figure(path, 2.0 + 5.0 * across, 0.6 + down * (0.9 + 0.42 * len(names))) as figure:
        panels = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
        for axes, column in zip(panels, columns, strict=False):
            style_axes(axes, column, grid="x")
            cells = [summary[column] for summary in summaries]
            for place, cell in enumerate(cells):
                _draw_cell(axes, place, cell, cells[0] if place else Summary({}))
            if cells[0].mean is not None and len(cells) > 1:
                axes.axvline(cells[0].mean, color=LIGHT["quiet"], linestyle="--", linewidth=1)
            values = ends[column] or [0.5]
            middle = (min(values) + max(values)) / 2
            axes.set_xlim(middle - span / 2, middle + span / 2)
            axes.locator_params(axis="x", nbins=5)
            handles, labels = axes.get_legend_handles_labels()
            legend |= zip(labels, handles, strict=True)
        for axes in panels[len(columns) :]:
            axes.set_visible(False)
        # a dollar in a name does not begin a formula
        wrapped = ["\n".join(wrap(name, 42, max_lines=2, placeholder=" …")) for name in names]
        panels[0].set_yticks(range(len(names)), wrapped, parse_math=False)
        panels[0].set_ylim(len(names) - 0.5, -0.5)  # the first row on top
        keys = {"loc": "outside upper left", "ncols": 3, "fontsize": 8, "frameon": False}
        figure.legend(legend.values(), legend.keys(), **keys)
        text = "All axes have the same scale; n: runs."
        if len(names) > 1:
            text += (
                " Beside them: difference to the first row (dashed), with Welch's 95 % interval"
                " over seeds."
            )
        figure.supxlabel(text, fontsize=8, color=LIGHT["quiet"])


def _draw_cell(axes: Any, place: int, cell: Summary, baseline: Summary) -> None:
    """Draw a row of a panel."""
    if cell.mean is not None:
        seeds = list(cell.values.values())
        style = {"ms": 4, "mfc": "none", "color": LIGHT["quiet"], "label": "seed"}
        axes.plot(seeds, [place + 0.22] * len(seeds), "o", **style)
        style = {"fmt": "o", "ms": 5, "capsize": 3, "color": LIGHT["dev"]}
        label = "mean ± standard deviation"
        axes.errorbar(cell.mean, place, xerr=cell.deviation, label=label, **style)
    if cell.reference is not None:
        axes.plot(cell.reference, place, "D", ms=5, color=LIGHT["train"], label="reference")
    beside = {"transform": axes.get_yaxis_transform(), "va": "center"}
    text = cell.describe_change(baseline)
    axes.text(1.02, place, text, fontsize=8, color=LIGHT["quiet"], **beside)
