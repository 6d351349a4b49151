"""Guess from its rows what a file of labeled data is: columns and problem type."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from datasets_scripts.files.compression import find_suffix
from datasets_scripts.files.conll import read_conll
from datasets_scripts.files.readers import FILE_SUFFIXES, read_records
from datasets_scripts.files.squad import read_squad

MOST_ROWS = 20_000  # that are read
MOST_CLASSES = 100
SHOWN = 5  # classes
# In the order in which they are tried, in lower case.
LABEL_NAMES = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment"),
    *("similarity", "score", "gold_label", "is_duplicate", "rating", "stars", "topic", "intent"),
    *("tag", "tags", "genre", "genres", "y"),
)
SCORE_NAMES = ("similarity", "score", "relatedness", "similarity_score")
TEXT_PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2")),
    *(("premise", "hypothesis"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
)
TOKEN_NAMES = ("tokens", "words", "sentence")
SEPARATORS = (",", ";", "|")  # between the labels of a row
RANGES = ((0, 1), (0, 5), (1, 5), (0, 10), (0, 100))  # of scores


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


def guess_task(path: str, given: Mapping[str, Any]) -> Guess:
    """Guess the data keys of a task.

    Args:
        path: The file of training rows.
        given: What the user has chosen: text_columns, label_column, problem_type, or None for each.

    Raises:
        ValueError: If the columns do not tell; the message names them.
    """
    table = Table(path)
    table.require("--text_columns", given["text_columns"] or ())
    table.require("--label_column", [given["label_column"]] if given["label_column"] else ())
    kind, texts, label = (given[key] for key in ("problem_type", "text_columns", "label_column"))
    if kind and texts and (label or kind == "contrastive"):  # nothing is left to guess
        labels = {} if label is None else {"label_column": label}
        guess = Guess(kind, {"text_columns": list(texts), **labels})
        if kind == "similarity":
            _add_range(label, table.values(label), guess)
        return guess
    if kind in (None, "question_answering") and {"question", "context"} <= set(table.columns):
        reason = "problem_type: the columns are those of SQuAD, question, context and answers"
        return Guess("question_answering", reasons=[reason])
    tags = _guess_tags(table, given) if kind in (None, "token_classification") else None
    if tags is None and kind in ("question_answering", "token_classification"):
        raise ValueError(
            f"{path}: no columns fit {kind}; {table.describe()}: give --text_columns and "
            "--label_column"
        )
    if tags is None and find_suffix(path) == ".json":
        next(read_records(path, ()))  # refuses one JSON value, which only questions may be
    return _guess_sentences(table, given) if tags is None else tags


def _guess_tags(table: Table, given: Mapping[str, Any]) -> Guess | None:
    """Recognize a list of words with a list of tags of the same length."""
    if find_suffix(table.path) == ".conll":
        return Guess("token_classification", reasons=["it is a CoNLL file: a token on each line"])
    lists = [name for name in table.columns if all(map(_is_words, table.values(name)))]
    pairs = [
        (words, tags)
        for words in sorted(lists, key=lambda name: name not in TOKEN_NAMES)
        for tags in lists
        if words != tags and tags not in TOKEN_NAMES
        if given["label_column"] in (None, tags) and given["text_columns"] in (None, [words])
        if all(len(row.get(words) or ()) == len(row.get(tags) or ()) for row in table.rows)
    ]
    if not pairs:
        return None
    words, tags = pairs[0]
    reason = f"{words!r} and {tags!r} are lists of the same length"
    guess = Guess("token_classification", {"text_columns": [words], "label_column": tags}, [reason])
    if len(pairs) > 1:
        guess.doubts.append(f"other lists of this length: {_name(lists, (words, tags))}")
    return guess


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str | int) for word in value)


def _guess_sentences(table: Table, given: Mapping[str, Any]) -> Guess:
    guess = Guess("")
    kind = given["problem_type"]
    label = None if kind == "contrastive" else _find_label(table, given, guess)
    texts = _find_texts(table, label, given["text_columns"], guess)
    guess.keys["text_columns"] = texts
    if label is not None:
        guess.keys["label_column"] = label
        _find_type(table, label, len(texts), kind, guess)
    else:
        guess.problem_type = "contrastive"
    return guess


def _find_label(table: Table, given: Mapping[str, Any], guess: Guess) -> str:
    """Find the column of the labels: by its name, else the only one with few values."""
    if given["label_column"]:
        return str(given["label_column"])
    rest = [name for name in table.columns if name not in (given["text_columns"] or ())]
    names = {name.lower(): name for name in rest}
    for known in LABEL_NAMES:
        if known in names:
            guess.reasons.append(f"label_column: {names[known]!r}, by its name")
            return names[known]
    few = [name for name in rest if _has_few_values(table.values(name))]
    if not few:
        raise ValueError(
            f"{table.path}: no column looks like labels; {table.describe()}: give --label_column"
        )
    guess.reasons.append(f"label_column: {few[-1]!r}, since it has few different values")
    if len(few) > 1:
        guess.doubts.append(f"other columns with few values: {_name(few, few[-1:])}")
    return few[-1]


def _has_few_values(values: Sequence[Any]) -> bool:
    different = {str(value) for value in values}
    return 2 <= len(different) <= min(MOST_CLASSES, max(2, len(values) // 2))


def _find_texts(
    table: Table, label: str | None, chosen: Sequence[str] | None, guess: Guess
) -> list[str]:
    """Find the one or two columns of texts."""
    if chosen:
        return list(chosen)
    names = {name.lower(): name for name in table.columns if name != label}
    for pair in TEXT_PAIRS:
        if set(pair) <= names.keys():
            guess.reasons.append(f"text_columns: {pair[0]!r} and {pair[1]!r}, by their names")
            return [names[name] for name in pair]
    words = {name: _count_words(table.values(name)) for name in names.values()}
    texts = [name for name, count in words.items() if count >= 2] or [
        name for name, count in words.items() if count > 0
    ]
    if not texts:
        raise ValueError(
            f"{table.path}: no column looks like texts; {table.describe()}: give --text_columns"
        )
    if len(texts) == 2:
        guess.reasons.append(f"text_columns: {texts[0]!r} and {texts[1]!r}, the two with sentences")
        guess.doubts.append(f"if the rows are no pairs, keep only {max(texts, key=words.get)!r}")  # type: ignore[arg-type]
        return texts
    longest = max(texts, key=lambda name: words[name])
    guess.reasons.append(f"text_columns: {longest!r}, the column with the longest texts")
    if len(texts) > 1:
        guess.doubts.append(f"other columns with texts: {_name(texts, [longest])}")
    return [longest]


def _count_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of texts; 0 for other values, such as numbers."""
    if not values or not all(isinstance(value, str) for value in values):
        return 0.0
    if all(_to_number(value) is not None for value in values):
        return 0.0
    return sum(len(value.split()) for value in values) / len(values)


