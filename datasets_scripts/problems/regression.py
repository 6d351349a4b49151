"""Sentences or pairs of them, each with one or several numbers to predict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.readers import Record, shorten
from datasets_scripts.files.splits import is_test
from datasets_scripts.files.values import Converter, to_columns

from .encoding.sequences import encode_rows
from .row_format import RowSource, normalize_value
from .sentences import NO_LABEL, SentenceFormat, parse_number
from .similarity import STRATA

MISSING = -100.0  # a label that the loss and the metrics leave out
# A target that happens to be -100 is stored as its neighbor in float32, to differ from `MISSING`.
NEAR_MISSING = float(np.nextafter(np.float32(MISSING), np.float32(0)))
LARGEST = float(np.finfo(np.float32).max)
# Targets that differ less, in parts of their size, are equal in float32 up to a few digits.
LEAST_SPREAD = 1e-6


@dataclass(frozen=True)
class RegressionFormat(SentenceFormat):
    """Rows whose ``label`` is a number, or one for each of ``label_columns``, (K,).

    A row may lack some of its K numbers, which are -100 then, but not all.
    """

    label_columns: tuple[str, ...] = ()

    problem_type = "regression"
    text_counts = (1, 2)
    required_keys = ("text_columns",)
    options: ClassVar[Mapping[str, Converter]] = {"label_columns": to_columns}
    row_type = "float32"

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the numbers, (K,)."""
        return self.label_columns or (str(self.label_column),)

    @property
    def features(self) -> datasets.Features:
        return datasets.Features({**super().features, "label": self._label_type})

    def required_columns(self, split: str) -> tuple[str, ...]:
        labels = () if is_test(split) else self.label_columns
        return (*super().required_columns(split), *labels)

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        if bool(self.label_columns) == (self.label_column is not None):
            raise ValueError(
                f"{where}: give either label_column, the column of the number to predict, or "
                "label_columns, a list of several"
            )
        return self

    def find_label(self, record: Record, split: str) -> tuple[Any, str]:
        try:
            numbers = [self._read_number(record, column) for column in self.targets]
        except ValueError as error:
            return None, str(error)
        if set(numbers) == {MISSING}:
            return None, "" if is_test(split) else NO_LABEL
        return (numbers if self._has_several else numbers[0]), ""

    def parse_label(self, text: str) -> float:
        number = parse_number(text)
        if abs(number) > LARGEST:
            raise ValueError(
                f"label {shorten(text)!r} is too large for float32; rescale the labels"
            )
        return NEAR_MISSING if number == MISSING else number

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, label_type=self._label_type, **options)

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        # rows are spread by the mean of their targets, each standardized
        labels = self._read_labels(rows)
        scaled: Any = (labels - labels.mean(axis=0)) / labels.std(axis=0)
        means: NDArray[np.float64] = scaled.mean(axis=1).filled(0)
        limits = np.quantile(means, np.linspace(0, 1, STRATA + 1)[1:-1])
        return np.asarray(np.searchsorted(limits, means, side="right"), np.int64)

    def head_facts(self, train: datasets.Dataset) -> dict[str, Any]:
        """Add the names of the targets, and their mean and deviation over the training rows.

        Raises:
            ValueError: If no training row has a target, or all have the same.
        """
        facts = super().head_facts(train) | {"targets": self.targets}
        if not len(train):  # rows that have not been read
            return facts | {"mean": [0.0] * len(self.targets), "std": [1.0] * len(self.targets)}
        columns = [column.compressed() for column in self._read_labels(train).T]
        for name, column in zip(self.targets, columns, strict=True):
            _check_spread(name, column)
        return facts | {
            "mean": [float(column.mean()) for column in columns],
            "std": [float(column.std()) for column in columns],
        }

    @property
    def _has_several(self) -> bool:
        return len(self.targets) > 1

    @property
    def _label_type(self) -> Any:
        value = datasets.Value("float32")
        return datasets.List(value, length=len(self.targets)) if self._has_several else value

    def _read_number(self, record: Record, column: str) -> float:
        text = normalize_value(record.values.get(column))
        if not text:
            return MISSING
        try:
            return self.parse_label(text)
        except ValueError as error:
            raise ValueError(f"column {column!r}: {error}") from None

    def _read_labels(self, rows: datasets.Dataset) -> Any:
        """Return the labels, (N, K), with a mask of the missing ones."""
        labels = np.asarray(rows["label"], dtype=np.float64).reshape(len(rows), -1)
        return np.ma.masked_equal(labels, MISSING)


def _check_spread(name: str, values: NDArray[np.float64]) -> None:
    """Check that a target has different values."""
    if not len(values):
        raise ValueError(f"no training row has a number in column {name!r}; remove it")
    if values.std() <= LEAST_SPREAD * np.abs(values).max():
        raise ValueError(
            f"column {name!r} is {values.mean():g} in all training rows, up to rounding, so there "
            "is nothing to learn; choose another column, or subtract a constant from it"
        )
