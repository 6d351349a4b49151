"""Tasks whose labels are classes, and what depends on probabilities: calibration, thresholds."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from modeling_minbert.choices import MultipleChoiceTask
from modeling_minbert.pooled_types import MultiLabelClassificationTask, ParaphraseTask
from trainers.data.masking import IGNORED_LABEL
from trainers.data.rows import FlatRows, Rows

from .analysis import (
    LabelIssues,
    calibrate,
    draw_reliability,
    find_label_issues,
    tabulate_confusions,
)
from .base import (
    Evaluated,
    LabelledProblem,
    Predicted,
    shorten_quote,
)
from .blocks import Block, Cell, Example, Examples, Table
from .metrics import (
    ACCURACY,
    F1,
    KAPPA,
    MACRO_F1,
    MAE,
    MATTHEWS,
    Array,
    Metric,
    f1_of_counts,
    score_counts,
)


class Fitted(NamedTuple):
    """Calibration of the rows that a temperature was fitted to; see ``analysis.calibrate``."""

    before: dict[str, Any]
    after: dict[str, Any]


class Calibrated:
    """What problems with probabilities share: mixed into a ``Problem``.

    Attributes:
        fitted: What training found when it fitted the temperature; None if it did not.
        gathers_logits: Whether ``gather`` selects logits, as a temperature needs them.
    """

    spec: Any
    confidence: ClassVar[str]
    fitted: Fitted | None = None
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

    def scale(self, logits: Any) -> NDArray[np.float64]:
        """Divide logits by the temperature."""
        return np.asarray(logits, dtype=np.float64) / (self.temperature or 1)

    def confidences(self, logits: Any, predictions: Array) -> NDArray[np.float64]:
        """Compute the probability of each prediction, of the same shape."""
        raise NotImplementedError

    def list_logits(self, values: Array, rows: Any) -> tuple[Array, Array]:
        """Return logits, (N, K), and labels, (N,) or (N, K), from the gathered values of rows."""
        return values, np.asarray(rows["labels"])

    def compare(self, logits: Any, predictions: Array, labels: Array) -> Fitted:
        """Compare confidences with accuracy, before and after the temperature.

        Logits are (N, K), predictions (N,), or (N, K) for several labels, and so are labels; those
        of -100 do not count.
        """
        counted = labels != IGNORED_LABEL
        right = (predictions == labels)[counted]
        # probabilities divide logits by the temperature
        before, after = np.asarray(logits, np.float64) * (self.temperature or 1), logits
        return Fitted(
            *(calibrate(self.confidences(x, predictions)[counted], right) for x in (before, after))
        )

    def draw_calibration(
        self, calibration: dict[str, Any] | None, held_out: Mapping[str, Any]
    ) -> list[Block]:
        """Draw the calibration of the validation rows, and the effect of a temperature on all.

        Without a calibration it is drawn only if a temperature was fitted. Outputs of held-out
        splits without logits are left out.
        """
        confidence, notes = "the probability of the prediction", []
        if not self.is_likelihood:
            notes.append(
                f"This task was not trained with a likelihood: its confidences are the "
                f"{self.confidence} of its outputs, which need not be probabilities."
            )
        if self.fitted is None or self.temperature is None:
            if self.calibrates:
                notes.append(
                    "No temperature was fitted: the likelihood of the validation rows has no "
                    "maximum, as when all predictions are right or no better than chance."
                )
            if calibration is None:
                return []
            return draw_reliability(calibration, confidence, " ".join(notes))
        effects = {
            split: self.compare(outputs.logits, outputs.predictions, np.asarray(outputs.labels))
            for split, outputs in held_out.items()
            if getattr(outputs, "logits", None) is not None
        }
        effects = {"validation": self.fitted, **effects}
        before, after = effects["validation"]
        notes.append(
            f"Logits are divided by a temperature of {self.temperature:.3f}, which was fitted to "
            "the validation rows after training and changes no prediction. The calibration error "
            "of these rows is therefore optimistic."
        )
        errors = [[split, pair.before["ece"], pair.after["ece"]] for split, pair in effects.items()]
        columns = [("rows", ""), ("before", ".4f"), ("after", ".4f")]
        return [
            *draw_reliability(after, confidence, " ".join(notes), before),
            Table("Calibration errors", columns, errors),
        ]


class Decision(NamedTuple):
    """What a decision threshold reaches on some rows."""

    name: str  # of the label
    threshold: float
    precision: float  # 0 without predictions, as recall without labels
    recall: float
    labelled: int
    reached: bool  # whether the goal of ``threshold_for`` is reached


class ThresholdProblem(Calibrated):
    """What problems share whose thresholds can be chosen for a goal: precision or recall."""

    of_each: ClassVar[str] = ""  # what has a threshold of its own

    @property
    def wanted(self) -> dict[str, float]:
        """The goal, as in ``{"precision": 0.9}``; empty for none."""
        return {} if self.spec is None else self.spec.threshold_for or {}

    @property
    def fits_held_out(self) -> bool:
        """Whether decision thresholds are fitted to held-out rows instead of training rows."""
        return bool(self.wanted)

    def decisions(self, predictions: Array, labels: Array) -> list[Decision]:
        """List what the thresholds reach for ``wanted``; empty without a goal.

        Predictions and labels are 0 or 1, (N,) or (N, K); labels of -100 do not count.
        """
        if not self.wanted:
            return []
        ((goal, least),) = self.wanted.items()
        shape = (len(labels), -1)
        given = np.asarray(labels).reshape(shape)
        predicted = (np.asarray(predictions).reshape(shape) == 1) & (given != -100)
        counts = np.stack([predicted & (given == 1), predicted, given == 1], axis=-1).sum(axis=0)
        found = []
        for name, threshold, row in zip(*self.list_thresholds(), counts, strict=True):
            scores = score_counts(row)
            numbers = (threshold, scores["precision"], scores["recall"])
            found.append(Decision(name, *numbers, int(row[2]), scores[goal] >= least))
        return found

    def tabulate_decisions(self, outputs: Any) -> list[Block]:
        """Tabulate ``decisions``; nothing without a goal."""
        if not self.wanted:
            return []
        ((goal, least),) = self.wanted.items()
        other = "recall" if goal == "precision" else "precision"
        numbers = [(name, ".4f") for name in ("threshold", "precision", "recall")]
        rows: list[list[Cell]] = []
        for decision in self.decisions(outputs.predictions, np.asarray(outputs.labels)):
            verdict = "reached" if decision.reached else "not reached: the best there is"
            if not decision.reached and not decision.labelled:
                verdict = "no row has the label"
            rows.append([*decision[:4], verdict])
        note = (
            f"Chosen on the validation rows for a {goal} of at least {least:.3g}, and then the "
            f"highest {other}. What these rows reach is optimistic."
        )
        return [Table("Decision thresholds", [("label", ""), *numbers, ("goal", "")], rows, note)]

    @property
    def caution(self) -> str:
        if not self.fits_held_out:
            return super().caution
        chosen = (
            f"The decision threshold{self.of_each} was chosen on the validation rows, so metrics "
            "on these rows are optimistic; judge the model by a test set."
        )
        return f"{chosen} {super().caution}".strip()

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        """Return the names of the labels that are decided, and their thresholds."""
        raise NotImplementedError


class ClassProblem(Calibrated, LabelledProblem):
    """A task whose labels are classes."""

    @property
    def smooths_labels(self) -> bool:
        return self.spec is None or self.spec.loss_function.smooths_labels

    @abstractmethod
    def probabilities(self, logits: Array) -> NDArray[np.float64]:
        """Turn logits (N, K) into probabilities, (N, C)."""

    error_size = "probability"
    error_format = ".1%"
    error_note = (
        "The wrong rows whose label had the lowest probability, with the probability of the "
        "predicted class."
    )

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        outputs = evaluated.outputs
        labels = np.asarray(outputs.labels)
        right = outputs.predictions == labels
        calibration = calibrate(self.confidences(outputs.logits, outputs.predictions), right)
        return [
            *self.tabulate_classes(outputs),
            *self.draw_calibration(calibration, evaluated.held_out),
            *self.list_errors(evaluated),
            *self.list_label_issues(evaluated),
        ]

    def tabulate_classes(self, outputs: Predicted) -> list[Block]:
        """Tabulate what was predicted for the rows of each class."""
        count = self.probabilities(outputs.logits).shape[1]
        labels = np.asarray(outputs.labels)
        return tabulate_confusions(outputs.predictions, labels, count, self.format_label)

    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        """Return the wrong rows whose label is least probable, with that of their prediction."""
        labels = np.asarray(outputs.labels).astype(np.int64)
        predictions = outputs.predictions.astype(np.int64)
        probabilities = self.probabilities(outputs.logits)
        wrong = np.flatnonzero(predictions != labels)
        order = np.argsort(probabilities[wrong, labels[wrong]], kind="stable")[:most]
        return [(int(row), float(probabilities[row, predictions[row]])) for row in wrong[order]]

    def format_label(self, value: Any) -> str:
        return self.name_of(int(value))

    def find_label_issues(self, outputs: Predicted) -> LabelIssues | None:
        """Find rows whose label is probably wrong; None without labels or logits."""
        if outputs.labels is None or outputs.logits is None:
            return None
        labels = np.asarray(outputs.labels).astype(np.int64)
        return find_label_issues(labels, self.probabilities(outputs.logits))

    def list_label_issues(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        """List the rows whose label is probably wrong."""
        outputs = evaluated.outputs
        issues = self.find_label_issues(outputs)
        if issues is None:
            return []
        source = "by confident learning (Northcutt, Jiang and Chuang 2021)"
        note = f"None of {issues.counted:,} validation rows, {source}."
        if len(issues.rows):
            note = (
                f"{len(issues.rows):,} of {issues.counted:,} validation rows, which the model did "
                f"not train on: it is confident of another class than the label, {source}. If "
                "there are many, the model is weak, rather than the labels wrong. The most "
                "suspicious rows come first, with the probability of the label."
            )
        first = (column[: evaluated.examples].tolist() for column in issues[:3])
        rows = [
            self.show_row(
                evaluated,
                row,
                self.format_label(np.asarray(outputs.labels)[row]),
                self.format_label(suggested),
                confidence,
            )
            for row, suggested, confidence in zip(*first, strict=True)
        ]
        title = "Labels that may be wrong"
        return [Examples(title, rows, "probability", ".1%", note, other="suggested")]

    def tabulate(self, outputs: Predicted) -> dict[str, list[Any]]:
        """Add probabilities, if the head is trained by a likelihood, and suspicious labels."""
        columns = super().tabulate(outputs)
        if self.is_likelihood:
            likely = self.confidences(outputs.logits, outputs.predictions)
            columns["probability"] = [f"{value:.4f}" for value in likely]
        issues = self.find_label_issues(outputs)
        if issues is not None:
            columns["suggested_label"] = [""] * len(outputs.predictions)
            for row, suggested in zip(issues.rows, issues.suggested, strict=True):
                columns["suggested_label"][row] = self.format_label(suggested)
        return columns

    def confidences(self, logits: Any, predictions: Array) -> NDArray[np.float64]:
        chosen = predictions.astype(np.int64)[:, None]
        return np.take_along_axis(self.probabilities(logits), chosen, axis=1)[:, 0]


class Classification(ClassProblem):
    """One of several classes for each row."""

    problem_type = "classification"
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, MACRO_F1)
    optional_metrics: ClassVar[tuple[Metric, ...]] = (MATTHEWS, MAE, KAPPA)
    header = "id \t Predicted_Sentiment \n"

    @property
    def label_range(self) -> tuple[float, float] | None:
        return (0, len(self.names) - 1) if self.names else None

    def decide(self, logits: Array) -> Array:
        return logits.argmax(axis=-1)

    @staticmethod
    def format_value(value: float) -> str:
        return str(int(value))

    def probabilities(self, logits: Array) -> NDArray[np.float64]:
        return np.asarray(softmax(self.scale(logits), axis=1))


class Ordinal(Classification):
    """One of several ordered classes for each row; distances are differences of their numbers."""

    problem_type = "ordinal"
    metrics = (ACCURACY, MAE, KAPPA)
    optional_metrics = (MACRO_F1, MATTHEWS)
    header = ""
    smooths_labels = False  # a share of a label would be as likely far away as nearby

    def decide(self, logits: Array) -> Array:
        """Choose the median class, as `OrdinalHead.decode`."""
        above = self.probabilities(logits)[:, :0:-1].cumsum(axis=1)
        return (above > 0.5).sum(axis=1)


class Paraphrase(ThresholdProblem, ClassProblem):
    """0 or 1 for each pair."""

    problem_type = "paraphrase"
    spec: ParaphraseTask | None
    metrics = (ACCURACY, F1, MACRO_F1)
    optional_metrics = (MATTHEWS,)
    header = "id \t Predicted_Is_Paraphrase \n"
    label_range = (0, 1)
    confidence = "sigmoid"

    @property
    def needs_threshold_fit(self) -> bool:
        if self.spec is None:
            return False
        return self.spec.threshold_fitted or self.spec.threshold is None or self.fits_held_out

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        fitted = None if self.spec is None else self.spec.thresholds
        return [self.name_of(1)], fitted or [0.5]

    def decide(self, logits: Array) -> Array:
        return (logits[:, 0] > 0).astype(np.int64)

    def probabilities(self, logits: Array) -> NDArray[np.float64]:
        """Compute the sigmoid of the logits, and its complement, (N, 2)."""
        values = self.scale(logits)[:, :1]
        return np.concatenate([expit(-values), expit(values)], axis=1)

    def tabulate_classes(self, outputs: Predicted) -> list[Block]:
        return [*super().tabulate_classes(outputs), *self.tabulate_decisions(outputs)]


def _count(predictions: Array, labels: Array) -> tuple[Array, ...]:
    """Count the hits, the predictions and the labels of each label, (N, K) -> (K,)."""
    predicted, given = (predictions == 1) & (labels != IGNORED_LABEL), labels == 1
    return tuple(mask.sum(axis=0) for mask in (predicted & given, predicted, given))


def micro_f1(predictions: Array, labels: Array) -> float:
    """F1 of all labels of all rows together."""
    return float(f1_of_counts(*(counts.sum() for counts in _count(predictions, labels))))


def macro_f1(predictions: Array, labels: Array) -> float:
    """Mean F1 of the labels, 0 for one that no row has."""
    return float(f1_of_counts(*_count(predictions, labels)).mean())


def exact_match(predictions: Array, labels: Array) -> float:
    """Share of the rows all of whose labels are right or unknown."""
    return float(is_right(predictions, labels).all(axis=1).mean())


def is_right(predictions: Array, labels: Array) -> NDArray[np.bool_]:
    """Return which predictions are not wrong, of the same shape: labels of -100 are unknown."""
    return (predictions == labels) | (labels == IGNORED_LABEL)


class MultiLabelClassification(ThresholdProblem, LabelledProblem):
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
    confidence = "sigmoid"
    smooths_labels = True
    of_each = " of each label"

    @property
    def needs_threshold_fit(self) -> bool:
        return self.spec is not None  # a model without a description of its heads decides by itself

    @property
    def fits_held_out(self) -> bool:
        return True

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        fitted = None if self.spec is None else self.spec.thresholds
        chosen = fitted or [0.5] * len(self.names)
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

    def decide(self, logits: Array) -> Array:
        return (logits > 0).astype(np.int64)

    def describe_types(self, outputs: Predicted) -> list[dict[str, Any]]:
        counts = np.stack(_count(outputs.predictions, np.asarray(outputs.labels)), axis=-1)
        return [
            {
                "name": self.name_of(number),
                **score_counts(row),
                "labelled": int(row[2]),
                "predicted": int(row[1]),
            }
            for number, row in enumerate(counts)
        ]

    error_size = "probability"
    error_format = ".1%"
    error_note = (
        "The wrong rows whose labels together had the lowest probability, with the probability of "
        "the predicted ones."
    )

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        outputs, labels = evaluated.outputs, np.asarray(evaluated.outputs.labels)
        counted, right = labels != IGNORED_LABEL, outputs.predictions == labels
        likely = self.confidences(outputs.logits, outputs.predictions)
        return [
            *self.tabulate_decisions(outputs),
            *self.draw_calibration(calibrate(likely[counted], right[counted]), evaluated.held_out),
            *self.list_errors(evaluated),
        ]

    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        """Return the wrong rows whose labels together had the lowest probability."""
        labels = np.asarray(outputs.labels)
        predicted = self.confidences(outputs.logits, outputs.predictions)
        given = np.where(outputs.predictions == labels, predicted, 1 - predicted)
        given = np.where(labels == IGNORED_LABEL, 1, given).prod(axis=-1)
        wrong = np.flatnonzero(~is_right(outputs.predictions, labels).all(axis=-1))
        order = wrong[np.argsort(given[wrong], kind="stable")[:most]]
        return [(int(row), float(predicted[row].prod())) for row in order]

    def format_label(self, value: object) -> str:
        given = np.flatnonzero(np.asarray(value) == 1).tolist()
        return ", ".join(map(self.name_of, given)) or "none"

    def confidences(self, logits: Any, predictions: Array) -> NDArray[np.float64]:
        probabilities = expit(self.scale(logits))
        return np.where(predictions == 1, probabilities, 1 - probabilities)


class MultipleChoice(Classification):
    """The right one of several choices; predictions and labels are their indices, (N,)."""

    problem_type = "multiple_choice"
    spec: MultipleChoiceTask | None
    metrics = (ACCURACY,)
    optional_metrics = ()
    header = ""
    hub_task = pipeline_tag = "multiple-choice"

    @property
    def label_range(self) -> tuple[float, float] | None:
        count = None if self.spec is None else self.spec.num_choices
        return None if count is None else (0, count - 1)

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        flat = FlatRows(rows)  # whose rows have equally many sequences
        count = None if self.spec is None else self.spec.num_choices
        if not flat.is_separate or count not in (None, flat.count_sequences()[0]):
            raise ValueError(
                f"{where} is of a multiple_choice task: input_ids and token_type_ids must be a "
                f"list of {count or 'S'} sequences, one for each choice, for every row"
            )

    def name_of(self, number: int) -> str:
        return str(number)

    def find_label_issues(self, outputs: Predicted) -> None:
        return None  # labels are compared by class

    def tabulate_classes(self, outputs: Predicted) -> list[Block]:
        return []  # the places of the choices are not confused as classes are

    def show_row(
        self, evaluated: Evaluated[Predicted], row: int, label: str, prediction: str, size: float
    ) -> Example:
        """Add the texts of the choices."""
        example = super().show_row(evaluated, row, label, prediction, size)
        if evaluated.texts is None:
            return example
        choices = [
            f"{number}: {shorten_quote(text)}"
            for number, text in enumerate(evaluated.texts[row]["choices"])
        ]
        return replace(
            example,
            texts=[*example.texts, *choices],
            label=choices[int(label)],
            prediction=choices[int(prediction)],
        )

    @property
    def card_example(self) -> str:
        has_question = self.spec is not None and self.spec.has_question
        question = '"A question?", ' if has_question else ""
        return f'[("A context.", {question}["A choice.", "Another choice."])]'
