"""Sentences or pairs of them, each with any number of labels."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.readers import Record
from datasets_scripts.files.splits import is_test
from datasets_scripts.files.values import Converter, read_list, to_columns, to_text

from .classification import ClassificationFormat, infer_labels
from .encoding.sequences import encode_rows
from .row_format import Row, RowSource, check_classes, normalize_value
from .sentences import NO_LABEL, parse_number

logger = logging.getLogger(__name__)

SEPARATORS = (",", ";", "|", "/", "\t")  # that are usual between labels


@dataclass(frozen=True)
class MultiLabelFormat(ClassificationFormat):
    """Rows whose ``label`` has 1 for each of ``labels`` that the row has, else 0, (K,).

    ``label_column`` has lists of names or numbers, or text: names with ``label_separator`` between
    them, nothing for no label. Or ``label_columns`` are the labels, with 0 or 1 in each column.
    """

    label_separator: str = ","
    label_columns: tuple[str, ...] = ()

    problem_type = "multi_label_classification"
    has_classes = False  # a row has no single class to be drawn by
    required_keys = ("text_columns",)
    options: ClassVar[Mapping[str, Converter]] = {
        "label_separator": to_text,
        "label_columns": to_columns,
    }

    @property
    def features(self) -> datasets.Features:
        return datasets.Features({**super().features, "label": self._vector_type})

    def required_columns(self, split: str) -> tuple[str, ...]:
        labels = () if is_test(split) else self.label_columns
        return (*super().required_columns(split), *labels)

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        if bool(self.label_columns) == (self.label_column is not None):
            raise ValueError(
                f"{where}: give either label_column, with the labels of a row, or label_columns, "
                "with 0 or 1 for one label each"
            )
        if self.labels and self.label_columns:
            raise ValueError(f"{where}: the label_columns are the labels; remove labels")
        train = sources["train"]
        labels = self.labels or self.label_columns or train.class_names(self)
        labels = labels or self._infer_labels(where, train)
        keys = f"label_column={self.label_column!r} and label_separator={self.label_separator!r}"
        check_classes(where, "labels", labels, keys)
        return replace(self, labels=labels)

    def _infer_labels(self, where: str, train: RowSource) -> tuple[str, ...]:
        """List the labels of the training rows."""
        given: set[str] = set()
        is_split = False
        for record in train.read(self):
            if self.read_texts(record)[2]:
                continue  # the row is skipped, whatever its labels
            try:
                names = self._split(record) or []
            except ValueError:  # of an invalid row, which is reported later
                continue
            given.update(names)
            is_split = is_split or len(names) > 1
        self._check_separator(where, given, is_split=is_split)
        return infer_labels(given)

    def _check_separator(self, where: str, given: set[str], *, is_split: bool) -> None:
        """Warn about labels that contain a usual separator."""
        for other in SEPARATORS:
            parts = {
                name: [part.strip() for part in name.split(other)]
                for name in given
                if other in name and other != self.label_separator
            }
            # a label may contain the character, but not together with other labels
            if whole := [name for name in parts if not is_split or given.issuperset(parts[name])]:
                logger.warning(
                    "%s: the label %r is one label, since label_separator is %r; if its labels are "
                    "separated by %r, give that as label_separator",
                    where,
                    min(whole),
                    self.label_separator,
                    other,
                )

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        given = values.get(self.label_column or "")
        if names is not None and isinstance(given, list):
            known = dict(enumerate(names))
            values = {**values, str(self.label_column): [known.get(one, one) for one in given]}
        return Record(number + 1, values)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, label_type=self._vector_type, **options)

    def find_label(self, record: Record, split: str) -> tuple[list[float] | None, str]:
        try:
            vector = self._read_columns(record, split) if self.label_columns else self._read(record)
        except ValueError as error:
            return None, str(error)
        return vector, "" if vector is not None or is_test(split) else NO_LABEL

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        # a row is drawn by its rarest label, since frequent ones reach their share by themselves
        given = np.asarray(rows["label"], np.int64)
        rarest = np.where(given, given.sum(axis=0), len(rows) + 1).argmin(axis=1)
        return np.where(given.any(axis=1), rarest, given.shape[1])

    def example_labels(self) -> list[Any]:
        return np.eye(len(self.labels or ())).tolist()

    def count_labels(self, rows: datasets.Dataset) -> list[int]:
        labels = np.asarray(rows["label"], np.int64).reshape(len(rows), -1)
        return labels.sum(axis=0).tolist()

    @property
    def _vector_type(self) -> datasets.List:
        return datasets.List(datasets.Value("float32"), length=len(self.labels or ()))

    def _split(self, record: Record) -> list[str] | None:
        """Return the labels of a row as they are written; None if they are missing."""
        value = record.values.get(str(self.label_column))
        if isinstance(value, str) and (listed := read_list(value)) is not None:
            value = listed
        if isinstance(value, list):
            return [normalize_value(one) for one in value]
        if isinstance(value, str):
            return [name for one in value.split(self.label_separator) if (name := one.strip())]
        return [text] if (text := normalize_value(value)) else None

    def _read(self, record: Record) -> list[float] | None:
        names = self._split(record)
        if names is None:
            return None
        if len(set(names)) < len(names) and {"0", "1"}.issuperset(names):
            raise ValueError(
                f"labels {names} are not names, but 0 or 1 for each label; write the names, or "
                "give label_columns with a column for each label"
            )
        given = {self.parse_label(name) for name in names}
        return [float(number in given) for number, _ in enumerate(self.labels or ())]

    def _read_columns(self, record: Record, split: str) -> list[float] | None:
        texts = [normalize_value(record.values.get(column)) for column in self.label_columns]
        if is_test(split) and set(texts) <= {"", "-1"}:  # kept secret
            return None
        numbers = [parse_number(text) for text in texts]
        for column, number in zip(self.label_columns, numbers, strict=True):
            if number not in {0.0, 1.0}:
                raise ValueError(f"column {column!r} has {number:g}; allowed are 0 and 1")
        return numbers
