"""Contexts with several choices, one of which is right (Zellers et al. 2018, SWAG)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, ClassVar, NamedTuple, Self

import datasets

from datasets_scripts.files.characters import is_blank
from datasets_scripts.files.readers import Record, shorten
from datasets_scripts.files.splits import is_test
from datasets_scripts.files.values import Converter, to_columns

from .encoding.choices import encode_choices
from .row_format import Row, RowSource, add_id, list_names, make_features, normalize_value
from .sentences import SentenceFormat

EXPECTED_CHOICES = 4  # of a task whose rows have not been read


class Choices(NamedTuple):
    """The choices of a row."""

    texts: tuple[str, ...]
    names: tuple[str, ...] | None = None  # by which the label may name them, such as letters


@dataclass(frozen=True)
class ChoiceFormat(SentenceFormat):
    """Rows with a context, ``sentence1``, ``choices`` and the index of the right one, ``label``.

    A second text, ``sentence2``, is put before every choice: a question, or the start of a sentence
    that the choices end. ``choice_columns`` are a column for each choice, or one column of lists,
    whose length may differ. ``labels`` are names of the choices in their order, for the label.
    """

    choice_columns: tuple[str, ...] = ()
    num_choices: int | None = None  # of a row, at most; from the rows

    problem_type = "multiple_choice"
    has_unlabeled_rows = False
    text_counts = (1, 2)
    own_keys = ("label_column", "labels")
    options: ClassVar[Mapping[str, Converter]] = {"choice_columns": to_columns}

    @property
    def features(self) -> datasets.Features:
        return datasets.Features({**super().features, **make_features(choices=["string"])})

    @property
    def text_names(self) -> tuple[str, ...]:
        return (*super().text_names, "choices")

    @property
    def shared_names(self) -> tuple[str, ...]:
        return ("sentence1",)

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return None  # the choices of every row are others

    def required_columns(self, split: str) -> tuple[str, ...]:
        return (*super().required_columns(split), *self.choice_columns)

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        if not self.choice_columns:
            raise ValueError(
                f"{where}: choice_columns is missing; give a column for each choice, such as "
                "[ending0, ending1], or one column with lists of choices"
            )
        labels = self.labels or sources["train"].class_names(self)
        known = replace(self, labels=labels)
        count = len(self.choice_columns)
        if count == 1:
            count = max(map(known.count_choices, sources.values()))
        if count < 2:
            raise ValueError(
                f"{where}: column {self.choice_columns[0]!r} has no list of at least two choices; "
                "check choice_columns"
            )
        if labels is not None and len(labels) < count:
            raise ValueError(
                f"{where}: labels={list(labels)} must name all of the {count} choices of a row"
            )
        return replace(known, num_choices=count)

    def count_choices(self, source: RowSource) -> int:
        """Return the largest number of choices of a row, 0 if none is valid."""
        return max((len(self._try_choices(each).texts) for each in source.read(self)), default=0)

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        label: Any = values.get(self.label_column or "")
        if names is not None and isinstance(label, int) and 0 <= label < len(names):
            values = {**values, str(self.label_column): names[label]}
        return Record(number + 1, values)

    def to_row(self, record: Record, number: int, split: str) -> Row:
        texts, row_id, problem = self.read_texts(record)
        choices, label = Choices(()), None
        try:
            if not problem:
                choices = self.read_choices(record)
                label = self._read_label(record, choices, split)
        except ValueError as error:
            problem = str(error)
        sentences = (f"sentence{place}" for place, _ in enumerate(texts, start=1))
        return {
            "id": row_id or str(number),
            **dict(zip(sentences, map(str.strip, texts), strict=True)),
            "choices": list(map(str.strip, choices.texts)),
            "label": None if problem else label,
            "line": record.line,
            "problem": add_id(problem, row_id),
        }

    def read_choices(self, record: Record) -> Choices:
        """Return the choices of a record; the message of a ValueError is the problem of the row."""
        values = [record.values.get(column) for column in self.choice_columns]
        if len(values) > 1:
            places = [f"column {column!r}" for column in self.choice_columns]
            return Choices(_check_texts(values, places))
        column = self.choice_columns[0]
        found = _list_choices(values[0])
        if found is None:
            raise ValueError(
                f"column {column!r} holds {shorten(repr(values[0]))}, not a list of choices"
            )
        texts, names = found
        if len(texts) < 2:
            raise ValueError(
                f"column {column!r} has {len(texts)} choice(s), at least two are needed"
            )
        places = [f"choice {number} of column {column!r}" for number, _ in enumerate(texts)]
        return Choices(_check_texts(texts, places), names)

    def parse_label(self, text: str) -> int:
        """Convert a label of a row with as many choices as possible."""
        return self.parse_choice(text, Choices(("",) * (self.num_choices or 0)))

    def parse_choice(self, text: str, choices: Choices) -> int:
        """Return the index of the choice that a label names."""
        count = len(choices.texts)
        names = (self.labels or choices.names or ())[:count]
        if text in names:
            return names.index(text)
        if not names:
            numbers, letters = list(map(str, range(count))), list(ascii_uppercase[:count])
            for each in (numbers, letters):
                if text.upper() in each:
                    return each.index(text.upper())
            names = (*numbers, *letters)
        known = f"the {count} choices are named {list_names(names)}"
        raise ValueError(f"label {shorten(text)!r} names no choice; {known}")

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        columns = [rows[name][:] for name in self.text_names]
        for *texts, choices in zip(*columns, strict=True):
            yield from (*texts, *choices)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        counts = {"num_choices": self.num_choices or len(self.choice_columns)}
        return encode_choices(rows, tokenizer, **counts | options)

    def head_facts(self, train: datasets.Dataset) -> dict[str, Any]:
        own = len(self.choice_columns) if len(self.choice_columns) > 1 else EXPECTED_CHOICES
        return super().head_facts(train) | {"num_choices": self.num_choices or own}

    def _try_choices(self, record: Record) -> Choices:
        try:
            return self.read_choices(record)
        except ValueError:
            return Choices(())

    def _read_label(self, record: Record, choices: Choices, split: str) -> int | None:
        text = normalize_value(record.values.get(str(self.label_column)))
        if is_test(split) and text in {"", "-1"}:  # kept secret
            return None
        if not text:
            raise ValueError("no label")
        return self.parse_choice(text, choices)


def _check_texts(values: Sequence[Any], places: Sequence[str]) -> tuple[str, ...]:
    """Check that all choices are texts; `places` name them."""
    for value, place in zip(values, places, strict=True):
        if value is None or (isinstance(value, str) and is_blank(value)):
            raise ValueError(f"empty text in {place}")
        if not isinstance(value, str):
            raise ValueError(f"{place} holds {shorten(repr(value))}, not text")  # noqa: TRY004
    return tuple(values)


def _list_choices(value: Any) -> tuple[list[Any], tuple[str, ...] | None] | None:
    """List choices, and their names if they have any; None if a value is no list of choices.

    A value is a list of texts, a list of ``{"label": "A", "text": ...}``, or two lists,
    ``{"label": ["A", ...], "text": [...]}``, as in the copies of CommonsenseQA and ARC on the Hub.
    """
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value) and value:
        value = {key: [each.get(key) for each in value] for key in ("label", "text")}
    if isinstance(value, list):
        return value, None
    if not isinstance(value, Mapping):
        return None
    names, texts = value.get("label"), value.get("text")
    if not isinstance(names, list) or not isinstance(texts, list) or len(names) != len(texts):
        return None
    return texts, tuple(map(normalize_value, names))
