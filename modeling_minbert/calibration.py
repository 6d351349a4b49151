# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Calibrated probabilities, and the thresholds of labels: fitted after training, kept with a task.

A temperature divides the logits of softmax or sigmoid. Above 1 it makes a model less confident, and
no temperature changes a decision (Guo et al. 2017, "On Calibration of Modern Neural Networks",
section 4.2). A threshold is the probability from which a row has a label.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .heads import RECIPE, TRAINING, HeadTask
from .losses import LOSSES

# A temperature outside of these limits stands for none: see `find_temperature`.
LOWEST, HIGHEST = 0.01, 100.0
STEPS = 60  # of the bisection, which leave an error of 1e-17


@strict
@dataclass(kw_only=True)
class CalibratedTask(HeadTask):
    """A task that predicts probabilities, which a temperature can calibrate.

    Args:
        calibrate: Whether training ends with a fit of the temperature to the validation rows.
        temperature: Divisor of the logits in probabilities, above 0; None means 1. The logits and
            the loss of the model are without it.
    """

    calibrate: bool = field(default=False, metadata=RECIPE)
    temperature: float | int | None = field(default=None, metadata=TRAINING)

    @property
    def is_likelihood(self) -> bool:
        loss = LOSSES.get(getattr(self, "loss", "cross_entropy"))  # tags have no other
        return loss is not None and loss.is_likelihood

    def check_likelihood(self, key: str) -> None:
        """Refuse a key that needs probabilities if the loss trains none."""
        if not self.is_likelihood:
            names = getattr(self, "losses", LOSSES)
            fitting = [name for name in names if LOSSES[name].is_likelihood]
            raise ValueError(
                f"{key} needs probabilities, which loss {getattr(self, 'loss', None)!r} does not "
                f"train: use loss {' or '.join(fitting)}, or leave it out"
            )

    def validate_temperature(self) -> None:
        """Refuse what cannot divide logits."""
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be above 0")

    def validate_calibrate(self) -> None:
        """Refuse calibration without probabilities."""
        if self.calibrate:
            self.check_likelihood("calibrate=True")


