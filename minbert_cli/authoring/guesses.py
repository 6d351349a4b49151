"""Guess from its rows what a file of labeled data is: columns and problem type."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

from datasets_scripts.readers import find_suffix, read_records
from datasets_scripts.values import is_list

from .choices import guess_choices
from .columns import (
    MOST_CLASSES,
    Guess,
    Table,
    find_label,
    find_texts,
    name_columns,
    to_number,
)

SHOWN = 5  # classes in a reason
LONGEST_NAME = 4  # words of a column that is no sentence
MOST_SCORED_CLASSES = 5  # different numbers that may be classes of pairs
SCORE_NAMES = ("similarity", "score", "relatedness", "similarity_score")
TOKEN_NAMES = ("tokens", "words", "sentence")
SEPARATORS = (",", ";", "|")  # between the labels of a row
RANGES = ((0, 1), (0, 5), (1, 5), (0, 10), (0, 100))  # of scores


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
    kind = given["problem_type"]
    for name, recognize in RECOGNIZERS.items():
        if kind in (None, name):
            guess = recognize(table, given)
            if guess is not None:
                return guess
    if kind in RECOGNIZERS:
        raise ValueError(f"{path}: no columns fit {kind}; {table.describe()}")
    if find_suffix(path) == ".json":
        next(read_records(path, ()))  # refuses one JSON value, which only questions may be
    return _guess_sentences(table, given)


def _guess_questions(table: Table, given: Mapping[str, Any]) -> Guess | None:
    """Recognize the columns of SQuAD, or take those of the user."""
    texts, label = given["text_columns"], given["label_column"]
    keys = {"text_columns": texts, "label_column": label}
    keys = {key: value for key, value in keys.items() if value}
    if texts is None and not {"question", "context"} <= set(table.columns):
        return None
    if texts is not None and given["problem_type"] is None:
        return None  # of any other type, too
    return Guess("question_answering", keys, ["problem_type: questions and their contexts"])


def _guess_tags(table: Table, given: Mapping[str, Any]) -> Guess | None:
    """Recognize a list of words with a list of tags of the same length."""
    if find_suffix(table.path) == ".conll":
        reason = "problem_type: a CoNLL file has a token and its tag on each line"
        return Guess("token_classification", reasons=[reason])
    pairs = [
        (words, tags)
        for words, tags in _pair_lists(table)
        if given["label_column"] in (None, tags) and given["text_columns"] in (None, [words])
    ]
    if not pairs:
        return None
    words, tags = pairs[0]
    reason = f"problem_type: {words!r} and {tags!r} are lists of the same length"
    guess = Guess("token_classification", {"text_columns": [words], "label_column": tags}, [reason])
    others = [other for _, other in pairs if other != words]
    if len(set(others)) > 1:
        guess.doubts.append(f"other lists of this length: {name_columns(others, [tags])}")
    return guess


def _pair_lists(table: Table) -> list[tuple[str, str]]:
    """Return the pairs of columns whose lists have the same lengths, those of words first."""
    lists = [name for name in table.columns if all(map(_is_words, table.values(name)))]
    lengths = {name: [len(row.get(name) or ()) for row in table.rows] for name in lists}
    pairs = [pair for pair in permutations(lists, 2) if lengths[pair[0]] == lengths[pair[1]]]
    named = [pair for pair in pairs if pair[0] in TOKEN_NAMES and pair[1] not in TOKEN_NAMES]
    return named or pairs


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str | int) for word in value)


def _guess_sentences(table: Table, given: Mapping[str, Any]) -> Guess:
    """Guess the columns of sentences or pairs, and the type from the labels."""
    guess = Guess(given["problem_type"] or "")
    has_labels = guess.problem_type not in WITHOUT_LABELS
    label = given["label_column"]
    if has_labels and label is None:
        label = find_label(table, given["text_columns"] or (), guess)
    texts = given["text_columns"] or find_texts(table, [label], guess)
    guess.keys["text_columns"] = list(texts)
    _doubt_header(table, label, guess)
    if not has_labels:
        return guess
    guess.keys["label_column"] = label
    values = table.values(label)
    if not values:
        raise ValueError(f"{table.path}: column {label!r} is empty; give --label_column")
    if not guess.problem_type:
        guess.problem_type, reason = _guess_type(table, label, values, guess)
        guess.reasons.append(f"problem_type: {reason}")
    if guess.problem_type in MORE_KEYS:
        MORE_KEYS[guess.problem_type](values, guess)
    return guess


def _doubt_header(table: Table, label: str | None, guess: Guess) -> None:
    """Note that the first line of a file without names of columns would be lost."""
    if find_suffix(table.path) not in (".csv", ".tsv"):
        return
    values = {str(value) for value in table.values(label)} if label else set()
    names = [name for name in table.columns if name]
    sentences = [name for name in names if len(name.split()) > LONGEST_NAME]
    if label in values or sentences or any(to_number(name) is not None for name in names):
        shown = ", ".join(map(repr, names))
        guess.doubts.append(
            f"are {shown} the names of the columns? if this line is a row, which is not read now, "
            "write a line with names before it"
        )


def _guess_type(table: Table, label: str, values: Sequence[Any], guess: Guess) -> tuple[str, str]:
    """Return the problem type that fits the labels, and the reason."""
    if any(
        isinstance(value, list) or (isinstance(value, str) and is_list(value)) for value in values
    ):
        return "multi_label_classification", f"{label!r} has lists"
    if separator := _find_separator(values):
        return "multi_label_classification", f"{label!r} has labels separated by {separator!r}"
    different = Counter(map(str, values))
    if len(guess.keys["text_columns"]) == 2:
        if different.keys() == {"0", "1"}:
            return "paraphrase", f"pairs of texts, and {label!r} is 0 or 1"
        if _are_scores(label, different):
            return "similarity", f"pairs of texts, and {label!r} has numbers"
    has_many = len(different) > min(MOST_CLASSES, max(2, len(values) // 2))
    if has_many and None not in map(to_number, different):
        guess.doubts.append("the labels are numbers, whose sizes are learned; are they names?")
        return "regression", f"{label!r} has {len(different):,} different numbers"
    if has_many:
        raise ValueError(
            f"{table.path}: {label!r} has {len(different):,} different values in {len(values):,} "
            f"rows, too many for classes; {table.describe()}: give --label_column"
        )
    return "classification", _describe_classes(label, different, guess)


def _are_scores(label: str, different: Mapping[str, int]) -> bool:
    """Tell whether labels are numbers on a scale."""
    is_scale = label.lower() in SCORE_NAMES or len(different) > MOST_SCORED_CLASSES
    return is_scale and None not in map(to_number, different)


def _describe_classes(label: str, different: Counter[str], guess: Guess) -> str:
    if len(different) > 2 and None not in map(to_number, different):
        guess.doubts.append(
            "the labels are numbers, which are learned as names without an order; if they are "
            "grades, such as stars, write problem_type: ordinal"
        )
    names = ", ".join(repr(name) for name, _ in different.most_common(SHOWN))
    more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
    return f"{label!r} has {len(different)} value{'s' * (len(different) > 1)}: {names}{more}"


def _find_separator(values: Sequence[Any]) -> str | None:
    """Return what separates several labels of a row: its parts occur again in other rows."""
    texts = [value for value in values if isinstance(value, str)]
    for separator in () if any(map(is_list, texts)) else SEPARATORS:
        joined = [text for text in texts if separator in text]
        parts = Counter(part.strip() for text in texts for part in text.split(separator))
        repeated = all(parts[part.strip()] > 1 for text in joined for part in text.split(separator))
        if joined and repeated and len(parts) < len(set(texts)):
            return separator
    return None


def _add_separator(values: Sequence[Any], guess: Guess) -> None:
    """Add the separator of labels, unless it is the default."""
    separator = _find_separator(values)
    if separator not in (None, SEPARATORS[0]):
        guess.keys["label_separator"] = separator


def _add_order(values: Sequence[Any], guess: Guess) -> None:
    """Add the labels of a scale, unless they are numbers, whose order is known."""
    different = sorted({str(value) for value in values})
    if None in map(to_number, different):
        guess.keys["labels"] = different
        guess.doubts.append("labels: write them in their order, the lowest first")


def _add_range(values: Sequence[Any], guess: Guess) -> None:
    """Choose the usual range that contains all scores."""
    numbers = [number for number in map(to_number, values) if number is not None]
    if len(numbers) < len(values):
        label = guess.keys["label_column"]
        raise ValueError(f"column {label!r} has values that are no numbers; give --label_column")
    low, high = min(numbers), max(numbers)
    usual = (each for each in RANGES if each[0] <= low and high <= each[1])
    guess.keys["score_range"] = list(next(usual, (math.floor(low), math.ceil(high))))
    guess.doubts.append(
        f"score_range: the scores are from {low:g} to {high:g}; write the range of their scale"
    )


WITHOUT_LABELS = ("contrastive",)
# Types that are recognized by their columns, in this order.
RECOGNIZERS: dict[str, Callable[[Table, Mapping[str, Any]], Guess | None]] = {
    "multiple_choice": guess_choices,
    "question_answering": _guess_questions,
    "token_classification": _guess_tags,
}
# Further keys of a type, from its labels.
MORE_KEYS: dict[str, Callable[[Sequence[Any], Guess], None]] = {
    "multi_label_classification": _add_separator,
    "ordinal": _add_order,
    "similarity": _add_range,
}
