"""What the rows of a file say about their task: columns, problem type, labels."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from datasets_scripts.conll_squad import read_conll, read_squad
from datasets_scripts.readers import FILE_SUFFIXES, find_suffix, is_list, read_records

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
