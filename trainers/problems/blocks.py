"""What a page shows, small and ready for JSON: tables, figures, examples and code.

A problem returns blocks of its predictions, and the page shows them one after the other. Below
are those that several types share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainers.data.rows import spread_numbers

from .metrics import Array, binomial_error

Cell: TypeAlias = str | int | float | None
Points: TypeAlias = list[list[float]]


@dataclass(frozen=True)
class Table:
    """A table, whose columns have a name and the format of their numbers, empty for texts."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]  # None is shown as a dash
    note: str = ""
    # The share of each cell in its row, which shades it; None for a cell without one.
    shares: list[list[float | None]] = field(default_factory=list)
    is_folded: bool = False
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Figure:
    """A plot; its points are (x, y), or (x, y, standard error of y)."""

    title: str
    x: str  # what the axis shows
    y: str
    series: dict[str, Points]  # by name
    note: str = ""
    style: Literal["lines", "points"] = "lines"
    has_diagonal: bool = False
    mark: float | None = None  # x of a vertical line
    kind: Literal["figure"] = "figure"


@dataclass(frozen=True)
class Example:
    """A row of the data."""

    id: str
    texts: list[str]  # none if they may not be quoted
    label: str
    prediction: str
    size: float  # by which the examples are ordered
    words: list[dict[str, Any]] = field(default_factory=list)  # with shares, if it is explained
    decision: str = ""  # what words with a share above 0 speak for


@dataclass(frozen=True)
class Examples:
    """Rows of the data, the first of which matter most."""

    title: str
    rows: list[Example]
    size: str  # what the sizes are
    size_format: str
    note: str = ""
    kind: Literal["examples"] = "examples"


@dataclass(frozen=True)
class Code:
    """A text that is shown as it is."""

    title: str
    text: str
    note: str = ""
    kind: Literal["code"] = "code"


Block: TypeAlias = Table | Figure | Examples | Code


CALIBRATION_BINS = 10
MOST_CLASSES = 20  # of more classes than this only the most frequent ones are shown
MOST_POINTS = 1000

Analysis = dict[str, Any]


def calibrate(confidences: NDArray[np.float64], correct: NDArray[np.bool_]) -> Analysis:
    """Compare confidences, (N,), with accuracy, and compute the calibration error.

    Non-finite confidences are left out. Source: Guo et al. 2017, equations 1 to 3.
    """
    finite = np.isfinite(confidences)
    confidences, correct = confidences[finite], correct[finite]
    if not len(confidences):
        return {"ece": None, "confidence": None, "accuracy": None, "bins": []}
    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    places = np.searchsorted(edges[1:-1], confidences)
    parts = [
        {
            "rows": int((places == place).sum()),
            "confidence": float(confidences[places == place].mean()),
            "accuracy": float(correct[places == place].mean()),
        }
        for place in np.unique(places)
    ]
    gaps = [part["rows"] * abs(part["accuracy"] - part["confidence"]) for part in parts]
    return {
        "ece": float(sum(gaps) / len(confidences)),
        "confidence": float(confidences.mean()),
        "accuracy": float(correct.mean()),
        "bins": parts,
    }


def draw_reliability(
    calibrations: Mapping[str, Analysis], confidence: str, note: str = ""
) -> list[Block]:
    """Draw the accuracy of each bin over its mean confidence, by split; nothing without bins.

    ``confidence`` says what the confidence is.
    """
    drawn = {split: found for split, found in calibrations.items() if found["bins"]}
    if not drawn:
        return []
    series = {
        split: [
            [part["confidence"], part["accuracy"], binomial_error(part["accuracy"], part["rows"])]
            for part in found["bins"]
        ]
        for split, found in drawn.items()
    }
    errors = "; ".join(
        f"{found['ece']:.3f} on {split} rows (mean confidence {found['confidence']:.3f}, accuracy "
        f"{found['accuracy']:.3f})"
        for split, found in drawn.items()
    )
    text = (
        f"Expected calibration error {errors}. The confidence is {confidence}; the bins have equal "
        "width (Guo et al. 2017), and their accuracy is drawn with its standard error. On the "
        f"dashed diagonal, accuracy equals confidence. {note}"
    )
    axes = ("mean confidence of a bin", "accuracy")
    return [Figure("Reliability", *axes, series, text.strip(), has_diagonal=True)]


def tabulate_confusions(
    predictions: Array, labels: Array, count: int, name: Callable[[int], str]
) -> list[Block]:
    """Count how often each of ``count`` classes is predicted for each label, (N,)."""
    pairs = count * labels.astype(np.int64) + predictions.astype(np.int64)
    matrix = np.bincount(pairs, minlength=count**2).reshape(count, count)
    given, predicted = matrix.sum(axis=1).tolist(), matrix.sum(axis=0).tolist()
    if count > MOST_CLASSES:
        wrong = matrix * (1 - np.eye(count, dtype=matrix.dtype))
        order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CLASSES]
        places = [divmod(int(place), count) for place in order]
        rows: list[list[Cell]] = [
            [name(label), name(other), int(wrong[label, other])]
            for label, other in places
            if wrong[label, other]
        ]
        columns = [("label", ""), ("prediction", ""), ("rows", ",")]
        note = f"{count} classes are too many for a confusion matrix."
        return [Table("Most frequent confusions", columns, rows, note)]
    names = [name(number) for number in range(count)]
    rows = [[names[place], *row, given[place]] for place, row in enumerate(matrix.tolist())]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    return [
        Table(
            "Confusion matrix",
            [("label \\ prediction", ""), *((title, ",") for title in names), ("labels", ",")],
            [*rows, ["predictions", *predicted, int(matrix.sum())]],
            "Rows are labels, columns are predictions: number of validation rows, and their share "
            "of the row. Right predictions are on the diagonal.",
            shares=[[None, *row, None] for row in shares.tolist()],
        )
    ]


def draw_scatter(title: str, predictions: Array, labels: Array) -> Figure:
    """Draw predicted numbers, (N,), over their labels; of many rows an even choice."""
    rows = np.flatnonzero(np.isfinite(predictions))
    chosen = rows[spread_numbers(len(rows), MOST_POINTS)]
    # rounding removes the digits that float32 adds to a label
    wanted = np.round(labels[chosen].astype(np.float64), 6).tolist()
    points = [
        [label, round(float(prediction), 4)]
        for label, prediction in zip(wanted, predictions[chosen], strict=True)
    ]
    count = f"{len(points):,} rows"
    if len(points) < len(rows):
        count = f"{len(points):,} of {len(rows):,} rows, evenly spread"
    note = f"{count}. On the dashed line, a prediction equals its label."
    series = {"rows": points}
    return Figure(title, "label", "prediction", series, note, style="points", has_diagonal=True)
