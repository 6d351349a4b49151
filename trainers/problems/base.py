"""The interface of a problem type, and the base of those whose rows have one label each."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from transformers.utils.generic import ModelOutput

from modeling_minbert import TASKS, MinBertTask, unknown
from trainers.data.rows import IGNORED_LABEL, Batch, Rows, TextSource, spread
from trainers.files import write_text

from .blocks import Block, Example, Examples
from .metrics import ACCURACY, EVALUATE, Array, Described, Metric, binomial_error

logger = logging.getLogger(__name__)

Outputs = TypeVar("Outputs")
Decode = Callable[[Array], Any]  # turns the logits of a task, (N, K), into predictions, (N,)

MAX_QUOTED_CHARACTERS = 2000  # longer texts are cut when they are quoted in a report
RESAMPLES = 1000


@dataclass(frozen=True)
class Evaluated(Generic[Outputs]):
    """The labelled validation rows of a task, with what was predicted for them."""

    outputs: Outputs
    rows: Dataset  # encoded
    texts: Dataset | None = None  # before they were encoded; None if not to be quoted
    examples: int = 20  # number of rows to list
    # outputs of the other labelled splits that are not trained on, such as test rows
    others: Mapping[str, Outputs] = field(default_factory=dict)


class Problem(ABC, Generic[Outputs]):
    """What training, evaluation and reports need to know about a task of some type.

    ``Outputs`` are the predictions for a split, with the labels if there are any.

    Args:
        task: Name of the task.
        spec: Its description in the model, ``config.task(task)``; None for a model without any.
        metrics: Headline metrics, the first of which represents the task in aggregates; empty for
            the first of ``metrics``. One that is unknown raises ValueError. ``evaluate/<folder or
            name>`` is a module of the library evaluate.
    """

    problem_type: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    optional_metrics: ClassVar[tuple[Metric, ...] | None] = None  # None: `metrics` are fixed
    predicts_tokens: ClassVar[bool] = False  # the loss is a mean over tokens instead of rows
    # What a student learns from a teacher: logits of a row, of every token, or vectors of texts.
    # R-Drop compares logits of rows, too.
    teaching: ClassVar[Literal["logits", "tokens", "vectors"] | None] = None
    # Decision thresholds are fitted to held-out rows instead of training rows.
    fits_held_out: ClassVar[bool] = False
    writes_texts: ClassVar[bool] = False  # the files of `write` have words or answers of the rows
    # Columns of rows without which nothing can be evaluated.
    evaluated: ClassVar[tuple[str, ...]] = ()
    # Parts of the loss: names of each in the outputs of the model, and of its labels in a batch.
    parts: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # https://huggingface.co/tasks: of the results, and of a model that has no other problem type
    hub_task: ClassVar[str] = "text-classification"
    pipeline_tag: ClassVar[str] = "text-classification"

    def __init__(
        self, task: str, spec: MinBertTask | None = None, metrics: Sequence[str] = ()
    ) -> None:
        self.task = task
        self.spec = spec
        if metrics and self.optional_metrics is None:
            raise ValueError(
                f"task {task!r}: the metrics of {self.problem_type} tasks are fixed; leave "
                "`metrics` out"
            )
        known = {metric.name: metric for metric in (*self.metrics, *(self.optional_metrics or ()))}
        chosen = []
        for name in dict.fromkeys(metrics) or [self.metrics[0].name]:
            if name in known:
                chosen.append(known[name])
            elif name.startswith(EVALUATE):
                from .evaluate_metrics import make_module_metric

                chosen.append(make_module_metric(name))
            else:
                what = f"{self.problem_type} metric"
                raise ValueError(f"task {task!r}: {unknown(what, name, known)}")
        self.headline = tuple(dict.fromkeys(metric.name for metric in chosen))
        self.reported = tuple(dict.fromkeys((*chosen, *self.metrics)))
        names = [metric.name for metric in self.reported]
        for metric in chosen:
            if metric.module and names.count(metric.name) > 1:
                raise ValueError(
                    f"task {task!r}: two metrics would have the name {metric.name!r}; leave "
                    f"{EVALUATE + metric.module!r} out, or rename its folder"
                )
        self.notes: dict[str, str] = {}  # on what was fitted after training

    def direct(self, module: str, lower_is_better: bool) -> None:
        """Set the direction of the metric of a module, also in averages over tasks."""
        self.reported = tuple(
            replace(metric, lower_is_better=lower_is_better) if metric.module == module else metric
            for metric in self.reported
        )

    @property
    def kind(self) -> type[MinBertTask]:
        """The class of the descriptions of such tasks."""
        return TASKS[self.problem_type]

    def is_labelled(self, rows: Rows) -> bool:
        """Return whether rows have labels."""
        return not isinstance(rows, TextSource) and "labels" in rows.column_names

    def check(self, where: str, rows: Rows) -> None:
        """Raise ValueError if the task cannot be trained or evaluated on the rows of a split."""
        if not self.is_labelled(rows):
            raise ValueError(f"{where} has no labels")

    def choose_rows(self, rows: Dataset, most: int) -> Dataset:
        """Choose about ``most`` rows, evenly spread, that can be evaluated."""
        return spread(rows, most)

    @property
    def needs_threshold_fit(self) -> bool:
        """Whether the loss leaves a decision threshold to be fitted."""
        return False

    @property
    def calibrates(self) -> bool:
        """Whether a temperature is fitted to held-out rows after training."""
        return False

    @property
    def caution(self) -> str:
        """Advice to readers of the results, on the page and the model card; empty for none."""
        return ""

    def is_defined(self, metric: Metric) -> bool:
        """Return whether a metric is defined for the rows of this task."""
        return not metric.needs_pairs or getattr(self.spec, "num_sentences", None) != 1

    def has_loss(self, inputs: Batch) -> bool:
        """Return whether the model can compute a loss of a batch."""
        return self.kind.is_unlabelled or "labels" in inputs

    @abstractmethod
    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        """Select what the Trainer gathers of a batch of B rows, padded or packed.

        Returns:
            Values and labels, each (B, ...). Without labels the Trainer computes no metrics.
        """

    def logits_of(self, outputs: ModelOutput) -> Tensor:
        """Return the logits, with their gradient, that are compared with those of a teacher."""
        return find_output(outputs, "logits")

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Outputs:
        """Turn the values of a split that ``gather`` selected, (N, ...), into its outputs.

        The rows have the order of the values. ``decode`` is that of the model; None for the plain
        decision of the problem type.
        """
        outputs: Any = np.asarray(values)
        return outputs

    @abstractmethod
    def compute_metrics(self, outputs: Outputs) -> dict[str, float]:
        """Compute the metrics of a split that are defined for its rows."""

    @abstractmethod
    def standard_error(self, outputs: Outputs, metrics: Mapping[str, float]) -> float | None:
        """Estimate that of the headline metric over the choice of the rows."""

    def count(self, outputs: Any) -> int:
        """Count the rows, sentences or questions."""
        return len(outputs)

    def describe_types(self, outputs: Outputs) -> list[Described] | None:
        """Describe every entity type, label or target; None if there are none."""
        return None

    def keep_labelled(self, outputs: Outputs) -> tuple[Outputs, NDArray[np.int64] | None]:
        """Leave out the outputs of rows without a label; also returns which stay, None for all."""
        return outputs, None

    def write(self, folder: Path, stem: str, outputs: Outputs, rows: Dataset) -> None:
        """Write the predictions for rows with ids in the format of a benchmark, if there is one.

        ``stem`` is task and split, such as ``sst-dev``.
        """

    def tabulate(self, outputs: Outputs) -> dict[str, list[str]] | None:
        """Return columns for a table of predictions, each (N,); None if the type has no table."""
        return None

    def describe(self, evaluated: Evaluated[Outputs]) -> list[Block]:
        """Describe labelled predictions for the page of a run."""
        raise NotImplementedError(f"{self.problem_type} has no predictions to describe")

    @property
    def smooths_labels(self) -> bool:
        """Whether labels are classes that ``label_smoothing_factor`` mixes in training."""
        return False

    @property
    def loss_curves(self) -> dict[str, dict[str, str]]:
        """By title of a plot, the names of its curves and their keys in the log."""
        return {"Loss": {"training": f"loss_{self.task}", "held out": f"eval_{self.task}_loss"}}


AnyProblem: TypeAlias = Problem[Any]


def find_output(outputs: ModelOutput, *names: str) -> Tensor:
    """Return the first of some outputs of a model that is not None."""
    return next(outputs[name] for name in names if outputs.get(name) is not None)


def bootstrap(score: Callable[..., float], *columns: Array) -> float | None:
    """Estimate the standard error of a score of columns, (N, ...), over the choice of the rows."""
    generator, count = np.random.default_rng(0), len(columns[0])
    draws = (generator.integers(count, size=count) for _ in range(RESAMPLES))
    scores = [score(*(column[rows] for column in columns)) for rows in draws]
    known = np.array(scores)[np.isfinite(scores)]  # a draw may have one label only
    return float(known.std()) if len(known) else None


def check_names(where: str, rows: Dataset, names: Sequence[str]) -> None:
    """Raise ValueError if the rows declare the names of the labels in another order."""
    feature = rows.features["labels"]
    declared = getattr(getattr(feature, "feature", feature), "names", None) or []
    if declared != [*names] and sorted(declared) == sorted(names):
        raise ValueError(
            f"{where}: its labels are numbers of {', '.join(declared)}, in this order, but those "
            f"of the model are of {', '.join(names)}; give the rows that order, by "
            "rows.align_labels_with_mapping of datasets"
        )


def check_labels(
    where: str, rows: Dataset, low: float, high: float, *, are_whole: bool = True
) -> None:
    """Raise ValueError if a label of a row, or one of its list, is out of range or no number."""
    column = rows.select_columns("labels").with_format("arrow")[:]["labels"]
    numbers = np.arange(len(rows))
    if pa.types.is_nested(column.type):
        numbers = np.repeat(numbers, pc.list_value_length(column))
        column = pc.list_flatten(column)
    labels = column.to_numpy().astype(float)
    fits = (labels >= low) & (labels <= high) & ((labels == np.floor(labels)) | (not are_whole))
    wrong = ~(fits | (labels == IGNORED_LABEL))
    if wrong.any():
        kind = "whole numbers from " if are_whole else ""
        raise ValueError(
            f"{where}, row {numbers[wrong][0]}: the label {labels[wrong][0]:g} is out of range; "
            f"allowed are {kind}{low:g} to {high:g}, and -100 for none"
        )


def quote(texts: Dataset | None, row: int) -> list[str]:
    """Return the texts of a row, cut to ``MAX_QUOTED_CHARACTERS``; none if they are private."""
    if texts is None:
        return []
    columns, most = texts[row], MAX_QUOTED_CHARACTERS
    quoted = [columns[name] for name in ("sentence1", "sentence2") if name in columns]
    return [text if len(text) <= most else text[:most] + " […]" for text in quoted]


class Predicted(NamedTuple):
    """Predictions for rows."""

    logits: Any  # (N, K); None if only the predictions are known
    predictions: Array  # class indices, 0 or 1, or scores, (N,)
    labels: Array | None  # (N,); None if the rows have none


def warn_undefined(name: str) -> None:
    """Warn that a metric is undefined."""
    logger.warning(
        "%s is undefined for constant, non-finite or fewer than two values; reported as 0.0", name
    )


class LabelledProblem(Problem[Predicted]):
    """A task with a label for each row."""

    optional_metrics: ClassVar[tuple[Metric, ...]] = ()
    teaching: ClassVar[Literal["logits"] | None] = "logits"
    dtype: ClassVar[type] = np.int64
    # First line of a file of predictions in the format of the default final project of Stanford's
    # CS 224N (evaluation.py); empty without such a file.
    header: ClassVar[str] = ""

    @property
    def names(self) -> Sequence[str]:
        """Names of the classes or labels; empty if they have none."""
        return getattr(self.spec, "labels", None) or ()

    def name_of(self, number: int) -> str:
        """Return the name of a class or label, or its number if it has none."""
        return str(self.names[number]) if number < len(self.names) else str(number)

    @property
    def label_range(self) -> tuple[float, float] | None:
        """Lowest and highest label; None if unknown."""
        return None

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        for metric in self.reported:
            if metric.module:  # one that is missing is found before the training
                from .evaluate_metrics import load_module

                load_module(metric.module)
        if isinstance(rows, Dataset):
            check_names(where, rows, self.names)
        if self.label_range is not None and isinstance(rows, Dataset):
            check_labels(where, rows, *self.label_range, are_whole=self.dtype is np.int64)

    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        return find_output(outputs, "logits").detach(), inputs.get("labels")

    @abstractmethod
    def decide(self, logits: Array) -> Array:
        """Turn logits (N, K) into predictions (N,) for a model that cannot decode them."""

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Predicted:
        labels = np.asarray(rows["labels"]) if self.is_labelled(rows) else None
        return Predicted(values, np.asarray((decode or self.decide)(values)), labels)

    def keep_labelled(self, outputs: Predicted) -> tuple[Predicted, NDArray[np.int64] | None]:
        """Leave out the rows whose label is -100, or all of whose labels are."""
        labels = np.asarray(outputs.labels)
        is_labelled = (labels != IGNORED_LABEL).any(axis=tuple(range(1, labels.ndim)))
        if is_labelled.all():
            return outputs, None
        rows = np.flatnonzero(is_labelled)
        logits = None if outputs.logits is None else np.asarray(outputs.logits)[rows]
        return Predicted(logits, outputs.predictions[rows], labels[rows]), rows

    def compute_metrics(self, outputs: Predicted) -> dict[str, float]:
        outputs, _ = self.keep_labelled(outputs)
        if not len(outputs.predictions):
            raise ValueError(
                f"task {self.task!r}: none of the rows has a label, they are all -100; evaluate "
                "rows with labels"
            )
        predictions: Array = outputs.predictions.astype(self.dtype)
        labels: Array = np.asarray(outputs.labels).astype(self.dtype)
        metrics = {}
        for metric in self.reported:
            value = metric.score(predictions, labels)
            if math.isnan(value) and not metric.lower_is_better:  # 0 would be the best error
                warn_undefined(metric.name)
                value = 0.0
            metrics[metric.name] = value or 0.0  # and not -0.0
        return metrics

    def standard_error(self, outputs: Predicted, metrics: Mapping[str, float]) -> float | None:
        if self.reported[0] is ACCURACY:
            return binomial_error(metrics[ACCURACY.name], self.count(outputs))
        predictions: Array = outputs.predictions.astype(self.dtype)
        return bootstrap(self.reported[0].score, predictions, np.asarray(outputs.labels))

    def count(self, outputs: Predicted) -> int:
        return len(outputs.predictions)

    @staticmethod
    def format_value(value: float) -> str:
        """Format a prediction; float32 prints the shortest digits that identify it."""
        return str(np.float32(value))

    def write(self, folder: Path, stem: str, outputs: Predicted, rows: Dataset) -> None:
        """Write ``id , prediction`` of each row, if the course has a file for the type."""
        if not self.header:
            return
        lines = [self.header]
        values = outputs.predictions.astype(float).tolist()
        for name, value in zip(rows["id"][:], values, strict=True):
            if not math.isfinite(value):
                raise ValueError(
                    f"the prediction of row {name!r} is {value}; expected a finite number"
                )
            lines.append(f"{name} , {self.format_value(value)} \n")
        write_text(folder / f"{stem}-output.csv", "".join(lines))

    def tabulate(self, outputs: Predicted) -> dict[str, list[str]]:
        columns = {}
        if outputs.labels is not None:
            columns["label"] = [
                self.format_label(x) if np.any(x != IGNORED_LABEL) else "" for x in outputs.labels
            ]
        columns["prediction"] = list(map(self.format_label, outputs.predictions))
        return columns

    @abstractmethod
    def format_label(self, value: Array) -> str:
        """Format a label or a prediction, () or (K,), for a reader."""

    @abstractmethod
    def find_errors(self, outputs: Predicted) -> tuple[Array, Array, Array]:
        """Return which rows are wrong, a number that is lowest for the worst, and a size, (N,)."""

    def list_errors(
        self,
        evaluated: Evaluated[Predicted],
        note: str,
        size: str = "probability",
        size_format: str = ".1%",
    ) -> list[Block]:
        """List the worst errors, with what their sizes are; nothing if there are none."""
        outputs = evaluated.outputs
        is_wrong, ranking, sizes = self.find_errors(outputs)
        worst = [row for row in np.argsort(ranking, kind="stable").tolist() if is_wrong[row]]
        rows = [
            Example(
                str(evaluated.rows[row]["id"]),
                quote(evaluated.texts, row),
                self.format_label(np.asarray(outputs.labels)[row]),
                self.format_label(outputs.predictions[row]),
                float(sizes[row]),
            )
            for row in worst[: evaluated.examples]
        ]
        return [Examples("Worst errors", rows, size, size_format, note)] if rows else []
