"""Read CSV, TSV, JSON-lines and Parquet files record by record, with line numbers."""

import csv
import glob
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import datasets

from datasets_scripts.catalog import FileFormat
from datasets_scripts.tasks.task_data import FILE_SUFFIXES

from .compression import OPENERS, find_suffix, is_compressed, open_bytes

LARGEST_FIELD = 100_000_000  # characters of a field; the standard of csv, 131,072, is too few
PLAIN_FORMAT = FileFormat()
MAX_SHOWN = 40  # characters of a value in a message
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}


@dataclass(frozen=True)
class Record:
    """One record of a file.

    Args:
        line: Line on which the record begins, from 1; in a Parquet file the row, from 1.
        values: Values by column; empty when the record could not be read.
        problem: Why it could not be read, else empty.
    """

    line: int
    values: Mapping[str, Any]
    problem: str = ""


def read_records(
    path: str, columns: tuple[str, ...], *, file_format: FileFormat = PLAIN_FORMAT
) -> Iterator[Record]:
    """Read a file record by record.

    Args:
        path: The file; its suffix gives the format.
        columns: Columns that must be there.
        file_format: How a delimited file is written.

    Yields:
        Every record, also those that cannot be used.

    Raises:
        ValueError: If the file cannot be read as what its suffix says, or lacks a column.
        FileNotFoundError: If there is no such file.
    """
    check_file(path)
    suffix = find_suffix(path)
    if suffix == ".parquet":
        records = _read_parquet(path, columns)
    elif suffix in {".csv", ".tsv"}:
        delimiter = file_format.delimiter or ("," if suffix == ".csv" else "\t")
        records = _read_delimited(path, columns, replace(file_format, delimiter=delimiter))
    else:
        records = _read_json_lines(path, columns)
    is_empty = True
    try:
        for record in records:
            is_empty = False
            yield record
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file is not UTF-8 ({error.reason}); save it with that encoding"
        ) from error
    if is_empty:
        raise ValueError(f"{path}: the file has no rows, only a header")


def check_file(path: str, suffixes: tuple[str, ...] = FILE_SUFFIXES) -> None:
    """Refuse a file that is missing, empty, or of an unknown format.

    Args:
        path: The file.
        suffixes: The formats that are known.

    Raises:
        ValueError: If the file is empty or its suffix unknown.
        FileNotFoundError: If there is no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; check the path and the data_dir that it is in"
        )
    if Path(path).stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty; there is nothing to learn from")
    suffix = find_suffix(path)
    if suffix not in suffixes:
        raise ValueError(
            f"{path}: unknown suffix {suffix!r}; known: {', '.join(filter(None, suffixes))}, each "
            f"also compressed ({', '.join(OPENERS)}); rename the file, or convert it"
        )
    if suffix == ".parquet" and is_compressed(path):
        raise ValueError(f"{path}: Parquet compresses by itself; decompress the file")


def _read_delimited(
    path: str, columns: tuple[str, ...], file_format: FileFormat
) -> Iterator[Record]:
    delimiter = str(file_format.delimiter)
    header = None if file_format.header is None else list(file_format.header)
    lines = _split_quoted if file_format.quoting else _split_lines
    for line, values in lines(path, delimiter):
        if header is None:
            header = [value.strip() for value in values]
            check_header(path, header, columns, delimiter)
        elif values:  # an empty line is no record
            yield _row_to_record(line, header, values)


def _split_quoted(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file into records, with the line on which each begins."""
    csv.field_size_limit(LARGEST_FIELD)
    with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        # strict: a quote that is never closed must not swallow the rows after it in silence.
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        start = 1
        try:
            for values in reader:
                yield start, values
                start = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{path}:{start}: a record that begins here cannot be read ({error}); a field "
                "with quotes must be in quotes, and a quote inside it doubled"
            ) from error


def _split_lines(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file in which quotes mean nothing: a line is a record."""
    with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            text = line.rstrip("\r\n")
            yield number, text.split(delimiter) if text else []


def _row_to_record(line: int, header: list[str], values: list[str]) -> Record:
    if len(values) != len(header):
        amount = "few" if len(values) < len(header) else "many"
        problem = f"too {amount} columns ({len(values)}, the header has {len(header)})"
        return Record(line, {}, problem)
    # Reversed, so that the first of two columns with one name wins.
    return Record(line, dict(zip(reversed(header), reversed(values), strict=True)))


def check_header(
    path: str, header: list[str], columns: tuple[str, ...], delimiter: str = ""
) -> None:
    """Refuse a file that lacks a column.

    Args:
        path: The file, for the message.
        header: Its columns.
        columns: Columns that must be there.
        delimiter: Separator of a delimited file.

    Raises:
        ValueError: If a column is missing; the message says what was found.
    """
    missing = [column for column in columns if column not in header]
    if not missing:
        return
    hint = "name the columns that are there"
    found = delimiter.join(header)
    for other, name in DELIMITERS.items():
        if delimiter and other != delimiter and set(columns) <= set(found.split(other)):
            hint = (
                f"the file is {name}-separated, but was read as {DELIMITERS[delimiter]}-separated"
                " (.csv means comma, .tsv means tab)"
            )
    raise ValueError(f"{path}: no column {missing}; the columns found are {header}; {hint}")


def _read_json_lines(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    is_checked = False
    with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            if line == 1 and text.lstrip().startswith("["):
                raise ValueError(f"{path}: a JSON array; write one JSON object on each line")
            record = parse_json(line, text)
            if not is_checked and not record.problem:
                check_header(path, list(record.values), columns)
                is_checked = True
            yield record


def parse_json(line: int, text: str) -> Record:
    """Read the JSON object of a line."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        return Record(line, {}, f"not valid JSON ({error.msg})")
    if not isinstance(values, dict):
        return Record(line, {}, "not a JSON object")
    return Record(line, values)


def _read_parquet(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    # A streaming reader needs no second copy of the rows in the cache.
    try:
        rows = datasets.IterableDataset.from_parquet(glob.escape(path))
        header = list(rows.column_names or [])
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({error})") from error
    check_header(path, header, columns)
    for line, values in enumerate(rows, start=1):
        yield Record(line, values)


def shorten(text: str) -> str:
    """Cut a value for a message."""
    return f"{text[:MAX_SHOWN]}..." if len(text) > MAX_SHOWN else text
