"""Classification of sentences or pairs: one of K classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .labelled import ACCURACY, MACRO_F1, MATTHEWS, ClassProblem


class Classification(ClassProblem):
    """One of several classes for each row."""

    problem_type = "classification"
    metrics = (ACCURACY, MACRO_F1)
    optional_metrics = (MATTHEWS,)
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
        return np.asarray(softmax(np.asarray(logits, dtype=np.float64), axis=1))
