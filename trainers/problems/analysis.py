"""Summaries of predictions, ready for JSON: confusions, calibration, errors, wrong labels."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainers.data.dataset import spread_numbers

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


class LabelIssues(NamedTuple):
    """M rows whose label is probably wrong, the most suspicious first.

    They are found by confident learning (Northcutt, Jiang and Chuang 2021). The probabilities must
    be out of sample: of a model that was not trained on these rows. The library cleanlab finds the
    same rows, in the same order. It is no dependency: what is needed of it is short and stable, and
    it would add pandas, tqdm and termcolor to every installation.
    """

    rows: NDArray[np.int64]  # indices, (M,)
    given: NDArray[np.int64]  # their labels, (M,)
    suggested: NDArray[np.int64]  # the class that the label probably should be, (M,)
    confidences: NDArray[np.float64]  # probability of the given label (self-confidence), (M,)
    margins: NDArray[np.float64]  # this probability less the highest other one, (M,)
    counted: int  # rows with a label and finite probabilities
    noise: float  # estimated share of wrong labels among these, in [0, 1]

    def list_first(self, most: int) -> list[tuple[int, int, int, float]]:
        """List the first rows with label, suggested class, and the probability of the label."""
        columns = (self.rows, self.given, self.suggested, self.confidences)
        return list(zip(*(column[:most].tolist() for column in columns), strict=True))


def find_label_issues(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> LabelIssues:
    """Find the rows that count as label errors in the confident joint, by their normalized margin.

    A row is confidently of class j if its probability of j reaches the mean probability of j of the
    rows with the label j; of several such classes it is the most probable one. It is suspicious if
    this class is not its label, and its most probable class is not its label, either: otherwise a
    rare class with a low mean would claim rows that the model does not doubt.

    Args:
        labels: The given classes, (N,); rows with a negative one do not count.
        probabilities: Out-of-sample probabilities of K classes, (N, K).

    Returns:
        The rows. ``noise`` is the share off the diagonal of the calibrated joint.

    Source: section 3.1 (thresholds, confident joint, its calibration) and section 3.2 (its
    off-diagonal rows, ranked by margin).
    """
    counted = np.flatnonzero((labels >= 0) & np.isfinite(probabilities).all(axis=1))
    given, confident = labels[counted], probabilities[counted]
    count = probabilities.shape[1]
    sizes = np.bincount(given, minlength=count)
    everyone = np.arange(len(given))
    own = confident[everyone, given] if len(given) else np.empty(0)
    sums = np.bincount(given, weights=own, minlength=count)
    # no row is confidently of a class that no label names
    thresholds = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    # the mean of equal numbers may round up
    reached = np.where(confident >= thresholds - 1e-6, confident, -1)
    true = np.where(reached.max(axis=1, initial=-1) >= 0, reached.argmax(axis=1), -1)
    noise = _estimate_noise(given, true, sizes)
    others = confident.copy()
    others[everyone, given] = -1
    margins = own - others.max(axis=1, initial=-1)
    found = np.flatnonzero((true >= 0) & (true != given) & (confident.argmax(axis=1) != given))
    order = found[np.argsort(margins[found], kind="stable")]
    return LabelIssues(
        counted[order],
        given[order],
        true[order],
        own[order],
        margins[order],
        counted=len(counted),
        noise=noise,
    )


def _estimate_noise(
    given: NDArray[np.int64], true: NDArray[np.int64], sizes: NDArray[np.int64]
) -> float:
    """Estimate the share of wrong labels from the confident joint, calibrated by label."""
    count, is_confident = len(sizes), true >= 0
    joint = np.zeros((count, count))
    np.add.at(joint, (given[is_confident], true[is_confident]), 1)
    # of a label without a confident row nothing is known: it counts as right
    empty = joint.sum(axis=1) == 0
    joint[empty, empty] = 1
    right = (np.diagonal(joint) / joint.sum(axis=1) * sizes).sum()
    return float(1 - right / sizes.sum()) if sizes.sum() else 0.0
