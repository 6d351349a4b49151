"""Classification of sentences or pairs: one of K classes."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .base.labelled import ACCURACY, KAPPA, MACRO_F1, MAE, MATTHEWS, ClassProblem, PredictionMetric


class Classification(ClassProblem):
    """One of several classes for each row."""

    problem_type = "classification"
    metrics: ClassVar[tuple[PredictionMetric, ...]] = (ACCURACY, MACRO_F1)
    optional_metrics: ClassVar[tuple[PredictionMetric, ...]] = (MATTHEWS, MAE, KAPPA)
    header = "id \t Predicted_Sentiment \n"

    @property
    def label_range(self) -> tuple[float, float] | None:
        return (0, len(self.names) - 1) if self.names else None

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        return logits.argmax(axis=-1)

    @staticmethod
    def format_value(value: float) -> str:
        return str(int(value))

    def probabilities(self, logits: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(softmax(self.scale(logits), axis=1))
