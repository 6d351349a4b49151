"""Read sentences in CoNLL columns.

A line is a token with its columns, separated by spaces or tabs; an empty line ends a sentence, and
a line that starts with ``-DOCSTART-`` or ``# newdoc`` starts a document. Other lines of metadata
before a sentence, such as ``# id 1 domain=news`` or ``# text = ...``, are skipped.
"""

import re
from collections.abc import Iterator, Sequence

from .compression import open_text
from .lines import check_length, read_lines
from .readers import Record, check_file

DOCUMENT_START = "-DOCSTART-"
# A line of metadata. As a token, # is followed by a part of speech or a tag.
METADATA = re.compile(r"# +(?:[\w.:-]+ *=|(?:\w+_)?id\b|newdoc\b|newpar\b)", re.IGNORECASE)

Lines = list[list[str]]


def read_conll(path: str, columns: Sequence[str]) -> Iterator[Record]:
    """Read sentences: lists by column, numbered from 0 or back from -1, and ``document``."""
    count = count_columns(path)
    places = {column: _find_column(path, column, count) for column in columns}
    document = 0
    for start, lines in _group_lines(path):
        wrong = next((number for number, parts in enumerate(lines) if len(parts) != count), None)
        if not lines:
            document += 1
        elif wrong is not None:
            yield Record(
                start + wrong,
                {},
                f"{len(lines[wrong])} columns, but the first line has {count}; a line is a token "
                "with all its columns, and an empty line ends a sentence",
            )
        else:
            values = {name: [parts[place] for parts in lines] for name, place in places.items()}
            yield Record(start, {**values, "document": document}, is_multiline=True)


def count_columns(path: str) -> int:
    """Count the columns of the first token."""
    if (first := next((lines for _, lines in _group_lines(path) if lines), None)) is None:
        raise ValueError(f"{path}: the file has no tokens")
    return len(first[0])


def _group_lines(path: str) -> Iterator[tuple[int, Lines]]:
    """Yield each sentence with its first line, and an empty list where a document starts."""
    start = length = 0
    sentence: Lines = []
    for line, parts in _read_lines(path):
        is_start = bool(parts) and parts[0].startswith(DOCUMENT_START)
        if parts and not is_start:
            start, length = (start, length) if sentence else (line, 0)
            length += sum(map(len, parts))
            check_length(path, start, length)
            sentence.append(parts)
            continue
        if sentence:
            yield start, sentence
            sentence = []
        if is_start:
            yield line, []
    if sentence:  # no empty line is needed after the last one
        yield start, sentence


def _read_lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the columns of every line, none for an empty line."""
    check_file(path, suffixes=None)
    is_start = True
    with open_text(path) as file:
        for number, line in read_lines(file, path):
            # other white space, such as a no-break space, may be a token
            text = line.strip(" \t\r\n")
            if is_start and METADATA.match(text):
                if text[1:].split()[0] == "newdoc":
                    yield number, [DOCUMENT_START]
                continue
            is_start = not text or text.startswith(DOCUMENT_START)
            yield number, re.split("\t" if "\t" in text else " +", text) if text else []


def _find_column(path: str, column: str, count: int) -> int:
    """Return the place of a column that is given as a number, negative from the end."""
    try:
        number = int(column)
    except ValueError:
        raise ValueError(
            f"{path}: no column {column!r}; the columns of CoNLL files have no names: give a "
            "number from 0, or from -1 backward"
        ) from None
    if not -count <= number < count:
        raise ValueError(f"{path}: no column {column}; the first line has {count} columns")
    return number % count
