"""The texts of ``minbert predict``: from the command line, lines of text, or a table."""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from datasets_scripts.readers import (
    DELIMITERS,
    FILE_SUFFIXES,
    FileFormat,
    Record,
    find_suffix,
    is_blank,
    list_columns,
    open_bytes,
    parse_json,
    read_conll,
    read_lines,
    read_records,
    shorten,
)
from modeling_minbert import MinBertTask

CONLL = ".conll"
# Texts of a row: one, several, several with choices, or words.
TextRow = Any
SEEN_LINES = 20  # that tell whether lines are a table
MOST_NAMED = 3  # rows in a message


@dataclass(frozen=True)
class Source:
    """Where texts come from.

    Args:
        name: Name of the file, or of the input, for messages.
        lines: The lines; None for a table.
        columns: Columns of a table that a flag names.
        is_checked: Whether each line is a text, whatever it looks like.
        is_given: Whether the lines are words of the command line.
    """

    name: str
    lines: Sequence[str] | None
    columns: tuple[str, ...] = ()
    is_checked: bool = False
    is_given: bool = False

    @classmethod
    def open(cls, args: SimpleNamespace, path: Path | None = None) -> "Source":
        """Read the texts of a file, of the command line, or of the standard input."""
        path = path or args.file
        if args.texts and path is None:
            return cls("command line", check_texts(args.texts), is_checked=True, is_given=True)
        if path is None:
            if sys.stdin.isatty():
                raise ValueError(
                    "no sentences: give texts or --file, or pipe lines to the standard input"
                )
            name = "standard input"
            lines = decode_lines(sys.stdin.buffer, name)
        else:
            name, columns = str(path), tuple(args.text_columns or ())
            if not args.lines and find_suffix(name) in (*FILE_SUFFIXES, CONLL):
                return cls(name, None, columns)
            if columns:
                raise ValueError(
                    f"--text_columns {' '.join(columns)}: {name} is no table; tables end in "
                    f"{', '.join(FILE_SUFFIXES)}, or these and the suffix of a compressed file"
                )
            with open_bytes(name) as file:
                lines = decode_lines(file, name)
        if not lines:
            raise ValueError(f"no sentences: {name} is empty")
        return cls(name, lines, is_checked=args.lines)

    def rows(self, task: MinBertTask) -> list[TextRow]:
        """Return the rows of a task, all of which are checked."""
        if self.lines is None:
            return [row for _, row in read_table(self, task)]
        self._check_lines(task, has_pairs=task.num_texts > 1)
        return list(make_rows(self.lines, task, is_given=self.is_given))

    def singles(self, task: MinBertTask | None) -> tuple[list[str], list[int]]:
        """Return all texts, and their lines; ``task`` may say in which column they are."""
        if self.lines is None:
            rows = read_table(self, task, is_single=True)
            return [text for _, text in rows], [line for line, _ in rows]
        self._check_lines(task, has_pairs=False)
        return list(self.lines), list(range(1, len(self.lines) + 1))

    def _check_lines(self, task: MinBertTask | None, *, has_pairs: bool) -> None:
        """Refuse a table whose rows would be taken for texts."""
        first = list(self.lines or ())[:SEEN_LINES]
        columns = stored_keys(task).get("text_columns", ())
        if not self.is_checked and looks_like_table(first, columns, has_pairs=has_pairs):
            raise ValueError(
                f"{self.name}: the first line, {shorten(first[0])!r}, looks like that of a table, "
                "whose rows are no texts: give --file with a name that ends in .csv, .tsv or "
                ".jsonl, so that it is read as a table; or --lines, if each line is a text"
            )


def stored_keys(task: MinBertTask | None) -> Mapping[str, Any]:
    """Return the keys of a recipe by which rows of a task are read; none if they are unknown."""
    return getattr(task, "data_keys", None) or {}


def decode_lines(source: IO[bytes], name: str) -> list[str]:
    r"""Decode lines of UTF-8; only \n and \r\n end a line."""
    lines = []
    for number, line in read_lines(source, name):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: not UTF-8 ({error.reason})") from error
        if is_blank(text):
            raise ValueError(f"{name}:{number}: the line is empty; remove it")
        lines.append(text)
    return lines


def check_texts(given: Iterable[str]) -> list[str]:
    """Return the texts of a command line; reject empty ones and those that are not UTF-8."""
    texts = []
    for number, text in enumerate(given, start=1):
        if is_blank(text):
            raise ValueError(f"text {number} is empty")
        try:
            # what Python has not read as UTF-8, since the locale is another one
            texts.append(text.encode("utf-8", "surrogateescape").decode("utf-8"))
        except UnicodeError:
            raise ValueError(f"text {number}, {text!r}, is not UTF-8") from None
    return texts


def make_rows(texts: Iterable[str], task: MinBertTask, *, is_given: bool) -> Iterator[TextRow]:
    """Yield texts, or the texts of a line with tabs as a row of a task.

    Of words that are ``given`` on a command line two, or for a task with choices all, are a row.
    """
    if task.num_texts == 1:
        yield from texts
        return
    rest = iter(texts)
    for number, text in enumerate(rest, start=1):
        columns = text.split("\t")
        if len(columns) == 1 and is_given:
            columns += islice(rest, None if task.offers_choices else 1)
        try:
            yield task.make_row(columns)
        except ValueError as error:
            raise ValueError(f"row {number} has {error}") from None


