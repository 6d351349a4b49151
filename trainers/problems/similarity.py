"""Semantic similarity: a score for each pair of sentences."""

import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from .base.labelled import LabelledProblem, Predicted, PredictionMetric
from .measures import scores
from .measures.analysis import Analysis, analyse_scores

logger = logging.getLogger(__name__)

GLUE_RANGE = 0.0, 5.0  # scores of STS-B


def _correlate(
    name: str, function: Callable[..., Any], predictions: NDArray[Any], labels: NDArray[Any]
) -> float:
    """Compute a correlation; 0 with a log warning where it is undefined."""
    value = np.nan
    if len(predictions) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant input: logged below
            value = float(function(predictions, labels).statistic)
    if not np.isfinite(value):
        logger.warning(
            "%s is undefined for constant, non-finite or fewer than two values; reported as 0.0",
            name,
        )
        return 0.0
    return value


# The bootstrap needs many draws at once, which scipy's functions do not compute.
PEARSON = PredictionMetric(
    "pearson",
    is_rescaled=True,
    draws=scores.pearson,
    reported=partial(_correlate, "pearson", pearsonr),
)
SPEARMAN = PredictionMetric(
    "spearman",
    is_rescaled=True,
    draws=scores.spearman,
    reported=partial(_correlate, "spearman", spearmanr),
)


class Similarity(LabelledProblem):
    """A score for each pair."""

    problem_type = "similarity"
    metrics = (PEARSON, SPEARMAN)
    dtype = np.float64
    header = "id \t Predicted_Similiary \n"  # the misspelling is part of the format
    hub_task = "sentence-similarity"

    @property
    def label_range(self) -> tuple[float, float] | None:
        if not self.head.get("score_range"):
            return None
        low, high = self.head["score_range"]
        return low, high

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        return logits[:, 0].astype(np.float64)

    @staticmethod
    def format_glue(prediction: float, labels: Any) -> str:
        low, high = GLUE_RANGE
        return f"{min(max(float(prediction), low), high):.3f}"

    def summarize(self, outputs: Predicted) -> Analysis:
        labels = np.asarray(outputs.labels)
        return analyse_scores(outputs.predictions, labels, self.head.get("score_range"))

    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        distances = np.abs(outputs.predictions.astype(np.float64) - np.asarray(outputs.labels))
        rows = np.argsort(-distances, kind="stable")[:most]
        return [(int(row), float(distances[row])) for row in rows if distances[row] > 0]

    def format_label(self, value: Any) -> str:
        return f"{float(value):.2f}"

    def format_exactly(self, value: Any) -> str:
        return self.format_value(float(value))
