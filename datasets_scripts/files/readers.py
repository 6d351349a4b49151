"""Read CSV, TSV, JSON-lines and Parquet files record by record, with line numbers."""

import csv
import glob
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import datasets

from .compression import OPENERS, find_suffix, is_compressed, open_text
from .lines import LONGEST_ROW, check_length, read_lines
from .stray_quotes import StrayQuotes

logger = logging.getLogger(__name__)

FILE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
MAX_SHOWN = 40  # characters of a value in a message
# Half of a character, which JSON allows, or of a pair that is one.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}


@dataclass(frozen=True)
class FileFormat:
    """How the delimited files of a dataset are written."""

    delimiter: str | None = None  # None derives it from the header and the suffix
    # Whether a quoted field may contain separators, or quotes are text; None refuses quoted fields
    # that look as if stray quotes had joined several rows.
    quoting: bool | None = None
    header: tuple[str, ...] | None = None  # of training and validation files without a header line


PLAIN_FORMAT = FileFormat()


@dataclass(frozen=True)
class Record:
    """One record of a file."""

    line: int  # its first one, from 1; in Parquet files and on the Hub its row
    values: Mapping[str, Any]  # by column; empty if the record could not be read
    problem: str = ""  # why it could not be read, else empty
    is_multiline: bool = False  # whether each item of its lists is on its own line

    def line_of(self, item: int) -> int:
        """Return the line of an item of its lists."""
        return self.line + item if self.is_multiline else self.line


def read_records(
    path: str, columns: tuple[str, ...], *, file_format: FileFormat = PLAIN_FORMAT
) -> Iterator[Record]:
    """Read a file record by record, including invalid ones; its suffix determines the format."""
    check_file(path)
    suffix = find_suffix(path)
    if suffix == ".parquet":
        records = _read_parquet(path, columns)
    elif suffix in {".csv", ".tsv"}:
        delimiter = file_format.delimiter or find_delimiter(path, columns)
        records = _read_delimited(path, columns, file_format, delimiter)
    else:
        records = _read_json_lines(path, columns)
    record = None
    for record in records:
        yield record
    if record is None:
        raise ValueError(f"{path}: the file has no rows, only a header")


def list_columns(path: str, file_format: FileFormat = PLAIN_FORMAT) -> list[str]:
    """List the columns of the first record that can be read; none if there is no such record."""
    records = read_records(path, (), file_format=file_format)
    return next((list(record.values) for record in records if record.values), [])


def check_file(path: str, suffixes: tuple[str, ...] | None = FILE_SUFFIXES) -> None:
    """Reject a file that is missing, empty, or in none of the given formats; None accepts any."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; check the path and the data_dir that contains it"
        )
    if Path(path).stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if suffixes is None:
        return
    suffix = find_suffix(path)
    if suffix not in suffixes:
        raise ValueError(
            f"{path}: unknown suffix {suffix!r}; known: {', '.join(filter(None, suffixes))}, each "
            f"also compressed ({', '.join(OPENERS)}); rename or convert the file"
        )
    if suffix == ".parquet" and is_compressed(path):
        raise ValueError(f"{path}: Parquet has its own compression; decompress the file")


def find_delimiter(path: str, columns: Sequence[str] = ()) -> str:
    """Find what separates the columns: what the suffix says, unless the header says otherwise.

    Args:
        path: The file, ``.csv`` or ``.tsv``.
        columns: Columns that its header must have; without any, all that matters is whether it has
            several.
    """
    usual = "," if find_suffix(path) == ".csv" else "\t"
    with open_text(path) as file:
        first = next((line for _, line in read_lines(file, path) if line.strip()), "")
    header = first.rstrip("\r\n")
    csv.field_size_limit(LONGEST_ROW)  # the default of 131,072 is too small
    found = {
        mark: [name.strip() for name in next(csv.reader([header], delimiter=mark), [])]
        for mark in (usual, *DELIMITERS)
    }
    fitting = [
        mark
        for mark, names in found.items()
        if (set(columns) <= set(names) if columns else len(names) > 1)
    ]
    if not fitting or usual in fitting:
        return usual
    delimiter = max(fitting, key=lambda mark: len(found[mark]))
    _name_delimiter(path, delimiter)
    return delimiter


@lru_cache(maxsize=1000)  # a file is opened several times
def _name_delimiter(path: str, delimiter: str) -> None:
    logger.warning(
        "%s: read as %s-separated, as its first line is (delimiter: %s)",
        path,
        DELIMITERS[delimiter],
        json.dumps(delimiter),
    )


def _read_delimited(
    path: str, columns: tuple[str, ...], file_format: FileFormat, delimiter: str
) -> Iterator[Record]:
    header = None if file_format.header is None else list(file_format.header)
    stray = StrayQuotes(path, delimiter)
    is_quoted = file_format.quoting is not False
    lines = _split_quoted if is_quoted else _split_lines
    for line, values in lines(path, delimiter):
        if header is None:
            header = [value.strip() for value in values]
            check_header(path, header, columns, delimiter)
        elif values:  # an empty line is not a record
            if file_format.quoting is None:
                stray.add(line, values, len(header))
            yield _row_to_record(line, header, values)
    stray.check()


def _split_quoted(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file into records, each with its first line."""
    csv.field_size_limit(LONGEST_ROW)  # the default of 131,072 is too small
    with open_text(path, newline="") as file:
        start, length = 1, 0

        def measure() -> Iterator[str]:
            nonlocal length
            for _, line in read_lines(file, path):
                length += len(line)
                check_length(path, start, length)
                yield line

        # strict: an unclosed quote must not silently swallow the following rows
        reader = csv.reader(measure(), delimiter=delimiter, strict=True)
        try:
            for values in reader:
                yield start, values
                start, length = reader.line_num + 1, 0
        except csv.Error as error:
            raise ValueError(
                f"{path}:{start}: the record that starts here cannot be read ({error}); enclose a "
                "field that contains quotes in quotes, and double the quotes inside it; or add "
                "quoting: false to the task, if quotes are plain text"
            ) from error


