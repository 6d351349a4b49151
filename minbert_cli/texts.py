"""The texts of ``minbert predict``: from the command line, a table, or lines of text."""

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
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
    read_lines,
    read_records,
    shorten,
)

CONLL = ".conll"
SEEN_LINES = 20  # that tell whether lines are a table
MOST_NAMED = 3  # rows in a message


@dataclass(frozen=True)
class Source:
    """Where texts come from; they can be read several times.

    Args:
        name: Name of the file, or of the input, for messages.
        given: Texts of the command line.
        path: File of the texts.
        piped: What came from the standard input, which cannot be read twice.
        columns: Columns of a table that a flag names.
        by_line: Whether a flag says that each line is a text, whatever the file looks like.
    """

    name: str
    given: Sequence[str] = ()
    path: Path | None = None
    piped: bytes | None = None
    columns: tuple[str, ...] = ()
    by_line: bool = False

    @classmethod
    def find(cls, args: argparse.Namespace) -> "Source":
        """Return the texts of the command line, of a file, or of the standard input."""
        if args.texts:
            return cls("command line", given=check_texts(args.texts))
        if args.file:
            return cls.open(args.file, args)
        if sys.stdin.isatty():
            raise ValueError(
                "no sentences: give texts or --file, or pipe lines to the standard input"
            )
        return cls("standard input", piped=sys.stdin.buffer.read(), by_line=args.lines)

    @classmethod
    def open(cls, path: Path, args: argparse.Namespace) -> "Source":
        """Return the texts of a file."""
        columns = tuple(args.text_columns or ())
        return cls(str(path), path=path, columns=columns, by_line=args.lines)

    @property
    def is_table(self) -> bool:
        """Whether the suffix is that of a table."""
        suffixes = (*FILE_SUFFIXES, CONLL)
        return self.path is not None and not self.by_line and find_suffix(self.name) in suffixes

    def lines(self) -> Iterator[str]:
        r"""Yield the lines; only \n and \r\n end one."""
        if self.given:
            yield from self.given
        elif self.piped is not None:
            yield from decode_lines(io.BytesIO(self.piped), self.name)
        else:
            with open_bytes(self.name) as file:
                yield from decode_lines(file, self.name)

    def rows(self, task: Any) -> Iterator[Any]:
        """Return the rows of a task, all of which are checked before the first one."""
        if self.is_table:
            table = Table(self, task, is_single=False)
            table.check()
            return (row for _, row in table.read())
        self.check_lines(task)
        for _ in make_rows(self.lines(), len(self.given), task):
            pass
        return make_rows(self.lines(), len(self.given), task)

    def singles(self, task: Any) -> tuple[list[str], list[int]]:
        """Return all texts, and their lines; ``task`` may say in which column they are."""
        if self.is_table:
            table = Table(self, task, is_single=True)
            table.check()
            rows = list(table.read())
            return [text for _, text in rows], [line for line, _ in rows]
        self.check_lines(task, is_single=True)
        texts = list(self.lines())
        if not texts:
            raise ValueError(f"no sentences: {self.name} is empty")
        return texts, list(range(1, len(texts) + 1))

    def check_lines(self, task: Any, *, is_single: bool = False) -> None:
        """Refuse no lines, and a table whose rows would be taken for texts."""
        first, *more = [*islice(self.lines(), SEEN_LINES)] or [""]
        if not first:
            raise ValueError(f"no sentences: {self.name} is empty")
        if self.columns:
            raise ValueError(
                f"--text_columns {' '.join(self.columns)}: {self.name} is no table; tables end in "
                f"{', '.join(FILE_SUFFIXES)}, or these and the suffix of a compressed file"
            )
        if self.given or self.by_line:
            return
        has_pairs = not is_single and task.num_texts > 1
        columns = stored_keys(task).get("text_columns", ())
        if looks_like_table([first, *more], columns, has_pairs=has_pairs):
            raise ValueError(
                f"{self.name}: the first line, {shorten(first)!r}, looks like that of a table, "
                "whose rows are no texts: give --file with a name that ends in .csv, .tsv or "
                ".jsonl, so that it is read as a table; or --lines, if each line is a text"
            )


def stored_keys(task: Any) -> Mapping[str, Any]:
    """Return the keys of a recipe by which rows of a task are read; none if they are unknown."""
    return getattr(task, "data_keys", None) or {}


def decode_lines(source: IO[bytes], name: str) -> Iterator[str]:
    r"""Decode lines of UTF-8; only \n and \r\n end a line."""
    for number, line in read_lines(source, name):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: not UTF-8 ({error.reason})") from error
        if is_blank(text):
            raise ValueError(f"{name}:{number}: the line is empty; remove it")
        yield text


