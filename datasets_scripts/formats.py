"""The formats of rows with several labels, numbers, or no label."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import datasets
import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase as Tokenizer

from .checking import errors_of
from .readers import Record, is_test, normalize_value, read_list, read_names, shorten
from .row_format import (
    IGNORED_LABEL,
    ClassificationFormat,
    Encoding,
    Feature,
    Row,
    SentenceFormat,
    check_classes,
    encode_rows,
    find_class,
    list_written,
    name_label,
    number_strata,
    parse_number,
    sort_labels,
    without_labels,
)

logger = logging.getLogger(__name__)

MISSING = float(IGNORED_LABEL)
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

    @property
    def label_type(self) -> Feature:
        number = datasets.Value("float32")
        count = len(self.targets)
        return datasets.List(number, length=count) if count > 1 else number

    def to_label(self, written: Any) -> Any:
        numbers = []
        texts = [written] if isinstance(written, str) else written
        for column, text in zip(self.targets, texts, strict=True):
            with errors_of(f"column {column!r}"):
                number = parse_number(text) if text else MISSING
                if abs(number) > LARGEST:
                    raise ValueError(
                        f"label {shorten(text)!r} is too large for float32; rescale the labels"
                    )
            numbers.append(NEAR_MISSING if text and number == MISSING else number)
        return numbers if len(numbers) > 1 else numbers[0]

    def check_split(self, rows: Dataset, problems: list[str], where: str, split: str) -> Dataset:
        labels = [label for label in rows["label"][:] if label is not None]
        # GLUE writes -1 for a secret label
        if is_test(split) and {-1.0} == {*np.ravel(labels)} - {MISSING}:
            return without_labels(rows)
        return rows

    def strata(self, rows: Dataset) -> NDArray[np.int64]:
        # rows are spread by the mean of their targets, each standardized
        labels = self._read_labels(rows)
        scaled: Any = (labels - labels.mean(axis=0)) / labels.std(axis=0)
        return number_strata(scaled.mean(axis=1).filled(0))

    def head_facts(self, train: Dataset | None) -> Row:
        """Add the names of the targets, and their mean and deviation over the training rows.

        Raises:
            ValueError: If no training row has a target, or all have the same.
        """
        facts = super().head_facts(train) | {"targets": self.targets}
        if train is None:
            count = len(self.targets)
            return facts | {"mean": [0.0] * count, "std": [1.0] * count}
        columns = [column.compressed() for column in self._read_labels(train).T]
        for name, column in zip(self.targets, columns, strict=True):
            if not len(column):
                raise ValueError(f"no training row has a number in column {name!r}; remove it")
            if column.std() <= LEAST_SPREAD * np.abs(column).max():
                raise ValueError(
                    f"column {name!r} is {column.mean():g} in all training rows, up to rounding, "
                    "so there is nothing to learn; choose another column, or subtract a constant "
                    "from it"
                )
        return facts | {
            "mean": [float(column.mean()) for column in columns],
            "std": [float(column.std()) for column in columns],
        }

    def _read_labels(self, rows: Dataset) -> Any:
        """Return the labels, (N, K), with a mask of the missing ones."""
        labels = np.asarray(rows["label"][:], dtype=np.float64).reshape(len(rows), -1)
        return np.ma.masked_equal(labels, MISSING)


SEPARATORS = ",;|/\t"  # that are usual between labels
NOT_NAMES = (
    "not names, but 0 or 1 for each label; write the names, or give label_columns with a column "
    "for each label"
)


@dataclass(frozen=True)
class MultiLabelFormat(ClassificationFormat):
    """Rows whose ``label`` has 1 for each of ``labels`` that the row has, else 0, (K,).

    ``label_column`` has lists of names or numbers, or text: names with ``label_separator`` between
    them, nothing for no label. Or ``label_columns`` are the labels, with 0 or 1 in each column.
    """

    written_type = ["string"]  # noqa: RUF012  (no value is changed)

    @property
    def separator(self) -> str:
        """What separates the labels of a row."""
        return self.data.label_separator or ","

    @property
    def label_type(self) -> Feature:
        return datasets.List(datasets.Value("float32"), length=len(self.labels or ()))

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        where, labels = self.data.where, self.labels or self.data.label_columns or self.declared
        written = list_written(splits["train"], "label")
        if labels is None:
            labels = sort_labels(filter(normalize_value, chain.from_iterable(written)))
            for other in SEPARATORS.replace(self.separator, ""):
                if whole := [name for name in labels if other in name]:
                    warning = (
                        f"{where}: the label {min(whole)!r} is one label, since label_separator is "
                        f"{self.separator!r}; if its labels are separated by {other!r}, give that "
                        "as label_separator"
                    )
                    logger.warning(warning)
        keys = f"label_column={self.data.label_column!r} and label_separator={self.separator!r}"
        check_classes(where, "labels", labels, keys)
        is_hot = [len(row) == len(labels) and {"0", "1"}.issuperset(row) for row in written]
        if self.data.label_columns is None and written and all(is_hot):
            raise ValueError(f"{where}: {self.data.label_column!r} has {NOT_NAMES}")
        return replace(self, labels=labels)

    def read_label(self, record: Record) -> list[str] | None:
        """Return the names of the labels of a row, or 0 or 1 for each of ``label_columns``."""
        if self.data.label_columns is not None or self.data.label_column is None:
            return super().read_label(record)
        value = record.values.get(self.data.label_column)
        if isinstance(value, str):
            listed = read_list(value)
            if listed is None:
                return list(filter(None, map(normalize_value, value.split(self.separator))))
            value = listed
        if isinstance(value, list):
            return list(map(name_label, value))
        text = name_label(value)
        return [text] if text else None

    def to_label(self, written: Any) -> list[float]:
        if self.data.label_columns is not None:
            numbers = list(map(parse_number, written))
            for column, number in zip(self.data.label_columns, numbers, strict=True):
                if number not in {0.0, 1.0}:
                    raise ValueError(f"column {column!r} has {number:g}; allowed are 0 and 1")
            return numbers
        if len(set(written)) < len(written) and {"0", "1"}.issuperset(written):
            raise ValueError(f"labels {written} are {NOT_NAMES}")
        present = set(map(super().to_label, written))
        return [float(number in present) for number, _ in enumerate(self.labels or ())]

    def check_split(self, rows: Dataset, problems: list[str], where: str, split: str) -> Dataset:
        # an empty column is no answer, but zeros of label_columns are
        if self.data.label_column is None or any(map(any, filter(None, rows["label"][:]))):
            return rows
        if is_test(split) or all(problems):
            return without_labels(rows)
        raise ValueError(
            f"{where}: none of its {len(rows)} rows has a label; only test rows may lack them"
        )

    def strata(self, rows: Dataset) -> NDArray[np.int64]:
        labels = np.asarray(rows["label"][:], np.bool_)
        return np.where(labels.any(axis=1), number_rarest(labels), labels.shape[1])

    def count_labels(self, rows: Dataset) -> list[int]:
        labels = np.asarray(rows["label"][:], np.int64).reshape(len(rows), -1)
        return labels.sum(axis=0).tolist()


@dataclass(frozen=True)
class MultiOutputFormat(SentenceFormat):
    """Rows whose ``label`` has the number of a class for each of ``label_columns``, (C,).

    A row may lack some of its C labels, which are -100 then, but not all. The classes of a column
    are those of the training rows.
    """

    classes: tuple[tuple[str, ...], ...] = ()  # of each column

    def read(self, path: str, split: str) -> Iterator[Record]:
        names = {column: read_names(path, column) or () for column in self.targets}
        for record in super().read(path, split):
            values = dict(record.values)
            for column, declared in names.items():
                number = values.get(column)
                if declared and isinstance(number, int):  # -1 is none
                    by_number = {-1: None, **dict(enumerate(declared))}
                    values[column] = by_number.get(number, number)
            yield replace(record, values=values)

    @property
    def label_type(self) -> Feature:
        return datasets.List(datasets.Value("int64"), length=len(self.targets))

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        written = list_written(splits["train"], "label")
        classes = []
        for column, labels in zip(self.targets, zip(*written, strict=True), strict=False):
            names = sort_labels(filter(None, labels))
            check_classes(self.data.where, "labels", names, f"column {column!r} of label_columns")
            classes.append(names)
        return replace(self, classes=tuple(classes))

    def to_label(self, written: Any) -> list[int]:
        numbers = []
        for column, label, names in zip(self.targets, written, self.classes, strict=True):
            with errors_of(f"column {column!r}"):
                numbers.append(find_class(label, names) if label else IGNORED_LABEL)
        return numbers

    def strata(self, rows: Dataset) -> NDArray[np.int64]:
        labels = np.asarray(rows["label"][:], np.int64)
        one_hot = [np.equal.outer(column, np.unique(column[column >= 0])) for column in labels.T]
        return number_rarest(np.concatenate(one_hot, axis=1))

    def head_facts(self, train: Dataset | None) -> Row:
        """Add the names of the classes of each column; those of unread rows stand in for them."""
        classes = self.classes or [("0", "1")] * len(self.targets)
        facts = {"outputs": self.targets, "classes": list(map(list, classes))}
        return super().head_facts(train) | facts


def number_rarest(present: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number the rarest label of each row, (N,), of whether rows have labels, (N, K).

    A row is drawn by that one, since frequent labels reach their share by themselves.
    """
    rarest: NDArray[np.int64] = np.where(present, present.sum(axis=0), len(present) + 1)
    return rarest.argmin(axis=1)


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    def unit_columns(self, rows: Dataset) -> tuple[str, ...]:
        return self.text_names[:2]  # pairs may have several negatives, a row for each

    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        return encode_rows(rows, tokenizer, encoding, is_contrastive=True)
