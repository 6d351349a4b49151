"""Tasks whose rows have one label each: the base of classes and scores."""

import math
import random
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainers.data.masking import IGNORED_LABEL
from trainers.data.task_dataset import Rows
from trainers.files import write_text
from trainers.problems.measures import scores
from trainers.problems.measures.analysis import Analysis, analyse_classes, find_class_errors
from trainers.problems.measures.label_issues import LabelIssues, find_label_issues

from .calibrated import Calibrated
from .problem import (
    SMOOTHED,
    Decode,
    Metric,
    Problem,
    binomial_error,
    check_same_rows,
    find_output,
    quote,
)


class Predicted(NamedTuple):
    """Predictions for rows."""

    logits: Any  # (N, K); None if they were read from a file
    predictions: NDArray[Any]  # class indices, 0 or 1, or scores, (N,)
    labels: NDArray[Any] | None  # (N,); None if the rows have none


@dataclass(frozen=True)
class PredictionMetric(Metric):
    """A metric of predictions and labels."""

    draws: scores.Score = scores.accuracy  # of many draws of rows, (..., N) -> (...)
    reported: Callable[[NDArray[Any], NDArray[Any]], float] | None = None  # None for ``draws``

    def value(self, predictions: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the reported value, (N,)."""
        return float((self.reported or self.draws)(predictions, labels))


def _matthews(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    # The first import draws from Python's random state, which a checkpoint stores.
    state = random.getstate()
    from sklearn.metrics import matthews_corrcoef

    random.setstate(state)
    with warnings.catch_warnings():
        # scikit-learn warns if there is one class only; the correlation is 0 then
        warnings.simplefilter("ignore", UserWarning)
        return float(matthews_corrcoef(labels, predictions))


ACCURACY = PredictionMetric("accuracy", draws=scores.accuracy)
F1 = PredictionMetric("f1", draws=scores.f1)
MACRO_F1 = PredictionMetric("macro_f1", draws=scores.macro_f1)
# Of classes whose numbers are their order.
MAE = PredictionMetric("mae", lower_is_better=True, draws=scores.mean_absolute_error)
KAPPA = PredictionMetric("quadratic_weighted_kappa", draws=scores.quadratic_weighted_kappa)
MATTHEWS = PredictionMetric(
    "matthews_correlation", draws=scores.matthews_correlation, reported=_matthews
)


class LabelledProblem(Problem[Predicted]):
    """A task with a label for each row."""

    metrics: ClassVar[tuple[PredictionMetric, ...]]
    has_fixed_metrics = False
    is_comparable = True
    shares_rows = True
    teaching: ClassVar[Literal["logits"] | None] = "logits"
    dtype: ClassVar[type] = np.int64
    # Source: Stanford CS 224N default final project, evaluation.py.
    header: ClassVar[str]

    @property
    def names(self) -> Sequence[str]:
        """Names of the classes or labels; empty if they have none."""
        return self.head.get("labels") or ()

    def name_of(self, number: int) -> str:
        """Return the name of a class or label, or its number if it has none."""
        return str(self.names[number]) if number < len(self.names) else str(number)

    @property
    def label_range(self) -> tuple[float, float] | None:
        """Lowest and highest label; None if unknown."""
        return None

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        columns: Any = rows
        if self.label_range is None or columns.format["type"] is not None:
            return
        low, high = self.label_range
        labels = np.asarray(columns["labels"][:], dtype=float)
        fits = (labels >= low) & (labels <= high) | (labels == -100)
        if not fits.all():
            place = tuple(np.argwhere(~fits)[0].tolist())
            raise ValueError(
                f"{where}, row {place[0]}: the label {labels[place]:g} is out of range; allowed "
                f"are {low:g} to {high:g}, and -100 for none"
            )

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        return find_output(outputs, "logits").detach(), inputs.get("labels")

    @abstractmethod
    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Turn logits (N, K) into predictions (N,) for a model that cannot decode them."""

    def collect(
        self, values: NDArray[Any], rows: Any, labels: Any = None, decode: Decode | None = None
    ) -> Predicted:
        if labels is None and self.is_labelled(rows):
            labels = rows["labels"]
        predictions = np.asarray((decode or self.decide)(values))
        return Predicted(values, predictions, None if labels is None else np.asarray(labels))

    @property
    def metric_feature(self) -> Any:
        """Type of a prediction and a label."""
        return datasets.Value(np.dtype(self.dtype).name)

    def make_metric(self) -> Any:
        """Create an ``evaluate.Metric`` for ``compute(predictions=..., references=...)``."""
        # Importing evaluate takes memory that a run without evaluation can do without. It also
        # draws from Python's random state, which a checkpoint stores.
        state = random.getstate()
        import evaluate

        random.setstate(state)
        metrics: Any = self.reported
        dtype: Any = self.dtype
        value = self.metric_feature
        info = evaluate.MetricInfo(
            description=f"Metrics of {self.problem_type} tasks.",
            citation="",
            inputs_description="",
            features=datasets.Features({"predictions": value, "references": value}),
        )

        class ProblemMetric(evaluate.Metric):  # type: ignore[misc]
            def _info(self) -> evaluate.MetricInfo:
                return info

            def _compute(self, predictions: list[Any], references: list[Any]) -> dict[str, float]:
                predicted, given = (np.asarray(row, dtype) for row in (predictions, references))
                return {metric.name: metric.value(predicted, given) for metric in metrics}

        return ProblemMetric(keep_in_memory=True)

    def find_labelled(self, outputs: Predicted) -> NDArray[np.int64] | None:
        """Leave out the rows whose label is -100, or all of whose labels are."""
        given = np.asarray(outputs.labels) != IGNORED_LABEL
        is_labelled = given.any(axis=tuple(range(1, given.ndim)))
        return None if is_labelled.all() else np.flatnonzero(is_labelled)

    def keep_rows(self, outputs: Predicted, rows: NDArray[np.int64]) -> Predicted:
        logits, labels = outputs.logits, outputs.labels
        return Predicted(
            None if logits is None else np.asarray(logits)[rows],
            outputs.predictions[rows],
            None if labels is None else np.asarray(labels)[rows],
        )

    def compute_metrics(self, outputs: Predicted) -> dict[str, float]:
        labelled = self.find_labelled(outputs)
        outputs = outputs if labelled is None else self.keep_rows(outputs, labelled)
        if not len(outputs.predictions):
            raise ValueError(
                f"task {self.task!r}: none of the rows has a label, they are all -100; evaluate "
                "rows with labels"
            )
        predictions: NDArray[Any] = outputs.predictions.astype(self.dtype)
        labels: NDArray[Any] = np.asarray(outputs.labels).astype(self.dtype)
        values: Any = self.make_metric().compute(predictions=predictions, references=labels)
        return dict(values)

    def standard_error(self, outputs: Predicted, metrics: Mapping[str, float]) -> float:
        if self.reported[0] is ACCURACY:
            return binomial_error(metrics[ACCURACY.name], self.count(outputs))
        return self.bootstrap_error(outputs)

    def count(self, outputs: Predicted) -> int:
        return len(outputs.predictions)

    def sample(self, outputs: Predicted) -> tuple[NDArray[Any], NDArray[Any]]:
        return outputs.predictions.astype(self.dtype), np.asarray(outputs.labels)

    def score(self, values: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
        metric: Any = self.reported[0]
        return metric.draws(values, labels)

    def prediction_file(self, stem: str) -> str:
        return f"{stem}-output.csv"

    @staticmethod
    def format_value(value: float) -> str:
        """Format a prediction; float32 prints the shortest digits that identify it."""
        return str(np.float32(value))

    def write(self, folder: Path, stem: str, outputs: Predicted, rows: Any) -> None:
        ids, predictions = rows["id"][:], outputs.predictions.tolist()
        if len(ids) != len(predictions):
            raise ValueError(
                f"{len(ids)} ids but {len(predictions)} predictions; expected one each"
            )
        lines = [self.header]
        for name, prediction in zip(ids, predictions, strict=True):
            value = float(prediction)
            if not math.isfinite(value):
                raise ValueError(
                    f"the prediction of row {name!r} is {value}; expected a finite number"
                )
            lines.append(f"{name} , {self.format_value(value)} \n")
        write_text(folder / self.prediction_file(stem), "".join(lines))

    def tabulate(self, outputs: Predicted) -> dict[str, list[Any]]:
        columns = {"prediction": [self.format_exactly(value) for value in outputs.predictions]}
        if outputs.labels is None:
            return columns
        given = [
            self.format_exactly(x) if np.any(x != IGNORED_LABEL) else "" for x in outputs.labels
        ]
        return {"label": given, **columns}

    def format_exactly(self, value: Any) -> str:
        """Format a label or a prediction for a table."""
        return self.format_label(value)

    def read(
        self, folder: Path, stem: str, ids: Sequence[str], references: NDArray[Any]
    ) -> Predicted:
        path = self.find_file(folder, stem)
        found, predictions = read_predictions(path)
        check_same_rows(path, found, ids)
        return Predicted(None, predictions, references)

    @abstractmethod
    def summarize(self, outputs: Predicted) -> dict[str, Any]:
        """Summarize all predictions for a report."""

    @abstractmethod
    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        """Return row and size of the worst errors, the worst first."""

    @abstractmethod
    def format_label(self, value: Any) -> str:
        """Format a label or a prediction for a report."""

    def analyse(
        self, outputs: Predicted, rows: Any, texts: datasets.Dataset | None, examples: int
    ) -> dict[str, Any]:
        """Summarize labelled rows, which ``rows`` and ``outputs`` must be."""
        labels = np.asarray(outputs.labels)
        errors = [
            {
                "id": str(rows[row]["id"]),
                "texts": [] if texts is None else quote(texts[row]),
                "label": self.format_label(labels[row]),
                "prediction": self.format_label(outputs.predictions[row]),
                "size": size,
            }
            for row, size in self.find_errors(outputs, examples)
        ]
        return {"rows": len(labels), **self.summarize(outputs), "errors": errors}


class ClassProblem(Calibrated, LabelledProblem):
    """A task whose labels are classes."""

    has_classes = True

    def find_classes(self, rows: Any) -> NDArray[np.int64]:
        return np.asarray(rows["labels"][:]).astype(np.int64)

    def name_classes(self, count: int) -> tuple[str, ...]:
        return tuple(self.names) or super().name_classes(count)

    @property
    def smooths_labels(self) -> bool:
        return self.head.get("loss") in (None, *SMOOTHED)

    @abstractmethod
    def probabilities(self, logits: NDArray[Any]) -> NDArray[np.float64]:
        """Turn logits (N, K) into probabilities, (N, C)."""

    def summarize(self, outputs: Predicted) -> Analysis:
        labels, probabilities = np.asarray(outputs.labels), self.probabilities(outputs.logits)
        return analyse_classes(probabilities, outputs.predictions, labels, self.format_label)

    def find_errors(self, outputs: Predicted, most: int) -> list[tuple[int, float]]:
        labels, probabilities = np.asarray(outputs.labels), self.probabilities(outputs.logits)
        return find_class_errors(probabilities, outputs.predictions, labels, most)

    def format_label(self, value: Any) -> str:
        return self.name_of(int(value))

    def find_label_issues(self, outputs: Predicted) -> LabelIssues | None:
        if outputs.labels is None or outputs.logits is None:
            return None
        labels = np.asarray(outputs.labels).astype(np.int64)
        return find_label_issues(labels, self.probabilities(outputs.logits))

    def analyse(
        self, outputs: Predicted, rows: Any, texts: datasets.Dataset | None, examples: int
    ) -> dict[str, Any]:
        analysis = super().analyse(outputs, rows, texts, examples)
        issues = self.find_label_issues(outputs)
        if issues is None:
            return analysis
        listed = [
            {
                "id": str(rows[row]["id"]),
                "texts": [] if texts is None else quote(texts[row]),
                "label": self.format_label(given),
                "prediction": self.format_label(suggested),
                "size": confidence,
            }
            for row, given, suggested, confidence in issues.list_first(examples)
        ]
        facts = {"found": len(issues.rows), "rows": issues.counted, "noise": issues.noise}
        return {**analysis, "label_issues": {**facts, "listed": listed}}

    def tabulate(self, outputs: Predicted) -> dict[str, list[Any]]:
        """Add the probability of the predicted class, if the head is trained by a likelihood."""
        columns = super().tabulate(outputs)
        if not self.is_likelihood:
            return columns
        likely = self.confidences(outputs.logits, outputs.predictions)
        return {**columns, "probability": [f"{value:.4f}" for value in likely]}

    def confidences(self, logits: Any, predictions: NDArray[Any]) -> NDArray[np.float64]:
        chosen = predictions.astype(np.int64)[:, None]
        return np.take_along_axis(self.probabilities(logits), chosen, axis=1)[:, 0]


def read_predictions(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the names (N,) and predictions (N,) of a file; ValueError names a broken line."""
    ids, values = [], []
    # splitlines would split ids at characters that do not end a line
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    for number, line in enumerate(lines[1:], start=2):
        name, comma, text = line.rpartition(" , ")
        try:
            values.append(float(text))
        except ValueError:
            comma = ""
        if not comma:
            raise ValueError(f"{path}:{number}: {line!r}; expected an id, ' , ' and a number")
        ids.append(name)
    return ids, np.asarray(values, dtype=np.float64)
