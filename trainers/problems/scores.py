"""Tasks whose labels are numbers: one or several of a row, and the similarity of a pair."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset

from trainers.data.rows import IGNORED_LABEL, Rows

from .base import Decode, Evaluated, LabelledProblem, Predicted, warn_undefined
from .blocks import Block, draw_scatter
from .metrics import (
    PEARSON,
    SPEARMAN,
    Array,
    Described,
    Metric,
    Score,
    as_matrix,
    describe_targets,
    mean_absolute_error,
    mean_over_targets,
    pearson,
    r2,
    root_mean_squared_error,
    spearman,
)

MOST_PLOTS = 12  # of more targets than this only the first ones are drawn
# R2 is the headline: it orders models as the squared error does, so it counts a wrong scale or
# offset, to which correlations are blind. But it has no unit: tasks and targets can be averaged,
# which a mean of errors in prices and in years could not be.
SCORES: dict[str, Score] = {
    "r2": r2,
    "rmse": root_mean_squared_error,
    "mae": mean_absolute_error,
    "pearson": pearson,
    "spearman": spearman,
}
ERRORS = ("rmse", "mae")


class Regression(LabelledProblem):
    """A number for each target of a row; metrics are means over the targets.

    Predictions and labels are in the units of the data, (N,), or (N, K) for several targets; a
    label of -100 is missing.
    """

    problem_type = "regression"
    spec: Any
    # an undefined one counts as 0, but for errors, of which 0 would be the best
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        Metric(
            name,
            partial(mean_over_targets, score, math.nan if name in ERRORS else 0.0),
            lower_is_better=name in ERRORS,
            is_rescaled=name in ("pearson", "spearman"),
        )
        for name, score in SCORES.items()
    )
    dtype = np.float64

    @property
    def names(self) -> Sequence[str]:
        return getattr(self.spec, "targets", None) or ("score",)

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        columns: Any = rows
        if columns.format["type"] is not None:
            return
        shapes = ((len(self.names),),) if self._has_several else ((), (1,))
        for number, row in enumerate(columns["labels"][:]):
            labels = np.asarray(row)
            is_number = labels.dtype.kind in "if" and np.isfinite(labels).all()
            if labels.shape not in shapes or not is_number:
                expected = f"{len(self.names)} numbers" if self._has_several else "a number"
                raise ValueError(
                    f"{where}, row {number}: the label of a {self.problem_type} is {expected}, "
                    f"-100 for none; got {row!r}"
                )

    @property
    def _has_several(self) -> bool:
        return len(self.names) > 1

    def decide(self, logits: Array) -> Array:
        return logits[:, 0] if logits.shape[1:] == (1,) else logits

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Predicted:
        found = super().collect(values, rows, decode)
        is_column = found.labels is not None and found.labels.shape[1:] == (1,)
        return found._replace(labels=found.labels[:, 0]) if is_column else found  # type: ignore[index]

    def describe_types(self, outputs: Predicted) -> list[Described] | None:
        """Return name, metrics and number of labels of each target; None for an undefined one."""
        if not self._has_several:
            return None
        labels = np.asarray(outputs.labels)
        targets = describe_targets(self.names, SCORES, outputs.predictions, labels)
        for target in targets:
            for name in SCORES:
                if target["labelled"] and target[name] is None:
                    warn_undefined(f"{name} of {target['name']}")
        return targets

    def tabulate(self, outputs: Predicted) -> dict[str, list[str]]:
        """Return a label, empty if it is missing, and a prediction for each target."""
        kinds = {"prediction": outputs.predictions}
        if outputs.labels is not None:
            labels = np.where(outputs.labels == IGNORED_LABEL, np.nan, outputs.labels)
            kinds = {"label": labels, **kinds}
        return {
            f"{name}_{kind}" if self._has_several else kind: [
                "" if np.isnan(value) else self.format_value(value)
                for value in as_matrix(values)[:, number]
            ]
            for number, name in enumerate(self.names)
            for kind, values in kinds.items()
        }

    def describe(self, evaluated: Evaluated[Predicted]) -> list[Block]:
        outputs = evaluated.outputs
        predictions, labels = as_matrix(outputs.predictions), as_matrix(np.asarray(outputs.labels))
        blocks: list[Block] = []
        for number, name in enumerate(self.names[:MOST_PLOTS]):
            kept = labels[:, number] != IGNORED_LABEL
            if kept.any():
                pairs = predictions[kept, number], labels[kept, number]
                title = "Predictions and labels" + (f" of {name}" if self._has_several else "")
                blocks.append(draw_scatter(title, *pairs))
        note = "The rows whose prediction is furthest from the label."
        if self._has_several:
            note = (
                "The rows whose predictions are furthest from the labels: the root mean square "
                "over the targets, in standard deviations of the training rows."
            )
        return [*blocks, *self.list_errors(evaluated, note, "off by", ".4g")]

    def find_errors(self, outputs: Predicted) -> tuple[Array, Array, Array]:
        """Rank rows by how far they are off; of several targets in standard deviations."""
        labels = as_matrix(np.asarray(outputs.labels))
        is_given = labels != IGNORED_LABEL
        errors = np.where(is_given, as_matrix(outputs.predictions) - labels, 0)
        if self._has_several:
            errors = errors / np.asarray((self.spec and self.spec.std) or 1.0)
        sizes = np.sqrt((errors**2).sum(axis=1) / np.maximum(is_given.sum(axis=1), 1))
        return sizes > 0, -sizes, sizes

    def format_label(self, value: Array) -> str:
        if not self._has_several:
            return f"{float(value):,.6g}"
        numbers = np.asarray(value, dtype=np.float64).tolist()
        return ", ".join(
            f"{name} {number:,.6g}"
            for name, number in zip(self.names, numbers, strict=True)
            if number != IGNORED_LABEL
        )


class Similarity(Regression):
    """A score for each pair."""

    problem_type = "similarity"
    metrics = (PEARSON, SPEARMAN)
    header = "id \t Predicted_Similiary \n"  # the misspelling is part of the format
    hub_task = "sentence-similarity"

    @property
    def label_range(self) -> tuple[float, float] | None:
        return getattr(self.spec, "score_range", None)

    def decide(self, logits: Array) -> Array:
        return logits[:, 0].astype(np.float64)

    def format_label(self, value: Array) -> str:
        return f"{float(value):.2f}"
