"""What the rows of a file say about their task: columns, problem type, labels."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Any

from datasets_scripts.readers import (
    FILE_SUFFIXES,
    find_suffix,
    is_list,
    read_records,
)

MOST_ROWS = 20_000  # that are read
MOST_CLASSES = 100
SHOWN = 5  # classes in a reason
LONGEST_NAME = 4  # words of a column that is no sentence
MOST_SCORED_CLASSES = 5  # different numbers that may be classes of pairs
# Usual names of columns in lower case; labels in the order in which they are tried.
LABEL_NAMES = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment"),
    *("similarity", "score", "gold_label", "is_duplicate", "rating", "stars", "topic", "intent"),
    *("tag", "tags", "genre", "genres", "y"),
)
TEXT_PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2")),
    *(("premise", "hypothesis"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
)
CONTEXT_PAIRS = (
    *(("sent1", "sent2"), ("article", "question"), ("passage", "question")),
    ("context", "question"),
)
ID_NAMES = ("", "id", "index", "idx", "number")
LIST_NAMES = ("choices", "options", "endings", "candidates", "alternatives", "answers")
NUMBERED = re.compile(
    r"(ending|choice|option|answer|alternative|candidate|opt|sol)[ _-]?([0-9a-j])"
)
ANSWER_NAMES = ("label", "answer", "answerkey", "answer_key", "gold", "correct", "correct_answer")
SCORE_NAMES = ("similarity", "score", "relatedness", "similarity_score")
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
        self.path, suffix = path, find_suffix(path)
        if suffix not in (*FILE_SUFFIXES, ".conll"):
            known = ", ".join(FILE_SUFFIXES)
            raise ValueError(f"{path}: unknown suffix; expected {known} or .conll")
        if suffix == ".conll":
            from datasets_scripts.tagging import read_conll

            records = read_conll(path, ("0", "-1"))
        elif suffix == ".json":  # a single JSON value, or JSON lines
            from datasets_scripts.questions import read_squad

            records = read_squad(path, ())
        else:
            records = read_records(path, ())
        rows = [record.values for record in islice(records, MOST_ROWS) if not record.problem]
        if not rows:
            raise ValueError(f"{path}: no row can be read")
        self.rows, self.suffix = rows, suffix
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        self.described = f"its columns are {', '.join(map(repr, self.columns))}"

    def values(self, column: str) -> list[Any]:
        """Return the values of a column, without missing ones."""
        values = (row.get(column) for row in self.rows)
        return [value for value in values if value is not None and value != ""]

    def count_words(self, column: str) -> float:
        """Return the mean number of words of a column; 0 if its values are no texts."""
        values = self.values(column)
        is_text = all(isinstance(value, str) for value in values)
        if not values or not is_text or are_numbers(values):
            return 0.0
        return sum(len(value.split()) for value in values) / len(values)

    def find_texts(
        self, guess: Guess, others: Sequence[str], pairs: Sequence[tuple[str, str]] = TEXT_PAIRS
    ) -> list[str]:
        """Find the one or two columns of texts: by their names, else by their numbers of words."""
        columns = [name for name in self.columns if name not in others]
        names = {name.lower(): name for name in columns}
        for first, second in pairs:
            if first in names and second in names:
                pair = [names[first], names[second]]
                guess.reasons.append(f"text_columns: {pair[0]!r} and {pair[1]!r}, by their names")
                return pair
        words = {name: self.count_words(name) for name in columns}
        texts = [name for name in columns if words[name] >= 2]
        texts = texts or [name for name in columns if words[name] > 0]
        if not texts:
            raise ValueError(
                f"{self.path}: no column looks like texts; {self.described}: give --text_columns"
            )
        longest = max(texts, key=lambda name: words[name])
        if len(texts) == 2:
            guess.reasons.append(
                f"text_columns: {texts[0]!r} and {texts[1]!r}, the two with sentences"
            )
            guess.doubts.append(f"if the rows are no pairs, keep only {longest!r}")
            return texts
        guess.reasons.append(f"text_columns: {longest!r}, the column with the longest texts")
        if len(texts) > 1:
            shown = ", ".join(repr(name) for name in texts if name != longest)
            guess.doubts.append(f"other columns with texts: {shown}")
        return [longest]


def to_number(value: Any) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def are_numbers(values: Sequence[Any]) -> bool:
    """Tell whether all values are finite numbers."""
    return None not in map(to_number, values)


def guess_task(
    path: str, texts: list[str] | None = None, label: str | None = None, kind: str | None = None
) -> Guess:
    """Guess the data keys of a task.

    Args:
        path: The file of training rows.
        texts: The columns of the texts, if the user has named them.
        label: That of the labels.
        kind: The problem type.

    Raises:
        ValueError: If the columns do not tell; the message names them.
    """
    table = Table(path)
    for flag, columns in (
        ("text_columns", texts or ()),
        ("label_column", [label] if label else ()),
    ):
        for column in columns:
            if column not in table.columns:
                raise ValueError(f"--{flag}: {path} has no column {column!r}; {table.described}")
    # types that their columns tell
    guess = None
    if kind in (None, "multiple_choice"):
        guess = guess_choices(table, texts, label)
    if guess is None and kind in (None, "question_answering"):
        guess = guess_questions(table, texts, label, kind)
    if guess is None and kind in (None, "token_classification"):
        guess = guess_tags(table, texts, label)
    if guess is None:
        if kind in ("multiple_choice", "question_answering", "token_classification"):
            raise ValueError(f"{path}: no columns fit {kind}; {table.described}")
        if table.suffix == ".json":
            next(read_records(path, ()))  # refuses one JSON value, which only questions may be
        guess = guess_sentences(table, texts, label, kind)
    return guess


def find_choices(table: Table, others: Sequence[str | None]) -> list[str]:
    """Return a column for each choice, or the one with lists of them."""
    groups: dict[str, list[str]] = {}  # columns with a choice each
    for name in table.columns:
        if name in others:
            continue
        values = [
            value.get("text") if isinstance(value, dict) and "label" in value else value
            for value in table.values(name)
        ]
        have_several = all(isinstance(value, list) and len(value) > 1 for value in values)
        if name.lower() in LIST_NAMES and values and have_several:
            return [name]
        matched = NUMBERED.fullmatch(name.lower())
        if matched and table.count_words(name):
            groups.setdefault(matched[1], []).append(name)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def guess_choices(table: Table, texts: list[str] | None, label: str | None) -> Guess | None:
    """Recognize choices by the names of their columns, beside that of the right one."""
    choices = find_choices(table, [label, *(texts or ())])
    names = {name.lower(): name for name in table.columns if name not in choices}
    label = label or next((names[name] for name in ANSWER_NAMES if name in names), None)
    if label is None or not choices:
        return None
    guess = Guess("multiple_choice")
    what = f"{', '.join(map(repr, choices))} are choices, by their names"
    if len(choices) == 1:
        what = f"{choices[0]!r} has lists of choices"
    guess.reasons.append(f"problem_type: {what}")
    pairs = (*CONTEXT_PAIRS, *TEXT_PAIRS)
    columns = texts or table.find_texts(guess, [*choices, label], pairs)
    guess.reasons.append(f"label_column: {label!r}, which names the right choice")
    guess.keys |= {"text_columns": columns, "choice_columns": choices, "label_column": label}
    return guess


def guess_questions(
    table: Table, texts: list[str] | None, label: str | None, kind: str | None
) -> Guess | None:
    """Recognize the columns of SQuAD, or take those of the user."""
    is_named = kind is not None if texts else {"question", "context"} <= set(table.columns)
    if not is_named:
        return None
    keys = {"text_columns": texts, "label_column": label}
    keys = {key: value for key, value in keys.items() if value}
    return Guess("question_answering", keys, ["problem_type: questions and their contexts"])


def guess_tags(table: Table, texts: list[str] | None, label: str | None) -> Guess | None:
    """Recognize a list of words with a list of tags of the same length."""
    if table.suffix == ".conll":
        reason = "problem_type: a CoNLL file has a token and its tag on each line"
        return Guess("token_classification", reasons=[reason])
    lengths: dict[str, list[int]] = {}
    for name in table.columns:
        values = table.values(name)
        if all(isinstance(value, list) for value in values) and all(
            isinstance(word, str | int) for value in values for word in value
        ):
            lengths[name] = [len(row.get(name) or ()) for row in table.rows]
    pairs = [
        (words, tags)
        for words, tags in permutations(lengths, 2)
        if lengths[words] == lengths[tags] and label in (None, tags) and texts in (None, [words])
    ]
    if not pairs:
        return None
    # words have the first name
    named = [pair for pair in pairs if pair[0] in TOKEN_NAMES and pair[1] not in TOKEN_NAMES]
    words, tags = (named or pairs)[0]
    reason = f"problem_type: {words!r} and {tags!r} are lists of the same length"
    keys = {"text_columns": [words], "label_column": tags}
    return Guess("token_classification", keys, [reason])


def guess_sentences(
    table: Table, texts: list[str] | None, label: str | None, kind: str | None
) -> Guess:
    """Guess the columns of sentences or pairs, and the type from the labels."""
    guess = Guess(kind or "")
    if kind != "contrastive" and label is None:
        label = find_label(table, texts or (), guess)
    guess.keys["text_columns"] = texts or table.find_texts(guess, [label] if label else [])
    values = [] if label is None else table.values(label)
    if table.suffix in (".csv", ".tsv"):
        doubt_header(table, label, values, guess)
    if label is None:
        return guess
    guess.keys["label_column"] = label
    if not values:
        raise ValueError(f"{table.path}: column {label!r} is empty; give --label_column")
    if kind is None:
        guess.problem_type, reason = guess_type(table, label, values, guess)
        guess.reasons.append(f"problem_type: {reason}")
    add_keys(label, values, guess)
    return guess


def doubt_header(table: Table, label: str | None, values: Sequence[object], guess: Guess) -> None:
    """Note that the first line of a file without names of columns would be lost."""
    names = [name for name in table.columns if name]
    has_sentences = any(len(name.split()) > LONGEST_NAME for name in names)
    has_numbers = any(to_number(name) is not None for name in names)
    if has_sentences or has_numbers or label in [*map(str, values)]:
        guess.doubts.append(
            f"are {', '.join(map(repr, names))} the names of the columns? if this line is a row, "
            "which is not read now, write a line with names before it"
        )


def add_keys(label: str, values: Sequence[object], guess: Guess) -> None:
    """Add what a type needs to know of its labels: their separator, order or range."""
    if guess.problem_type == "multi_label_classification":
        separator = find_separator(values)
        if separator not in (None, SEPARATORS[0]):  # the first is the default
            guess.keys["label_separator"] = separator
    elif guess.problem_type == "ordinal" and not are_numbers(values):  # whose order is known
        guess.keys["labels"] = sorted(set(map(str, values)))
        guess.doubts.append("labels: write them in their order, the lowest first")
    elif guess.problem_type == "similarity":
        numbers = [number for number in map(to_number, values) if number is not None]
        if len(numbers) < len(values):
            raise ValueError(
                f"column {label!r} has values that are no numbers; give --label_column"
            )
        low, high = min(numbers), max(numbers)
        usual = [ends for ends in RANGES if ends[0] <= low and high <= ends[1]]
        guess.keys["score_range"] = list([*usual, (math.floor(low), math.ceil(high))][0])
        guess.doubts.append(
            f"score_range: the scores are from {low:g} to {high:g}; write the range of their scale"
        )


def find_label(table: Table, texts: Sequence[str], guess: Guess) -> str:
    """Find the column of the labels: by its name, else the last one with few values."""
    rest = [name for name in table.columns if name not in texts]
    names = {name.lower(): name for name in rest}
    for name in LABEL_NAMES:
        if name in names:
            guess.reasons.append(f"label_column: {names[name]!r}, by its name")
            return names[name]
    few, measures = [], []
    for name in rest:
        values = table.values(name)
        different = len(set(map(str, values)))
        is_id = name.lower() in ID_NAMES or name.lower().endswith("_id")
        if 2 <= different <= min(MOST_CLASSES, max(2, len(values) // 2)):
            few.append(name)
        if different > 1 and are_numbers(values) and not is_id:
            measures.append(name)
    if not few and not measures:
        raise ValueError(
            f"{table.path}: no column looks like labels; {table.described}: give --label_column"
        )
    *others, chosen = few or measures
    what, contents, advice = "few different values", "few values", ""
    if not few:
        what = contents = "numbers"
        advice = "; to predict several, write label_columns: [first, second]"
    guess.reasons.append(f"label_column: {chosen!r}, since it has {what}")
    if others:
        shown = ", ".join(map(repr, others))
        guess.doubts.append(f"other columns with {contents}: {shown}{advice}")
    return chosen


def guess_type(table: Table, label: str, values: Sequence[object], guess: Guess) -> tuple[str, str]:
    """Return the problem type that fits the labels, and the reason."""
    if any(isinstance(value, list) or is_list(str(value)) for value in values):
        return "multi_label_classification", f"{label!r} has lists"
    if separator := find_separator(values):
        return "multi_label_classification", f"{label!r} has labels separated by {separator!r}"
    different = Counter(map(str, values))
    is_number = are_numbers([*different])
    if len(guess.keys["text_columns"]) == 2:
        if different.keys() == {"0", "1"}:
            return "paraphrase", f"pairs of texts, and {label!r} is 0 or 1"
        is_scale = label.lower() in SCORE_NAMES or len(different) > MOST_SCORED_CLASSES
        if is_scale and is_number:
            return "similarity", f"pairs of texts, and {label!r} has numbers"
    if len(different) <= min(MOST_CLASSES, max(2, len(values) // 2)):
        if len(different) > 2 and is_number:
            guess.doubts.append(
                "the labels are numbers, which are learned as names without an order; if they are "
                "grades, such as stars, write problem_type: ordinal"
            )
        names = ", ".join(repr(name) for name, _ in different.most_common(SHOWN))
        more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
        return "classification", f"{label!r} has {len(different)} values: {names}{more}"
    if is_number:
        guess.doubts.append("the labels are numbers, whose sizes are learned; are they names?")
        return "regression", f"{label!r} has {len(different):,} different numbers"
    raise ValueError(
        f"{table.path}: {label!r} has {len(different):,} different values in {len(values):,} "
        f"rows, too many for classes; {table.described}: give --label_column"
    )


def find_separator(values: Sequence[object]) -> str | None:
    """Return what separates several labels of a row: its parts occur again in other rows."""
    texts = [value for value in values if isinstance(value, str)]
    for separator in () if any(map(is_list, texts)) else SEPARATORS:
        joined = [text for text in texts if separator in text]
        parts = Counter(part.strip() for text in texts for part in text.split(separator))
        repeated = all(parts[part.strip()] > 1 for text in joined for part in text.split(separator))
        if joined and repeated and len(parts) < len(set(texts)):
            return separator
    return None
