"""The interface of the formats of rows, one for each problem type."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from modeling_minbert import TASKS

from .checking import key_types, keys_with
from .encoding import Encoding, Row, Types, make_features
from .readers import FILE_SUFFIXES, PLAIN_FORMAT, FileFormat, Record, is_blank, is_test, shorten

HeadFacts = Row  # what a head depends on, by name

LINE_ENDS = re.compile(r"[\r\n]+")
MAX_NAMES = 20  # labels in a message
UNDECIDED = "undecided"  # the problem of a row on which the annotators did not agree


class UndecidedError(ValueError):
    """The annotators of a row did not agree."""


class LineError(ValueError):
    """What is wrong with a row, in one of its lines."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(frozen=True)
class RowSource:
    """The rows of a split before they are converted: a file, or a dataset."""

    name: str  # path of the file, or ``hub_id:split``
    split: str
    file_format: FileFormat = PLAIN_FORMAT
    rows: datasets.Dataset | None = None  # of the Hub or a sample; None for a file

    def read(self, row_format: "RowFormat") -> Iterator[Record]:
        """Read the records, including invalid ones."""
        if self.rows is None:
            return row_format.read(self.name, self.split, self.file_format)
        names = self.class_names(row_format)
        records = (Record(number, values) for number, values in enumerate(self.rows, start=1))
        return (row_format.from_hub(record, names) for record in records)

    def labels(self, row_format: "RowFormat") -> Iterable[object]:
        """Return the labels of the rows with valid texts, as they are written."""
        column = str(row_format.label_column)
        return (
            record.values.get(column)
            for record in self.read(row_format)
            if not row_format.read_texts(record)[2]
        )

    def class_names(self, row_format: "RowFormat") -> tuple[str, ...] | None:
        """Return the names of the classes, or of tags, that the label column declares."""
        feature = None if self.rows is None else self.rows.features.get(row_format.label_column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return None if names is None else tuple(names)


@dataclass(frozen=True)
class RowFormat(ABC):
    """How the records of a task become rows, and its rows tokens.

    Args:
        text_columns: Columns of the texts.
        label_column: Column of the label; None without labels.
        id_column: Column of the row id; None uses a column ``id``, else the number of the row.
        labels: Names of the classes.
        score_range: Lowest and highest score.
        undecided: Labels of rows on which the annotators did not agree.
    """

    text_columns: tuple[str, ...]
    label_column: str | None = None
    id_column: str | None = None
    labels: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    undecided: tuple[str, ...] = ()

    problem_type: ClassVar[str]
    text_counts: ClassVar[tuple[int, ...]]
    # Whether a task may have training rows without labels, for which it has a teacher.
    has_unlabeled_rows: ClassVar[bool] = False
    # Keys of a recipe that not every problem type has, and those that it must give.
    own_keys: ClassVar[tuple[str, ...]] = ("label_column",)
    required_keys: ClassVar[tuple[str, ...]] = ("text_columns", "label_column")
    # The required keys of rows of the Hub, if they differ.
    hub_keys: ClassVar[tuple[str, ...]] = ()
    # Values of keys that a recipe may leave out.
    default_keys: ClassVar[Mapping[str, Any]] = {}
    # None reads files with any suffix.
    file_suffixes: ClassVar[tuple[str, ...] | None] = FILE_SUFFIXES
    label_name: ClassVar[str] = "label"

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the types of its options: keys of a recipe that not all problem types have."""
        return {name: key_types(cls)[name] for name in keys_with(cls, "of_type")}

    @property
    @abstractmethod
    def columns(self) -> Types:
        """The columns of its rows beside ``id``, and their types, as of `make_features`."""

    @property
    @abstractmethod
    def text_names(self) -> tuple[str, ...]:
        """Columns of the rows that hold their texts, or their words."""

    @abstractmethod
    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        """Read the records of a file, including invalid ones.

        Raises:
            ValueError: If the file has another format, or a column is missing.
            FileNotFoundError: If the file does not exist.
        """

    @abstractmethod
    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        """Return the columns of a row but its texts; a ValueError says why it is invalid."""

    @abstractmethod
    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        """Tokenize rows; padding and masks are left to the collator."""

    @property
    def features(self) -> datasets.Features:
        """Columns of the rows; ``line`` and ``problem`` are where and why a row is invalid."""
        return make_features(id="string", **self.columns, line="int64", problem="string")

    def to_row(self, record: Record, number: int, split: str) -> Row:
        """Convert a record.

        Args:
            record: The record.
            number: Number of the record in its split, from 0.
            split: Its split; a test row may have no label.

        Returns:
            A row with ``features``; ``problem`` is empty if the row is valid.
        """
        texts, row_id, problem = self.read_texts(record)
        row: Row = dict(zip(self.text_names, map(str.strip, texts), strict=False))
        line = record.line
        if not record.problem:
            try:
                parsed = self.parse(record, texts, split)
                row |= parsed if not problem else {}
            except UndecidedError:
                return {"id": str(number), **row, "line": line, "problem": UNDECIDED}
            except ValueError as error:
                problem = ", ".join(filter(None, (problem, str(error))))
                line = error.line if isinstance(error, LineError) else line
        if problem and row_id:
            problem += f" (id {row_id})"
        return {"id": row_id or str(number), **row, "line": line, "problem": problem}

    def read_texts(self, record: Record) -> tuple[list[str], str, str]:
        """Return the texts of a record, empty where they are none, its id, and what is wrong."""
        values = [record.values.get(column) for column in self.text_columns]
        # an id is on one line of a prediction file
        row_id = LINE_ENDS.sub(" ", normalize_value(record.values.get(self.id_column or "id")))
        problem = record.problem
        if not problem:
            places = [f"column {column!r}" for column in self.text_columns]
            problem = find_text_problem(values, places)
        return [text if isinstance(text, str) else "" for text in values], row_id, problem

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        """Yield the texts of all rows, row by row."""
        columns = [rows[name][:] for name in self.text_names]
        for row in zip(*columns, strict=True):
            for value in row:
                yield from value if isinstance(value, list) else (value,)

    def cut_share(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> float | None:
        """Return the share of the tokens of rows that `encode` cuts; None if it keeps all."""
        return None

    def required_columns(self, split: str) -> tuple[str, ...]:
        """Return the columns that a split must have; test rows need no label."""
        label = () if is_test(split) or self.label_column is None else (self.label_column,)
        ids = () if self.id_column is None else (self.id_column,)
        return (*self.text_columns, *label, *ids)

    def from_hub(self, record: Record, names: tuple[str, ...] | None) -> Record:
        """Name the label, or the labels, of a row of the Hub, which are numbers there.

        Args:
            record: The row.
            names: Names of the classes that the label column declares.
        """
        # as many other labels of a recipe are new names of the declared ones
        is_renamed = self.labels and names and len(self.labels) == len(names)
        if not names or (is_renamed and set(self.labels or ()) != set(names)):
            return record
        column, known = str(self.label_column), dict(enumerate(names))
        label = record.values.get(column)
        if isinstance(label, list):
            label = [known.get(number, number) for number in label]
        else:
            label = known.get(label, label)  # type: ignore[arg-type]
        return Record(record.line, {**record.values, column: label})

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        """Complete the format from the rows, for example with the names of the classes.

        Args:
            where: Owner of the rows, for messages.
            sources: Rows by split.

        Raises:
            ValueError: If they contradict the recipe, or cannot be learned from.
        """
        return self

    def check_split(self, rows: datasets.Dataset, where: str, split: str) -> datasets.Dataset:
        """Check all rows of a split, valid or not; returns them with more problems marked.

        Raises:
            ValueError: If the split cannot be used at all.
        """
        return rows

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        """Number the strata that training and validation rows are drawn from, (N,)."""
        if not self.has_classes:
            return np.zeros(len(rows), np.int64)
        return np.asarray(rows[self.label_name], np.int64)

    def unit_columns(self, rows: datasets.Dataset) -> tuple[str, ...]:
        """Return the columns in which rows are equal that are held out together or not at all."""
        return self.text_names

    @property
    def has_classes(self) -> bool:
        """Whether rows can be drawn and counted by class."""
        return TASKS[self.problem_type].has_classes

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """Names of the classes or tags; None without."""
        return self.labels

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes that rows can be drawn and counted by; None without."""
        return self.label_names if self.has_classes else None

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        """Stand in for the labels of a task whose rows have not been read."""
        return self.labels

    def count_labels(self, rows: datasets.Dataset) -> list[int] | None:
        """Count the rows of each class, or how often labels or tags occur; None without any."""
        if not self.class_names:
            return None
        labels = np.asarray(rows[self.label_name], np.int64)
        return np.bincount(labels, minlength=len(self.class_names)).tolist()

    def head_facts(self, train: datasets.Dataset | None) -> HeadFacts:
        """Describe the training rows as far as a head depends on them; None for unread ones."""
        names = self.class_names or self.label_names or ()
        if train is None:
            counts, num_rows = [1] * len(names) or None, len(names)
        else:
            counts, num_rows = self.count_labels(train), len(train)
        return {
            "labels": self.label_names,
            "score_range": self.score_range,
            "num_texts": len(self.text_columns) or 1,
            "class_counts": counts,
            "num_rows": num_rows,
            "has_unanswerable": False,
        }

    def references(self, rows: datasets.Dataset) -> NDArray[Any] | None:
        """Return the labels that predictions are scored against, (N,); None without labels."""
        if self.label_name not in rows.column_names:
            return None
        return np.asarray(rows[self.label_name], dtype=np.float64)


def normalize_value(value: object) -> str:
    """Write a label or an id as text; a missing value is empty, and 1.0 is written as 1."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(value).strip()
    if is_blank(text):
        return ""
    return text.removesuffix(".0") if is_numeral(text) and text.endswith(".0") else text


def list_names(names: Sequence[str]) -> str:
    """Write the first labels or tags for a message."""
    return ", ".join(map(repr, names[:MAX_NAMES])) + (", ..." if len(names) > MAX_NAMES else "")


def check_classes(where: str, kind: str, names: Sequence[str], keys: str) -> None:
    """Check that the training rows have two labels or tags; ``keys`` of the recipe select them."""
    if len(names) < 2:
        raise ValueError(
            f"{where}: the training rows have the {kind} {list(map(shorten, names))}, at least two "
            f"are needed; check {keys}"
        )


def is_numeral(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def find_text_problem(values: Sequence[object], places: Sequence[str]) -> str:
    """Return what is wrong with values that should be texts; empty if they are."""
    for value, place in zip(values, places, strict=True):
        if value is None or (isinstance(value, str) and is_blank(value)):
            return f"empty text in {place}"
        if not isinstance(value, str):
            return f"{place} holds {shorten(repr(value))}, not text"
    return ""
