"""Metrics, computed by plain functions of predictions and labels, and their averages over tasks.

The library evaluate is the door for the metrics of others: ``evaluate/<folder or name>``.
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import nan, sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainers.data.masking import IGNORED_LABEL

Array: TypeAlias = NDArray[Any]
# A metric of predictions and labels, (N,) or (N, K); NaN where it is undefined.
Score: TypeAlias = Callable[[Array, Array], float]


@dataclass(frozen=True)
class Metric:
    """A metric of a task."""

    name: str  # in logs, results and recipes
    score: Score | None = None  # None if the problem computes it
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
    is_predicted, is_given = predictions == 1, labels == 1
    return float(f1_of_counts((is_predicted & is_given).sum(), is_predicted.sum(), is_given.sum()))


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


# What begins the name of a metric of the library evaluate in a recipe.
EVALUATE = "evaluate/"
# Of the modules that evaluate offers. The library does not say it, so others count as scores.
ERROR_RATES = frozenset(
    "brier_score cer character mae mape mase mse perplexity smape ter wer".split()  # noqa: SIM905
)


def make_module_metric(name: str) -> Metric:
    """Make a metric of ``evaluate/<folder, file or name on the Hub>``; it is loaded when needed."""
    module = name.removeprefix(EVALUATE)
    title = Path(module).name.removesuffix(".py")
    if not title:
        raise ValueError(f"metrics: {name!r} names no module; expected {EVALUATE}<folder or name>")
    return Metric(
        title,
        lower_is_better=title in ERROR_RATES,
        module=module,
        score=partial(_compute_module, module, title),
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


def _compute_module(module: str, name: str, predictions: Array, labels: Array) -> float:
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
      first sentences, in [-8, 0], 0 for a single one; lower is better. It is the only one for
      S = 1.

    Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
    """
    first, count = vectors[:, 0].astype(np.float32), len(vectors)
    blocks = [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]
    metrics = {}
    if vectors.shape[1] > 1:
        second = vectors[:, 1].astype(np.float32)
        cosines = (first * second).sum(axis=1, keepdims=True)
        parts = []
        for block in blocks:
            gaps = first[block] @ second.T - cosines[block]
            nearer = (gaps > ROUNDING).sum(axis=1)
            # the first of ties, or if these are more than half of the others, in their middle
            equal = np.maximum((np.abs(gaps) <= ROUNDING).sum(axis=1) - 1, 0)
            equal[2 * equal <= count - 1] = 0
            ranks = 1 + nearer + equal // 2 + equal % 2
            parts.append(np.where(np.isfinite(gaps).all(axis=1), ranks, count))
        reciprocal = 1 / np.concatenate(parts)
        metrics = {
            "accuracy": float((reciprocal == 1).mean()),
            "mrr": float(reciprocal.mean()),
            "alignment": float(((first - second) ** 2).sum(axis=1).mean()),
        }
    total = 0.0
    for block in blocks:
        total += float(np.exp(4 * ((first[block] @ first.T).astype(np.float64) - 1)).sum())
    # without the pairs of a vector with itself, whose distance is 0
    pairs = count * (count - 1)
    return metrics | {"uniformity": float(np.log((total - count) / pairs)) if pairs else 0.0}


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
