"""Read documents of text files one by one, in shards, and split them into sentences."""

import codecs
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from sentencex import segment

from datasets_scripts.files.compression import find_suffix, is_compressed, open_bytes
from datasets_scripts.files.readers import (
    FileFormat,
    Record,
    check_file,
    check_header,
    parse_json,
    read_records,
    shorten,
)

logger = logging.getLogger(__name__)

PLAIN_SUFFIXES = (".txt", "")
TABLE_SUFFIXES = (".csv", ".tsv")
OWN_LINES = FileFormat(quoting=True)  # a document has many lines, also with tables
TEXT_SUFFIXES = (*PLAIN_SUFFIXES, ".jsonl", ".json", *TABLE_SUFFIXES, ".parquet")
SHARD_BYTES = 8_000_000
LARGEST_DOCUMENT = 100_000_000  # bytes; a document is read at once
BLOCK = 1 << 20  # bytes read at a time, of what is only counted or skipped
PARQUET_ROWS = 1000  # read at a time
# Languages for which the splitter has its own rules or tests; for others it silently uses a related
# one or English. Source: the README and the tests of sentencex 1.0.
LANGUAGES = (
    "am, ar, bg, bn, ca, da, de, el, en, es, fi, fr, gu, he, hi, hy, it, ja, kk, kn, ml, mr, my, "
    "nl, pa, pl, pt, ru, sk, ta, te, uk, ur, zh"
)


class Document(NamedTuple):
    """A document."""

    position: int  # first byte of the decompressed file; in tables line or row, from 1
    text: str  # empty if it is invalid
    problem: str = ""  # why it is invalid, else empty


@dataclass(frozen=True)
class FileShard:
    """A part of a file, from one document to another."""

    name: str  # path
    first: int  # first byte or row group
    last: int  # byte or row group after the last one
    documents: str  # ``blank_line``, ``file`` or ``line``
    text_column: str  # in all formats but plain text

    def read(self) -> Iterator[Document]:
        suffix = find_suffix(self.name)
        if suffix == ".parquet":
            return self._read_row_groups()
        if suffix in TABLE_SUFFIXES:
            records = read_records(self.name, (self.text_column,), file_format=OWN_LINES)
            return (self._to_document(record.line, record) for record in records)
        return (self._parse(position, raw) for position, raw in self._find_documents())

    def _find_documents(self) -> Iterator[tuple[int, bytes]]:
        if find_suffix(self.name) not in PLAIN_SUFFIXES or self.documents == "line":
            return (line for line in self._lines() if not _is_blank(line[1]))
        if self.documents == "file":
            with open_bytes(self.name) as file:
                raw = file.read(LARGEST_DOCUMENT + 1)
                check_document(self.name, 0, len(raw), "give documents: line or blank_line")
                return iter([(0, raw.removeprefix(codecs.BOM_UTF8))])
        return _join_lines(self.name, self._lines())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        position = self.first
        with open_bytes(self.name) as file:
            if position:  # never in a compressed file
                file.seek(position)
            while position < self.last and (raw := file.readline(LARGEST_DOCUMENT + 1)):
                check_document(self.name, position, len(raw), "put a newline after every line")
                yield position, raw if position else raw.removeprefix(codecs.BOM_UTF8)
                position += len(raw)

    def _parse(self, position: int, raw: bytes) -> Document:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            return Document(
                position,
                "",
                f"not UTF-8 ({error.reason} at byte {position + error.start}); save the file with "
                "that encoding",
            )
        if find_suffix(self.name) in PLAIN_SUFFIXES:
            return Document(position, text)
        return self._to_document(position, parse_json(0, text))

    def _to_document(self, position: int, record: Record) -> Document:
        if record.problem:
            return Document(position, "", record.problem)
        if self.text_column not in record.values:
            return Document(position, "", f"no column {self.text_column!r}")
        return to_document(position, record.values[self.text_column], self.text_column)

    def _read_row_groups(self) -> Iterator[Document]:
        with pq.ParquetFile(self.name) as file:
            row = sum(file.metadata.row_group(group).num_rows for group in range(self.first))
            batches = file.iter_batches(
                PARQUET_ROWS, list(range(self.first, self.last)), [self.text_column]
            )
            for batch in batches:
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield to_document(row, value, self.text_column)


def to_document(position: int, value: Any, column: str) -> Document:
    """Make a document from a value, which must be text."""
    if not isinstance(value, str):
        return Document(position, "", f"column {column!r} holds {shorten(repr(value))}, not text")
    return Document(position, value)