def _split_lines(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file in which quotes are plain text: a line is a record."""
    with open_text(path, newline="\n") as file:
        for number, line in read_lines(file, path):
            text = line.rstrip("\r\n")
            yield number, text.split(delimiter) if text else []


def _row_to_record(line: int, header: list[str], values: list[str]) -> Record:
    if len(values) != len(header):
        amount = "few" if len(values) < len(header) else "many"
        problem = f"too {amount} columns ({len(values)}, the header has {len(header)})"
        return Record(line, {}, problem)
    return Record(line, dict(zip(header, values, strict=True)))


def check_header(
    path: str, header: list[str], columns: tuple[str, ...], delimiter: str = ""
) -> None:
    """Reject a file without a required column, or with two columns of the same name."""
    if twice := find_duplicates(filter(None, header)):
        raise ValueError(
            f"{path}: duplicate column {twice}; its columns are {header}; rename one, or remove it"
        )
    missing = [column for column in columns if column not in header]
    if not missing:
        return
    hint = "use one of these names"
    line = delimiter.join(header)
    for other, name in DELIMITERS.items():
        if delimiter and other != delimiter and set(columns) <= set(line.split(other)):
            was = DELIMITERS.get(delimiter, repr(delimiter))
            hint = (
                f"the file is {name}-separated, but was read as {was}-separated: correct delimiter"
            )
    raise ValueError(f"{path}: no column {missing}; its columns are {header}; {hint}")


def check_keys(path: str, records: Iterable[Record], columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield records of JSON, which need not all have the same keys.

    Raises:
        ValueError: After the last record, if a required column was in none that could be read.
    """
    keys: dict[str, None] = {}
    is_complete = False
    for record in records:
        if not is_complete:
            keys |= dict.fromkeys(record.values)
            is_complete = keys.keys() >= set(columns)
        yield record
    if keys:
        check_header(path, list(keys), columns)


def _read_json_lines(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    return check_keys(path, _parse_json_lines(path), columns)


def _parse_json_lines(path: str) -> Iterator[Record]:
    with open_text(path) as file:
        for line, text in read_lines(file, path):
            if not text.strip():
                continue
            if line == 1 and text.lstrip().startswith("["):
                raise ValueError(f"{path}: a JSON array; write one JSON object on each line")
            yield parse_json(line, text)


def parse_json(line: int, text: str) -> Record:
    """Parse a line with a JSON object."""
    try:
        values = load_json(text)
    except ValueError as error:
        return Record(line, {}, f"not valid JSON ({getattr(error, 'msg', error)})")
    if not isinstance(values, dict):
        return Record(line, {}, "not a JSON object")
    return check_unicode(Record(line, values)) if SURROGATE.search(text) else Record(line, values)


def load_json(text: str) -> Any:
    """Parse JSON whose objects have distinct keys; all that is wrong with it is a ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_to_object)
    except RecursionError:
        raise ValueError("too many levels") from None


def check_unicode(record: Record) -> Record:
    """Return a record of JSON, without its values if a text among them is not valid Unicode."""
    try:
        json.dumps(record.values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        problem = "not valid Unicode (half of a surrogate pair); write the whole character"
        return Record(record.line, {}, problem)
    return record


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"duplicate key {find_duplicates(key for key, _ in pairs)[0]!r}")
    return values


def find_duplicates(names: Iterable[str]) -> list[str]:
    """List the names that occur more than once, each once."""
    return [name for name, count in Counter(names).items() if count > 1]


def _read_parquet(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    # streaming, so that the rows are not copied into the cache a second time
    try:
        rows = datasets.IterableDataset.from_parquet(glob.escape(path))
        header = list(rows.column_names or [])
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({error})") from error
    check_header(path, header, columns)
    for line, values in enumerate(rows, start=1):
        yield Record(line, values)


def shorten(text: str) -> str:
    """Shorten a value for a message."""
    return f"{text[:MAX_SHOWN]}..." if len(text) > MAX_SHOWN else text
