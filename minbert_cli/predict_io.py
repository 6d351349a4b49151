"""Input and output of ``minbert predict``: texts in, rows of results out."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

Row = dict[str, Any]


def read_lines(source: IO[bytes], name: str) -> Iterator[str]:
    r"""Read the lines of a UTF-8 file; only \n and \r\n end a line.

    Raises:
        ValueError: If a line is empty or not UTF-8.
    """
    for number, line in enumerate(source, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: not UTF-8 ({error.reason})") from error
        if not text.strip():
            raise ValueError(f"{name}:{number}: the line is empty; remove it")
        yield text


def read_file(path: Path, stack: ExitStack) -> Iterator[str]:
    """Read the lines of a file that the stack closes."""
    return read_lines(stack.enter_context(path.open("rb")), str(path))


def read_texts(args: argparse.Namespace, stack: ExitStack) -> Iterator[str]:
    """Return the texts of the command line, a file, or the standard input.

    Raises:
        ValueError: If there are no texts, two sources of them, or one cannot be read.
    """
    if args.texts and args.file:
        raise ValueError(f"texts are given, and --file {args.file}; leave one out")
    if args.texts:
        lines = iter(check_texts(args.texts))
    elif args.file:
        lines = read_file(args.file, stack)
    elif sys.stdin.isatty():
        raise ValueError("no sentences: give texts or --file, or pipe lines to the standard input")
    else:
        lines = read_lines(sys.stdin.buffer, "standard input")
    first = list(islice(lines, 1))
    if not first:
        raise ValueError("no sentences: the input is empty")
    return chain(first, lines)


def check_texts(texts: Sequence[str]) -> Sequence[str]:
    """Reject empty texts and texts that are not UTF-8."""
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise ValueError(f"text {number} is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"text {number}, {text!r}, is not UTF-8")
    return texts


def make_rows(texts: Iterator[str], given: int, *, pairs: bool) -> Iterator[Any]:
    """Return the rows of a task: the texts, or pairs of them.

    Args:
        texts: Texts; a pair is a line with a tab, or two texts from the command line.
        given: Number of texts from the command line.
        pairs: Whether the task takes pairs.

    Raises:
        ValueError: If a row is not a pair.
    """
    if not pairs:
        yield from texts
        return
    for number, text in enumerate(texts, start=1):
        columns = text.split("\t")
        if len(columns) == 1 and given:
            columns += list(islice(texts, 1))
        if len(columns) != 2 or not all(map(str.strip, columns)):
            raise ValueError(
                f"row {number} has {len(columns)} text(s), but the task takes a pair: two columns "
                "separated by a tab, or two texts on the command line"
            )
        yield tuple(columns)


def write_rows(rows: Iterable[Row], file: IO[str], form: str) -> None:
    """Write rows one at a time; the first row sets the columns of a table."""
    columns: list[str] = []
    for row in rows:
        if form == "jsonl":
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            continue
        if not columns:
            columns = list(row)
            file.write("\t".join(columns) + "\n")
        file.write("\t".join(to_cell(row.get(column)) for column in columns) + "\n")


def split_tags(rows: Iterable[Row]) -> Iterator[Row]:
    """Return a row for each entity, or for each word if the tags do not mark entities."""
    for number, row in enumerate(rows, start=1):
        if "entities" in row:
            yield from ({"line": number, **entity} for entity in row["entities"])
        elif "tags" in row:
            for word, tag, score in zip(row["words"], row["tags"], row["scores"], strict=True):
                yield {"line": number, "word": word, "tag": tag, "score": score}
        else:
            yield row


def to_cell(value: Any) -> str:
    """Format a value as a cell; characters that would end it become spaces."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else " " for letter in text)
