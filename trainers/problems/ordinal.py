"""Ordinal classification of sentences or pairs: one of K ordered classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base.labelled import ACCURACY, KAPPA, MACRO_F1, MAE, MATTHEWS, Predicted
from .classification import Classification
from .measures.analysis import MOST_CLASSES, Analysis


class Ordinal(Classification):
    """One of several ordered classes for each row; distances are differences of their numbers."""

    problem_type = "ordinal"
    metrics = (ACCURACY, MAE, KAPPA)
    optional_metrics = (MACRO_F1, MATTHEWS)
    smooths_labels = False  # a share of a label would be as likely far away as nearby

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Choose the median class, as `OrdinalHead.decode`."""
        above = self.probabilities(logits)[:, :0:-1].cumsum(axis=1)
        return (above > 0.5).sum(axis=1)

    def summarize(self, outputs: Predicted) -> Analysis:
        return {**super().summarize(outputs), "distances": self._describe_distances(outputs)}

    def _describe_distances(self, outputs: Predicted) -> list[dict[str, Any]]:
        """Describe for each class how far its rows are predicted from it."""
        labels = np.asarray(outputs.labels).astype(np.int64)
        distances = np.abs(outputs.predictions.astype(np.int64) - labels)
        classes, counts = np.unique(labels, return_counts=True)
        most = np.sort(classes[np.argsort(-counts, kind="stable")[:MOST_CLASSES]])
        return [
            {
                "name": self.name_of(number),
                "labelled": int((labels == number).sum()),
                "mae": float(distances[labels == number].mean()),
                "within_one": float((distances[labels == number] <= 1).mean()),
            }
            for number in most.tolist()
        ]
