"""Read files in CoNLL columns, and questions in the format of SQuAD.

In CoNLL columns a line is a token with its columns, separated by spaces or tabs; an empty line ends
a sentence, and a line that starts with ``-DOCSTART-`` or ``# newdoc`` starts a document. Other
lines of metadata before a sentence, such as ``# id 1 domain=news``, are skipped.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from .readers import (
    Record,
    check_file,
    check_keys,
    check_unicode,
    find_suffix,
    load_json,
    open_text,
    read_lines,
    read_records,
)

# CoNLL


DOCUMENT_START = "-DOCSTART-"
# A line of metadata. As a token, # is followed by a part of speech or a tag.
METADATA = re.compile(r"# +(?:[\w.:-]+ *=|(?:\w+_)?id\b|newdoc\b|newpar\b)", re.IGNORECASE)

Lines = list[list[str]]


def read_conll(path: str, columns: Sequence[str]) -> Iterator[Record]:
    """Read sentences: lists by column, numbered from 0 or back from -1, and ``document``."""
    count = count_columns(path)
    places = {}
    for column in columns:
        try:
            number = int(column)
        except ValueError:
            raise ValueError(
                f"{path}: no column {column!r}; the columns of CoNLL files have no names: give a "
                "number from 0, or from -1 backward"
            ) from None
        if not -count <= number < count:
            raise ValueError(f"{path}: no column {column}; the first line has {count} columns")
        places[column] = number % count
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
    check_file(path, suffixes=None)
    start = 0
    sentence: Lines = []
    with open_text(path) as file:
        for line, text in read_lines(file, path):
            # other white space, such as a no-break space, may be a token
            text = text.strip(" \t\r\n")  # noqa: PLW2901
            is_metadata = not sentence and METADATA.match(text) is not None
            is_document = text.startswith(DOCUMENT_START)
            if is_metadata:
                is_document = text[1:].split()[0] == "newdoc"
            if text and not is_document and not is_metadata:
                start = start if sentence else line
                sentence.append(re.split("\t" if "\t" in text else " +", text))
                continue
            if sentence:
                yield start, sentence
                sentence = []
            if is_document:
                yield line, []
    if sentence:  # no empty line is needed after the last one
        yield start, sentence


# SQuAD


ANSWER_COLUMN = "answers"
SQUAD_SUFFIXES = (".json", ".jsonl", ".parquet")


def read_squad(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    """Read a file question by question, also invalid ones; a ``line`` of JSON is a question."""
    check_file(path, SQUAD_SUFFIXES)
    content = _parse(path) if find_suffix(path) == ".json" else None
    if content is None:
        yield from read_records(path, columns)
        return
    questions = enumerate(_list_questions(path, content), start=1)
    records = (check_unicode(Record(number, values)) for number, values in questions)
    record = None
    # a question need not have answers
    needed = tuple(column for column in columns if column != ANSWER_COLUMN)
    for record in check_keys(path, records, needed):
        yield record
    if record is None:
        raise ValueError(f"{path}: the file has no questions")


def _parse(path: str) -> Any:
    """Parse a single JSON value; None for JSON lines, or no text."""
    with open_text(path) as file:
        text = file.read()
    if not text:
        return None
    try:
        content = load_json(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # the first line was a complete value
            return None
        raise ValueError(f"{path}:{error.lineno}: not valid JSON ({error.msg})") from error
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    return None if isinstance(content, dict) and "data" not in content else content


def _list_questions(path: str, content: Any) -> Iterator[dict[str, Any]]:
    """Yield the questions of articles and paragraphs, or of a flat list."""
    entries = content["data"] if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise ValueError(  # noqa: TRY004  (the file is wrong, not an argument)
            f"{path}: 'data' is not a list; SQuAD files have a list of articles there"
        )
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise ValueError(  # noqa: TRY004
                f"{path}: entry {number} of 'data' is not a JSON object"
            )
        if "paragraphs" not in entry:
            yield entry
            continue
        try:
            for paragraph in entry["paragraphs"]:
                for question in paragraph["qas"]:
                    yield {**question, "context": paragraph["context"]}
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"{path}: article {number} is not in SQuAD's format ({error!r}); expected "
                "paragraphs, each with a context and qas"
            ) from error
