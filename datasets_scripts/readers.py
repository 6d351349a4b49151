"""Read files row by row: compression, characters, stray quotes, records, lists in texts."""

import ast
import bz2
import csv
import glob
import gzip
import io
import json
import logging
import lzma
import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, AnyStr

MAIN_SPLITS = ("train", "validation", "test")


def is_test(split: str) -> bool:
    """Return whether the rows of a split may be unlabeled: ``test``, ``test_mismatched``."""
    return split.partition("_")[0] == "test"


def _open_zstandard(path: str) -> IO[bytes]:
    # the standard library cannot read it before Python 3.14
    import pyarrow as pa  # here and below: predicting a sentence does not wait for it

    return io.BufferedReader(pa.input_stream(path, compression="zstd"))


OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstandard,
}


def find_suffix(path: str) -> str:
    """Return the suffix of the uncompressed file, in lower case: ``.txt`` for ``a.txt.gz``."""
    whole = Path(path.lower())
    return whole.with_suffix("").suffix if whole.suffix in OPENERS else whole.suffix


@contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading its decompressed content."""
    suffix = Path(path).suffix.lower()
    opener = OPENERS.get(suffix)
    try:
        with opener(path) if opener else Path(path).open("rb") as file:
            yield file
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if opener is None or isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(
            f"{path}: cannot be decompressed as {suffix} ({error}); the file is truncated or has "
            "another format: download it again or correct its name"
        ) from error


@contextmanager
def open_text(path: str, newline: str | None = None) -> Iterator[TextIOWrapper]:
    """Open a UTF-8 file, with or without a byte order mark, for reading its decompressed text."""
    try:
        with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file is not UTF-8 ({error.reason}); save it with that encoding"
        ) from error


# The longest line, and the longest text in quotes, in characters: three times War and Peace.
LONGEST_LINE = 10_000_000


def read_lines(
    file: IO[AnyStr], path: str, longest: int = LONGEST_LINE
) -> Iterator[tuple[int, AnyStr]]:
    """Yield the lines of a file with their numbers, from 1.

    Raises:
        ValueError: If a line is longer than ``longest`` characters, or bytes of a binary file; no
            more of it is read.
    """
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        if len(line) > longest:
            raise ValueError(
                f"{path}:{number}: the line is longer than {longest:,} characters, the limit; "
                "split it, and check that every row ends with a newline"
            )
        yield number, line


# Control and format characters, such as the zero-width space and the byte order mark.
INVISIBLE = ("Cc", "Cf")
# Letters and symbols that show nothing: fillers of Hangul and Khmer, the empty Braille pattern.
# Source: Default_Ignorable_Code_Point of Unicode, and U+2800.
FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character."""
    return all(map(_is_blank, text))


def normalize_value(value: object) -> str:
    """Write a label or an id as text; a missing value is empty, and 1.0 is written as 1."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            value = value.decode()
    # other bytes may be a binary id
    text = (value.hex() if isinstance(value, bytes) else str(value)).strip()
    if is_blank(text):
        return ""
    whole = text.removesuffix(".0")  # of .0 nothing would be left
    return whole if is_numeral(text) and is_numeral(whole) else text


def is_numeral(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text  # Python reads 1_0 as 10
    except ValueError:
        return False


def describe_twin(name: str, names: Iterable[str]) -> str:
    """Tell of a name that looks like this one, but has other characters; empty without."""
    for other in names:
        if other != name and _to_key(other) == _to_key(name):
            return (
                f"{name!a} and {other!a} look the same; they differ only in their Unicode normal "
                "form or in invisible characters: write both in the same way"
            )
    return ""


def check_twins(where: str, names: Iterable[str]) -> None:
    """Reject names of which two look the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(_to_key(name), name)
        if other != name:
            raise ValueError(f"{where} {describe_twin(other, [name])}")


@lru_cache(maxsize=10_000)
def _to_key(name: str) -> str:
    spaced = (" " if letter.isspace() else letter for letter in name)
    letters = (letter for letter in spaced if letter == " " or not _is_blank(letter))
    return unicodedata.normalize("NFC", "".join(letters))


