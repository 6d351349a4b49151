"""What the predictions of a task say beside its metrics: distributions, confusions, errors.

All of it is small, whatever the number of rows, and plain: numbers, texts, lists, dictionaries.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from trainers.data.task_dataset import spread_numbers

CALIBRATION_BINS = 10
SCORE_BINS = 10
# More classes than this make no matrix that could be read; the most frequent ones are shown.
MOST_CLASSES = 20
MOST_POINTS = 1000


def analyse(
    problem_type: str,
    logits: NDArray[Any],
    predictions: NDArray[Any],
    labels: NDArray[Any],
    *,
    names: Sequence[str] | None = None,
    score_range: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Sum up the predictions of a task.

    Args:
        problem_type: ``classification``, ``paraphrase`` or ``similarity``.
        logits: (N, K).
        predictions: What the model made of them: class indices, 0 or 1, or scores, (N,).
        labels: (N,).
        names: Of the classes; a class without one is called by its index.
        score_range: Lowest and highest score.

    Returns:
        ``rows``, the number of them, and ``distribution``, how often each label was given and
        predicted. Of a similarity task ``scatter``: pairs of label and prediction. Of the others
        ``calibration``, and ``confusion``, a matrix with the labels as its rows; or, of more than
        ``MOST_CLASSES``, ``confusions``, the most frequent ones.
    """
    if problem_type == "similarity":
        found = _analyse_scores(predictions, labels, score_range)
    else:
        found = _analyse_classes(problem_type, logits, predictions, labels, names or ())
    return {"rows": len(labels), **found}


def probabilities(problem_type: str, logits: NDArray[Any]) -> NDArray[np.float64]:
    """Turn the logits of a classification or paraphrase task into probabilities, (N, C)."""
    values = np.asarray(logits, dtype=np.float64)
    if problem_type == "paraphrase":
        return np.concatenate([expit(-values[:, :1]), expit(values[:, :1])], axis=1)
    return np.asarray(softmax(values, axis=1))


def calibrate(
    confidences: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = CALIBRATION_BINS
) -> dict[str, Any]:
    """Compare how sure a model is with how often it is right.

    Source: Guo et al. 2017, On Calibration of Modern Neural Networks, equations 1 to 3.

    Args:
        confidences: Probability of the class that was predicted, (N,); rows without a finite one
            are left out.
        correct: Whether it was the label, (N,).
        bins: Number of bins of equal width; the upper edge belongs to a bin.

    Returns:
        ``ece``, the expected calibration error, and the mean ``confidence`` and ``accuracy``, each
        None without rows; and ``bins``, those that are not empty, each with its ``low`` and
        ``high`` edge, ``rows``, mean ``confidence`` and ``accuracy``.
    """
    finite = np.isfinite(confidences)
    confidences, correct = confidences[finite], correct[finite]
    if not len(confidences):
        return {"ece": None, "confidence": None, "accuracy": None, "bins": []}
    edges = np.linspace(0, 1, bins + 1)
    places = np.searchsorted(edges[1:-1], confidences)
    found = []
    for place in np.unique(places):
        inside = places == place
        found.append(
            {
                "low": float(edges[place]),
                "high": float(edges[place + 1]),
                "rows": int(inside.sum()),
                "confidence": float(confidences[inside].mean()),
                "accuracy": float(correct[inside].mean()),
            }
        )
    gaps = [part["rows"] * abs(part["accuracy"] - part["confidence"]) for part in found]
    return {
        "ece": float(sum(gaps) / len(confidences)),
        "confidence": float(confidences.mean()),
        "accuracy": float(correct.mean()),
        "bins": found,
    }


def find_errors(
    problem_type: str,
    logits: NDArray[Any],
    predictions: NDArray[Any],
    labels: NDArray[Any],
    most: int,
) -> list[tuple[int, float]]:
    """Find the rows that a model is most wrong about.

    Args:
        problem_type: As in ``analyse``.
        logits: (N, K).
        predictions: (N,).
        labels: (N,).
        most: Number of rows at most.

    Returns:
        Row and size of the error, the worst first: the distance of a score from the label, or for
        classes the probability of what was wrongly predicted, those first whose label had the
        lowest probability. Equal ones are in the order of the rows.
    """
    if problem_type == "similarity":
        distances = np.abs(predictions.astype(np.float64) - labels)
        rows = np.argsort(-distances, kind="stable")[:most]
        return [(int(row), float(distances[row])) for row in rows if distances[row] > 0]
    classes, found = labels.astype(np.int64), probabilities(problem_type, logits)
    wrong = np.flatnonzero(predictions != classes)
    order = np.argsort(found[wrong, classes[wrong]], kind="stable")[:most]
    return [(int(row), float(found[row, predictions[row]])) for row in wrong[order]]


def _analyse_classes(
    problem_type: str,
    logits: NDArray[Any],
    predictions: NDArray[Any],
    labels: NDArray[Any],
    names: Sequence[str],
) -> dict[str, Any]:
    from sklearn.metrics import confusion_matrix

    classes, found = labels.astype(np.int64), probabilities(problem_type, logits)
    count = found.shape[1]

    def name(number: int) -> str:
        return str(names[number]) if number < len(names) else str(number)

    matrix = confusion_matrix(classes, predictions, labels=range(count))
    given, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    order = range(count)
    if count > MOST_CLASSES:
        order = np.argsort(-given, kind="stable")[:MOST_CLASSES].tolist()
    confidences = found[np.arange(len(found)), predictions]
    return {
        "classes": count,
        "distribution": [
            {
                "name": name(number),
                "labels": int(given[number]),
                "predictions": int(predicted[number]),
            }
            for number in order
        ],
        "calibration": calibrate(confidences, predictions == classes),
        **(
            {"confusion": matrix.tolist()}
            if count <= MOST_CLASSES
            else _most_confused(matrix, name)
        ),
    }


def _most_confused(matrix: NDArray[np.int64], name: Callable[[int], str]) -> dict[str, Any]:
    """List the most frequent confusions of many classes."""
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CLASSES]
    places = [divmod(int(place), len(matrix)) for place in order]
    return {
        "confusions": [
            {
                "label": name(label),
                "prediction": name(prediction),
                "rows": int(wrong[label, prediction]),
            }
            for label, prediction in places
            if wrong[label, prediction]
        ]
    }


def _analyse_scores(
    predictions: NDArray[Any], labels: NDArray[Any], score_range: Sequence[float] | None
) -> dict[str, Any]:
    finite = np.isfinite(predictions)
    scores = predictions[finite].astype(np.float64)
    # float32 labels would have digits that nobody wrote
    wanted = np.round(labels[finite].astype(np.float64), 6)
    known = [*scores, *wanted, *(score_range or ())]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, SCORE_BINS + 1)
    given, predicted = (np.histogram(values, edges)[0] for values in (wanted, scores))
    chosen = spread_numbers(len(scores), MOST_POINTS)
    return {
        "distribution": [
            {
                "name": f"{edges[place]:.3g} to {edges[place + 1]:.3g}",
                "labels": int(count),
                "predictions": int(predicted[place]),
            }
            for place, count in enumerate(given)
        ],
        "scatter": [[float(wanted[row]), round(float(scores[row]), 4)] for row in chosen],
        "range": [float(edges[0]), float(edges[-1])],
    }
