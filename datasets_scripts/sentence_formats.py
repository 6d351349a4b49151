"""The formats of rows with sentences: one, pairs, and what they are labeled with."""

import logging
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from modeling_minbert.texts import WINDOWS, DocumentWindows

from .checking import Columns, Text, option
from .encoding import count_cut, encode_rows
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
    Row,
    RowFormat,
    RowSource,
    add_id,
    check_classes,
    is_numeral,
    list_names,
    make_features,
    normalize_value,
)

# Sentences


UNDECIDED = "undecided"  # the problem of a row on which the annotators did not agree
NO_LABEL = "no label"  # that of a row that lacks one

UNLIMITED = 10**9  # tokens; more than any row has


@dataclass(frozen=True)
class SentenceFormat(RowFormat):
    """Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``."""

    has_unlabeled_rows = True
    row_type = "int64"  # of the label in rows
    loss_type = "float32"  # of the label in encoded rows

    @abstractmethod
    def parse_label(self, text: str) -> float | int:
        """Convert a label; the message of a ValueError is the problem of the row."""

    @property
    def text_names(self) -> tuple[str, ...]:
        return tuple(f"sentence{number}" for number, _ in enumerate(self.text_columns, start=1))

    @property
    def shared_names(self) -> tuple[str, ...]:
        return self.text_names if len(self.text_columns) > 1 else ()

    @property
    def features(self) -> datasets.Features:
        sentences = dict.fromkeys(self.text_names, "string")
        return make_features(
            id="string", **sentences, label=self.row_type, line="int64", problem="string"
        )

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        if is_test(split):
            file_format = replace(file_format, header=None)
        return read_records(path, self.required_columns(split), file_format=file_format)

    def to_row(self, record: Record, number: int, split: str) -> Row:
        texts, row_id, text_problem = self.read_texts(record)
        label, problem = self.find_label(record, split)
        if problem != UNDECIDED:
            problem = record.problem or ", ".join(filter(None, (text_problem, problem)))
            problem = add_id(problem, row_id)
        return {
            "id": row_id or str(number),
            **dict(zip(self.text_names, map(str.strip, texts), strict=True)),
            "label": None if problem else label,
            "line": record.line,
            "problem": problem,
        }

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        columns = [rows[name][:] for name in self.text_names]
        return (text for row in zip(*columns, strict=True) for text in row)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, label_type=self.loss_type, **options)

    def cut_share(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> float | None:
        texts = rows.select_columns(["id", *self.text_names])
        if options.get("truncation") == WINDOWS:
            return self._cut_share_of_windows(texts, tokenizer, **options)
        kept, whole = (
            _count_tokens(self.encode(texts, tokenizer, **options | {"max_length": length}))
            for length in (options["max_length"], UNLIMITED)
        )
        return 1 - kept / whole

    def _cut_share_of_windows(
        self,
        texts: datasets.Dataset,
        tokenizer: Any,
        *,
        pair_encoding: str | None,
        truncation: str,
        max_length: int,
        window_overlap: int,
        max_windows: int,
    ) -> float:
        """Return the share of the tokens that are in no window."""
        own: dict[str, Any] = {"pair_encoding": pair_encoding, "truncation": truncation}
        whole = self.encode(texts, tokenizer, max_length=UNLIMITED, **own)
        special = tokenizer.num_special_tokens_to_add(pair=False)
        windows = DocumentWindows(max_length, window_overlap, max_windows)
        lengths = [len(ids) for row in whole["input_ids"] for ids in row]
        return count_cut(windows, lengths, special) / sum(lengths)

    def find_label(self, record: Record, split: str) -> tuple[Any, str]:
        """Return the label of a record and an empty text, or None and the problem."""
        if self.label_column is None:
            return None, ""
        text = normalize_value(record.values.get(self.label_column))
        if text in self.undecided:
            return None, UNDECIDED
        try:
            if text:
                return self.parse_label(text), ""
            problem = NO_LABEL
        except ValueError as error:
            problem = str(error)
        # GLUE writes -1 where the label of a test row is kept secret
        return None, "" if is_test(split) and text in {"", "-1"} else problem


def _count_tokens(rows: datasets.Dataset) -> int:
    """Count the tokens of encoded rows, of one sequence each or of several."""
    ids = rows.data.column("input_ids").combine_chunks()
    while not pa.types.is_integer(ids.type):
        ids = ids.flatten()
    return len(ids)


def parse_number(text: str) -> float:
    """Convert a label to a number."""
    number = {"true": "1", "false": "0"}.get(text.lower(), text)
    if not is_numeral(number):
        raise ValueError(f"label {shorten(text)!r} is not a number")
    return float(number)


# Classes


@dataclass(frozen=True)
class ClassificationFormat(SentenceFormat):
    """Rows whose ``label`` is the number of a class."""

    problem_type = "classification"
    text_counts = (1, 2)
    own_keys = ("label_column", "labels")
    loss_type = "int64"

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        return self.labels or tuple(map(str, range(count)))

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        train = sources["train"]
        if self.labels is None:
            self._check_single(where, train)
        labels = self.labels or train.class_names(self) or infer_labels(train.labels(self))
        check_classes(where, "labels", labels, f"label_column={self.label_column!r}")
        return replace(self, labels=labels)

    def _check_single(self, where: str, train: RowSource) -> None:
        """Refuse lists of labels, whose text would become the name of a class."""
        for value in train.labels(self):
            if isinstance(value, list) or (isinstance(value, str) and is_list(value)):
                raise ValueError(
                    f"{where}: label_column={self.label_column!r} has lists of labels, such as "
                    f"{shorten(str(value))}; write problem_type: multi_label_classification, or "
                    "for one label a row its name alone"
                )

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        label: Any = values.get(self.label_column or "")
        has_names = names is not None and set(names) == set(self.labels or ())
        if names is not None and has_names and isinstance(label, int) and 0 <= label < len(names):
            values = {**values, str(self.label_column): names[label]}
        return Record(number + 1, values)

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


def infer_labels(values: Iterable[Any]) -> tuple[str, ...]:
    """List the distinct labels: numbers by size if all are numbers, else sorted as text."""
    labels = {text for value in values if (text := normalize_value(value))}
    if all(is_numeral(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


# Ordered classes


logger = logging.getLogger(__name__)


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
        if all(map(is_numeral, labels)):
            _check_numbers(where, labels)
        elif not is_declared:
            raise ValueError(
                f"{where}: the labels {list_names(labels)} are in no known order; give all of them "
                "from the lowest to the highest, as in labels: [bad, fair, good]"
            )
        return resolved


def _check_numbers(where: str, labels: Sequence[str]) -> None:
    """Check that labels that are numbers rise or fall, and warn about gaps."""
    steps = [float(after) - float(before) for before, after in pairwise(labels)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise ValueError(
            f"{where}: the labels {list_names(labels)} are numbers, but not all different and in "
            "order; give them from the lowest to the highest"
        )
    are_integers = all(float(label).is_integer() for label in labels)
    if are_integers and max(map(abs, steps)) > 1:
        logger.warning(
            "%s: the labels are %s, without some numbers between them; if these can be labels, "
            "too, give all labels from the lowest to the highest",
            where,
            list_names(labels),
        )


# Paraphrases


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


# Similarity


STRATA = 10  # ranges of scores with equal numbers of rows


@dataclass(frozen=True)
class SimilarityFormat(SentenceFormat):
    """Rows whose ``label`` is a score in ``score_range``."""

    problem_type = "similarity"
    text_counts = (2,)
    own_keys = ("label_column", "score_range")
    required_keys = ("text_columns", "label_column", "score_range")
    row_type = "float32"

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        scores = np.asarray(rows["label"])
        limits = np.quantile(scores, np.linspace(0, 1, STRATA + 1)[1:-1])
        return np.searchsorted(limits, scores, side="right")

    def parse_label(self, text: str) -> float:
        number = parse_number(text)
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= number <= high:
            raise ValueError(
                f"label {shorten(text)!r} is out of range; allowed is {low:g} to {high:g}"
            )
        return number


# Numbers


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

    label_columns: Columns = option((), of_type=True)

    problem_type = "regression"
    text_counts = (1, 2)
    required_keys = ("text_columns",)
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


# Several labels


SEPARATORS = (",", ";", "|", "/", "\t")  # that are usual between labels


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


# Pairs without labels


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    problem_type = "contrastive"
    has_unlabeled_rows = False  # none of its rows has a label
    text_counts = (1, 2, 3)
    own_keys = ()
    required_keys = ("text_columns",)

    def parse_label(self, text: str) -> float:
        raise ValueError(f"label {text!r}, but contrastive rows have none")

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, is_contrastive=True, **options)
