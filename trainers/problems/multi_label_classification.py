"""Multi-label classification of sentences or pairs: any number of K labels for each row."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from trainers.data.masking import IGNORED_LABEL
from trainers.data.task_dataset import Rows
from trainers.files import write_text

from .base.calibrated import ThresholdProblem
from .base.labelled import LabelledProblem, Predicted, PredictionMetric
from .base.problem import check_same_rows
from .measures import entities
from .measures.analysis import MOST_CLASSES, calibrate
from .measures.scores import f1_of_counts


def _count(predictions: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Count the hits, the predictions and the labels of each label, (..., N, K) -> (..., K)."""
    predicted, given = (predictions == 1) & (labels != IGNORED_LABEL), labels == 1
    return tuple(one.sum(axis=-2) for one in (predicted & given, predicted, given))


def micro_f1(predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """F1 of all labels of all rows together, (..., N, K) -> (...)."""
    return f1_of_counts(*(counts.sum(axis=-1) for counts in _count(predictions, labels)))


def macro_f1(predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Mean F1 of the labels, 0 for one that no row has, (..., N, K) -> (...)."""
    return f1_of_counts(*_count(predictions, labels)).mean(axis=-1)


def exact_match(predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Share of the rows all of whose labels are right or unknown, (..., N, K) -> (...)."""
    return is_right(predictions, labels).all(axis=-1).mean(axis=-1)


def is_right(predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which predictions are not wrong, of the same shape: labels of -100 are unknown."""
    return (predictions == labels) | (labels == IGNORED_LABEL)


class MultiLabelClassification(ThresholdProblem, LabelledProblem):
    """Any number of labels for each row; predictions and labels are 0 or 1, (N, K).

    Decision thresholds are fitted to the validation rows, before each evaluation and at the end:
    metrics on these rows are optimistic, and only a test set tells how good the model is.
    """

    problem_type = "multi_label_classification"
    metrics = (
        PredictionMetric("micro_f1", draws=micro_f1),
        PredictionMetric("macro_f1", draws=macro_f1),
        PredictionMetric("accuracy", draws=exact_match),
    )
    label_range = (0, 1)
    confidence = "sigmoid"
    smooths_labels = True
    of_each = " of each label"

    @property
    def needs_threshold_fit(self) -> bool:
        return bool(self.head)  # a model without a description of its heads decides by itself

    @property
    def fits_held_out(self) -> bool:
        return True

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        chosen = self.head.get("thresholds") or [0.5] * len(self.names)
        return list(map(self.name_of, range(len(chosen)))), chosen

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        columns: Any = rows
        first = np.asarray(columns[0]["labels"])
        expected = len(self.names) or first.size
        if first.shape != (expected,) or first.dtype.kind != "f":
            raise ValueError(
                f"{where} is of a multi_label_classification: labels must be a list of "
                f"{expected or 'K'} floats, 0.0 or 1.0, for every row; the first row has "
                f"{columns[0]['labels']!r}"
            )

    # Evaluation

    @property
    def metric_feature(self) -> Any:
        return datasets.List(super().metric_feature)

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        return (logits > 0).astype(np.int64)

    def describe_types(self, outputs: Predicted) -> list[dict[str, Any]]:
        counts = np.stack(_count(outputs.predictions, np.asarray(outputs.labels)), axis=-1)
        return [
            {
                "name": self.name_of(number),
                **entities.score(row),
                "labelled": int(row[2]),
                "predicted": int(row[1]),
            }
            for number, row in enumerate(counts)
        ]

    # Files

    def write(self, folder: Path, stem: str, outputs: Predicted, rows: Any) -> None:
        """Write one line per row, ``id,label,label``, as CSV; the whole file or nothing."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "labels"))
        for name, row in zip(rows["id"][:], outputs.predictions, strict=True):
            writer.writerow([name, *map(self.name_of, np.flatnonzero(row).tolist())])
        write_text(folder / self.prediction_file(stem), file.getvalue())

    def read(
        self, folder: Path, stem: str, ids: Sequence[str], references: NDArray[Any]
    ) -> Predicted:
        path = self.find_file(folder, stem)
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))[1:]
        check_same_rows(path, [line[0] for line in lines], ids)
        numbers = {name: number for number, name in enumerate(self.names)}
        predictions = np.zeros((len(lines), len(numbers)), dtype=np.int64)
        for place, (row_id, *names) in enumerate(lines):
            if unknown := [name for name in names if name not in numbers]:
                raise ValueError(
                    f"{path}: row {row_id!r} has the unknown label {unknown[0]!r}; known: "
                    f"{', '.join(numbers)}"
                )
            predictions[place, [numbers[name] for name in names]] = 1
        return Predicted(None, predictions, references)

    # Reports

    def summarize(self, outputs: Predicted) -> dict[str, Any]:
        by_class = self.describe_types(outputs)
        most_frequent = sorted(by_class, key=lambda one: -one["labelled"])
        shown = by_class if len(by_class) <= MOST_CLASSES else most_frequent[:MOST_CLASSES]
        labels = np.asarray(outputs.labels)
        known, right = labels != IGNORED_LABEL, outputs.predictions == labels
        return {
            "classes": len(by_class),
            "distribution": [
                {"name": one["name"], "labels": one["labelled"], "predictions": one["predicted"]}
                for one in shown
            ],
            "calibration": calibrate(self._likelihoods(outputs)[known], right[known]),
            "by_class": shown,
            **self.describe_decisions(outputs),
        }

    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        """Return the wrong rows whose labels together had the lowest probability."""
        labels = np.asarray(outputs.labels)
        predicted = self._likelihoods(outputs)
        given = np.where(outputs.predictions == labels, predicted, 1 - predicted)
        given = np.where(labels == IGNORED_LABEL, 1, given).prod(axis=-1)
        wrong = np.flatnonzero(~is_right(outputs.predictions, labels).all(axis=-1))
        order = wrong[np.argsort(given[wrong], kind="stable")[:most]]
        return [(int(row), float(predicted[row].prod())) for row in order]

    def format_label(self, value: Any) -> str:
        given = np.flatnonzero(np.asarray(value) == 1).tolist()
        return ", ".join(map(self.name_of, given)) or "none"

    def _likelihoods(self, outputs: Predicted) -> NDArray[np.float64]:
        """Compute the probability of each decision, (N, K)."""
        return self.confidences(outputs.logits, outputs.predictions)

    def confidences(self, logits: Any, predictions: NDArray[Any]) -> NDArray[np.float64]:
        probabilities = expit(self.scale(logits))
        return np.where(predictions == 1, probabilities, 1 - probabilities)
