"""Tasks with any number of labels for each row, and with several outputs."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modeling_minbert.multi_output import MultiOutputClassificationTask
from modeling_minbert.scores import MultiLabelClassificationTask
from trainers.data.rows import IGNORED_LABEL, Rows

from .base import Evaluated, LabelledProblem, Predicted
from .blocks import Block, tabulate_confusions
from .classes import Calibrated
from .metrics import (
    Array,
    Described,
    Metric,
    accuracy,
    count_decisions,
    describe_targets,
    f1,
    f1_of_counts,
    macro_f1 as class_f1,
    mean_over_targets,
    score_counts,
)

MOST_TABLES = 12  # of more outputs than this only the first ones have a table


def micro_f1(predictions: Array, labels: Array) -> float:
    """F1 of all labels of all rows together."""
    return f1(predictions.ravel(), labels.ravel())


def macro_f1(predictions: Array, labels: Array) -> float:
    """Mean F1 of the labels, 0 for one that no row has."""
    return float(f1_of_counts(*count_decisions(predictions, labels)).mean())


def exact_match(predictions: Array, labels: Array) -> float:
    """Share of the rows all of whose labels are right or unknown."""
    return float(is_right(predictions, labels).all(axis=1).mean())


def is_right(predictions: Array, labels: Array) -> NDArray[np.bool_]:
    """Return which predictions are not wrong, of the same shape: labels of -100 are unknown."""
    return (predictions == labels) | (labels == IGNORED_LABEL)


class MultiLabelClassification(Calibrated, LabelledProblem):
    """Any number of labels for each row; predictions and labels are 0 or 1, (N, K).

    Decision thresholds are fitted to the validation rows, before each evaluation and at the end:
    metrics on these rows are optimistic, and only a test set tells how good the model is.
    """

    problem_type = "multi_label_classification"
    spec: MultiLabelClassificationTask | None
    metrics = (
        Metric("micro_f1", micro_f1),
        Metric("macro_f1", macro_f1),
        Metric("accuracy", exact_match),
    )
    label_range = (0, 1)
    smooths_labels = True
    fits_held_out = True

    @property
    def needs_threshold_fit(self) -> bool:
        return self.spec is not None  # a model without a description of its heads decides by itself

    @property
    def caution(self) -> str:
        chosen = (
            "The decision threshold of each label was chosen on the validation rows, so metrics on "
            "these rows are optimistic; judge the model by a test set."
        )
        return f"{chosen} {super().caution}".strip()

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

    def decide(self, logits: Array) -> Array:
        return (logits > 0).astype(np.int64)

    def describe_types(self, outputs: Predicted) -> list[Described]:
        counts = count_decisions(outputs.predictions, np.asarray(outputs.labels))
        types = []
        for number, row in enumerate(np.stack(counts, axis=-1)):
            sizes = {"labelled": int(row[2]), "predicted": int(row[1])}
            types.append({"name": self.name_of(number), **score_counts(row), **sizes})
        return types

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        note = (
            "The wrong rows whose labels together had the lowest probability, with the probability "
            "of the predicted ones."
        )
        return [*self.draw_calibration(evaluated), *self.list_errors(evaluated, note)]

    def find_errors(self, outputs: Predicted) -> tuple[Array, Array, Array]:
        """Rank rows by the probability of all labels; the size is that of the predictions."""
        labels = np.asarray(outputs.labels)
        predicted = self.confidences(outputs.logits, outputs.predictions)
        given = np.where(outputs.predictions == labels, predicted, 1 - predicted)
        given = np.where(labels == IGNORED_LABEL, 1, given).prod(axis=-1)
        return np.any(~is_right(outputs.predictions, labels), axis=1), given, predicted.prod(axis=1)

    def format_label(self, value: Array) -> str:
        given = np.flatnonzero(np.asarray(value) == 1).tolist()
        return ", ".join(map(self.name_of, given)) or "none"

    def confidences(self, logits: Array, predictions: Array) -> NDArray[np.float64]:
        from scipy.special import expit  # its import takes a tenth of a second

        probabilities = expit(self.scale(logits))
        return np.where(predictions == 1, probabilities, 1 - probabilities)


class MultiOutputClassification(LabelledProblem):
    """A class for each of several outputs of a row; predictions and labels are (N, C).

    Accuracy and F1 are means over the outputs. A label of -100 is missing.
    """

    problem_type = "multi_output_classification"
    spec: MultiOutputClassificationTask | None
    metrics = (
        Metric("accuracy", partial(mean_over_targets, accuracy, math.nan)),
        Metric("macro_f1", partial(mean_over_targets, class_f1, math.nan)),
        Metric("exact_match", exact_match),
    )
    smooths_labels = True

    @property
    def outputs(self) -> dict[str, list[str]]:
        """The names of the classes of each output."""
        if self.spec is None:
            return {}
        return dict(zip(self.spec.outputs or (), self.spec.classes or (), strict=True))

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        columns: Any = rows
        counts = list(map(len, self.outputs.values()))
        for number, row in enumerate(columns.with_format(None)["labels"][:]):
            labels = np.asarray(row)
            if labels.shape != (len(counts),) or not all(
                label == IGNORED_LABEL or label in range(count)
                for label, count in zip(labels.tolist(), counts, strict=True)
            ):
                raise ValueError(
                    f"{where}, row {number}: the label of a {self.problem_type} is a class for "
                    f"each of {', '.join(self.outputs)}, from 0 and below {counts}, -100 for none; "
                    f"got {row!r}"
                )

    def split(self, logits: Array) -> list[Array]:
        """Split logits (N, K) into those of each output."""
        ends = np.cumsum([len(names) for names in self.outputs.values()])[:-1]
        return np.split(logits, ends, axis=1)

    def decide(self, logits: Array) -> Array:
        return np.stack([values.argmax(axis=1) for values in self.split(logits)], axis=1)

    def describe_types(self, outputs: Predicted) -> list[Described]:
        scores = {"accuracy": accuracy, "macro_f1": class_f1}
        labels = np.asarray(outputs.labels)
        return describe_targets(list(self.outputs), scores, outputs.predictions, labels)

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        predictions, labels = evaluated.outputs.predictions, np.asarray(evaluated.outputs.labels)
        blocks: list[Block] = []
        for number, (name, classes) in enumerate([*self.outputs.items()][:MOST_TABLES]):
            kept = labels[:, number] != IGNORED_LABEL
            pairs = predictions[kept, number], labels[kept, number]
            tables = tabulate_confusions(*pairs, len(classes), classes.__getitem__)
            blocks += [replace(table, title=f"{table.title} of {name}") for table in tables]
        note = (
            "The wrong rows whose labels together had the lowest probability, with the probability "
            "of the predicted classes."
        )
        return [*blocks, *self.list_errors(evaluated, note)]

    def find_errors(self, outputs: Predicted) -> tuple[Array, Array, Array]:
        """Rank rows by the probability of all labels; the size is that of the predictions."""
        from scipy.special import log_softmax  # its import takes a tenth of a second

        labels, predictions = np.asarray(outputs.labels), outputs.predictions
        likely, given = np.zeros(len(labels)), np.zeros(len(labels))
        for number, logits in enumerate(self.split(np.asarray(outputs.logits, np.float64))):
            scores, rows = log_softmax(logits, axis=1), np.arange(len(labels))
            known = labels[:, number] != IGNORED_LABEL
            likely += scores[rows, predictions[:, number]]
            given += np.where(known, scores[rows, labels[:, number].clip(min=0)], 0)
        return np.any(~is_right(predictions, labels), axis=1), given, np.exp(likely)

    def format_label(self, value: Array) -> str:
        named = zip(self.outputs.items(), np.asarray(value).tolist(), strict=True)
        return ", ".join(
            f"{name} {classes[number]}" for (name, classes), number in named if number >= 0
        )

    def tabulate(self, outputs: Predicted) -> dict[str, list[str]]:
        """Return a label, empty if it is missing, and a prediction for each output."""
        kinds = {} if outputs.labels is None else {"label": outputs.labels}
        kinds |= {"prediction": outputs.predictions}
        return {
            f"{name}_{kind}": [classes[x] if x >= 0 else "" for x in values[:, number].tolist()]
            for number, (name, classes) in enumerate(self.outputs.items())
            for kind, values in kinds.items()
        }
