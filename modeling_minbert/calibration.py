# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Calibrated probabilities, and the thresholds of labels: fitted after training, kept with a task.

A temperature divides the logits of softmax or sigmoid. Above 1 it makes a model less confident, and
no temperature changes a decision (Guo et al. 2017, "On Calibration of Modern Neural Networks",
section 4.2). A threshold is the probability above which a row has a label.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

# A temperature outside of these limits stands for none: see `find_temperature`.
LOWEST, HIGHEST = 0.01, 100.0
STEPS = 60  # of the bisection, which leave an error of 1e-17


def fit_temperature(head: Any, logits: Tensor, labels: Tensor) -> float | None:
    """Fit the temperature of a head; see `MinBertForMultiTask.fit_temperature`."""
    if not head.is_binary:
        logits, labels = logits.flatten(0, -2), labels.flatten()
    counted = (labels != -100).reshape(len(labels), -1).any(dim=1)
    if not counted.any():
        raise ValueError("no labeled rows to fit a temperature to")
    counted &= logits.isfinite().all(dim=-1)
    before, task = head.temperature, head.task
    task.temperature = find_temperature(
        logits[counted].double(), labels[counted], is_binary=head.is_binary
    )
    if getattr(task, "thresholds", None) is not None:  # all decisions stay
        factor = before / head.temperature
        task.thresholds = [rescale(threshold, factor) for threshold in task.thresholds]
    return task.temperature


def find_temperature(logits: Tensor, labels: Tensor, *, is_binary: bool) -> float | None:
    """Find the temperature of the highest likelihood.

    The negative log-likelihood is convex in `1 / temperature`. Its derivative, for softmax and for
    sigmoid, is the sum of `logit * (probability - target)`, whose root a bisection finds.

    Args:
        logits: Of n rows, (n, K), in float64.
        labels: Class ids, (n,), or for binary logits 0 or 1, (n, K) or for one logit (n,), where
            -100 does not count.
        is_binary: Whether the probabilities are sigmoids of the logits; else softmax.

    Returns:
        The temperature; None if the likelihood has no maximum within the limits: all rows are
        right, which asks for endless confidence, or the logits are no better than chance.
    """
    if is_binary:
        targets = labels.reshape(logits.shape).double()
        logits = logits.masked_fill(targets == -100, 0)
    else:
        targets = F.one_hot(labels.long(), logits.shape[-1]).double()

    def slope(log_factor: float) -> float:
        scaled = logits * math.exp(log_factor)
        found = scaled.sigmoid() if is_binary else scaled.softmax(dim=-1)
        return float((logits * (found - targets)).sum())

    low, high = -math.log(HIGHEST), -math.log(LOWEST)
    if not slope(low) < 0 < slope(high):
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def rescale(probability: float, factor: float) -> float:
    """Return the probability whose logit is `factor` times as large."""
    if factor == 1 or not 0 < probability < 1:
        return probability
    logit = factor * (math.log(probability) - math.log1p(-probability))
    # without an overflow of the exponential
    odds = math.exp(-abs(logit))
    return (1 if logit >= 0 else odds) / (1 + odds)


# Rows with a label that the threshold of its best F1 needs: that of fewer is chance, and may give
# the label to most rows.
FEWEST_POSITIVES = 5


def fit_thresholds(head: Any, logits: Tensor, labels: Tensor) -> list[float]:
    """Choose for each logit the threshold with the best F1; ties go to the nearest to 0.5.

    Logits and labels, -100 for rows that do not count, are (n, K). A threshold stays if no row with
    a finite logit is labelled, or if fewer than `FEWEST_POSITIVES` have the label; `head.rare`
    lists these.
    """
    if not (labels != -100).any():
        raise ValueError("no labelled rows to choose thresholds by")
    chosen, head.rare = list(head.thresholds), {}
    columns = zip(logits.float().unbind(dim=1), labels.unbind(dim=1), strict=True)
    for number, (values, given) in enumerate(columns):
        counted = (given != -100) & values.isfinite()
        if not counted.any():
            continue
        above = given[counted] > 0.5
        if above.sum() < FEWEST_POSITIVES:
            head.rare[number] = int(above.sum())
            continue
        best = choose_threshold(values[counted].sigmoid(), above)
        chosen[number] = rescale(best, 1 / head.temperature)
    head.task.thresholds = chosen
    return chosen


def fit_cosine_threshold(head: Any, logits: Tensor, labels: Tensor) -> float:
    """Choose the cosine that separates most pairs, (n, 1) and (n,); see `best_threshold`."""
    is_labelled = labels != -100
    if not is_labelled.any():
        raise ValueError("no labeled pairs to choose a threshold by")
    real = is_labelled & logits.squeeze(-1).isfinite()
    # that of evaluation, whatever the mode is now
    threshold: float = 0.5 if head.task.threshold is None else head.task.threshold
    if real.any():  # a model that has diverged has none, and keeps its threshold
        cosines = logits[real].squeeze(-1).double() / head.cosine_scale + threshold
        head.task.threshold = threshold = best_threshold(cosines, labels[real] > 0)
        head.task.threshold_fitted = head.task.needs_threshold_fit
    return threshold


def best_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the lowest of the midpoints that separate most cosines, (N,), correctly."""
    thresholds, hits, predicted = count_by_threshold(values.clamp(-1, 1), is_above, lowest=-1.0)
    # one more that is rightly above is worth as much as one less that is wrongly above
    return float(thresholds[(2 * hits - predicted).argmax()])


def count_by_threshold(
    values: Tensor, is_above: Tensor, *, lowest: float
) -> tuple[Tensor, Tensor, Tensor]:
    """List the thresholds that decide rows with values (N,) and labels (N,) differently.

    Returns:
        The middles between neighboring values, of which the least is `lowest` and the greatest 1,
        ascending, (M,), the rows above each of them that belong there, and all rows above it.
    """
    ordered, order = values.double().sort()
    above = is_above[order].double()
    # hits and predictions if the first n lie below
    hits = above.sum() - F.pad(above.cumsum(0), (1, 0))
    predicted = torch.arange(len(above), -1, -1, device=above.device)
    edges = F.pad(F.pad(ordered, (1, 0), value=lowest), (0, 1), value=1.0)
    differ = edges[1:] != edges[:-1]  # no threshold lies between equal values
    differ[-1] = True  # a value of 1 is not above 1
    return ((edges[1:] + edges[:-1]) / 2)[differ], hits[differ], predicted[differ]


def choose_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the threshold on probabilities, (N,), with the best F1; ties go to the nearest to 0.5.

    It is 0.5, or the middle between two neighboring probabilities.
    """
    thresholds, hits, predicted = count_by_threshold(values, is_above, lowest=0.0)
    at_half = values > 0.5
    thresholds = F.pad(thresholds, (0, 1), value=0.5)
    hits = torch.cat([hits, (at_half & is_above).sum()[None]])
    predicted = torch.cat([predicted, at_half.sum()[None]])
    f1 = 2 * hits / (predicted + is_above.sum()).clamp(min=1)
    best = thresholds[f1 == f1.max()]
    distances = (best - 0.5).abs()
    return float(best[distances == distances.min()][0])
