"""How the records of a task become rows, and its rows tokens: a class for each problem type.

Here are the interface, and the types whose rows are one or two texts with a class or a score;
`load_format` imports the others by name.

What becomes of a text is decided by `modeling_minbert.texts`, for predictions, too. The tokens that
are returned are cached by `datasets`, under a name made of the rows, the options and a tokenizer
without truncation or padding of its own: what was set on it before does not count.
"""

import logging
import math
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar, Self, TypeAlias

import datasets
import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase as Tokenizer

from modeling_minbert import TASKS, unknown
from modeling_minbert.texts import (
    HEAD_SHARES,
    WINDOWS,
    Encoded,
    Encoding as Encoding,
    own_tokenizer,
    tokenize,
)

from .readers import (
    Record,
    describe_twin,
    is_blank,
    is_list,
    is_numeral,
    is_test,
    normalize_value,
    read_names,
    read_records,
    shorten,
)
from .task_data import TaskData

logger = logging.getLogger(__name__)


LINE_ENDS = re.compile(r"[\r\n]+")
MAX_NAMES = 20  # labels in a message
UNDECIDED = "undecided"  # the problem of a row on which the annotators did not agree
UNLIMITED = 10**9  # tokens; more than any row has
ORDER_METRICS = ("mae", "quadratic_weighted_kappa")  # of classes in an order
STRATA = 10  # ranges of scores with equal numbers of rows
# What the rows say of themselves, so that a trainer can store it with the task.
ENCODED_WITH = "encoded by minBERT with max_length="
LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar is of use
# Rows, and characters or bytes of them, that are in memory at a time.
MOST_ROWS = 1000
MOST_CHARACTERS = 10_000_000

Row = dict[str, Any]
Batch = dict[str, list[Any]]  # columns
# A type of a column: a name as of `datasets.Value`, a list with one, or a feature.
Feature: TypeAlias = "str | list[Feature] | datasets.Value | datasets.List"
Types = dict[str, Feature]

# The label of a row or token without one, which losses and metrics leave out, and that of a word
# whose tag is unknown.
IGNORED_LABEL, UNKNOWN_LABEL = -100, -1
SENTENCES = ("sentence1", "sentence2", "sentence3")  # columns of rows, for up to three texts
ONE_SEQUENCE: Types = {"input_ids": ["int32"], "token_type_ids": ["int8"], "length": "int32"}
SEVERAL_SEQUENCES: Types = ONE_SEQUENCE | {"input_ids": [["int32"]], "token_type_ids": [["int8"]]}


def make_features(**types: Feature) -> datasets.Features:
    """Make features of types; a list with one type is a list of any length."""

    def make(kind: Feature) -> Any:
        if isinstance(kind, list):
            return datasets.List(make(kind[0]))
        return datasets.Value(kind) if isinstance(kind, str) else kind

    return datasets.Features({name: make(kind) for name, kind in types.items()})