def _is_blank(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) in INVISIBLE or letter in FILLERS


FEW_VALUES = 10  # of a column, which are labels
LONGEST_VALUE = 100  # characters of a label
MANY_ROWS = 20  # in which all labels occur


class StrayQuotes:
    """Looks for quoted fields of several lines which, without the quotes, are rows.

    A stray quote at the beginning of one field and another at the end of a later one make one field
    of all that is between them. Every line of it has as many delimiters as a row. A text of several
    lines has no tabs; commas it may have, but what is between them are no values of other columns.
    """

    def __init__(self, path: str, delimiter: str, width: int) -> None:
        self.path, self.delimiter, self.width = path, delimiter, width
        self.count = 0  # records of one line, and by column their first values and any space
        self.values: list[set[str]] = [set() for _ in range(width)]
        self.has_spaces = [False] * width
        # first and last line, and the cells of other columns, of records that may be several rows
        self.suspects: list[tuple[int, int, dict[int, list[str]]]] = []

    def add(self, first: int, values: Sequence[str]) -> None:
        """Look at the record that starts at a line."""
        last = first + sum(value.count("\n") for value in values)
        if last > first and self.width > 1:
            self._suspect(first, last, values)
        elif last == first and len(values) == self.width:
            self.count += 1
            for column, value in enumerate(values):
                if len(value) <= LONGEST_VALUE and len(self.values[column]) <= FEW_VALUES:
                    self.values[column].add(value)
                self.has_spaces[column] = self.has_spaces[column] or " " in value

    def _suspect(self, first: int, last: int, values: Sequence[str]) -> None:
        """Keep a record if the lines of a field, with what is around it, are as wide as rows."""
        for place, value in enumerate(values):
            if "\n" not in value:
                continue
            rows = [line.rstrip("\r").split(self.delimiter) for line in value.split("\n")]
            # the rest of the row with the first quote, and the beginning of that with the last
            rows[0] = [*values[:place], *rows[0]]
            rows[-1] = [*rows[-1], *values[place + 1 :]]
            has_tabs = self.delimiter == "\t" and "\t" in value
            if has_tabs or {*map(len, rows)} == {self.width}:
                is_doubtful = not has_tabs and len(values) == self.width
                others = {*range(self.width)} - {place} if is_doubtful else set()
                cells = {column: [row[column] for row in rows] for column in others}
                self.suspects.append((first, last, cells))

    def check(self) -> None:
        """Refuse the file if a record is several rows.

        Raises:
            ValueError: If it is; names the lines and the ways out.
        """
        joined = [(first, last) for first, last, cells in self.suspects if self._are_rows(cells)]
        if not joined:
            return
        first, last = joined[0]
        more = f" (as in {len(joined) - 1} more places)" if len(joined) > 1 else ""
        raise ValueError(
            f"{self.path}:{first}: quotes join the lines {first} to {last} to one record, but they "
            f"look like rows of their own{more}: correct the quotes in the lines {first} and "
            f"{last}; or add to the task quoting: false, if quotes are plain text, or quoting: "
            "true, if these texts have several lines"
        )

    def _are_rows(self, cells: dict[int, list[str]]) -> bool:
        """Tell whether cells are like their columns: one with labels, or all if none has them."""
        labels = [column for column in cells if 0 < len(self.values[column]) <= FEW_VALUES]
        likely = []
        for column in labels or cells:
            is_known = self.values[column].issuperset(cells[column])
            if column not in labels or (self.count < MANY_ROWS and not is_known):
                # a comma in a sentence has a space after it
                is_known = all(
                    cell and not cell[0].isspace() and (self.has_spaces[column] or " " not in cell)
                    for cell in cells[column]
                )
            likely.append(is_known)
        return any(likely) if labels else all(likely)


logger = logging.getLogger(__name__)

