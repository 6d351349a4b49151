"""Tables of embedders and tasks: Markdown and CSV."""

import csv
import io
from collections.abc import Mapping

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
