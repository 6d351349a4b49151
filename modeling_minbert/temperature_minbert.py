# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Temperature scaling: calibrated probabilities, softmax or sigmoid of `logits / temperature`.

A temperature above 1 makes a model less confident, and no temperature changes a decision.
Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .task_minbert import RECIPE, TRAINING, HeadTask

# Losses after which softmax or sigmoid of the logits are probabilities.
LIKELIHOODS = ("cross_entropy", "bce")
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
        """Whether the loss is a likelihood, so that there are probabilities to calibrate."""
        return getattr(self, "loss", None) in LIKELIHOODS

    def check_likelihood(self, key: str) -> None:
        """Refuse a key that needs probabilities if the loss trains none."""
        if not self.is_likelihood:
            fitting = [name for name in LIKELIHOODS if name in getattr(self, "losses", LIKELIHOODS)]
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
