"""Sentences with a tag for every word: from files in CoNLL columns, JSON lines, Parquet or the Hub.

In CoNLL columns every line is a word with its columns, separated by blanks or tabs; an empty line
ends a sentence, and a line that begins with ``-DOCSTART-`` a document.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import datasets

from datasets_scripts.files.compression import find_suffix, open_bytes
from datasets_scripts.files.hub import read_hub
from datasets_scripts.files.readers import read_records
from datasets_scripts.tasks.task_data import TaskData, is_test

from .tag_schemes import Sentence, find_scheme, list_tags, to_iob2

DOCUMENT_START = "-DOCSTART-"
RECORD_SUFFIXES = (".jsonl", ".json", ".parquet")
MAX_TAGS_SHOWN = 20


@dataclass(frozen=True)
class TaggedRows:
    """The sentences of a task.

    Args:
        labels: Names of the tags, by number; of spans in IOB2.
        splits: Rows with id, words, tags (numbers; absent in an unlabelled test split) and document
            (a number).
    """

    labels: tuple[str, ...]
    splits: dict[str, datasets.Dataset]


def read_tagged(data: TaskData, cache_dir: str | None) -> TaggedRows:
    """Read all sentences of a task.

    Args:
        data: What to read; of problem type ``token_classification``.
        cache_dir: Of what comes from the Hub.

    Raises:
        ValueError: If a file is empty, a line has too few columns, schemes are mixed, or a tag is
            none of those of the training rows; it names file and line.
        OSError: If a file is missing or the Hub cannot be reached.
    """
    found: dict[str, tuple[str, list[Sentence]]] = {}
    if data.hub_id is not None:
        for split, rows in read_hub(data, cache_dir).items():
            where = f"{data.hub_id}:{split}"
            found[split] = (where, list(_read_hub_rows(data, where, rows)))
    else:
        columns: int | None = None
        for split, path in data.files.items():
            if find_suffix(path) in RECORD_SUFFIXES:
                found[split] = (path, list(_read_record_file(data, path, split)))
                continue
            sentences, count = _read_columns(data, path, split, columns)
            columns = columns or count
            found[split] = (path, sentences)
    return _number_tags(data, found)


def _number_tags(data: TaskData, found: Mapping[str, tuple[str, list[Sentence]]]) -> TaggedRows:
    """Bring all tags into one scheme, and number them."""
    schemes = {
        split: find_scheme(path, sentences, data.scheme)
        for split, (path, sentences) in found.items()
    }
    train_path, train = found["train"]
    if "plain" in schemes.values():
        # single words or spans: that is decided by the training rows
        schemes = dict.fromkeys(schemes, schemes["train"])
    labels = data.labels or list_tags(
        (tag for sentence in train for tag in sentence.tags or ()), schemes["train"]
    )
    if len(labels) < 2:
        raise ValueError(
            f"{train_path}: the training rows have the tags {list(labels)}, at least two are "
            f"needed; check label_column={data.label_column!r}"
        )
    numbers = {name: number for number, name in enumerate(labels)}
    splits = {}
    for split, (path, sentences) in found.items():
        rows: dict[str, list[Any]] = {"id": [], "words": [], "tags": [], "document": []}
        for number, sentence in enumerate(sentences):
            rows["id"].append(str(number))
            rows["words"].append(sentence.words)
            rows["document"].append(sentence.document)
            if sentence.tags is not None:
                rows["tags"].append(_look_up(path, sentence, schemes[split], numbers))
        splits[split] = _make_split(path, split, rows)
    return TaggedRows(tuple(labels), splits)


def _look_up(path: str, sentence: Sentence, scheme: str, numbers: Mapping[str, int]) -> list[int]:
    given = sentence.tags or []
    tags = given if scheme == "plain" else to_iob2(given)
    for place, tag in enumerate(tags):
        if tag not in numbers:
            shown = ", ".join(map(repr, list(numbers)[:MAX_TAGS_SHOWN]))
            shown += ", ..." if len(numbers) > MAX_TAGS_SHOWN else ""
            raise ValueError(
                f"{path}:{sentence.where(place)}: unknown tag {given[place]!r}; the tags of the "
                f"training rows are {shown}; correct it, or name all tags as labels"
            )
    return [numbers[tag] for tag in tags]


def _make_split(path: str, split: str, rows: dict[str, list[Any]]) -> datasets.Dataset:
    features = {
        "id": datasets.Value("string"),
        "words": datasets.List(datasets.Value("string")),
        "tags": datasets.List(datasets.Value("int64")),
        "document": datasets.Value("int64"),
    }
    if not rows["tags"]:
        if not is_test(split):
            raise ValueError(f"{path}: the {split} rows have no tags; only test rows may lack them")
        del rows["tags"], features["tags"]
    elif len(rows["tags"]) < len(rows["id"]):
        raise ValueError(f"{path}: some sentences have tags and others have none")
    return datasets.Dataset.from_dict(rows, datasets.Features(features))


def _read_columns(
    data: TaskData, path: str, split: str, columns: int | None
) -> tuple[list[Sentence], int]:
    """Read a file in CoNLL columns; returns also how many columns its first line has.

    Args:
        data: Says which columns are word and tag.
        path: The file.
        split: A test file may lack the tags.
        columns: Columns of the training file; None while that is read.
    """
    lines = _read_lines(path)
    first = next(((line, parts) for line, parts in lines if parts and not _is_start(parts)), None)
    if first is None:
        raise ValueError(f"{path}: the file has no words; there is nothing to learn from")
    count = len(first[1])
    has_tags = not is_test(split) or count >= (columns or count)
    word = _find_column(data, path, "text_columns", (data.text_columns or ("0",))[0], count)
    tag = word
    if has_tags:
        tag = _find_column(data, path, "label_column", data.label_column or "-1", count)
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    document = start = 0
    for line, parts in _read_lines(path):
        if parts and not _is_start(parts):
            if len(parts) != count:
                raise ValueError(
                    f"{path}:{line}: {len(parts)} columns, but the first line has {count}; a line "
                    "is a word with all its columns, and an empty line ends a sentence"
                )
            start = start if words else line
            words.append(parts[word])
            tags += [parts[tag]] if has_tags else []
            continue
        if words:
            sentences.append(Sentence(start, words, tags if has_tags else None, document))
            words, tags = [], []
        document += bool(parts)
    if words:  # the last one needs no empty line after it
        sentences.append(Sentence(start, words, tags if has_tags else None, document))
    return sentences, count


def _read_lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """Read the columns of every line; none for an empty line."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; check the path and the data_dir that it is in"
        )
    try:
        with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                # other white space, as a no-break space, may be a word
                text = line.strip(" \t\r\n")
                yield number, re.split("\t" if "\t" in text else " +", text) if text else []
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file is not UTF-8 ({error.reason}); save it with that encoding"
        ) from error


