"""The picture of a table of experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any

from trainers.files import replaced_when_done


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
    """Draw a panel for each column: seeds, mean, standard deviation and reference of each row."""
    # a run that only trains saves the memory of this import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = list(summaries[0])
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    width, height = 2.2 + 3.6 * across, down * (1.1 + 0.38 * len(names))
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
    for axes, column in zip(panels, columns, strict=False):
        _draw_column(axes, column, [summary[column] for summary in summaries])
    for axes in panels[len(columns) :]:
        axes.set_visible(False)
    # a dollar in a name does not begin a formula
    labels = ["\n".join(wrap(name, 42, max_lines=2, placeholder=" …")) for name in names]
    panels[0].set_yticks(range(len(names)), labels, parse_math=False)
    panels[0].set_ylim(len(names) - 0.5, -0.5)  # the first row on top
    legend: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        legend |= zip(labels, handles, strict=True)
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=3, fontsize=8)
    with replaced_when_done(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _draw_column(axes: Any, column: str, cells: Sequence[Summary]) -> None:
    for place, cell in enumerate(cells):
        if cell.mean is not None:
            seeds = list(cell.values.values())
            beside = [place + 0.22] * len(seeds)
            axes.plot(seeds, beside, "o", ms=4, mfc="none", color="0.5", label="seed")
            axes.errorbar(
                cell.mean,
                place,
                xerr=cell.deviation,
                fmt="o",
                ms=5,
                capsize=3,
                color="C0",
                label="mean ± standard deviation",
            )
        if cell.reference is not None:
            axes.plot(cell.reference, place, "D", ms=5, color="C1", label="reference")
    axes.set_title(column, fontsize=10, parse_math=False)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.12)