def _find_type(table: Table, label: str, num_texts: int, kind: str | None, guess: Guess) -> None:
    """Choose the problem type by the labels, with the keys that it needs."""
    values = table.values(label)
    if not values:
        raise ValueError(f"{table.path}: column {label!r} is empty; give --label_column")
    guessed, reason = _describe_labels(table, label, values, num_texts, guess)
    guess.problem_type = kind or guessed
    guess.reasons.append(reason)
    if guess.problem_type == "similarity":
        _add_range(label, values, guess)
    if guess.problem_type == "multi_label_classification":
        separator = _find_separator(values)
        if separator not in (None, ","):
            guess.keys["label_separator"] = separator


def _describe_labels(
    table: Table, label: str, values: Sequence[Any], num_texts: int, guess: Guess
) -> tuple[str, str]:
    """Return the problem type that fits the labels, and the reason."""
    separator = _find_separator(values)
    if separator is not None or isinstance(values[0], list):
        how = "lists" if separator is None else f"labels separated by {separator!r}"
        return "multi_label_classification", f"problem_type: {label!r} has {how}"
    different = Counter(map(str, values))
    numbers = [_to_number(value) for value in different]
    if num_texts == 2 and {"0", "1"} == set(different):
        return "paraphrase", f"problem_type: pairs of texts, and {label!r} is 0 or 1"
    is_score = label.lower() in SCORE_NAMES or len(different) > 5
    if num_texts == 2 and None not in numbers and is_score:
        return "similarity", f"problem_type: pairs of texts, and {label!r} has numbers"
    if len(different) > min(MOST_CLASSES, len(values) // 2):
        raise ValueError(
            f"{table.path}: {label!r} has {len(different):,} different values in {len(values):,} "
            f"rows, too many for classes; {table.describe()}: give --label_column"
        )
    if None not in numbers and len(different) > 2:
        guess.doubts.append("the labels are numbers, which are learned as names without an order")
    names = ", ".join(repr(name) for name, _ in different.most_common(SHOWN))
    more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
    return "classification", f"problem_type: {label!r} has {len(different)} values: {names}{more}"


def _find_separator(values: Sequence[Any]) -> str | None:
    """Return what separates several labels of a row: its parts occur again in other rows."""
    texts = [value for value in values if isinstance(value, str)]
    for separator in SEPARATORS:
        joined = [text for text in texts if separator in text]
        parts = Counter(part.strip() for text in texts for part in text.split(separator))
        repeated = all(parts[part.strip()] > 1 for text in joined for part in text.split(separator))
        if joined and repeated and len(parts) < len(set(texts)):
            return separator
    return None


def _add_range(label: str, values: Sequence[Any], guess: Guess) -> None:
    """Choose the usual range that contains all scores."""
    numbers = [number for number in map(_to_number, values) if number is not None]
    if len(numbers) < len(values) or not numbers:
        raise ValueError(
            f"column {label!r} has values that are no numbers; similarity needs scores"
        )
    low, high = min(numbers), max(numbers)
    usual = (each for each in RANGES if each[0] <= low and high <= each[1])
    guess.keys["score_range"] = list(next(usual, (math.floor(low), math.ceil(high))))
    guess.doubts.append(
        f"score_range: the scores are from {low:g} to {high:g}; write the range of their scale"
    )


def _to_number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _name(names: Sequence[str], without: Sequence[str]) -> str:
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
