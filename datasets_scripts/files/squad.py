"""Read questions about passages: SQuAD's JSON, nested or flat, JSON lines or Parquet."""

import json
from collections.abc import Iterator
from typing import Any

from .compression import find_suffix, open_text
from .readers import Record, check_file, check_keys, check_unicode, load_json, read_records

ANSWER_COLUMN = "answers"
# A single JSON value is read at once; SQuAD 2.0 has 42 million characters.
LONGEST_JSON = 500_000_000
SQUAD_SUFFIXES = (".json", ".jsonl", ".parquet")


def read_squad(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    """Read a file question by question, also invalid ones; a ``line`` of JSON is a question."""
    check_file(path, SQUAD_SUFFIXES)
    content = _parse(path, _read_whole(path)) if find_suffix(path) == ".json" else None
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


def _read_whole(path: str) -> str:
    with open_text(path) as file:
        text = file.read(LONGEST_JSON + 1)
    if len(text) > LONGEST_JSON:
        raise ValueError(
            f"{path}: the file is longer than {LONGEST_JSON:,} characters, the limit of a JSON "
            "file, which is read at once; write JSON lines (.jsonl), a question on each"
        )
    return text


def _parse(path: str, text: str) -> Any:
    """Parse a single JSON value; None for JSON lines, or no text."""
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
        if "paragraphs" in entry:
            yield from _list_article(path, number, entry["paragraphs"])
        else:
            yield entry


def _list_article(path: str, number: int, paragraphs: Any) -> Iterator[dict[str, Any]]:
    try:
        for paragraph in paragraphs:
            for question in paragraph["qas"]:
                yield {**question, "context": paragraph["context"]}
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: article {number} is not in SQuAD's format ({error!r}); expected paragraphs, "
            "each with a context and qas"
        ) from error
