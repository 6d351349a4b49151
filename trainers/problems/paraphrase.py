"""Paraphrase detection: whether two sentences mean the same."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .base.calibrated import ThresholdProblem
from .base.labelled import ACCURACY, F1, MACRO_F1, MATTHEWS, ClassProblem, Predicted


class Paraphrase(ThresholdProblem, ClassProblem):
    """0 or 1 for each pair."""

    problem_type = "paraphrase"
    metrics = (ACCURACY, F1, MACRO_F1)
    optional_metrics = (MATTHEWS,)
    header = "id \t Predicted_Is_Paraphrase \n"
    label_range = (0, 1)
    confidence = "sigmoid"

    @property
    def needs_threshold_fit(self) -> bool:
        fitted = self.head.get("threshold_fitted") or self.fits_held_out
        return bool(fitted or self.head.get("threshold", 0.5) is None)

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        chosen = self.head.get("probability_threshold")
        return [self.name_of(1)], [0.5 if chosen is None else chosen]

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        return (logits[:, 0] > 0).astype(np.int64)

    def probabilities(self, logits: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the sigmoid of the logits, and its complement, (N, 2)."""
        values = self.scale(logits)[:, :1]
        return np.concatenate([expit(-values), expit(values)], axis=1)

    def summarize(self, outputs: Predicted) -> dict[str, Any]:
        return {**super().summarize(outputs), **self.describe_decisions(outputs)}
