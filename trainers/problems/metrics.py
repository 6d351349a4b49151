"""Metrics, computed by plain functions of predictions and labels, and their averages over tasks.

The functions compute along the last axes: a bootstrap needs many draws at once. The library
evaluate is the door for the metrics of others: ``evaluate/<folder or name>``.
"""

import os
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from trainers.data.masking import IGNORED_LABEL

Values = NDArray[np.float64]
Score = Callable[[Values, Values], Values]


@dataclass(frozen=True)
class Metric:
    """A metric of a task."""

    name: str  # in logs, results and recipes
    lower_is_better: bool = False
    # a correlation r, which counts as (r + 1) / 2 on the leaderboard of Stanford CS 224N's project
    is_rescaled: bool = False
    is_loss: bool = False  # plotted among the losses
    is_plotted: bool = True
    needs_pairs: bool = False  # undefined for rows of a single sentence
    module: str = ""  # folder or name of a module of the library evaluate


@dataclass(frozen=True)
class PredictionMetric(Metric):
    """A metric of predictions and labels."""

    draws: Score = field(kw_only=True)  # of many draws of rows, (..., N) -> (...)
    reported: Callable[[NDArray[Any], NDArray[Any]], float] | None = None  # None for ``draws``

    def value(self, predictions: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the reported value, (N,)."""
        return float((self.reported or self.draws)(predictions, labels))


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


def score_counts(counts: NDArray[Any]) -> dict[str, float]:
    """Compute F1, precision and recall of counts of hits, predictions and labels, (3,).

    They are 0 where undefined, as in conlleval.
    """
    right, predicted, labelled = (float(count) for count in counts)
    precision = right / predicted if predicted else 0.0
    recall = right / labelled if labelled else 0.0
    f1 = 2 * right / (predicted + labelled) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


def binomial_error(share: float, count: int) -> float:
    """Compute the standard error sqrt(p (1 - p) / N) of a share p of N rows."""
    return float(np.sqrt(share * (1 - share) / count))


def _matthews(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    # The first import draws from Python's random state, which a checkpoint stores.
    state = random.getstate()
    from sklearn.metrics import matthews_corrcoef

    random.setstate(state)
    with warnings.catch_warnings():
        # scikit-learn warns if there is one class only; the correlation is 0 then
        warnings.simplefilter("ignore", UserWarning)
        return float(matthews_corrcoef(labels, predictions))


ACCURACY = PredictionMetric("accuracy", draws=accuracy)
F1 = PredictionMetric("f1", draws=f1)
MACRO_F1 = PredictionMetric("macro_f1", draws=macro_f1)
# Of classes whose numbers are their order.
MAE = PredictionMetric("mae", lower_is_better=True, draws=mean_absolute_error)
KAPPA = PredictionMetric("quadratic_weighted_kappa", draws=quadratic_weighted_kappa)
MATTHEWS = PredictionMetric("matthews_correlation", draws=matthews_correlation, reported=_matthews)


# What begins the name of a metric of the library evaluate in a recipe.
EVALUATE = "evaluate/"
# Of the modules that evaluate offers. The library does not say it, so others count as scores.
ERROR_RATES = frozenset(
    "brier_score cer character mae mape mase mse perplexity smape ter wer".split()  # noqa: SIM905
)


def make_module_metric(name: str) -> PredictionMetric:
    """Make a metric of ``evaluate/<folder, file or name on the Hub>``; it is loaded when needed."""
    module = name.removeprefix(EVALUATE)
    title = Path(module).name.removesuffix(".py")
    if not title:
        raise ValueError(f"metrics: {name!r} names no module; expected {EVALUATE}<folder or name>")
    return PredictionMetric(
        title,
        lower_is_better=title in ERROR_RATES,
        module=module,
        draws=partial(_draw_module, module, title),
        reported=partial(_compute_module, module, title),
    )


@cache
def load_module(module: str) -> Any:
    """Load a module of the library evaluate, whose code is run.

    Args:
        module: A folder or a file of this machine, or a name on the Hub.

    Raises:
        ValueError: If there is none, or it cannot be loaded.
    """
    # Importing evaluate takes memory that other runs can do without. It also draws from Python's
    # random state, which a checkpoint stores.
    state = random.getstate()
    try:
        import evaluate

        return evaluate.load(os.path.expanduser(module), keep_in_memory=True)  # noqa: PTH111
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"metrics: {EVALUATE + module!r} cannot be loaded ({error}); expected a folder or a "
            "file of this machine, with the code of a metric for the library evaluate, or the "
            "name of one on the Hub"
        ) from error
    finally:
        random.setstate(state)


def _compute_module(
    module: str, name: str, predictions: NDArray[Any], labels: NDArray[Any]
) -> float:
    """Compute the number that a module returns as ``name``, or its only one."""
    if (labels == IGNORED_LABEL).any():
        raise ValueError(
            f"metrics: {EVALUATE + module!r} cannot leave out single labels of a row, and some are "
            "missing; give all of them, or leave this metric out"
        )
    state = random.getstate()
    values = load_module(module).compute(predictions=predictions, references=labels)
    random.setstate(state)
    if name not in values and len(values) != 1:
        raise ValueError(
            f"metrics: {EVALUATE + module!r} returns {', '.join(values)}; expected {name!r}, or "
            "one number (in Python, compute_metrics of MultiTaskTrainer takes all of them)"
        )
    return float(values[name] if name in values else next(iter(values.values())))


def _draw_module(module: str, name: str, predictions: Values, labels: Values) -> Values:
    """Compute a metric of each of many draws, one after the other."""
    if labels.ndim == 1 or labels.ndim == predictions.ndim == 1:
        return np.asarray(_compute_module(module, name, predictions, labels))
    return np.stack(
        [_draw_module(module, name, *pair) for pair in zip(predictions, labels, strict=True)]
    )


# Of numbers: N rows, K targets, some of whose labels may be missing. All take predictions and
# labels (..., N, K) and return the value of each target, (..., K). A target without any label, or
# whose value is undefined, is NaN.
MISSING = -100.0  # a label that does not count


def rmse_by_target(predictions: Values, labels: Values) -> Values:
    """Root of the mean squared error."""
    squared = (predictions - labels) ** 2
    return np.sqrt(_divide(_sum_given(squared, labels), _count_given(labels)))


def mae_by_target(predictions: Values, labels: Values) -> Values:
    """Mean absolute error."""
    return _divide(_sum_given(np.abs(predictions - labels), labels), _count_given(labels))


def r2_by_target(predictions: Values, labels: Values) -> Values:
    """Share of the variance of the labels that is explained, at most 1; 0 for their mean.

    Undefined for labels that are all equal.
    """
    residuals = _sum_given((predictions - labels) ** 2, labels)
    total = _sum_given(_center_given(labels, labels) ** 2, labels)
    return np.where(_is_constant(labels, labels), np.nan, 1 - _divide(residuals, total))


def pearson_by_target(predictions: Values, labels: Values) -> Values:
    """Pearson correlation; undefined where one side is constant."""
    left, right = _center_given(predictions, labels), _center_given(labels, labels)
    norm = np.sqrt(_sum_given(left**2, labels)) * np.sqrt(_sum_given(right**2, labels))
    is_undefined = _is_constant(predictions, labels) | _is_constant(labels, labels)
    return np.where(is_undefined, np.nan, _divide(_sum_given(left * right, labels), norm))


def spearman_by_target(predictions: Values, labels: Values) -> Values:
    """Correlation of ranks, ties at their mean rank; undefined where one side is constant."""
    # missing labels have the ranks after all others, which then do not count
    ranks = (
        rankdata(np.where(labels == MISSING, np.inf, values), axis=-2)
        for values in (predictions, labels)
    )
    left, right = (np.where(labels == MISSING, MISSING, rank) for rank in ranks)
    return pearson_by_target(left, right)


def mean_over_targets(by_target: Score, undefined: float = np.nan) -> Score:
    """Return the mean of a metric over the targets that have labels, (..., N, K) -> (...)."""

    def average(predictions: Values, labels: Values) -> Values:
        values, is_given = by_target(predictions, labels), _count_given(labels) > 0
        values = np.where(np.isnan(values), undefined, values)
        return np.where(is_given, values, 0).sum(axis=-1) / np.maximum(is_given.sum(axis=-1), 1)

    return average


def _count_given(labels: Values) -> NDArray[np.int64]:
    return (labels != MISSING).sum(axis=-2)


def _sum_given(values: Values, labels: Values) -> Values:
    """Add up the values of the rows that have a label."""
    return np.where(labels == MISSING, 0.0, values).sum(axis=-2)


def _center_given(values: Values, labels: Values) -> Values:
    mean = _divide(_sum_given(values, labels), _count_given(labels))
    return values - mean[..., None, :]


def _is_constant(values: Values, labels: Values) -> NDArray[np.bool_]:
    """Return for which targets the values of the rows that have a label are all equal, (..., K)."""
    is_missing = labels == MISSING
    least = np.where(is_missing, np.inf, values).min(axis=-2)
    return np.where(is_missing, -np.inf, values).max(axis=-2) <= least


def _divide(left: Values, right: Values | NDArray[np.int64]) -> Values:
    """Divide; NaN where the divisor is 0."""
    return np.divide(left, right, out=np.full(np.shape(left), np.nan), where=np.asarray(right) > 0)


BLOCK = 1024  # rows whose similarities to all others are in memory at a time
# Equal texts in different batches have cosines that differ by rounding.
ROUNDING = 1e-5


def embedding_metrics(vectors: NDArray[np.float32]) -> dict[str, float]:
    """Compute metrics of vectors of length 1, (N, S, D): anchor, positive, an ignored negative.

    - ``accuracy``: share of anchors to which no other positive is nearer, in [0, 1]. Ties count
      only if they are the majority: collapsed vectors must not score well.
    - ``mrr``: mean reciprocal rank of an anchor's own positive, in (0, 1].
    - ``alignment``: mean squared distance of anchor and positive, in [0, 4]; lower is better.
    - ``uniformity``: logarithm of the mean of exp(-2 d^2) over the distances d of all pairs of
      first sentences, in [-8, 0]; lower is better. It is the only one for S = 1.

    Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
    """
    first = vectors[:, 0].astype(np.float32)
    metrics = {}
    if vectors.shape[1] > 1:
        second = vectors[:, 1].astype(np.float32)
        ranks = 1 / _ranks(first, second)
        distances = ((first - second) ** 2).sum(axis=1)
        metrics = {
            "accuracy": float((ranks == 1).mean()),
            "mrr": float(ranks.mean()),
            "alignment": float(distances.mean()),
        }
    return metrics | {"uniformity": _uniformity(first)}


def _ranks(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rank the own positive of every anchor, from 1, (N,).

    It is the first of ties, or if these are more than half of the others, in their middle.
    """
    own = (first * second).sum(axis=1, keepdims=True)
    count, parts = len(first), []
    for start in range(0, count, BLOCK):
        gaps = first[start : start + BLOCK] @ second.T - own[start : start + BLOCK]
        nearer = (gaps > ROUNDING).sum(axis=1)
        equal = np.maximum((np.abs(gaps) <= ROUNDING).sum(axis=1) - 1, 0)
        equal[2 * equal <= count - 1] = 0
        ranks = 1 + nearer + equal // 2 + equal % 2
        parts.append(np.where(np.isfinite(gaps).all(axis=1), ranks, count))
    return np.concatenate(parts)


def _uniformity(vectors: NDArray[np.float32]) -> float:
    """Compute the uniformity on the sphere; 0 for a single vector."""
    count, total = len(vectors), 0.0
    if count < 2:
        return 0.0
    for start in range(0, count, BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        total += float(np.exp(4 * (cosines.astype(np.float64) - 1)).sum())
    # exclude the pairs of a vector with itself, whose distance is 0
    return float(np.log((total - count) / (count * (count - 1))))


AGGREGATES = ("mean", "leaderboard", "glue")


def aggregates(headlines: Mapping[str, tuple[Any, float | None]]) -> dict[str, float]:
    """Average the headline metrics of all tasks; empty if no task has a value.

    ``headlines`` has the problem of each task, and the value of its metric, None if undefined.

    ``leaderboard`` is the mean after a correlation r became (r + 1) / 2, as in Stanford CS 224N's
    default project. Metrics that should be low count negatively, so that a higher mean is better.
    Tasks without labels count only if there are no others.
    """
    if not headlines:
        raise ValueError("no tasks to aggregate; expected at least one")
    known = [(problem, value) for problem, value in headlines.values() if value is not None]
    counted = [pair for pair in known if not pair[0].kind.is_unlabelled] or known
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
