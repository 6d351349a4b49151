"""Metrics of predicted numbers: N rows, K targets, some of whose labels may be missing.

All take predictions and labels (..., N, K) and return the value of each target, (..., K): a
bootstrap needs many draws at once. A target without any label, or whose value is undefined, is NaN.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .scores import Score, Values

MISSING = -100.0  # a label that does not count


def root_mean_squared_error(predictions: Values, labels: Values) -> Values:
    """Root of the mean squared error."""
    squared = (predictions - labels) ** 2
    return np.sqrt(_divide(_sum(squared, labels), _count(labels)))


def mean_absolute_error(predictions: Values, labels: Values) -> Values:
    """Mean absolute error."""
    return _divide(_sum(np.abs(predictions - labels), labels), _count(labels))


def r2(predictions: Values, labels: Values) -> Values:
    """Share of the variance of the labels that is explained, at most 1; 0 for their mean.

    Undefined for labels that are all equal.
    """
    residuals = _sum((predictions - labels) ** 2, labels)
    total = _sum(_center(labels, labels) ** 2, labels)
    return np.where(_is_constant(labels, labels), np.nan, 1 - _divide(residuals, total))


def pearson(predictions: Values, labels: Values) -> Values:
    """Pearson correlation; undefined where one side is constant."""
    left, right = _center(predictions, labels), _center(labels, labels)
    norm = np.sqrt(_sum(left**2, labels)) * np.sqrt(_sum(right**2, labels))
    is_undefined = _is_constant(predictions, labels) | _is_constant(labels, labels)
    return np.where(is_undefined, np.nan, _divide(_sum(left * right, labels), norm))


def spearman(predictions: Values, labels: Values) -> Values:
    """Correlation of ranks, ties at their mean rank; undefined where one side is constant."""
    # missing labels have the ranks after all others, which then do not count
    ranks = (
        rankdata(np.where(labels == MISSING, np.inf, values), axis=-2)
        for values in (predictions, labels)
    )
    left, right = (np.where(labels == MISSING, MISSING, rank) for rank in ranks)
    return pearson(left, right)


def mean_over_targets(by_target: Score, undefined: float = np.nan) -> Score:
    """Return the mean of a metric over the targets that have labels, (..., N, K) -> (...)."""

    def average(predictions: Values, labels: Values) -> Values:
        values, is_given = by_target(predictions, labels), _count(labels) > 0
        values = np.where(np.isnan(values), undefined, values)
        return np.where(is_given, values, 0).sum(axis=-1) / np.maximum(is_given.sum(axis=-1), 1)

    return average


def _count(labels: Values) -> NDArray[np.int64]:
    return (labels != MISSING).sum(axis=-2)


def _sum(values: Values, labels: Values) -> Values:
    """Add up the values of the rows that have a label."""
    return np.where(labels == MISSING, 0.0, values).sum(axis=-2)


def _center(values: Values, labels: Values) -> Values:
    mean = _divide(_sum(values, labels), _count(labels))
    return values - mean[..., None, :]


def _is_constant(values: Values, labels: Values) -> NDArray[np.bool_]:
    """Return for which targets the values of the rows that have a label are all equal, (..., K)."""
    is_missing = labels == MISSING
    least = np.where(is_missing, np.inf, values).min(axis=-2)
    return np.where(is_missing, -np.inf, values).max(axis=-2) <= least


def _divide(left: Values, right: Values | NDArray[np.int64]) -> Values:
    """Divide; NaN where the divisor is 0."""
    return np.divide(left, right, out=np.full(np.shape(left), np.nan), where=np.asarray(right) > 0)
