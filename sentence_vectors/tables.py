"""Tables of embedders and tasks: Markdown, CSV and a plot."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

# Names of columns to percentages.
Row = Mapping[str, float]
MEAN = "mean"


def add_mean(row: Row, columns: list[str]) -> dict[str, float]:
    """Add the mean of some columns, as SentEval does for the accuracies of its tasks."""
    return {**row, MEAN: sum(row[name] for name in columns) / len(columns)} if columns else {**row}


def to_markdown(rows: Mapping[str, Row]) -> str:
    """Return a Markdown table of rows by name, in percent with two decimals."""
    columns = list(next(iter(rows.values())))
    lines = [["vectors of", *columns], ["---"] * (1 + len(columns))]
    lines += [[name, *(f"{row[column]:.2f}" for column in columns)] for name, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(rows: Mapping[str, Row]) -> str:
    """Return a CSV table of rows by name, with all digits."""
    columns = list(next(iter(rows.values())))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["vectors", *columns])
    writer.writerows([name, *(row[column] for column in columns)] for name, row in rows.items())
    return file.getvalue()


def plot(rows: Mapping[str, Row], path: str | os.PathLike[str]) -> None:
    """Write a PNG bar chart: a group per column, a bar per row."""
    # imported here, since it is slow
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = list(next(iter(rows.values())))
    figure = Figure(figsize=(2 + 1.1 * len(columns), 4), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.8 / len(rows)
    for number, (name, row) in enumerate(rows.items()):
        places = [place + width * (number - (len(rows) - 1) / 2) for place in range(len(columns))]
        axes.bar(places, [row[column] for column in columns], width, label=name)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_ylabel("percent")
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=1, fontsize=8)
    figure.savefig(Path(path), dpi=150)
