"""The formats of rows with sentences: one, pairs, and what they are labeled with."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Self

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from modeling_minbert.texts import WINDOWS

from .checking import Columns, Text, option
from .encoding import Encoding, Feature, Row, Types, count_cut, encode_rows
from .readers import (
    FileFormat,
    Record,
    describe_twins,
    find_twin,
    is_list,
    is_test,
    read_list,
    read_records,
    shorten,
)
from .row_format import (
    HeadFacts,
    RowFormat,
    RowSource,
    UndecidedError,
    check_classes,
    is_numeral,
    list_names,
    normalize_value,
)

logger = logging.getLogger(__name__)

UNLIMITED = 10**9  # tokens; more than any row has


@dataclass(frozen=True)
class SentenceFormat(RowFormat):
    """Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``."""

    has_unlabeled_rows = True

    def parse_label(self, text: str) -> float | int:
        """Convert a label; the message of a ValueError is the problem of the row."""
        raise NotImplementedError

    def label_types(self) -> tuple[Feature, Feature]:
        """Return the types of the label in rows, and in encoded rows."""
        return "int64", "float32"

    @property
    def text_names(self) -> tuple[str, ...]:
        return tuple(f"sentence{number}" for number, _ in enumerate(self.text_columns, start=1))

    @property
    def columns(self) -> Types:
        names = (f"sentence{number}" for number, _ in enumerate(self.text_columns, start=1))
        return {**dict.fromkeys(names, "string"), "label": self.label_types()[0]}

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        if is_test(split):
            file_format = replace(file_format, header=None)
        return read_records(path, self.required_columns(split), file_format=file_format)

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        return {"label": self.read_label(record, split)}

    def read_label(self, record: Record, split: str) -> Any:
        """Return the label of a record, None without; errors as of ``parse_label``."""
        if self.label_column is None:
            return None
        text = normalize_value(record.values.get(self.label_column))
        if text in self.undecided:
            raise UndecidedError
        # GLUE writes -1 where the label of a test row is kept secret
        is_secret = is_test(split) and text in {"", "-1"}
        if not text and not is_secret:
            raise ValueError("no label")
        try:
            return self.parse_label(text)
        except ValueError:
            if is_secret:
                return None
            raise

    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, encoding, label_type=self.label_types()[1])

    def cut_share(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> float | None:
        texts = rows.select_columns(["id", *self.text_names])
        whole = self.encode(texts, tokenizer, replace(encoding, max_length=UNLIMITED))
        lengths = [
            len(sequence)
            for ids in whole["input_ids"]
            for sequence in (ids if isinstance(ids[0], list) else [ids])
        ]
        if encoding.truncation == WINDOWS:
            special = tokenizer.num_special_tokens_to_add(pair=False)
            cut = count_cut(encoding, lengths, special)
        else:
            cut = sum(max(0, length - encoding.max_length) for length in lengths)
        return cut / sum(lengths)


def parse_number(text: str) -> float:
    """Convert a label to a number."""
    number = {"true": "1", "false": "0"}.get(text.lower(), text)
    if not is_numeral(number):
        raise ValueError(f"label {shorten(text)!r} is not a number")
    return float(number)


@dataclass(frozen=True)
class ClassificationFormat(SentenceFormat):
    """Rows whose ``label`` is the number of a class."""

    problem_type = "classification"
    text_counts = (1, 2)
    own_keys = ("label_column", "labels")

    def label_types(self) -> tuple[Feature, Feature]:
        return "int64", "int64"

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        return self.labels or tuple(map(str, range(count)))

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        labels = self.labels or sources["train"].class_names(self)
        labels = labels or infer_labels(self._read_single(where, sources["train"]))
        check_classes(where, "labels", labels, f"label_column={self.label_column!r}")
        return replace(self, labels=labels)

    def _read_single(self, where: str, train: RowSource) -> Iterator[object]:
        """Read labels, but no lists of them, whose text would become the name of a class."""
        for value in train.labels(self):
            if isinstance(value, list) or (isinstance(value, str) and is_list(value)):
                raise ValueError(
                    f"{where}: label_column={self.label_column!r} has lists of labels, such as "
                    f"{shorten(str(value))}; write problem_type: multi_label_classification, or "
                    "for one label a row its name alone"
                )
            yield value

    def parse_label(self, text: str) -> int:
        labels = self.labels or ()
        if text in labels:
            return labels.index(text)
        # numbers stand for names only if no name could be confused with one
        has_numbers = not any(is_numeral(label) for label in labels)
        if has_numbers and text in map(str, range(len(labels))):
            return int(text)
        if twin := find_twin(text, labels):
            raise ValueError(f"the labels {describe_twins(text, twin)}")
        known = list_names(labels)
        known += f" or their numbers 0 to {len(labels) - 1}" if has_numbers else ""
        raise ValueError(f"label {shorten(text)!r} is not among the labels {known}")


def infer_labels(values: Iterable[object]) -> tuple[str, ...]:
    """List the distinct labels: numbers by size if all are numbers, else sorted as text."""
    labels = {text for value in values if (text := normalize_value(value))}
    if all(is_numeral(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


@dataclass(frozen=True)
class OrdinalFormat(ClassificationFormat):
    """Rows whose ``label`` is the number of an ordered class, 0 for the lowest.

    The order is that of ``labels``, or of the names that a dataset declares; numbers are ordered by
    size.
    """

    problem_type = "ordinal"

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        resolved = super().resolve(where, sources)
        labels = resolved.labels or ()
        is_declared = self.labels is not None or sources["train"].class_names(self) is not None
        if not all(map(is_numeral, labels)):
            if is_declared:
                return resolved
            raise ValueError(
                f"{where}: the labels {list_names(labels)} are in no known order; give all of them "
                "from the lowest to the highest, as in labels: [bad, fair, good]"
            )
        steps = [float(after) - float(before) for before, after in pairwise(labels)]
        if min(steps) * max(steps) <= 0:
            raise ValueError(
                f"{where}: the labels {list_names(labels)} are numbers, but not all different and "
                "in order; give them from the lowest to the highest"
            )
        if all(float(label).is_integer() for label in labels) and max(map(abs, steps)) > 1:
            logger.warning(
                "%s: the labels are %s, without some numbers between them; if these can be labels, "
                "too, give all labels from the lowest to the highest",
                where,
                list_names(labels),
            )
        return resolved


@dataclass(frozen=True)
class ParaphraseFormat(SentenceFormat):
    """Rows whose ``label`` is 0 or 1."""

    problem_type = "paraphrase"
    text_counts = (2,)

    @property
    def class_names(self) -> tuple[str, ...]:
        return ("0", "1")

    def parse_label(self, text: str) -> int:
        number = parse_number(text)
        if number not in {0.0, 1.0}:
            raise ValueError(f"label {shorten(text)!r} is out of range; allowed are 0 and 1")
        return int(number)


# Scores and numbers


STRATA = 10  # ranges of scores with equal numbers of rows
MISSING = -100.0  # a label that the loss and the metrics leave out
# A target that happens to be -100 is stored as its neighbor in float32, to differ from `MISSING`.
NEAR_MISSING = float(np.nextafter(np.float32(MISSING), np.float32(0)))
LARGEST = float(np.finfo(np.float32).max)
# Targets that differ less, in parts of their size, are equal in float32 up to a few digits.
LEAST_SPREAD = 1e-6


def _number_strata(scores: NDArray[Any]) -> NDArray[np.int64]:
    """Number the ranges of scores, (N,), that have equal numbers of rows."""
    limits = np.quantile(scores, np.linspace(0, 1, STRATA + 1)[1:-1])
    return np.asarray(np.searchsorted(limits, scores, side="right"), np.int64)


@dataclass(frozen=True)
class SimilarityFormat(SentenceFormat):
    """Rows whose ``label`` is a score in ``score_range``."""

    problem_type = "similarity"
    text_counts = (2,)
    own_keys = ("label_column", "score_range")
    required_keys = ("text_columns", "label_column", "score_range")

    def label_types(self) -> tuple[Feature, Feature]:
        return "float32", "float32"

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        return _number_strata(np.asarray(rows["label"]))

    def parse_label(self, text: str) -> float:
        number = parse_number(text)
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= number <= high:
            raise ValueError(
                f"label {shorten(text)!r} is out of range; allowed is {low:g} to {high:g}"
            )
        return number


@dataclass(frozen=True)
class RegressionFormat(SentenceFormat):
    """Rows whose ``label`` is a number, or one for each of ``label_columns``, (K,).

    A row may lack some of its K numbers, which are -100 then, but not all.
    """

    label_columns: Columns = option((), of_type=True)

    problem_type = "regression"
    text_counts = (1, 2)
    required_keys = ("text_columns",)

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the numbers, (K,)."""
        return self.label_columns or (str(self.label_column),)

    def label_types(self) -> tuple[Feature, Feature]:
        value = datasets.Value("float32")
        several = len(self.targets) > 1
        kind = datasets.List(value, length=len(self.targets)) if several else value
        return kind, kind

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

    def read_label(self, record: Record, split: str) -> Any:
        numbers = []
        for column in self.targets:
            text = normalize_value(record.values.get(column))
            try:
                numbers.append(self.parse_label(text) if text else MISSING)
            except ValueError as error:
                raise ValueError(f"column {column!r}: {error}") from None
        if set(numbers) == {MISSING}:
            if is_test(split):
                return None
            raise ValueError("no label")
        return numbers if len(numbers) > 1 else numbers[0]

    def parse_label(self, text: str) -> float:
        number = parse_number(text)
        if abs(number) > LARGEST:
            raise ValueError(
                f"label {shorten(text)!r} is too large for float32; rescale the labels"
            )
        return NEAR_MISSING if number == MISSING else number

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        # rows are spread by the mean of their targets, each standardized
        labels = self._read_labels(rows)
        scaled: Any = (labels - labels.mean(axis=0)) / labels.std(axis=0)
        return _number_strata(scaled.mean(axis=1).filled(0))

    def head_facts(self, train: datasets.Dataset | None) -> HeadFacts:
        """Add the names of the targets, and their mean and deviation over the training rows.

        Raises:
            ValueError: If no training row has a target, or all have the same.
        """
        facts = super().head_facts(train) | {"targets": self.targets}
        if train is None:
            return facts | {"mean": [0.0] * len(self.targets), "std": [1.0] * len(self.targets)}
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

    def _read_labels(self, rows: datasets.Dataset) -> Any:
        """Return the labels, (N, K), with a mask of the missing ones."""
        labels = np.asarray(rows["label"], dtype=np.float64).reshape(len(rows), -1)
        return np.ma.masked_equal(labels, MISSING)


