"""Tasks whose labels are classes, and what depends on probabilities: calibration, thresholds."""

import math
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from modeling_minbert.scores import ParaphraseTask
from trainers.data.rows import IGNORED_LABEL

from .base import Evaluated, LabelledProblem, Predicted
from .blocks import Analysis, Block, calibrate, draw_reliability, tabulate_confusions
from .metrics import ACCURACY, F1, KAPPA, MACRO_F1, MAE, MATTHEWS, Array, Metric


class Calibrated:
    """What problems with probabilities share: mixed into a ``Problem``.

    Attributes:
        gathers_logits: Whether ``gather`` selects logits, as a temperature needs them.
    """

    spec: Any
    gathers_logits = False

    @property
    def is_likelihood(self) -> bool:
        """Whether the head is trained by a likelihood."""
        return self.spec is not None and self.spec.is_likelihood

    @property
    def temperature(self) -> float | None:
        """Divisor of the logits in probabilities; None if none was fitted."""
        return getattr(self.spec, "temperature", None)

    @property
    def calibrates(self) -> bool:
        """Whether training fits a temperature: if asked to, or to replace an earlier one."""
        return self.temperature is not None or getattr(self.spec, "calibrate", False)

    @property
    def caution(self) -> str:
        """Advice to readers of the results."""
        if self.temperature is None:
            return ""
        return (
            f"Probabilities are calibrated by a temperature of {self.temperature:.3f}, fitted to "
            "the validation rows, so the calibration error of these rows is optimistic; judge it "
            "by a test set."
        )

    def scale(self, logits: Array) -> NDArray[np.float64]:
        """Divide logits by the temperature."""
        return np.asarray(logits, dtype=np.float64) / (self.temperature or 1)

    def probabilities(self, logits: Array) -> NDArray[np.float64]:
        """Turn logits, (N, K), into probabilities of the classes."""
        from scipy.special import softmax  # its import takes a tenth of a second

        return np.asarray(softmax(self.scale(logits), axis=1))

    def confidences(self, logits: Array, predictions: Array) -> NDArray[np.float64]:
        """Compute the probability of each prediction, of the same shape."""
        chosen = predictions.astype(np.int64)[:, None]
        return np.take_along_axis(self.probabilities(logits), chosen, axis=1)[:, 0]

    def list_logits(self, values: Array, rows: Dataset) -> tuple[Array, Array]:
        """Return logits, (N, K), and labels, (N,) or (N, K), from the gathered values of rows."""
        return values, np.asarray(rows["labels"])

    def check_calibration(self, logits: Array, predictions: Array, labels: Array) -> Analysis:
        """Compare the confidences of predictions, (N,) or (N, K), with their accuracy.

        Labels of -100 do not count.
        """
        counted = labels != IGNORED_LABEL
        right = (predictions == labels)[counted]
        return calibrate(self.confidences(logits, predictions)[counted], right)

    def draw_calibration(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        """Draw the calibration of the validation rows and of the other labelled ones."""
        note = ""
        if not self.is_likelihood:
            note = (
                "This task was not trained with a likelihood: its confidences need not be "
                "probabilities."
            )
        found = {}
        for split, outputs in {"validation": evaluated.outputs, **evaluated.others}.items():
            labels = np.asarray(outputs.labels)
            found[split] = self.check_calibration(outputs.logits, outputs.predictions, labels)
        return draw_reliability(found, "the probability of the prediction", note)


class ClassProblem(Calibrated, LabelledProblem):
    """A task whose labels are classes."""

    @property
    def smooths_labels(self) -> bool:
        return self.spec is None or self.spec.loss_function.smooths_labels

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        note = (
            "The wrong rows whose label had the lowest probability, with the probability of the "
            "predicted class."
        )
        outputs = evaluated.outputs
        count, labels = self.probabilities(outputs.logits).shape[1], np.asarray(outputs.labels)
        return [
            *tabulate_confusions(outputs.predictions, labels, count, self.name_of),
            *self.draw_calibration(evaluated),
            *self.list_errors(evaluated, note),
        ]

    def find_errors(self, outputs: Predicted) -> tuple[Array, Array, Array]:
        """Rank rows by the probability of the label; the size is that of the prediction."""
        labels = np.asarray(outputs.labels).astype(np.int64)
        predictions = outputs.predictions.astype(np.int64)
        probabilities = self.probabilities(outputs.logits)
        rows = np.arange(len(labels))
        return predictions != labels, probabilities[rows, labels], probabilities[rows, predictions]

    def format_label(self, value: Array) -> str:
        return self.name_of(int(value))

    def tabulate(self, outputs: Predicted) -> dict[str, list[str]]:
        """Add probabilities, if the head is trained by a likelihood."""
        columns = super().tabulate(outputs)
        if self.is_likelihood:
            likely = self.confidences(outputs.logits, outputs.predictions)
            columns["probability"] = [f"{value:.4f}" for value in likely]
        return columns


class Classification(ClassProblem):
    """One of several classes for each row."""

    problem_type = "classification"
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, MACRO_F1)
    optional_metrics: ClassVar[tuple[Metric, ...]] = (MATTHEWS, MAE, KAPPA)
    header = "id \t Predicted_Sentiment \n"

    @property
    def label_range(self) -> tuple[float, float] | None:
        return (0, len(self.names) - 1 if self.names else math.inf)

    def decide(self, logits: Array) -> Array:
        return logits.argmax(axis=-1)

    @staticmethod
    def format_value(value: float) -> str:
        return str(int(value))


class Paraphrase(ClassProblem):
    """0 or 1 for each pair."""

    problem_type = "paraphrase"
    spec: ParaphraseTask | None
    metrics = (ACCURACY, F1, MACRO_F1)
    optional_metrics = (MATTHEWS,)
    header = "id \t Predicted_Is_Paraphrase \n"
    label_range = (0, 1)

    @property
    def needs_threshold_fit(self) -> bool:
        if self.spec is None:
            return False
        return self.spec.threshold_fitted or self.spec.threshold is None

    def decide(self, logits: Array) -> Array:
        return (_join_classes(logits)[:, 0] > 0).astype(np.int64)

    def probabilities(self, logits: Array) -> NDArray[np.float64]:
        """Compute the sigmoid of the logits, and its complement, (N, 2)."""
        from scipy.special import expit

        values = self.scale(_join_classes(logits))
        return np.concatenate([expit(-values), expit(values)], axis=1)


def _join_classes(logits: Array) -> Array:
    """Return the logits of yes, (N, 1), also for a classifier of transformers with two classes."""
    if logits.shape[1] > 2:
        raise ValueError(f"a paraphrase task has one logit or two, not {logits.shape[1]}")
    return logits if logits.shape[1] == 1 else logits[:, 1:2] - logits[:, :1]
