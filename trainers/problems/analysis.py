"""Summaries of predictions, ready for JSON: confusions, calibration, errors, wrong labels."""

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainers.data.rows import spread_numbers

from .blocks import Block, Cell, Figure, Table
from .metrics import Array

CALIBRATION_BINS = 10
# Of more classes than this only the most frequent ones are shown.
MOST_CLASSES = 20
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
    calibration: Analysis, confidence: str, note: str = "", before: Analysis | None = None
) -> list[Block]:
    """Draw the accuracy of each bin over its mean confidence; nothing without bins.

    ``confidence`` says what the confidence is; ``before`` is the calibration of the same rows
    without a temperature.
    """
    if not calibration["bins"]:
        return []
    drawn = {"accuracy, with its standard error": calibration}
    if before is not None:
        drawn = {"without temperature": before, "calibrated": calibration}
    series = {
        name: [
            [
                part["confidence"],
                part["accuracy"],
                sqrt(part["accuracy"] * (1 - part["accuracy"]) / part["rows"]),
            ]
            for part in values["bins"]
        ]
        for name, values in drawn.items()
    }
    text = (
        f"Expected calibration error {calibration['ece']:.3f}: mean confidence "
        f"{calibration['confidence']:.3f}, accuracy {calibration['accuracy']:.3f}. The confidence "
        f"is {confidence}; the bins have equal width (Guo et al. 2017). On the dashed diagonal, "
        f"accuracy equals confidence. {note}"
    )
    axes = ("mean confidence of a bin", "accuracy")
    return [Figure("Reliability", *axes, series, text.strip(), has_diagonal=True)]


def tabulate_confusions(
    predictions: Array, labels: Array, count: int, name: Callable[[int], str]
) -> list[Block]:
    """Count how often each of ``count`` classes is predicted for each label, (N,)."""
    from sklearn.metrics import confusion_matrix

    matrix = confusion_matrix(labels.astype(np.int64), predictions, labels=range(count))
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


class LabelIssues(NamedTuple):
    """M rows whose label is probably wrong, the most suspicious first."""

    rows: NDArray[np.int64]  # indices, (M,)
    suggested: NDArray[np.int64]  # the class that the label probably should be, (M,)
    confidences: NDArray[np.float64]  # probability of the label, (M,)
    counted: int  # rows with a label and finite probabilities


def find_label_issues(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> LabelIssues:
    """Find the rows that count as label errors in the confident joint, by their normalized margin.

    A row is confidently of class j if its probability of j reaches the mean probability of j of the
    rows with the label j; of several such classes it is the most probable one. It is suspicious if
    this class is not its label, and its most probable class is not its label, either: otherwise a
    rare class with a low mean would claim rows that the model does not doubt.

    Args:
        labels: The classes that were given, (N,); rows with a negative one do not count.
        probabilities: Of K classes, (N, K), by a model that was not trained on these rows.

    Source: Northcutt, Jiang and Chuang 2021, section 3.1 (thresholds, confident joint) and section
    3.2 (its off-diagonal rows, ranked by margin). The library cleanlab finds the same rows, in the
    same order, and would add pandas, tqdm and termcolor to every installation.
    """
    counted = np.flatnonzero((labels >= 0) & np.isfinite(probabilities).all(axis=1))
    labels, probabilities = labels[counted], probabilities[counted]
    every = np.arange(len(labels))
    of_label = probabilities[every, labels]
    sizes = np.bincount(labels, minlength=probabilities.shape[1])
    sums = np.bincount(labels, weights=of_label, minlength=probabilities.shape[1])
    # no row is confidently of a class that no label names
    thresholds = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    # the mean of equal numbers may round up
    reached = np.where(probabilities >= thresholds - 1e-6, probabilities, -1)
    confident = np.where(reached.max(axis=1) >= 0, reached.argmax(axis=1), labels)
    others = probabilities.copy()
    others[every, labels] = -1
    margins = of_label - others.max(axis=1)
    issues = np.flatnonzero((confident != labels) & (probabilities.argmax(axis=1) != labels))
    order = issues[np.argsort(margins[issues], kind="stable")]
    return LabelIssues(counted[order], confident[order], of_label[order], len(counted))
