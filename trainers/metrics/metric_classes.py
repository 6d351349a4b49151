"""The metrics of the problem types, as modules of the ``evaluate`` library.

They are our own: those of ``evaluate.load`` live on the Hub.
"""

import logging
import warnings

import datasets
import evaluate
import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

logger = logging.getLogger(__name__)


class _TaskMetric(evaluate.Metric):  # type: ignore[misc]
    """Predictions and references of one type; the docstring of a subclass describes it."""

    dtype = "int64"

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value(self.dtype)
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="",
            features=datasets.Features({"predictions": value, "references": value}),
        )


class ClassificationMetric(_TaskMetric):
    """Accuracy, macro F1 and Matthews correlation of class indices."""

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        macro = f1_score(references, predictions, average="macro", zero_division=0)
        return {
            "accuracy": accuracy_score(references, predictions),
            "macro_f1": macro,
            "matthews_correlation": _matthews(references, predictions),
        }


class ParaphraseMetric(ClassificationMetric):
    """Those of classes 0 and 1, and the F1 of the paraphrases."""

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        f1 = f1_score(references, predictions, zero_division=0)
        return {"f1": f1, **super()._compute(predictions, references)}


class SimilarityMetric(_TaskMetric):
    """Pearson and Spearman correlation of scores."""

    dtype = "float64"

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        return {
            "pearson": _correlation("pearson", predictions, references),
            "spearman": _correlation("spearman", predictions, references),
        }


METRICS = {
    "classification": ClassificationMetric,
    "paraphrase": ParaphraseMetric,
    "similarity": SimilarityMetric,
}


def _matthews(references: list[int], predictions: list[int]) -> float:
    """Correlate classes; 0 where one side is constant."""
    with warnings.catch_warnings():
        # a confusion matrix of one class, which means nothing here
        warnings.simplefilter("ignore", UserWarning)
        return float(matthews_corrcoef(references, predictions))


def _correlation(name: str, predictions: list[float], references: list[float]) -> float:
    """Correlate; 0 with a log warning where it is not defined."""
    function = pearsonr if name == "pearson" else spearmanr
    value = np.nan
    if len(predictions) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant input: said below, once
            value = float(function(predictions, references).statistic)
    if not np.isfinite(value):
        logger.warning(
            "%s is not defined for constant, non-finite or fewer than two values; reported as 0.0",
            name,
        )
        return 0.0
    return value