def looks_like_table(lines: Sequence[str], columns: Sequence[str], *, has_pairs: bool) -> bool:
    """Tell whether the first lines have names of columns, or are JSON lines.

    Args:
        lines: The first lines.
        columns: Columns that the task was trained on.
        has_pairs: Whether tabs separate the texts of a row.
    """
    first = lines[0].strip()
    if first.startswith("{") and parse_json(1, first).values:
        return True
    for delimiter in DELIMITERS:
        rows = list(csv.reader(lines, delimiter=delimiter))
        header = [name.strip() for name in rows[0]]
        if len(header) > 1 and columns and set(columns) <= set(header):
            return True
        has_names = len(header) > 1 and all(map(str.isidentifier, header))
        if has_names and not (has_pairs and delimiter == "\t"):
            return len(rows) > 1 and {len(row) for row in rows} == {len(header)}
    return False


@dataclass(frozen=True)
class Layout:
    """Where the rows of a task are in a table."""

    row_format: Any  # class of the rows; None for words
    columns: tuple[str, ...]  # of texts; empty if they are unknown
    choices: tuple[str, ...] = ()
    num_texts: int = 1


def find_layout(source: Source, task: MinBertTask | None, *, is_single: bool) -> Layout:
    """Return the columns that a flag names, or the task was trained on, and the format of rows."""
    # tables are rare, and the formats take seconds
    from datasets_scripts.formats import ChoiceFormat, QuestionFormat
    from datasets_scripts.sentence_formats import ContrastiveFormat

    stored = stored_keys(task)
    columns = source.columns or tuple(stored.get("text_columns", ()))
    if is_single or task is None:
        return Layout(ContrastiveFormat, columns)
    if task.answers_questions:
        columns = columns or QuestionFormat.default_keys["text_columns"]
        return Layout(QuestionFormat, columns, num_texts=2)
    if task.offers_choices:
        choices = tuple(stored.get("choice_columns", ()))
        return Layout(ChoiceFormat, columns, choices, 1 + getattr(task, "has_question", 0))
    if task.is_token_level:
        return Layout(None, columns or ("tokens",))
    return Layout(ContrastiveFormat, columns, num_texts=task.num_texts)


def read_table(
    source: Source, task: MinBertTask | None, *, is_single: bool = False
) -> list[tuple[int, TextRow]]:
    """Read the rows of a task, or single texts of any column, with their lines.

    Args:
        source: The file.
        task: The task, which knows the columns that it was trained on; None for single texts.
        is_single: Whether single texts are needed, and not the rows of the task.

    Raises:
        ValueError: If the columns are not clear, or rows are invalid.
    """
    path, suffix = source.name, find_suffix(source.name)
    layout = find_layout(source, task, is_single=is_single)
    columns = layout.columns
    records: Iterable[Record]
    if suffix == CONLL:
        columns = source.columns or ("0",)
        records = read_conll(path, columns)
    elif suffix == ".json" and not is_single and task is not None and task.answers_questions:
        records = layout.row_format(columns).read(path, "test", FileFormat())
    else:
        columns, file_format = choose_columns(path, columns, stored_keys(task), layout.num_texts)
        records = read_records(path, (*columns, *layout.choices), file_format=file_format)
    if layout.row_format is None:
        read = partial(_read_words, column=columns[0])
    else:
        choices = {"choice_columns": layout.choices} if layout.choices else {}
        read = partial(_read_texts, layout.row_format(columns, **choices))
    rows, invalid = [], []
    for record in records:
        row, problem = read(record)
        rows.append((record.line, row))
        if problem:
            invalid.append(f"line {record.line}: {problem}")
    if invalid:
        raise ValueError(
            f"{path}: {len(invalid)} of {len(rows)} rows are invalid; the first are: "
            f"{'; '.join(invalid[:MOST_NAMED])}; correct or remove them"
        )
    return rows


def _read_texts(row_format: Any, record: Record) -> tuple[TextRow, str]:
    """Return the texts of a row, and what is wrong with them."""
    values = row_format.to_row(record, 0, "test")
    texts = [values.get(name, []) for name in row_format.text_names]
    return texts[0] if len(texts) == 1 else tuple(texts), values["problem"]


def choose_columns(
    path: str, columns: tuple[str, ...], stored: Mapping[str, Any], count: int
) -> tuple[tuple[str, ...], FileFormat]:
    """Choose the columns of one or two texts, and how the file is written."""
    delimiter, quoting = stored.get("delimiter"), stored.get("quoting")
    formats = [FileFormat(delimiter, quoting), FileFormat()]
    if header := stored.get("header"):
        formats.insert(0, FileFormat(delimiter, quoting, tuple(header)))
    # the format of training first, if the file has it
    for file_format in formats:
        present = list_columns(path, file_format)
        if set(columns) <= set(present):
            break
    if not columns and len(present) == 1 and count == 1:
        columns = tuple(present)
    named = f"its columns are {', '.join(map(repr, present))}"
    wanted = "the column of the texts" if count == 1 else "the two columns of the texts"
    way = f"{named}: give --text_columns with {wanted}, or --lines to read every line"
    if not columns:
        raise ValueError(f"{path}: which column has the texts? {way}")
    if missing := [column for column in columns if column not in present]:
        raise ValueError(f"{path}: no column {missing[0]!r}; {way}")
    if len(columns) != count:
        raise ValueError(f"{path}: the texts are in {', '.join(map(repr, columns))}; {way}")
    return columns, file_format


def _read_words(record: Record, column: str) -> tuple[TextRow, str]:
    """Return a text or a list of words, and what is wrong with it."""
    value = record.values.get(column)
    words = value if isinstance(value, list) else [value]
    is_text = all(isinstance(word, str) for word in words) and not all(map(is_blank, words))
    return value, record.problem or ("" if is_text else f"no text and no words in {column!r}")