DELIMITED = (".csv", ".tsv")
FILE_SUFFIXES = (*DELIMITED, ".jsonl", ".json", ".parquet")
MAX_SHOWN = 40  # characters of a value in a message
# Half of a character, which JSON allows, or of a pair that is one.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
MOST_FIRST = 1_000_000  # characters of the first rows
# A field that csv does not take for a quoted one, because of the space.
SPACED_QUOTES = re.compile(r' +"(?:[^"]|"")*" *')
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


def read_records(
    path: str, columns: tuple[str, ...], *, file_format: FileFormat = PLAIN_FORMAT
) -> Iterator[Record]:
    """Read a file record by record, including invalid ones; its suffix determines the format."""
    check_file(path)
    suffix = find_suffix(path)
    if suffix == ".parquet":
        records = _read_parquet(path, columns)
    elif suffix in DELIMITED:
        records = _read_delimited(path, columns, file_format)
    else:
        records = check_json_columns(path, _read_json_lines(path), columns)
    record = None
    for record in records:
        yield record
    if record is None:
        raise ValueError(f"{path}: the file has no rows, only a header")


def list_columns(path: str, file_format: FileFormat) -> list[str]:
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
            f"{path}: unknown suffix {suffix!r}; known: {', '.join(filter(None, suffixes))}, all "
            f"but .parquet also compressed ({', '.join(OPENERS)}); rename or convert the file"
        )


def _read_delimited(
    path: str, columns: tuple[str, ...], file_format: FileFormat
) -> Iterator[Record]:
    delimiter = file_format.delimiter or _find_delimiter(path, columns)
    header = None if file_format.header is None else list(file_format.header)
    stray = None
    split = _split_lines if file_format.quoting is False else _split_quoted
    for line, values in split(path, delimiter):
        if header is None and not any(map(str.strip, values)):
            continue  # an empty line before the header
        if header is None:
            header = [value.strip() for value in values]
            check_header(path, header, columns)
        elif values:  # an empty line is not a record
            if file_format.quoting is None:
                if stray is None:
                    _check_first(path, line, values, delimiter)
                    stray = StrayQuotes(path, delimiter, len(header))
                stray.add(line, values)
            problem = ""
            if len(values) != len(header):
                amount = "few" if len(values) < len(header) else "many"
                problem = f"too {amount} columns ({len(values)}, the header has {len(header)})"
            yield Record(line, {} if problem else dict(zip(header, values, strict=True)), problem)
    if stray is not None:
        stray.check()


def _check_first(path: str, line: int, values: Sequence[str], delimiter: str) -> None:
    """Reject a file whose quotes would become a part of its values."""
    spaced = [value for value in values if SPACED_QUOTES.fullmatch(value)]
    if not spaced:
        return
    with open_text(path) as file:
        start = file.read(MOST_FIRST)
    # a text with quotes of its own that is quoted as a whole has them twice there
    if delimiter + spaced[0] in start:
        raise ValueError(
            f"{path}:{line}: {shorten(spaced[0].strip())} has a space before its quotes; remove "
            "such spaces, or add quoting: false to the task, if quotes are plain text"
        )


def _find_delimiter(path: str, columns: Sequence[str]) -> str:
    """Find what separates the columns: what the suffix says, unless the header says otherwise.

    Without ``columns`` that the header must have, all that matters is whether it has several.
    """
    usual = "," if find_suffix(path) == ".csv" else "\t"
    with open_text(path) as file:
        lines = (line.rstrip("\r\n") for _, line in read_lines(file, path) if line.strip())
        header = next(lines, "")
    csv.field_size_limit(LONGEST_LINE)
    fitting = {}
    for mark in (usual, *DELIMITERS):
        names = [name.strip() for name in next(csv.reader([header], delimiter=mark), [])]
        if set(columns) <= set(names) if columns else len(names) > 1:
            fitting[mark] = len(names)
    if not fitting or usual in fitting:
        return usual
    delimiter = max(fitting, key=lambda mark: fitting[mark])
    message = "%s: read as %s-separated, as its first line is (delimiter: %s)"
    logger.warning(message, path, DELIMITERS[delimiter], json.dumps(delimiter))
    return delimiter


