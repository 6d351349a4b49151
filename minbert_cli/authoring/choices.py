"""Guess whether a file has contexts with several choices, and in which columns."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .columns import Guess, Table, count_words, find_texts

# Usual names of a column of lists, and of columns that are numbered, in lower case.
LIST_NAMES = ("choices", "options", "endings", "candidates", "alternatives", "answers")
NUMBERED = re.compile(
    r"(ending|choice|option|answer|alternative|candidate|opt|sol)[ _-]?([0-9a-j])"
)
ANSWER_NAMES = ("label", "answer", "answerkey", "answer_key", "gold", "correct", "correct_answer")
CONTEXT_PAIRS = (
    *(("sent1", "sent2"), ("article", "question"), ("passage", "question")),
    ("context", "question"),
)


def guess_choices(table: Table, given: Mapping[str, Any]) -> Guess | None:
    """Recognize choices by the names of their columns, beside that of the right one."""
    choices = _find_choices(table, given)
    label = given["label_column"] or _find_answer(table, choices)
    if not choices or label is None:
        return None
    guess = Guess("multiple_choice")
    guess.reasons.append(
        f"problem_type: {choices[0]!r} has lists of choices"
        if len(choices) == 1
        else f"problem_type: {', '.join(map(repr, choices))} are choices, by their names"
    )
    texts = given["text_columns"] or _find_contexts(table, [*choices, label], guess)
    guess.reasons.append(f"label_column: {label!r}, which names the right choice")
    guess.keys |= {"text_columns": list(texts), "choice_columns": choices, "label_column": label}
    return guess


def _find_choices(table: Table, given: Mapping[str, Any]) -> list[str]:
    """Return a column for each choice, or the one with lists of them."""
    taken = {given["label_column"], *(given["text_columns"] or ())}
    rest = [name for name in table.columns if name not in taken]
    lists = [name for name in rest if name.lower() in LIST_NAMES and _has_lists(table, name)]
    if lists:
        return lists[:1]
    groups: dict[str, list[str]] = {}
    for name in rest:
        matched = NUMBERED.fullmatch(name.lower())
        if matched and count_words(table.values(name)):
            groups.setdefault(matched[1], []).append(name)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def _has_lists(table: Table, name: str) -> bool:
    """Tell whether a column has lists of texts, of named texts, or two lists of names and texts."""
    values = table.values(name)
    parts = [one.get("text") if isinstance(one, dict) and "label" in one else one for one in values]
    return bool(values) and all(isinstance(one, list) and len(one) > 1 for one in parts)


def _find_answer(table: Table, choices: Sequence[str]) -> str | None:
    names = {name.lower(): name for name in table.columns if name not in choices}
    return next((names[name] for name in ANSWER_NAMES if name in names), None)


def _find_contexts(table: Table, others: Sequence[str], guess: Guess) -> list[str]:
    """Find a usual pair of a context and a question, else the texts."""
    rest = [name for name in table.columns if name not in others]
    names = {name.lower(): name for name in rest}
    for pair in CONTEXT_PAIRS:
        if set(pair) <= names.keys():
            found = [names[name] for name in pair]
            guess.reasons.append(f"text_columns: {found[0]!r} and {found[1]!r}, by their names")
            return found
    return find_texts(table, others, guess)
