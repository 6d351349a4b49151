"""The rows of a file, and guesses which of its columns have texts and which labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from datasets_scripts.conll_squad import read_conll, read_squad
from datasets_scripts.readers import FILE_SUFFIXES, find_suffix, read_records

MOST_ROWS = 20_000  # that are read
MOST_CLASSES = 100
# In the order in which they are tried, in lower case.
LABEL_NAMES = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment"),
    *("similarity", "score", "gold_label", "is_duplicate", "rating", "stars", "topic", "intent"),
    *("tag", "tags", "genre", "genres", "y"),
)
TEXT_PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2")),
    *(("premise", "hypothesis"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
)


@dataclass
class Guess:
    """The data keys of a task, why they were chosen, and what is not safe."""

    problem_type: str
    keys: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


class Table:
    """The first rows of a file, by column."""

    def __init__(self, path: str) -> None:
        self.path = path
        suffix = find_suffix(path)
        if suffix == ".conll":
            records = read_conll(path, ("0", "-1"))
        elif suffix == ".json":  # a single JSON value, or JSON lines
            records = read_squad(path, ())
        else:
            records = read_records(path, ())
        rows = [record.values for record in islice(records, MOST_ROWS) if not record.problem]
        if not rows:
            raise ValueError(f"{path}: no row can be read")
        self.rows = rows
        self.columns = list(dict.fromkeys(name for row in rows for name in row))

    def values(self, column: str) -> list[Any]:
        """Return the values of a column, without missing ones."""
        values = (row.get(column) for row in self.rows)
        return [value for value in values if value is not None and value != ""]

    def require(self, flag: str, columns: Sequence[str]) -> None:
        """Check columns that the user has named."""
        for column in columns:
            if column not in self.columns:
                raise ValueError(f"{flag}: {self.path} has no column {column!r}; {self.describe()}")

    def describe(self) -> str:
        """Name the columns."""
        return f"its columns are {', '.join(map(repr, self.columns))}"


def find_label(table: Table, texts: Sequence[str], guess: Guess) -> str:
    """Find the column of the labels: by its name, else the last one with few values."""
    rest = [name for name in table.columns if name not in texts]
    names = {name.lower(): name for name in rest}
    if known := [names[name] for name in LABEL_NAMES if name in names]:
        guess.reasons.append(f"label_column: {known[0]!r}, by its name")
        return known[0]
    if few := [name for name in rest if _has_few_values(table.values(name))]:
        guess.reasons.append(f"label_column: {few[-1]!r}, since it has few different values")
        _doubt_last(few, guess, "few values")
        return few[-1]
    if numbers := [name for name in rest if _has_measures(name, table.values(name))]:
        guess.reasons.append(f"label_column: {numbers[-1]!r}, since it has numbers")
        advice = (
            "; to predict several, write label_columns: [first, second] instead of label_column"
        )
        _doubt_last(numbers, guess, "numbers", advice)
        return numbers[-1]
    raise ValueError(
        f"{table.path}: no column looks like labels; {table.describe()}: give --label_column"
    )


def _doubt_last(columns: Sequence[str], guess: Guess, contents: str, advice: str = "") -> None:
    """Note that columns before the last one, which was chosen, may have the labels too."""
    if len(columns) > 1:
        others = name_columns(columns, columns[-1:])
        guess.doubts.append(f"other columns with {contents}: {others}{advice}")


def _has_few_values(values: Sequence[Any]) -> bool:
    different = {str(value) for value in values}
    return 2 <= len(different) <= min(MOST_CLASSES, max(2, len(values) // 2))


def _has_measures(name: str, values: Sequence[Any]) -> bool:
    """Tell whether a column has numbers, other than those of its rows."""
    numbers = [to_number(value) for value in values]
    is_id = name.lower() in ("", "id", "index", "idx", "number") or name.lower().endswith("_id")
    return len(set(numbers)) > 1 and None not in numbers and not is_id


def find_texts(table: Table, others: Sequence[str | None], guess: Guess) -> list[str]:
    """Find the one or two columns of texts: by their names, else by their numbers of words."""
    columns = [name for name in table.columns if name not in others]
    if pair := _find_named_pair(columns):
        guess.reasons.append(f"text_columns: {pair[0]!r} and {pair[1]!r}, by their names")
        return pair
    words = {name: count_words(table.values(name)) for name in columns}
    texts = [name for name in words if words[name] >= 2]
    texts = texts or [name for name in words if words[name] > 0]
    if not texts:
        raise ValueError(
            f"{table.path}: no column looks like texts; {table.describe()}: give --text_columns"
        )
    longest = max(texts, key=lambda name: words[name])
    if len(texts) == 2:
        guess.reasons.append(f"text_columns: {texts[0]!r} and {texts[1]!r}, the two with sentences")
        guess.doubts.append(f"if the rows are no pairs, keep only {longest!r}")
        return texts
    guess.reasons.append(f"text_columns: {longest!r}, the column with the longest texts")
    if len(texts) > 1:
        guess.doubts.append(f"other columns with texts: {name_columns(texts, [longest])}")
    return [longest]


def _find_named_pair(columns: Sequence[str]) -> list[str] | None:
    """Find two columns with the usual names of a pair, such as `sentence1` and `sentence2`."""
    names = {name.lower(): name for name in columns}
    for pair in TEXT_PAIRS:
        if set(pair) <= names.keys():
            return [names[name] for name in pair]
    return None


def count_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of texts; 0 for other values, such as numbers."""
    if not values or not all(isinstance(value, str) for value in values):
        return 0.0
    if all(to_number(value) is not None for value in values):
        return 0.0
    return sum(len(value.split()) for value in values) / len(values)


def to_number(value: Any) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def name_columns(names: Sequence[str], without: Sequence[str]) -> str:
    """Name columns, without some of them."""
    return ", ".join(repr(name) for name in names if name not in without)


def name_split(path: str) -> str:
    """Tell by the name of a file which rows it has: train, validation or test."""
    stem = Path(path).name.lower()
    for split, words in {"validation": ("valid", "dev"), "test": ("test",)}.items():
        if any(word in stem for word in words):
            return split
    return "train"


def check_suffix(path: str) -> None:
    """Reject a file of another format."""
    if find_suffix(path) not in (*FILE_SUFFIXES, ".conll"):
        raise ValueError(f"{path}: unknown suffix; expected {', '.join(FILE_SUFFIXES)} or .conll")
