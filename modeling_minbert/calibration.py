# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Calibrated probabilities, and the thresholds of labels: fitted after training, kept with a task.

A temperature divides the logits of softmax or sigmoid. Above 1 it makes a model less confident, and
no temperature changes a decision (Guo et al. 2017, "On Calibration of Modern Neural Networks",
section 4.2). A threshold is the probability from which a row has a label.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
            fitting = [name for name in getattr(self, "losses", ()) if LOSSES[name].is_likelihood]
            raise ValueError(
                f"{key} needs probabilities, which loss {getattr(self, 'loss', None)!r} does not "
                f"train: use loss {' or '.join(fitting)}, or leave it out"
            )

    def validate_calibration(self) -> None:
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be above 0")
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
        if self.task.temperature is not None:
            logits = logits.float() / self.temperature
        return self.likelihoods(logits)

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
        thresholds: Probability, in [0, 1], above which each decision is yes: one for every logit;
            None means 0.5 for all. Training chooses them on the validation rows, whose metrics are
            optimistic from then on: measure on a test set.
    """

    threshold_for: dict[str, float | int] | None = field(default=None, metadata=RECIPE)
    thresholds: list[float | int] | None = field(default=None, metadata=TRAINING)

    def validate_threshold_for(self) -> None:
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

    def validate_thresholds(self) -> None:
        chosen, count = self.thresholds, self.num_logits
        if chosen is not None and (len(chosen) != count or not all(0 <= x <= 1 for x in chosen)):
            numbers = "one number" if count == 1 else f"{count} numbers"
            raise ValueError(f"thresholds={chosen} must be {numbers} in [0, 1]")


class ThresholdHead(CalibratedHead):
    """What heads with a yes-or-no decision for each logit share.

    Attributes:
        rare: Rows with a label, by its number, where they were too few for a threshold.
    """

    is_binary = True
    rare: dict[int, int]

    @property
    def has_threshold(self) -> bool:
        """Whether there are thresholds to fit."""
        return True

    @property
    def thresholds(self) -> list[float]:
        """Probability above which a decision is yes, (K,)."""
        return self.task.thresholds or [0.5] * self.task.num_logits

    def decide(self, logits: Tensor) -> Tensor:
        """Return 1 for yes, else 0, (n, K)."""
        if self.task.thresholds is None:
            return (logits > 0).long()
        # float64, so that a threshold lies between two neighboring probabilities; compared without
        # the temperature, whose rounding could otherwise change a decision
        plain = [rescale(threshold, self.temperature) for threshold in self.thresholds]
        thresholds = torch.tensor(plain, dtype=torch.float64, device=logits.device)
        return (logits.float().sigmoid() > thresholds).long()

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Choose for each logit the threshold with the best F1, or that of `threshold_for`.

        Ties of F1 go to the nearest to 0.5. Logits and labels, -100 for rows that do not count, are
        (n, K). A threshold stays if no row with a finite logit is labelled, and without
        `threshold_for` also if fewer than `FEWEST_POSITIVES` have the label; `rare` lists these.
        """
        if not (labels != -100).any():
            raise ValueError("no labelled rows to choose thresholds by")
        chosen, self.rare = list(self.thresholds), {}
        columns = zip(logits.float().unbind(dim=1), labels.unbind(dim=1), strict=True)
        for number, (values, given) in enumerate(columns):
            counted = (given != -100) & values.isfinite()
            if not counted.any():
                continue
            above = given[counted] > 0.5
            if self.task.threshold_for is None and above.sum() < FEWEST_POSITIVES:
                self.rare[number] = int(above.sum())
                continue
            best = choose_threshold(values[counted].sigmoid(), above, self.task.threshold_for)
            if best is not None:
                chosen[number] = rescale(best, 1 / self.temperature)
        self.task.thresholds = chosen
        return chosen

    def move_thresholds(self, factor: float) -> None:
        if self.task.thresholds is not None:
            self.task.thresholds = [rescale(each, factor) for each in self.task.thresholds]


def list_candidates(values: Tensor, is_above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """List the thresholds that decide rows with probabilities (N,) and labels (N,) differently.

    Returns:
        0.5 and the middles between two neighboring probabilities, (M,), the rows above each of them
        that belong there, and all rows above it.
    """
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
    return thresholds, hits[places], predicted[places]


def best_f1_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the threshold on probabilities, (N,), with the best F1; ties: nearest to 0.5.

    It is 0.5, or the middle between two neighboring probabilities.
    """
    thresholds, hits, predicted = list_candidates(values, is_above)
    return _choose(thresholds, 2 * hits / (predicted + is_above.sum()).clamp(min=1))


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
    if not is_above.any():
        return None
    thresholds, hits, predicted = list_candidates(values, is_above)
    # without predictions there is no precision
    precision = (hits / predicted).masked_fill(predicted == 0, 0)
    recall = hits / is_above.sum()
    ((name, least),) = wanted.items()
    goal, other = (precision, recall) if name == "precision" else (recall, precision)
    capped = goal.clamp(max=least)  # all that reach it are equally good
    return _choose(thresholds, capped, other, goal)


def _choose(thresholds: Tensor, *scores: Tensor) -> float:
    """Return the threshold with the highest score; ties go by the next one, at last to 0.5."""
    kept = torch.ones_like(thresholds, dtype=torch.bool)
    for score in (*scores, -(thresholds - 0.5).abs()):
        kept &= score == score[kept].max()
    return float(thresholds[kept][0])