def check_texts(given: Sequence[str]) -> Sequence[str]:
    """Return the texts of a command line; reject empty ones and those that are not UTF-8."""
    texts = list(map(to_unicode, given))
    for number, text in enumerate(texts, start=1):
        if is_blank(text):
            raise ValueError(f"text {number} is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"text {number}, {text!r}, is not UTF-8")
    return texts


def to_unicode(text: str) -> str:
    """Return an argument that Python has not read as UTF-8, since the locale is another one."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return text


def make_rows(texts: Iterator[str], given: int, task: Any) -> Iterator[Any]:
    """Yield texts, or the texts of a line with tabs as a row of a task.

    If any texts were ``given`` as arguments, some of them, or for a task with choices all, are a
    row.
    """
    if task.num_texts == 1:
        yield from texts
        return
    for number, text in enumerate(texts, start=1):
        columns = text.split("\t")
        if len(columns) == 1 and given:
            columns += list(islice(texts, None if task.offers_choices else 1))
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


class Table:
    """The rows of a task, or single texts, in a file with columns.

    Args:
        source: The file.
        task: The task, which knows the columns that it was trained on; None for single texts of any
            column.
        is_single: Whether single texts are needed, and not the rows of the task.
    """

    def __init__(self, source: Source, task: Any, *, is_single: bool) -> None:
        self.path, self.task = source.name, task
        self.stored = stored_keys(task)
        self.has_questions = not is_single and task.answers_questions
        self.has_words = not is_single and task.is_token_level and not self.has_questions
        self.has_choices = not is_single and task.offers_choices
        if is_single or self.has_words:
            self.counts: tuple[int, ...] = (1,)
        else:
            self.counts = (1 + task.has_question,) if self.has_choices else (task.num_texts,)
        self.columns = source.columns or tuple(self.stored.get("text_columns", ()))
        if self.has_questions:
            from datasets_scripts.formats import QuestionFormat  # tables are rare; it takes seconds

            self.columns = self.columns or QuestionFormat.default_keys["text_columns"]
        self.file_format = FileFormat()
        if find_suffix(self.path) == CONLL:
            self.columns = source.columns or ("0",)
        elif not (self.has_questions and find_suffix(self.path) == ".json"):
            self._choose_columns()

    def read(self) -> Iterator[tuple[int, Any]]:
        """Yield the rows with their lines."""
        for line, row, problem in self._read():
            if problem:  # which only a file that has changed since it was checked can have
                raise ValueError(f"{self.path}:{line}: {problem}")
            yield line, row

    def check(self) -> None:
        """Refuse a table with invalid rows, before anything is computed."""
        count = 0
        invalid: list[str] = []
        for line, _, problem in self._read():
            count += 1
            if problem:
                invalid.append(f"line {line}: {problem}")
        if invalid:
            raise ValueError(
                f"{self.path}: {len(invalid)} of {count} rows are invalid; the first are: "
                f"{'; '.join(invalid[:MOST_NAMED])}; correct or remove them"
            )

    def _choose_columns(self) -> None:
        """Choose the columns of the texts, and how the file is written."""
        delimiter, quoting = self.stored.get("delimiter"), self.stored.get("quoting")
        header = self.stored.get("header")
        formats = [FileFormat(), FileFormat(delimiter, quoting)]
        formats += [FileFormat(delimiter, quoting, tuple(header))] if header else []
        if not self.columns and self.has_words:
            self.columns = ("tokens",)
        # the format of training first, if the file has it
        for file_format in reversed(formats):
            found = list_columns(self.path, file_format)
            if set(self.columns) <= set(found):
                self.file_format = file_format
                break
        found = list_columns(self.path, self.file_format)
        named = f"its columns are {', '.join(map(repr, found))}"
        way = f"give --text_columns with {self._describe_columns()}, or --lines to read every line"
        if not self.columns and len(found) == 1 and 1 in self.counts:
            self.columns = tuple(found)
        if not self.columns:
            raise ValueError(f"{self.path}: which column has the texts? {named}: {way}")
        if missing := [column for column in self.columns if column not in found]:
            raise ValueError(f"{self.path}: no column {missing[0]!r}; {named}: {way}")
        if len(self.columns) not in self.counts:
            texts = ", ".join(map(repr, self.columns))
            raise ValueError(f"{self.path}: the texts are in {texts}; {named}: {way}")

    def _describe_columns(self) -> str:
        return "the column of the texts" if self.counts == (1,) else "the two columns of the texts"

    def _read(self) -> Iterator[tuple[int, Any, str]]:
        """Yield lines, rows and what is wrong with them."""
        if self.has_words:
            yield from self._read_words()
            return
        from datasets_scripts.formats import ChoiceFormat, QuestionFormat  # as above
        from datasets_scripts.sentence_formats import ContrastiveFormat

        row_format: Any = ContrastiveFormat(self.columns)
        if self.has_choices:
            choices = tuple(self.stored.get("choice_columns", ()))
            row_format = ChoiceFormat(self.columns, choice_columns=choices)
        if self.has_questions:
            row_format = QuestionFormat(self.columns)
        is_squad = self.has_questions and find_suffix(self.path) == ".json"
        records = (
            row_format.read(self.path, "test", self.file_format) if is_squad else self._records()
        )
        names = [name for name in row_format.text_names if name != "choices"]
        for number, record in enumerate(records):
            row = row_format.to_row(record, number, "test")
            texts = [row[name] for name in names]
            texts += [row.get("choices", [])] if self.has_choices else []
            yield record.line, texts[0] if len(texts) == 1 else tuple(texts), row["problem"]

    def _read_words(self) -> Iterator[tuple[int, Any, str]]:
        """Yield texts or lists of words."""
        from datasets_scripts.conll_squad import read_conll  # as above

        (column,) = self.columns
        is_conll = find_suffix(self.path) == CONLL
        records = read_conll(self.path, self.columns) if is_conll else self._records()
        for record in records:
            value = record.values.get(column)
            words = value if isinstance(value, list) else [value]
            is_text = all(isinstance(word, str) for word in words)
            problem = "" if is_text and not all(map(is_blank, words)) else "no text and no words"
            yield record.line, value, record.problem or (problem and f"{problem} in {column!r}")

    def _records(self) -> Iterator[Record]:
        choices = self.stored.get("choice_columns", ()) if self.has_choices else ()
        columns = (*self.columns, *choices)
        return read_records(self.path, columns, file_format=self.file_format)