class CalibratedHead:
    """What heads with probabilities share: mixed into one of them.

    Attributes:
        is_binary: Whether every logit has its own probability, its sigmoid.
    """

    task: Any
    is_binary: ClassVar[bool] = False

    @property
    def temperature(self) -> float:
        """Divisor of the logits; 1 before a fit."""
        return float(self.task.temperature or 1)

    def likelihoods(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities without a temperature."""
        return logits.float().sigmoid() if self.is_binary else logits.softmax(dim=-1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities of the labels."""
        plain = self.task.temperature is None
        return self.likelihoods(logits if plain else logits.float() / self.temperature)

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        """See `PooledHead`."""
        return logits if self.task.temperature is None else logits / self.temperature

    def fit_temperature(self, logits: Tensor, labels: Tensor) -> float | None:
        """Fit the temperature; see `MinBertForMultiTask.fit_temperature`."""
        if not self.is_binary:
            logits, labels = logits.flatten(0, -2), labels.flatten()
        counted = (labels != -100).reshape(len(labels), -1).any(dim=1)
        if not counted.any():
            raise ValueError("no labeled rows to fit a temperature to")
        counted &= logits.isfinite().all(dim=-1)
        before = self.temperature
        self.task.temperature = find_temperature(
            logits[counted].double(), labels[counted], is_binary=self.is_binary
        )
        self.move_thresholds(before / self.temperature)
        return self.task.temperature

    def move_thresholds(self, factor: float) -> None:
        """Keep all decisions after a change of the temperature, which multiplies logits."""


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


GOALS = ("precision", "recall")
# Rows with a label that the threshold of its best F1 needs: that of fewer is chance, and may give
# the label to most rows.
FEWEST_POSITIVES = 5


@strict
@dataclass(kw_only=True)
class ThresholdTask(CalibratedTask):
    """A task with yes-or-no decisions, whose thresholds training can choose for a purpose.

    Args:
        threshold_for: What decision thresholds must reach on the validation rows:
            `{"precision": 0.9}` for the highest recall with a precision of at least 0.9,
            `{"recall": 0.9}` for the highest precision with such a recall; None for the default of
            the type. If no threshold reaches it, the one that comes nearest is taken.
    """

    threshold_for: dict[str, float | int] | None = field(default=None, metadata=RECIPE)

    def validate_threshold_for(self) -> None:
        """Refuse what is not one goal, and goals without probabilities."""
        wanted = self.threshold_for
        if wanted is None:
            return
        fits = [name in GOALS and 0 < value <= 1 for name, value in wanted.items()]
        if fits != [True]:
            raise ValueError(
                f"threshold_for={wanted} must be one goal above 0 and at most 1, as in "
                "{precision: 0.9} or {recall: 0.9}"
            )
        self.check_likelihood(f"threshold_for={wanted}")


class Candidates(NamedTuple):
    """All different decisions of rows by a threshold on their probabilities, (M,) each."""

    thresholds: Tensor  # 0.5, and the middles between two neighboring probabilities
    hits: Tensor  # rows above the threshold that belong there
    predicted: Tensor  # rows above it
    given: Tensor  # rows that belong above, ()


def list_candidates(values: Tensor, is_above: Tensor) -> Candidates:
    """List the thresholds that decide rows with probabilities (N,) and labels (N,) differently."""
    ordered, order = values.double().sort()
    above = is_above[order].double()
    # hits and predictions if the first n lie below
    hits = above.sum() - F.pad(above.cumsum(0), (1, 0))
    predicted = torch.arange(len(above), -1, -1, device=above.device)
    edges = F.pad(F.pad(ordered, (1, 0), value=0.0), (0, 1), value=1.0)
    middles = (edges[1:] + edges[:-1]) / 2
    places = (edges[1:] != edges[:-1]).nonzero().flatten()  # none between equal ones
    at_half = (ordered <= 0.5).sum().unsqueeze(0)
    thresholds = torch.cat([middles[places], middles.new_tensor([0.5])])
    places = torch.cat([places, at_half])
    return Candidates(thresholds, hits[places], predicted[places], above.sum())


def best_f1_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the threshold on probabilities, (N,), with the best F1; ties: nearest to 0.5.

    It is 0.5, or the middle between two neighboring probabilities.
    """
    found = list_candidates(values, is_above)
    return _choose(found, 2 * found.hits / (found.predicted + found.given).clamp(min=1))


def choose_threshold(
    values: Tensor, is_above: Tensor, wanted: Mapping[str, float | int] | None
) -> float | None:
    """Return the threshold on probabilities, (N,), for a goal; see `ThresholdTask`.

    Without a goal it is that of the best F1. If no threshold reaches the goal, it is the one that
    comes nearest; None if no row belongs above. Ties go to the threshold with more of the goal,
    then to the nearest to 0.5.
    """
    if wanted is None:
        return best_f1_threshold(values, is_above)
    found = list_candidates(values, is_above)
    if not found.given:
        return None
    # without predictions there is no precision
    precision = (found.hits / found.predicted).masked_fill(found.predicted == 0, 0)
    recall = found.hits / found.given
    ((name, least),) = wanted.items()
    goal, other = (precision, recall) if name == "precision" else (recall, precision)
    capped = goal.clamp(max=least)  # all that reach it are equally good
    return _choose(found, capped, other, goal)


def _choose(found: Candidates, *scores: Tensor) -> float:
    """Return the threshold with the highest score; ties go by the next one, at last to 0.5."""
    kept = torch.ones_like(found.thresholds, dtype=torch.bool)
    for score in (*scores, -(found.thresholds - 0.5).abs()):
        kept &= score == score[kept].max()
    return float(found.thresholds[kept][0])
