"""The picture of a table of experiments."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any

from trainers.reports.figures import LIGHT, new_figure, style_axes

LEVEL = 0.95
# Axes are not magnified further, so that noise in the fourth decimal stays small.
LEAST_SPAN = 0.02
MOST_COLUMNS = 3


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
        found = list(self.values.values())
        if self.mean is not None and self.deviation is not None:
            found += [self.mean - self.deviation, self.mean + self.deviation]
        return [*found, self.reference] if self.reference is not None else found

    def describe_change(self, baseline: "Summary") -> str:
        """Describe the runs and their difference to those of the baseline.

        The interval of the difference of two means is Welch's, which needs two seeds of both.
        """
        if self.mean is None:
            return ""
        count = f"n={len(self.values)}"
        if baseline.mean is None:
            return count
        shown = f"{count}  {self.mean - baseline.mean:+.4f}"
        if self.deviation is None or baseline.deviation is None:
            return shown
        # a run that only trains saves the memory of this import
        from scipy.stats import ttest_ind

        values = [list(one.values.values()) for one in (self, baseline)]
        with warnings.catch_warnings():
            # seeds with equal scores have no variance, which is right
            warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
            low, high = ttest_ind(*values, equal_var=False).confidence_interval(LEVEL)
        return shown if math.isnan(low) else f"{shown} [{low:+.4f}, {high:+.4f}]"

    def show_reference(self) -> str:
        """Format the published value."""
        return "" if self.reference is None else f"{self.reference:.4f}"

    def __str__(self) -> str:
        if self.mean is None:
            return ""
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


def plot_table(
    names: Sequence[str], summaries: Sequence[Mapping[str, Summary]], path: Path
) -> None:
    """Draw a panel for each column: seeds, mean, standard deviation and reference of each row.

    All panels have the same scale, so equal lengths are equal differences. Beside each row are its
    number of runs and the difference to the first row.
    """
    columns = list(summaries[0])
    across = min(MOST_COLUMNS, len(columns))
    down = -(-len(columns) // across)
    span = find_span(summaries)
    with new_figure(path, 2.0 + 5.0 * across, 0.6 + down * (0.9 + 0.42 * len(names))) as figure:
        panels = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
        for axes, column in zip(panels, columns, strict=False):
            _draw_column(axes, column, [summary[column] for summary in summaries], span)
        for axes in panels[len(columns) :]:
            axes.set_visible(False)
        # a dollar in a name does not begin a formula
        labels = ["\n".join(wrap(name, 42, max_lines=2, placeholder=" …")) for name in names]
        panels[0].set_yticks(range(len(names)), labels, parse_math=False)
        panels[0].set_ylim(len(names) - 0.5, -0.5)  # the first row on top
        _explain(figure, panels, has_baseline=len(names) > 1)


def find_span(summaries: Sequence[Mapping[str, Summary]]) -> float:
    """Return the length of all axes: that of the column with the widest values."""
    spans = [LEAST_SPAN]
    for column in summaries[0]:
        ends = list(chain(*(summary[column].ends for summary in summaries)))
        spans += [max(ends) - min(ends)] if ends else []
    return 1.2 * max(spans)


def _draw_column(axes: Any, column: str, cells: Sequence[Summary], span: float) -> None:
    style_axes(axes, column, grid="x")
    for place, cell in enumerate(cells):
        if cell.mean is not None:
            seeds = list(cell.values.values())
            beside = [place + 0.22] * len(seeds)
            axes.plot(seeds, beside, "o", ms=4, mfc="none", color=LIGHT["quiet"], label="seed")
            axes.errorbar(
                cell.mean,
                place,
                xerr=cell.deviation,
                fmt="o",
                ms=5,
                capsize=3,
                color=LIGHT["dev"],
                label="mean ± standard deviation",
            )
        if cell.reference is not None:
            axes.plot(cell.reference, place, "D", ms=5, color=LIGHT["train"], label="reference")
        text = cell.describe_change(cells[0]) if place else cell.describe_change(Summary({}))
        place_of_text = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(1.02, place, text, fontsize=8, color=LIGHT["quiet"], **place_of_text)
    if cells[0].mean is not None and len(cells) > 1:
        axes.axvline(cells[0].mean, color=LIGHT["quiet"], linestyle="--", linewidth=1)
    ends = list(chain(*(cell.ends for cell in cells)))
    middle = (min(ends) + max(ends)) / 2 if ends else 0.5
    axes.set_xlim(middle - span / 2, middle + span / 2)
    axes.locator_params(axis="x", nbins=5)


def _explain(figure: Any, panels: Sequence[Any], *, has_baseline: bool) -> None:
    """Put the legend and a sentence about the numbers below the panels."""
    legend: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        legend |= zip(labels, handles, strict=True)
    keys = {"loc": "outside upper left", "ncols": 3, "fontsize": 8, "frameon": False}
    figure.legend(legend.values(), legend.keys(), **keys)
    text = "All axes have the same scale; n: runs."
    if has_baseline:
        text += (
            " Beside them: difference to the first row (dashed), with Welch's 95 % interval"
            " over seeds."
        )
    figure.supxlabel(text, fontsize=8, color=LIGHT["quiet"])
