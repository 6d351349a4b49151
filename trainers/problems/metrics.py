"""Metrics, computed by plain functions of predictions and labels, and their averages over tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainers.data.rows import IGNORED_LABEL

Array: TypeAlias = NDArray[Any]
# Name, metrics and numbers of an entity type, a label or a target.
Described: TypeAlias = dict[str, Any]
# A metric of predictions and labels, (N,) or (N, K); NaN where it is undefined.
Score: TypeAlias = Callable[[Array, Array], float]


@dataclass(frozen=True)
class Metric:
    """A metric of a task."""

    name: str  # in logs, results and recipes
    score: Any = None  # a `Score`; None if the problem computes it
    lower_is_better: bool = False
    # a correlation r, which counts as (r + 1) / 2 on the leaderboard of Stanford CS 224N's project
    is_rescaled: bool = False
    is_loss: bool = False  # plotted among the losses
    is_plotted: bool = True
    needs_pairs: bool = False  # undefined for rows of a single sentence
    module: str = ""  # folder or name of a module of the library evaluate


# Of classes; all but accuracy of two classes, 0 and 1, or of any numbers.


def accuracy(predictions: Array, labels: Array) -> float:
    """Share of equal values."""
    return float((predictions == labels).mean())


def f1(predictions: Array, labels: Array) -> float:
    """F1 of the class 1; 0 where no row has it."""
    return float(f1_of_counts(*count_decisions(predictions, labels)))


def macro_f1(predictions: Array, labels: Array) -> float:
    """Mean F1 of the classes that are among the predictions or the labels."""
    return float(f1_of_counts(*_count_classes(predictions, labels)).mean())


def matthews_correlation(predictions: Array, labels: Array) -> float:
    """Correlation of classes (Gorodkin 2004, equation 8); 0 where one side is constant."""
    hits, predicted, given = _count_classes(predictions, labels)
    square = len(labels) ** 2
    covariance = int(hits.sum()) * len(labels) - int(predicted @ given)
    norm = (square - int(predicted @ predicted)) * (square - int(given @ given))
    return covariance / sqrt(norm) if norm else 0.0


def _count_classes(predictions: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Count the hits, the predictions and the labels of each class that occurs."""
    classes, numbers = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    predicted, given = np.split(numbers, 2)
    columns = (given[predicted == given], predicted, given)
    hits, predictions, labels = (np.bincount(each, minlength=len(classes)) for each in columns)
    return hits, predictions, labels


def quadratic_weighted_kappa(predictions: Array, labels: Array) -> float:
    """Agreement of ordered classes beyond chance (Cohen 1968); 0 where both sides are constant.

    One minus the mean squared distance divided by its expectation for the same predictions and
    labels in a random order.
    """
    shift = predictions.mean() - labels.mean()
    expected = predictions.var() + labels.var() + shift**2
    return float(1 - ((predictions - labels) ** 2).mean() / expected) if expected > 0 else 0.0


def count_decisions(predictions: Array, labels: Array) -> tuple[Array, ...]:
    """Count the hits, the predictions and the labels of 1, (N, ...) -> (...); -100 is no label."""
    predicted, given = (predictions == 1) & (labels != IGNORED_LABEL), labels == 1
    return tuple(mask.sum(axis=0) for mask in (predicted & given, predicted, given))


def f1_of_counts(hits: Any, predicted: Any, given: object) -> NDArray[np.float64]:
    """Compute F1 of counts of any shape; 0 where there is neither a label nor a prediction."""
    count = np.asarray(predicted + given, dtype=np.float64)
    return np.divide(2.0 * hits, count, out=np.zeros_like(count), where=count > 0)


def score_counts(counts: Array) -> dict[str, float]:
    """Compute F1, precision and recall of counts of hits, predictions and labels, (3,).

    They are 0 where undefined, as in conlleval.
    """
    right, predicted, labelled = (float(count) for count in counts)
    precision = right / predicted if predicted else 0.0
    recall = right / labelled if labelled else 0.0
    f1 = 2 * right / (predicted + labelled) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


# Of numbers


def mean_absolute_error(predictions: Array, labels: Array) -> float:
    """Mean distance of predictions from labels."""
    return float(np.abs(predictions - labels).mean())


def root_mean_squared_error(predictions: Array, labels: Array) -> float:
    """Root of the mean squared error."""
    return sqrt(((predictions - labels) ** 2).mean())


def r2(predictions: Array, labels: Array) -> float:
    """Share of the variance of the labels that is explained, at most 1; 0 for their mean.

    Undefined for labels that are all equal.
    """
    if np.ptp(labels) == 0:
        return nan
    return float(1 - ((predictions - labels) ** 2).sum() / ((labels - labels.mean()) ** 2).sum())


