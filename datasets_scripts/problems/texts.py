"""Turn a raw record into a row with known columns, or say why it cannot be used."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import datasets

from datasets_scripts.catalog import FileFormat
from datasets_scripts.files.readers import PLAIN_FORMAT, Record, read_records, shorten
from datasets_scripts.tasks.task_data import is_test

MAX_LABELS_SHOWN = 10
UNDECIDED = "undecided"  # the problem of a row on which the annotators did not agree


@dataclass(frozen=True)
class RowFormat:
    """How the records of a task become rows.

    Args:
        problem_type: ``classification``, ``paraphrase``, ``similarity`` or ``contrastive``.
        text_columns: Columns with the sentences.
        label_column: Column with the label; None if there are none.
        id_column: Column with the row id; None takes a column ``id``, else the row's number.
        labels: Names of the classes of a classification task.
        score_range: Lowest and highest score of a similarity task.
        undecided: Labels of rows on which the annotators did not agree.
    """

    problem_type: str
    text_columns: tuple[str, ...]
    label_column: str | None
    id_column: str | None = None
    labels: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    undecided: tuple[str, ...] = ()

    @property
    def features(self) -> datasets.Features:
        """Columns of the rows; ``line`` and ``problem`` say where and what is wrong."""
        sentences = [f"sentence{number}" for number, _ in enumerate(self.text_columns, start=1)]
        label = "float32" if self.problem_type == "similarity" else "int64"
        types = {"id": "string", **dict.fromkeys(sentences, "string"), "label": label}
        types |= {"line": "int64", "problem": "string"}
        return datasets.Features({name: datasets.Value(kind) for name, kind in types.items()})

    def required_columns(self, split: str) -> tuple[str, ...]:
        """Columns that the rows of a split must have; test rows need no label."""
        label = () if is_test(split) or self.label_column is None else (self.label_column,)
        ids = () if self.id_column is None else (self.id_column,)
        return (*self.text_columns, *label, *ids)

    def read(
        self, path: str, split: str, file_format: FileFormat = PLAIN_FORMAT
    ) -> Iterator[Record]:
        """Read the records of a file; see `read_records`. Test files name their own columns."""
        if is_test(split):
            file_format = replace(file_format, header=None)
        return read_records(path, self.required_columns(split), file_format=file_format)

    def to_row(self, record: Record, number: int, split: str) -> dict[str, Any]:
        """Convert one record.

        Args:
            record: The record as it was read.
            number: Number of the record in its split, from 0.
            split: Its split; a test row may have no label.

        Returns:
            A row with ``features``; ``problem`` is empty if the row can be used.
        """
        texts = [record.values.get(column) for column in self.text_columns]
        problem = record.problem or find_text_problem(self.text_columns, texts)
        raw = to_text(record.values.get(self.label_column or ""))
        label, label_problem = self._parse_label(raw)
        if self.label_column is None:
            label, label_problem = None, ""
        # GLUE writes -1 where the label of a test row is kept secret.
        if is_test(split) and label is None and raw in {"", "-1"}:
            label_problem = ""
        row: dict[str, Any] = {
            f"sentence{place}": text.strip() if isinstance(text, str) else ""
            for place, text in enumerate(texts, start=1)
        }
        row_id = to_text(record.values.get(self.id_column or "id"))
        if not record.problem:
            problem = ", ".join(filter(None, (problem, label_problem)))
        if raw in self.undecided:
            problem = UNDECIDED
        elif problem and row_id:
            problem = f"{problem} (id {row_id})"
        row |= {"id": row_id or str(number), "label": None if problem else label}
        return row | {"line": record.line, "problem": problem}

    def _parse_label(self, raw: str) -> tuple[int | float | None, str]:
        """Convert a label; returns it with an empty text, or None with the reason."""
        if not raw:
            return None, "no label"
        if self.problem_type == "classification":
            return self._parse_class(raw)
        shown = shorten(raw)
        try:
            value = float({"true": "1", "false": "0"}.get(raw.lower(), raw))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            return None, f"label {shown!r} is not a number"
        if self.problem_type == "paraphrase":
            if value not in {0.0, 1.0}:
                return None, f"label {shown!r} is out of range; allowed are 0 and 1"
            return int(value), ""
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= value <= high:
            return None, f"label {shown!r} is out of range; allowed is {low:g} to {high:g}"
        return value, ""

    def _parse_class(self, raw: str) -> tuple[int | None, str]:
        labels = self.labels or ()
        if raw in labels:
            return labels.index(raw), ""
        # Class numbers stand for names only if no name could be meant by them.
        numbers = [] if any(_is_number(label) for label in labels) else range(len(labels))
        if raw in map(str, numbers):
            return int(raw), ""
        shown = ", ".join(map(repr, labels[:MAX_LABELS_SHOWN]))
        shown += ", ..." if len(labels) > MAX_LABELS_SHOWN else ""
        extra = f" or their numbers 0 to {len(labels) - 1}" if numbers else ""
        return None, f"label {shorten(raw)!r} is not among the labels {shown}{extra}"


def to_text(value: Any) -> str:
    """Write a label or an id as text; a missing value is empty, and 1.0 is written as 1."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(value).strip()
    return text.removesuffix(".0") if _is_number(text) and text.endswith(".0") else text


def infer_labels(values: Iterable[Any]) -> tuple[str, ...]:
    """List the distinct labels: numbers by size if all are numbers, else sorted as text."""
    labels = {text for value in values if (text := to_text(value))}
    if all(_is_number(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def find_text_problem(columns: tuple[str, ...], texts: list[Any]) -> str:
    """Say what is wrong with the texts of a row; nothing if they can be used."""
    for column, text in zip(columns, texts, strict=True):
        if text is None or (isinstance(text, str) and not text.strip()):
            return f"empty text in column {column!r}"
        if not isinstance(text, str):
            return f"column {column!r} holds {text!r}, not text"
    return ""
