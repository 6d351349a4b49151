"""Distributions, confusions, calibration and errors of predictions, small and ready for JSON."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.task_dataset import spread_numbers

CALIBRATION_BINS = 10
SCORE_BINS = 10
# Of more classes than this only the most frequent ones are shown.
MOST_CLASSES = 20
MOST_POINTS = 1000

DISTRIBUTION = ("name", "labels", "predictions")

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
            "low": float(edges[place]),
            "high": float(edges[place + 1]),
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


def analyse_classes(
    probabilities: NDArray[np.float64],
    predictions: NDArray[Any],
    labels: NDArray[Any],
    name: Callable[[int], str],
) -> Analysis:
    """Summarize predicted classes (N,), probabilities (N, C): counts, calibration, confusions."""
    from sklearn.metrics import confusion_matrix

    classes, count = labels.astype(np.int64), probabilities.shape[1]
    matrix = confusion_matrix(classes, predictions, labels=range(count))
    given, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    order, confusions = range(count), {"confusion": matrix.tolist()}
    if count > MOST_CLASSES:
        order = np.argsort(-given, kind="stable")[:MOST_CLASSES].tolist()
        confusions = {"confusions": _most_confused(matrix, name)}
    confidences = probabilities[np.arange(len(probabilities)), predictions]
    counts = [(name(number), int(given[number]), int(predicted[number])) for number in order]
    return {
        "classes": count,
        "distribution": [dict(zip(DISTRIBUTION, row, strict=True)) for row in counts],
        "calibration": calibrate(confidences, predictions == classes),
        **confusions,
    }


def find_class_errors(
    probabilities: NDArray[np.float64], predictions: NDArray[Any], labels: NDArray[Any], most: int
) -> list[tuple[int, float]]:
    """Find the wrong rows whose label is least probable: (row, probability of its prediction)."""
    classes = labels.astype(np.int64)
    wrong = np.flatnonzero(predictions != classes)
    order = np.argsort(probabilities[wrong, classes[wrong]], kind="stable")[:most]
    return [(int(row), float(probabilities[row, predictions[row]])) for row in wrong[order]]


def _most_confused(
    matrix: NDArray[np.int64], name: Callable[[int], str]
) -> list[dict[str, str | int]]:
    """List the most frequent confusions of many classes."""
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CLASSES]
    places = [divmod(int(place), len(matrix)) for place in order]
    return [
        {"label": name(label), "prediction": name(place), "rows": int(wrong[label, place])}
        for label, place in places
        if wrong[label, place]
    ]


def analyse_scores(
    predictions: NDArray[Any], labels: NDArray[Any], score_range: Sequence[float] | None
) -> Analysis:
    """Summarize predicted scores (N,): a histogram and pairs of label and prediction."""
    finite = np.isfinite(predictions)
    scores = predictions[finite].astype(np.float64)
    # rounding removes the digits that float32 adds to a label
    wanted = np.round(labels[finite].astype(np.float64), 6)
    known = [*scores, *wanted, *(score_range or ())]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, SCORE_BINS + 1)
    given, predicted = (np.histogram(values, edges)[0] for values in (wanted, scores))
    chosen = spread_numbers(len(scores), MOST_POINTS)
    names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    counts = zip(names, given.tolist(), predicted.tolist(), strict=True)
    return {
        "distribution": [dict(zip(DISTRIBUTION, row, strict=True)) for row in counts],
        "scatter": [[float(wanted[row]), round(float(scores[row]), 4)] for row in chosen],
        "range": [float(edges[0]), float(edges[-1])],
    }