def _split_quoted(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file into records, each with its first line."""
    csv.field_size_limit(LONGEST_LINE)
    with open_text(path, newline="") as file:
        # strict: an unclosed quote must not silently swallow the following rows
        lines = (line for _, line in read_lines(file, path))
        reader, start = csv.reader(lines, delimiter=delimiter, strict=True), 1
        try:
            for values in reader:
                yield start, values
                start = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{path}:{start}: the record that starts here cannot be read ({error}); enclose a "
                "field that contains quotes in quotes, and double the quotes inside it; or, "
                "in a task, add quoting: false, if quotes are plain text"
            ) from error


def _split_lines(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Split a file in which quotes are plain text: a line is a record."""
    with open_text(path, newline="\n") as file:
        for number, line in read_lines(file, path):
            text = line.rstrip("\r\n")
            yield number, text.split(delimiter) if text else []


def check_header(path: str, header: Sequence[str], columns: tuple[str, ...]) -> None:
    """Reject a file without a required column, or with two columns of the same name."""
    if twice := find_duplicates(filter(None, header)):
        raise ValueError(
            f"{path}: duplicate column {twice}; its columns are {header}; rename one, or remove it"
        )
    if missing := [column for column in columns if column not in header]:
        raise ValueError(
            f"{path}: no column {missing}; its columns are {header}; use one of these names"
        )


def check_json_columns(
    path: str, records: Iterable[Record], columns: tuple[str, ...]
) -> Iterator[Record]:
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


def _read_json_lines(path: str) -> Iterator[Record]:
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

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError(f"duplicate key {find_duplicates(key for key, _ in pairs)[0]!r}")
        return values

    try:
        return json.loads(text, object_pairs_hook=to_object)
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


def find_duplicates(names: Iterable[str]) -> list[str]:
    """List the names that occur more than once, each once."""
    return [name for name, count in Counter(names).items() if count > 1]


def _read_parquet(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    import datasets

    # streaming, so that the rows are not copied into the cache a second time
    try:
        rows = datasets.IterableDataset.from_parquet(glob.escape(path))
        header = list(rows.column_names or [])
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({error})") from error
    check_header(path, header, columns)
    for line, values in enumerate(rows, start=1):
        yield Record(line, values)


def read_names(path: str, column: str) -> tuple[str, ...] | None:
    """Return the names that a Parquet file declares for the numbers in a column; None without."""
    if find_suffix(path) != ".parquet":
        return None
    import datasets
    import pyarrow.parquet as pq

    try:
        features = datasets.Features.from_arrow_schema(pq.read_schema(path))
    except (ValueError, TypeError, OSError):  # reading its rows says why
        return None
    feature = features.get(column)
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return None if names is None else tuple(map(normalize_value, names))


def shorten(text: str) -> str:
    """Shorten a value for a message."""
    return f"{text[:MAX_SHOWN]}..." if len(text) > MAX_SHOWN else text


# A list, tuple or set, as JSON or Python write it; other brackets are part of a name.
LIKE_LIST = re.compile(r"\[.*\]|[({]\s*['\"].*[)}]", re.DOTALL)
# Texts without a comma, which NumPy writes, and Python would join.
JOINED = re.compile(r"""['"]\s+['"]""")


def read_list(text: str) -> list[str | int] | None:
    """Read a list of texts or integers that was written as text; None if a text is no list.

    Raises:
        ValueError: If it looks like a list, but cannot be read.
    """
    text = text.strip()
    if not is_list(text):
        return None
    try:
        value = None if JOINED.search(text) else ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    items: list[Any] = list(value) if isinstance(value, list | tuple | set) else [value]
    if not all(type(item) in (str, int) for item in items):
        raise ValueError(
            f"{text[:MAX_SHOWN]!r} is no list that can be read; write it as JSON, as in "
            '["first", "second"]'
        )
    return items


def is_list(text: str) -> bool:
    """Return whether a text is a list, or looks like one."""
    return LIKE_LIST.fullmatch(text.strip()) is not None