def cut_file(
    path: str, documents: str, text_column: str, shard_bytes: int = SHARD_BYTES
) -> list[FileShard]:
    """Split a file into shards of about ``shard_bytes`` each, between documents."""
    check_file(path, TEXT_SUFFIXES)
    suffix = find_suffix(path)
    is_plain = suffix in PLAIN_SUFFIXES
    is_whole = is_compressed(path) or suffix in TABLE_SUFFIXES or (is_plain and documents == "file")
    if suffix in TABLE_SUFFIXES:
        next(read_records(path, (text_column,), file_format=OWN_LINES))
    elif suffix not in (*PLAIN_SUFFIXES, ".parquet"):
        _check_json(path, text_column)
    if suffix == ".parquet":
        cuts = _cut_row_groups(path, text_column, shard_bytes)
    elif is_whole:
        cuts = [0, sys.maxsize]
    else:
        cuts = _cut_lines(path, shard_bytes, by_line=not is_plain or documents == "line")
    return [FileShard(path, first, last, documents, text_column) for first, last in pairwise(cuts)]


def check_document(path: str, position: int, size: int, advice: str) -> None:
    """Refuse a document that is too large; ``position`` is its first byte."""
    if size > LARGEST_DOCUMENT:
        (line,) = find_lines(path, [position])
        raise ValueError(
            f"{path}:{line}: the document that starts here is larger than "
            f"{LARGEST_DOCUMENT // 1_000_000} MB, the limit; {advice}"
        )


def split_sentences(text: str, language: str | None) -> list[str]:
    """Split a document into sentences with normalized white space; language None: lines."""
    sentences = []
    for line in text.split("\n"):
        if line.strip():
            # the library panics on some non-ASCII white space
            squeezed_line = " ".join(line.split())
            parts = [line] if language is None else segment(language, squeezed_line)
            sentences += [squeezed for part in parts if (squeezed := " ".join(part.split()))]
    return sentences


def warn_of_language(where: str, language: str) -> None:
    """Warn about a language without its own rules."""
    if language.split("-")[0] not in LANGUAGES.split(", "):
        logger.warning(
            "%s: language=%r has no rules of its own and is split by those of a related language "
            "or of English; check the code (there are rules for %s), or write one sentence per "
            "line and give sentences: line",
            where,
            language,
            LANGUAGES,
        )


def find_lines(path: str, positions: Sequence[int]) -> list[int]:
    """Convert positions of documents, ascending, to lines or rows, from 1."""
    if find_suffix(path) in (*TABLE_SUFFIXES, ".parquet"):
        return list(positions)
    lines, line, read = [], 1, 0
    with open_bytes(path) as file:
        for position in positions:
            while read < position and (block := file.read(min(position - read, BLOCK))):
                line += block.count(b"\n")
                read += len(block)
            lines.append(line)
    return lines


def _is_blank(raw: bytes) -> bool:
    return not raw.decode("utf-8", "replace").strip()


def _join_lines(path: str, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Join the lines between blank ones."""
    start = 0
    parts: list[bytes] = []
    for position, raw in lines:
        if not _is_blank(raw):
            start = start if parts else position
            parts.append(raw)
            check_document(
                path,
                start,
                position + len(raw) - start,
                "if a line is a document, give documents: line, else put blank lines between them",
            )
        elif parts:
            yield start, b"".join(parts)
            parts = []
    if parts:
        yield start, b"".join(parts)


def _cut_lines(path: str, shard_bytes: int, *, by_line: bool) -> list[int]:
    """List bytes at which documents begin, including the start and the end of the file."""
    end = Path(path).stat().st_size
    cuts = [0]
    with Path(path).open("rb") as file:
        while cuts[-1] + shard_bytes < end:
            file.seek(cuts[-1] + shard_bytes)
            _skip_line(file)  # the rest of it
            # the end of the file counts as blank
            while not by_line and not _skip_line(file):
                pass
            cuts.append(file.tell())
    return cuts if cuts[-1] == end else [*cuts, end]


def _skip_line(file: IO[bytes]) -> bool:
    """Read to the end of a line; return whether it is blank."""
    is_blank = True
    while raw := file.readline(BLOCK):
        is_blank = is_blank and _is_blank(raw)
        if raw.endswith(b"\n"):
            break
    return is_blank


def _cut_row_groups(path: str, text_column: str, shard_bytes: int) -> list[int]:
    try:
        with pq.ParquetFile(path) as file:
            check_header(path, file.schema_arrow.names, (text_column,))
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            sizes = [group.total_byte_size for group in groups]
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({error})") from error
    cuts, size = [0], 0
    for group, bytes_of_group in enumerate(sizes, start=1):
        size += bytes_of_group
        if size >= shard_bytes or group == len(sizes):
            cuts.append(group)
            size = 0
    return cuts


def _check_json(path: str, text_column: str) -> None:
    """Check a JSON-lines file up to the first object with the text; not all need have it."""
    keys: dict[str, None] = {}
    shard = FileShard(path, 0, sys.maxsize, "line", text_column)
    for position, raw in shard._find_documents():
        if position == 0 and raw.lstrip().startswith(b"["):
            raise ValueError(f"{path}: a JSON array; write one JSON object on each line")
        try:
            record = parse_json(0, raw.decode("utf-8"))
        except UnicodeDecodeError:
            continue
        keys |= dict.fromkeys(record.values)
        if text_column in keys:
            return
    if keys:
        check_header(path, list(keys), (text_column,))
