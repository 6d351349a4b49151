"""Metrics of predictions, computed along the last axis: a bootstrap needs many draws at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Values = NDArray[np.float64]
Score = Callable[[Values, Values], Values]


def accuracy(predictions: Values, labels: Values) -> Values:
    """Share of equal values, (..., N) -> (...)."""
    return (predictions == labels).mean(axis=-1)


def f1(predictions: Values, labels: Values) -> Values:
    """F1 of the class 1; 0 where no row has it."""
    return _f1_of(1, predictions, labels)[0]


def macro_f1(predictions: Values, labels: Values) -> Values:
    """Mean F1 of the classes that are among the predictions or the labels of a draw."""
    by_class = [_f1_of(value, predictions, labels) for value in _classes(predictions, labels)]
    values, present = (np.stack(part) for part in zip(*by_class, strict=True))
    return values.sum(axis=0) / present.sum(axis=0)


def matthews_correlation(predictions: Values, labels: Values) -> Values:
    """Correlation of classes (Gorodkin 2004, equation 8); 0 where one side is constant."""
    classes = _classes(predictions, labels)
    predicted = np.stack([(predictions == value).mean(axis=-1) for value in classes])
    given = np.stack([(labels == value).mean(axis=-1) for value in classes])
    covariance = accuracy(predictions, labels) - (predicted * given).sum(axis=0)
    norm = (1 - (predicted**2).sum(axis=0)) * (1 - (given**2).sum(axis=0))
    # a constant side leaves a rounding error instead of 0
    is_defined = norm > np.finfo(np.float64).eps
    root = np.sqrt(np.where(is_defined, norm, 1.0))
    return np.where(is_defined, covariance / root, 0.0)


def mean_absolute_error(predictions: Values, labels: Values) -> Values:
    """Mean distance of predictions from labels, (..., N) -> (...)."""
    return np.abs(predictions - labels).mean(axis=-1)


def quadratic_weighted_kappa(predictions: Values, labels: Values) -> Values:
    """Agreement of ordered classes beyond chance (Cohen 1968); 0 where both sides are constant.

    One minus the mean squared distance divided by its expectation for the same predictions and
    labels in a random order.
    """
    squares = ((predictions - labels) ** 2).mean(axis=-1)
    shift = predictions.mean(axis=-1) - labels.mean(axis=-1)
    expected = predictions.var(axis=-1) + labels.var(axis=-1) + shift**2
    ratio = np.divide(squares, expected, out=np.ones_like(expected), where=expected > 0)
    return np.asarray(1 - ratio)


def pearson(left: Values, right: Values) -> Values:
    """Pearson correlation without the checks of scipy; 0 where one side is constant."""
    left = left - left.mean(axis=-1, keepdims=True)
    right = right - right.mean(axis=-1, keepdims=True)
    norm = np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))
    product: Values = (left * right).sum(axis=-1)
    return np.divide(product, norm, out=np.zeros_like(norm), where=norm > 0)


def spearman(left: Values, right: Values) -> Values:
    """Correlation of ranks, ties at their mean rank; 0 where one side is constant."""
    return pearson(rankdata(left, axis=-1), rankdata(right, axis=-1))


def _classes(predictions: Values, labels: Values) -> Values:
    return np.union1d(predictions, labels)


def _f1_of(value: float, predictions: Values, labels: Values) -> tuple[Values, NDArray[np.bool_]]:
    """Return the F1 of a class, and whether any row has it."""
    is_predicted, is_given = predictions == value, labels == value
    both = is_predicted & is_given
    counts = (mask.sum(axis=-1) for mask in (both, is_predicted, is_given))
    return f1_of_counts(*counts), (is_predicted | is_given).any(axis=-1)


def f1_of_counts(hits: NDArray[Any], predicted: NDArray[Any], given: NDArray[Any]) -> Values:
    """Compute F1 of counts of any shape; 0 where there is neither a label nor a prediction."""
    count = np.asarray(predicted + given, dtype=np.float64)
    return np.divide(2.0 * hits, count, out=np.zeros_like(count), where=count > 0)