@dataclass(frozen=True)
class RowFormat(ABC):
    """How the records of a task become rows, and its rows tokens.

    A file is read once: `to_row` keeps the labels as they are written (`written_type`), until those
    of all training rows are known to `resolve`, and `to_label` makes numbers of them.

    Args:
        data: The data keys of the task.
        labels: Names of the classes or tags; None without, and until they are known.
        declared: Names that a dataset of the Hub or a Parquet file declares for the numbers in its
            label column.
    """

    data: TaskData
    labels: tuple[str, ...] | None = None
    declared: tuple[str, ...] | None = None

    label_name: ClassVar[str] = "label"
    unread_labels: ClassVar[tuple[str, ...] | None] = None  # stand for those of unread rows

    @property
    def label_column(self) -> str:
        """The column whose numbers may have declared names."""
        return str(self.data.label_column)

    @property
    def written_type(self) -> "Feature | None":
        """Type of the labels as they are written; None if they are read as numbers at once."""
        return None

    @property
    @abstractmethod
    def columns(self) -> Types:
        """The columns of its rows beside ``id``, and their types, as of `make_features`."""

    @property
    @abstractmethod
    def text_names(self) -> tuple[str, ...]:
        """Columns of the rows that hold their texts, or their words."""

    @abstractmethod
    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        """Return the columns of a row but its texts; a ValueError says why it is invalid."""

    @abstractmethod
    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        """Tokenize rows; padding and masks are left to the collator."""

    def read(self, path: str, split: str) -> Iterator[Record]:
        """Read the records of a file, including invalid ones.

        Raises:
            ValueError: If the file has another format, or a column is missing.
            FileNotFoundError: If the file does not exist.
        """
        file_format = self.data.file_format
        if is_test(split):
            file_format = replace(file_format, header=None)
        records = read_records(path, self.required_columns(split), file_format=file_format)
        return map(self.declare(path).from_hub, records)

    def declare(self, path: str) -> Self:
        """Return the format of a file, with the names that it declares for its numbers."""
        names = self.check_names(path, read_names(path, self.label_column))
        old, new = self.declared or (), self.labels or ()
        if names and len(old) == len(new) and set(old) != set(new):  # renamed, as in from_hub
            renamed = dict(zip(old, new, strict=True))
            names = tuple(renamed.get(name, name) for name in names)
        # only the training file may have other names than the recipe
        labels = None if names and path != self.data.train_file else self.labels
        return replace(self, declared=names, labels=labels)

    def check_names(self, where: str, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the names that are declared for numbers; None, with a warning, if unreadable."""
        is_read = "labels" in self.data.kind.keys or self.data.built_in is not None
        if not names or is_read or all(map(is_numeral, names)):
            return names
        message = "%s: the names %s of column %r are no numbers, so they are not read"
        logger.warning(message, where, list_names(names), self.label_column)
        return None

    @property
    def written_features(self) -> datasets.Features:
        """Columns of the rows of `to_row`, with the place of each row, and why it is invalid."""
        columns = self.columns
        if self.written_type is not None:
            columns = columns | {self.label_name: self.written_type}
        return make_features(id="string", **columns, line="int64", problem="string")

    def to_row(self, record: Record, number: int, split: str) -> Row:
        """Convert a record, the ``number``-th of its split from 0, to a row of `written_features`.

        The ``problem`` of a valid row is empty. A test row may have no label.
        """
        texts, problem = self.read_texts(record)
        # an id is on one line of a prediction file
        value = record.values.get(self.data.id_column or "id")
        row_id = normalize_value(value)
        if row_id and isinstance(value, str):
            row_id = value.strip()  # of a number alone, 1.0 is written as 1
        row: Row = {"id": LINE_ENDS.sub(" ", row_id) or str(number), "line": record.line}
        row |= zip(self.text_names, map(str.strip, texts), strict=False)
        if not record.problem:
            try:
                row |= self.parse(record, texts, split)
            except ValueError as error:
                problem = ", ".join(filter(None, (problem, str(error))))
        if row.get(self.label_name) in self.undecided:
            problem = UNDECIDED
        return row | {"problem": problem}

    def read_texts(self, record: Record) -> tuple[list[str], str]:
        """Return the texts of a record, empty where they are none, and what is wrong with them."""
        columns = self.data.text_columns or ()
        values = [record.values.get(column) for column in columns]
        problem = record.problem or find_text_problem(values, columns)
        return [text if isinstance(text, str) else "" for text in values], problem

    @cached_property
    def undecided(self) -> tuple[str, ...]:
        """Labels of rows on which the annotators did not agree."""
        return () if self.data.built_in is None else self.data.built_in.undecided

    def from_hub(self, record: Record) -> Record:
        """Name the label, or the labels, of a row of the Hub, which may be numbers there."""
        names = self.declared or ()
        # as many other labels of a recipe are new names of the declared ones
        is_renamed = self.labels and len(self.labels) == len(names)
        if not names or (is_renamed and set(self.labels or ()) != set(names)):
            return record
        column, by_number = self.label_column, dict(enumerate(names))
        label = record.values.get(column)
        if isinstance(label, list):
            label = [by_number.get(number, number) for number in label]
        else:
            label = by_number.get(label, label)  # type: ignore[arg-type]
        return replace(record, values={**record.values, column: label})

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        """Complete the format from the rows of `to_row`, for example with the names of the classes.

        Raises:
            ValueError: If they contradict the recipe, or cannot be learned from.
        """
        return self

    def to_label(self, written: Any) -> Any:
        """Return a label as rows have it; the message of a ValueError is the problem of the row."""
        return written

    def check_split(self, rows: Dataset, problems: list[str], where: str, split: str) -> Dataset:
        """Check all rows of a split, and mark further problems; may change their labels.

        Raises:
            ValueError: If the split cannot be used at all.
        """
        return rows

    def texts(self, rows: Dataset) -> Iterator[str]:
        """Yield the texts of all rows, row by row."""
        columns = [rows[name][:] for name in self.text_names]
        for row in zip(*columns, strict=True):
            yield from row

    def cut_share(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> float | None:
        """Return the share of the tokens of rows that `encode` cuts; None if it keeps all."""
        return None

    def required_columns(self, split: str) -> tuple[str, ...]:
        """Return the columns that a split must have; test rows need no label."""
        data = self.data
        labels = () if is_test(split) else (data.label_column, *(data.label_columns or ()))
        columns = (*(data.text_columns or ()), *labels, data.id_column)
        return tuple(column for column in columns if column)

    def strata(self, rows: Dataset) -> NDArray[np.int64]:
        """Number the strata that training and validation rows are drawn from, (N,)."""
        if not self.has_classes:
            return np.zeros(len(rows), np.int64)
        return np.asarray(rows[self.label_name][:], np.int64)

    def unit_columns(self, rows: Dataset) -> tuple[str, ...]:
        """Return the columns in which rows are equal that are held out together or not at all."""
        return self.text_names

    @property
    def has_classes(self) -> bool:
        """Whether rows can be drawn and counted by class."""
        return TASKS[str(self.data.problem_type)].has_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes that rows can be drawn and counted by; None without."""
        return self.labels if self.has_classes else None

    def count_labels(self, rows: Dataset) -> list[int] | None:
        """Count the rows of each class, or how often labels or tags occur; None without any."""
        if not self.class_names:
            return None
        labels = np.asarray(rows[self.label_name][:], np.int64)
        return np.bincount(labels, minlength=len(self.class_names)).tolist()

    def head_facts(self, train: Dataset | None) -> Row:
        """Describe the training rows as far as a head depends on them; None for unread ones."""
        names = self.class_names or self.labels or ()
        if train is None:
            counts, num_rows = [1] * len(names) or None, len(names)
        else:
            counts, num_rows = self.count_labels(train), len(train)
        return {
            "labels": self.labels,
            "score_range": self.data.score_range,
            "num_texts": len(self.data.text_columns or ()) or 1,
            "class_counts": counts,
            "num_rows": num_rows,
            "has_unanswerable": False,
        }


def load_format(data: TaskData) -> RowFormat:
    """Make the format of the rows of a task, whose class is imported by its name."""
    kind = pkgutil.resolve_name(f"{__package__}.{data.kind.row_format}")
    row_format: RowFormat = kind(data, data.labels)
    declared = read_names(data.train_file or "", row_format.label_column)
    return replace(row_format, declared=declared)


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


def parse_number(text: str) -> float:
    """Convert a label to a number."""
    number = {"true": "1", "false": "0"}.get(text.lower(), text)
    if not is_numeral(number):
        raise ValueError(f"label {shorten(text)!r} is not a number")
    return float(number)


def name_label(value: object) -> str:
    """Write a label as text, empty if it is missing; a ValueError says that it is no name."""
    if isinstance(value, Mapping | list):
        raise ValueError(  # noqa: TRY004  (a user's value)
            f"label {shorten(repr(value))} is no name; write the names of labels, or for "
            "multi_label_classification a column with 0 or 1 for each, as label_columns"
        )
    return normalize_value(value)


def find_text_problem(values: Sequence[object], columns: Sequence[str]) -> str:
    """Return what is wrong with values that should be texts; empty if they are."""
    for value, column in zip(values, columns, strict=True):
        if value is None or (isinstance(value, str) and is_blank(value)):
            return f"empty text in column {column!r}"
        if not isinstance(value, str):
            return f"column {column!r} holds {shorten(repr(value))}, not text"
    return ""


def list_written(rows: Dataset, column: str) -> list[Any]:
    """List the labels of the valid rows, as they are written."""
    pairs = zip(rows[column][:], rows["problem"][:], strict=True)
    return [label for label, problem in pairs if label is not None and not problem]


def without_labels(rows: Dataset) -> Dataset:
    """Make the labels of all rows unknown."""
    unknown: Any = [None] * len(rows)
    return rows.remove_columns("label").add_column("label", unknown, feature=rows.features["label"])


@dataclass(frozen=True)
class SentenceFormat(RowFormat):
    """Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``."""

    @property
    def written_type(self) -> "Feature | None":
        return "string" if self.data.label_columns is None else ["string"]

    @property
    def label_type(self) -> Feature:
        """Type of the labels as numbers."""
        return "int64"

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the labels of a row, or that of its only label, (K,)."""
        return self.data.label_columns or (str(self.data.label_column),)

    @property
    def text_names(self) -> tuple[str, ...]:
        return SENTENCES[: len(self.data.text_columns or ())]

    @property
    def columns(self) -> Types:
        return {**dict.fromkeys(self.text_names, "string"), "label": self.label_type}

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        label = self.read_label(record)
        is_labeled = (self.data.label_column, self.data.label_columns) != (None, None)
        if label is None and is_labeled and not is_test(split):
            raise ValueError("no label")
        return {"label": label}

    def read_label(self, record: Record) -> Any:
        """Return the label of a record as it is written, or one for each column; None without."""
        if self.data.label_columns is not None:
            labels = [name_label(record.values.get(name)) for name in self.data.label_columns]
            return labels if any(labels) else None
        if self.data.label_column is None:
            return None
        value = record.values.get(self.data.label_column)
        # lists have a message of their own
        return name_label(str(value) if isinstance(value, list) else value) or None

    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        return encode_rows(rows, tokenizer, encoding, label_type=self.label_type)

    def cut_share(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> float | None:
        texts = rows.select_columns(["id", *self.text_names])
        whole = self.encode(texts, tokenizer, replace(encoding, max_length=UNLIMITED))
        lengths = [
            len(sequence)
            for ids in whole["input_ids"]
            for sequence in (ids if isinstance(ids[0], list) else [ids])
        ]
        if encoding.truncation != WINDOWS:
            return sum(max(0, length - encoding.max_length) for length in lengths) / sum(lengths)
        from modeling_minbert.pieces import cut_windows

        special, cut = tokenizer.num_special_tokens_to_add(pair=False), 0
        room = encoding.max_length - special
        for length in lengths:
            spans = cut_windows(length - special, room, room - (encoding.window_overlap or 0))
            is_kept = np.zeros(length - special, dtype=bool)
            for place in encoding.choose_windows(len(spans)):
                is_kept[slice(*spans[place])] = True
            cut += int((~is_kept).sum())  # tokens that are in no kept window
        return cut / sum(lengths)


@dataclass(frozen=True)
class ClassificationFormat(SentenceFormat):
    """Rows whose ``label`` is the number of a class."""

    unread_labels = ("0", "1")

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        where, column = self.data.where, f"label_column={self.data.label_column!r}"
        labels = self.labels or self.declared
        if labels is None:
            written = dict.fromkeys(list_written(splits["train"], "label"))
            # no lists of labels, whose text would become the name of a class
            if lists := list(filter(is_list, written)):
                raise ValueError(
                    f"{where}: {column} has lists of labels, such as {shorten(lists[0])}; write "
                    "problem_type: multi_label_classification, or for one label a row its name "
                    "alone"
                )
            labels = sort_labels(written)
            of_order = [name for name in self.data.metrics or () if name in ORDER_METRICS]
            if of_order and not all(map(is_numeral, labels)):
                raise ValueError(
                    f"{where}: {of_order[0]} is a distance of labels, but {list_names(labels)} are "
                    "in the order of the alphabet; give labels from the lowest to the highest, as "
                    "in labels: [bad, fair, good], or another metric"
                )
        check_classes(where, "labels", labels, column)
        return replace(self, labels=labels)

    def to_label(self, written: Any) -> Any:
        # recipe or dataset may say the order of the classes
        is_ordered = (self.data.labels or self.declared) is not None
        return find_class(written, self.labels or (), is_ordered=is_ordered)


def find_class(text: str, labels: Sequence[str], *, is_ordered: bool = False) -> int:
    """Return the number of a class; the message of a ValueError is the problem of the row."""
    if text in labels:
        return labels.index(text)
    # numbers stand for names in a given order, if no name could be confused with one
    has_names = not any(map(is_numeral, labels))
    if is_ordered and has_names and text in map(str, range(len(labels))):
        return int(text)
    if twin := describe_twin(text, labels):
        raise ValueError(f"the labels {twin}")
    known = list_names(labels)
    if is_ordered and has_names:
        known += f" or their numbers 0 to {len(labels) - 1}"
    elif has_names and text.isdecimal():
        known += "; a number stands for a name only if the recipe lists labels in that order"
    raise ValueError(f"label {shorten(text)!r} is not among the labels {known}")


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort distinct labels: by size if all are numbers, else as text."""
    distinct = sorted(set(labels))
    return tuple(sorted(distinct, key=float) if all(map(is_numeral, distinct)) else distinct)


@dataclass(frozen=True)
class ParaphraseFormat(SentenceFormat):
    """Rows whose ``label`` is 0 or 1."""

    class_names = ("0", "1")

    def from_hub(self, record: Record) -> Record:
        # 1 of a built-in dataset is yes, by whatever name
        return record if self.data.built_in is not None else super().from_hub(record)

    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        return encode_rows(rows, tokenizer, encoding, label_type="float32")  # of the loss

    def to_label(self, written: Any) -> int:
        number = parse_number(written)
        if number not in {0.0, 1.0}:
            raise ValueError(f"label {shorten(written)!r} is out of range; allowed are 0 and 1")
        return int(number)


@dataclass(frozen=True)
class SimilarityFormat(SentenceFormat):
    """Rows whose ``label`` is a score in ``score_range``."""

    label_type = "float32"

    def strata(self, rows: Dataset) -> NDArray[np.int64]:
        return number_strata(np.asarray(rows["label"][:]))

    def to_label(self, written: Any) -> float:
        number = parse_number(written)
        low, high = self.data.score_range or (-math.inf, math.inf)
        if not low <= number <= high:
            raise ValueError(
                f"label {shorten(written)!r} is out of range; allowed is {low:g} to {high:g}"
            )
        return number


def number_strata(scores: NDArray[Any]) -> NDArray[np.int64]:
    """Number the ranges of scores, (N,), that have equal numbers of rows."""
    limits = np.quantile(scores, np.linspace(0, 1, STRATA + 1)[1:-1])
    return np.asarray(np.searchsorted(limits, scores, side="right"), np.int64)


def encode_rows(
    rows: Dataset,
    tokenizer: Tokenizer,
    encoding: Encoding,
    *,
    label_type: Feature = "int64",
    is_contrastive: bool = False,
) -> Dataset:
    """Tokenize rows with id, sentences, and label if labeled; padding is left to the collator.

    The labels get the type that the loss needs. Each text of a contrastive row is a sequence.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each sequence if they are separate),
        length (in tokens, of the longest sequence) and labels (if labeled). For windows, those of
        all texts of a row are one list, ``num_windows`` counts those of each text, and length is
        that of all windows.

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    allowed: tuple[str | None, ...]
    if is_contrastive:
        kind, allowed = "of a contrastive task", ("separate",)
    elif "sentence2" in rows.column_names:
        kind, allowed = "pairs", ("joint", "separate")
    else:
        kind, allowed = "single sentences", (None,)
    pairs, truncation = encoding.pair_encoding, encoding.truncation
    if pairs not in allowed:
        remedy = "remove it" if None in allowed else f"allowed: {', '.join(map(repr, allowed))}"
        raise ValueError(f"pair_encoding={pairs!r}, but the rows are {kind}; {remedy}")
    if truncation not in (*HEAD_SHARES, WINDOWS):
        raise ValueError(unknown("truncation", truncation, (*HEAD_SHARES, WINDOWS)))
    if truncation == WINDOWS and pairs == "joint":
        raise ValueError("truncation='windows' needs each text of a pair as a sequence")
    types = ONE_SEQUENCE
    if truncation == WINDOWS:
        types = SEVERAL_SEQUENCES | {"num_windows": ["int32"]}
    elif pairs == "separate":
        types = SEVERAL_SEQUENCES
    return map_rows(rows, _encode_texts, tokenizer, encoding, types, {"labels": label_type})


def map_rows(
    rows: Dataset,
    encode: Callable[..., Batch],
    tokenizer: Tokenizer,
    encoding: Encoding,
    types: Types,
    label_types: Types,
    *,
    batch_size: int | None = None,
) -> Dataset:
    """Encode batches of rows, with their ids; only labeled rows have columns of ``label_types``."""
    if "label" in rows.column_names:
        rows, types = rows.rename_column("label", "labels"), types | label_types
    features = make_features(id="string", **types)
    hide = len(rows) <= LONG_MAP and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        encoded = rows.map(
            encode,
            batched=True,
            batch_size=batch_size or count_batch(rows),
            fn_kwargs={"tokenizer": own_tokenizer(tokenizer), "encoding": encoding},
            remove_columns=[name for name in rows.column_names if name not in features],
            features=features,
            desc="encode",
        )
    finally:
        if hide:
            datasets.enable_progress_bars()
    return note_length(encoded, encoding.max_length)


def note_length(rows: Dataset, max_length: int) -> Dataset:
    """Note in the description of encoded rows at which length texts were cut or split."""
    rows.info.description = f"{ENCODED_WITH}{max_length}"
    return rows


def count_batch(rows: Dataset) -> int:
    """Return how many rows to process together: fewer if they are long."""
    return max(1, min(MOST_ROWS, MOST_CHARACTERS * len(rows.data) // (rows.data.nbytes + 1)))


def _encode_texts(batch: Batch, *, tokenizer: Tokenizer, encoding: Encoding) -> Batch:
    rows = list_texts(batch)
    if encoding.truncation == WINDOWS:
        from modeling_minbert.pieces import split_documents

        split = iter(split_documents(encoding, tokenizer, list(chain.from_iterable(rows))))
        columns: Batch = {name: [] for name in (*Encoded._fields, "num_windows", "length")}
        for row in rows:
            parts = list(islice(split, len(row)))
            windows = list(chain.from_iterable(parts))
            columns["input_ids"].append([window.input_ids[0] for window in windows])
            columns["token_type_ids"].append([window.token_type_ids[0] for window in windows])
            columns["num_windows"].append(list(map(len, parts)))
            columns["length"].append(sum(window.tokens for window in windows))
        return columns
    is_separate = encoding.pair_encoding == "separate"
    encoded = tokenize(tokenizer, rows, encoding)
    columns = {"length": [max(map(len, row.input_ids)) for row in encoded]}
    for name in Encoded._fields:
        sequences = [getattr(row, name) for row in encoded]
        columns[name] = sequences if is_separate else [ids for (ids,) in sequences]
    return columns


def list_texts(batch: Batch) -> list[tuple[str, ...]]:
    """List the texts of each row."""
    return list(zip(*(batch[name] for name in SENTENCES if name in batch), strict=True))
