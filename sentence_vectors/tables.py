"""A table of embedders and tasks: Markdown, CSV and a picture."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

# Names of columns to percentages.
Row = Mapping[str, float]
MEAN = "mean"


def add_mean(row: Row, columns: list[str]) -> dict[str, float]:
    """Add the mean over some columns, as SentEval does over the accuracies of its tasks."""
    return {**row, MEAN: sum(row[name] for name in columns) / len(columns)} if columns else {**row}


def to_markdown(rows: Mapping[str, Row]) -> str:
    """Write rows by name as a table, in percent with two decimals."""
    columns = list(next(iter(rows.values())))
    lines = [["vectors of", *columns], ["---"] * (1 + len(columns))]
    lines += [[name, *(f"{row[column]:.2f}" for column in columns)] for name, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(rows: Mapping[str, Row]) -> str:
    """Write rows by name as comma-separated values, with all digits."""
    columns = list(next(iter(rows.values())))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["vectors", *columns])
    writer.writerows([name, *(row[column] for column in columns)] for name, row in rows.items())
    return file.getvalue()


def plot(rows: Mapping[str, Row], path: str | os.PathLike[str]) -> None:
    """Draw a group of bars for each column, a bar for each row, into a PNG file."""
    # importing it takes time that who wants no picture need not spend
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