def pearson(predictions: Array, labels: Array) -> float:
    """Pearson correlation as scipy computes it; undefined where one side is constant."""
    parts = []
    for values in (predictions, labels):
        if np.ptp(values) == 0:
            return nan
        centered = values - values.mean()
        parts.append(centered / np.linalg.norm(centered))
    return float(np.clip(parts[0] @ parts[1], -1, 1))


def spearman(predictions: Array, labels: Array) -> float:
    """Correlation of ranks, ties at their mean rank; undefined where one side is constant."""
    from scipy.stats import rankdata  # here, since its import takes half a second

    return pearson(rankdata(predictions), rankdata(labels))


# Of several numbers or classes of a row


def as_matrix(values: Array) -> NDArray[np.float64]:
    """Return values of one target, (N,), or several, (N, K), as (N, K)."""
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


def score_targets(score: Score, predictions: Array, labels: Array) -> list[float]:
    """Score each target by the rows that have its label; NaN for a target without any."""
    values = []
    for predicted, given in zip(as_matrix(predictions).T, as_matrix(labels).T, strict=True):
        kept = given != IGNORED_LABEL
        values.append(score(predicted[kept], given[kept]) if kept.any() else nan)
    return values


def mean_over_targets(score: Score, undefined: float, predictions: Array, labels: Array) -> float:
    """Average a metric over the targets that have labels; NaN if it is undefined for all."""
    values = np.asarray(score_targets(score, predictions, labels))
    values = values[(as_matrix(labels) != IGNORED_LABEL).any(axis=0)]
    is_defined = ~np.isnan(values)
    return float(np.where(is_defined, values, undefined).mean()) if is_defined.any() else nan


def describe_targets(
    names: Sequence[str], scores: Mapping[str, Score], predictions: Array, labels: Array
) -> list[Described]:
    """Return name, metrics and number of labels of each target; None for an undefined metric."""
    columns = [score_targets(score, predictions, labels) for score in scores.values()]
    counts = (as_matrix(labels) != IGNORED_LABEL).sum(axis=0).tolist()
    targets = []
    for name, count, *values in zip(names, counts, *columns, strict=True):
        shown = [None if isnan(value) else value for value in values]
        targets.append({"name": name, **dict(zip(scores, shown, strict=True)), "labelled": count})
    return targets


def binomial_error(share: float, count: int) -> float:
    """Compute the standard error sqrt(p (1 - p) / N) of a share p of N rows."""
    return sqrt(share * (1 - share) / count)


ACCURACY = Metric("accuracy", accuracy)
F1 = Metric("f1", f1)
MACRO_F1 = Metric("macro_f1", macro_f1)
MATTHEWS = Metric("matthews_correlation", matthews_correlation)
# Of classes whose numbers are their order.
MAE = Metric("mae", mean_absolute_error, lower_is_better=True)
KAPPA = Metric("quadratic_weighted_kappa", quadratic_weighted_kappa)
PEARSON = Metric("pearson", pearson, is_rescaled=True)
SPEARMAN = Metric("spearman", spearman, is_rescaled=True)


# What begins the name of a metric of the library evaluate in a recipe; see `modules`.
EVALUATE = "evaluate/"
# How names of others' metrics end that should be low; nothing else says it.
ERRORS = "brier_score cer character error_rate mae mape mase mse perplexity rmse smape ter wer"


def is_error(name: str) -> bool:
    """Return whether the name of a metric of others says that a low value is good."""
    ends = tuple(f"_{end}" for end in ERRORS.split())
    return name.endswith(("loss", "error")) or f"_{name}".endswith(ends)


AGGREGATES = ("mean", "leaderboard", "glue")


def aggregates(headlines: Mapping[str, tuple[Any, float | None]]) -> dict[str, float]:
    """Average the headline metrics of all tasks; empty if no task has a value.

    ``headlines`` has the problem of each task, and the value of its metric, None if undefined.

    ``leaderboard`` is the mean after a correlation r became (r + 1) / 2, as in Stanford CS 224N's
    default project. Metrics that should be low count negatively, so that a higher mean is better.
    Pre-training tasks count only if there are no others.
    """
    if not headlines:
        raise ValueError("no tasks to aggregate; expected at least one")
    known = [(problem, value) for problem, value in headlines.values() if value is not None]
    counted = [pair for pair in known if not pair[0].kind.is_pretraining] or known
    if not counted:
        return {}
    values, scaled = [], []
    for problem, value in counted:
        metric = problem.reported[0]
        rated = -value if metric.lower_is_better else value
        values.append(rated)
        scaled.append((rated + 1) / 2 if metric.is_rescaled else rated)
    return {"mean": float(np.mean(values)), "leaderboard": float(np.mean(scaled))}


def glue_score(values: Mapping[str, Sequence[float]]) -> float:
    """Average the metrics of each task, then the tasks (Wang et al. 2019, GLUE, section 3.4)."""
    return float(np.mean([np.mean(metrics) for metrics in values.values()]))