# Several labels


SEPARATORS = ",;|/\t"  # that are usual between labels


@dataclass(frozen=True)
class MultiLabelFormat(ClassificationFormat):
    """Rows whose ``label`` has 1 for each of ``labels`` that the row has, else 0, (K,).

    ``label_column`` has lists of names or numbers, or text: names with ``label_separator`` between
    them, nothing for no label. Or ``label_columns`` are the labels, with 0 or 1 in each column.
    """

    label_separator: Text = option(",", of_type=True)
    label_columns: Columns = option((), of_type=True)

    problem_type = "multi_label_classification"
    required_keys = ("text_columns",)

    def label_types(self) -> tuple[Feature, Feature]:
        kind = datasets.List(datasets.Value("float32"), length=len(self.labels or ()))
        return kind, kind

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
        """List the labels of the training rows; warn if one contains a usual separator."""
        rows: list[list[str]] = []
        for value in train.labels(self):
            with suppress(ValueError):  # of an invalid row, which is reported later
                rows.append(self._split(value) or [])
        labels = set(chain.from_iterable(rows))
        is_split = any(len(names) > 1 for names in rows)
        for other in SEPARATORS.replace(self.label_separator, ""):
            # a label may contain the character, but not together with other labels
            whole = [
                name
                for name in labels
                if other in name
                if not is_split or labels.issuperset(map(str.strip, name.split(other)))
            ]
            if whole:
                logger.warning(
                    "%s: the label %r is one label, since label_separator is %r; if its labels are "
                    "separated by %r, give that as label_separator",
                    where,
                    min(whole),
                    self.label_separator,
                    other,
                )
        return infer_labels(labels)

    def read_label(self, record: Record, split: str) -> list[float] | None:
        if self.label_columns:
            texts = [normalize_value(record.values.get(column)) for column in self.label_columns]
            if is_test(split) and set(texts) <= {"", "-1"}:  # kept secret
                return None
            numbers = [parse_number(text) for text in texts]
            for column, number in zip(self.label_columns, numbers, strict=True):
                if number not in {0.0, 1.0}:
                    raise ValueError(f"column {column!r} has {number:g}; allowed are 0 and 1")
            return numbers
        names = self._split(record.values.get(str(self.label_column)))
        if names is None:
            if is_test(split):
                return None
            raise ValueError("no label")
        if len(set(names)) < len(names) and {"0", "1"}.issuperset(names):
            raise ValueError(
                f"labels {names} are not names, but 0 or 1 for each label; write the names, or "
                "give label_columns with a column for each label"
            )
        present = {self.parse_label(name) for name in names}
        return [float(number in present) for number, _ in enumerate(self.labels or ())]

    def _split(self, value: object) -> list[str] | None:
        """Return the labels of a row as they are written; None if they are missing."""
        if isinstance(value, str) and (listed := read_list(value)) is not None:
            value = listed
        if isinstance(value, list):
            return [normalize_value(label) for label in value]
        if isinstance(value, str):
            return [name for label in value.split(self.label_separator) if (name := label.strip())]
        return [text] if (text := normalize_value(value)) else None

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        # a row is drawn by its rarest label, since frequent ones reach their share by themselves
        labels = np.asarray(rows["label"], np.int64)
        rarest = np.where(labels, labels.sum(axis=0), len(rows) + 1).argmin(axis=1)
        return np.where(labels.any(axis=1), rarest, labels.shape[1])

    def count_labels(self, rows: datasets.Dataset) -> list[int]:
        labels = np.asarray(rows["label"], np.int64).reshape(len(rows), -1)
        return labels.sum(axis=0).tolist()


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    problem_type = "contrastive"
    has_unlabeled_rows = False  # none of its rows has a label
    text_counts = (1, 2, 3)
    own_keys = ()
    required_keys = ("text_columns",)

    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, encoding, is_contrastive=True)