def _is_start(parts: list[str]) -> bool:
    return parts[0].startswith(DOCUMENT_START)


def _find_column(data: TaskData, path: str, key: str, value: str, count: int) -> int:
    """Turn the number of a column, negative from the end, into its place."""
    where = f"task {data.name!r}: {key}={value!r}"
    try:
        number = int(value)
    except ValueError:
        raise ValueError(
            f"{where}: the columns of {path} have no names; give a number from 0, or from -1 "
            "backwards"
        ) from None
    if not -count <= number < count:
        raise ValueError(f"{where}, but {path} has {count} columns")
    return number % count


def _read_record_file(data: TaskData, path: str, split: str) -> Iterator[Sentence]:
    """Read JSON lines or Parquet with lists of words and tags."""
    word, tag = (data.text_columns or ("tokens",))[0], data.label_column or "tags"
    needed = (word, *(() if is_test(split) else (tag,)))
    for number, record in enumerate(read_records(path, needed)):
        if record.problem:
            raise ValueError(f"{path}:{record.line}: {record.problem}")
        yield _to_sentence(data, path, record.line, record.values, word, tag, number)


def _read_hub_rows(data: TaskData, where: str, rows: datasets.Dataset) -> Iterator[Sentence]:
    word, tag = (data.text_columns or ("tokens",))[0], str(data.label_column)
    feature = rows.features.get(tag)
    names = getattr(getattr(feature, "feature", None), "names", None)
    for number, values in enumerate(rows):
        if names is not None:
            values = {**values, tag: [names[each] for each in values[tag]]}  # noqa: PLW2901
        yield _to_sentence(data, where, number + 1, values, word, tag, number)


def _to_sentence(
    data: TaskData,
    path: str,
    line: int,
    values: Mapping[str, Any],
    word: str,
    tag: str,
    number: int,
) -> Sentence:
    """Check a row with lists of words and tags."""
    words, tags = values.get(word), values.get(tag)
    if not isinstance(words, list) or not words or not all(isinstance(x, str) for x in words):
        raise ValueError(f"{path}:{line}: {word}={words!r}; a list of words is needed")
    if tags is not None:
        if not isinstance(tags, list) or len(tags) != len(words):
            many = len(tags) if isinstance(tags, list) else repr(tags)
            raise ValueError(
                f"{path}:{line}: {len(words)} words in {word!r}, but {many} tags in {tag!r}; every "
                "word needs one"
            )
        numbers = data.labels is not None and all(isinstance(each, int) for each in tags)
        in_range = numbers and all(0 <= each < len(data.labels or ()) for each in tags)
        tags = [(data.labels or ())[each] if in_range else str(each) for each in tags]
    document: Any = values.get(data.document_column, number) if data.document_column else number
    if not isinstance(document, int):
        raise ValueError(  # noqa: TRY004  the row of a user is wrong, not a type in the code
            f"{path}:{line}: {data.document_column}={document!r}; a number of a document is needed"
        )
    return Sentence(line, words, tags, document, is_row=True)
