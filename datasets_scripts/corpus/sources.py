"""The documents of a corpus: in files, in datasets on the Hub, or built in.

Plain text is read by this module and not by `datasets`, which fails at the first byte that is not
UTF-8, does not take a line of white space for a blank one, and reads a document of any size at
once. Here an invalid document has a place and a reason, the others are used, and memory is bounded.
"""

import codecs
import glob
import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

from sentencex import segment

from datasets_scripts.catalog import read_sample
from datasets_scripts.hub import find_builder, find_commit, readable_hub
from datasets_scripts.loading import load_task
from datasets_scripts.readers import (
    HUB_NAMES,
    FileFormat,
    Record,
    check_file,
    find_suffix,
    open_bytes,
    read_lines,
    read_records,
    shorten,
)

from .corpus_data import SAMPLE_TEXT, CorpusData

PLAIN_SUFFIXES = (".txt", "")
TEXT_SUFFIXES = (*PLAIN_SUFFIXES, ".jsonl", ".json", ".csv", ".tsv", ".parquet")
OWN_LINES = FileFormat(quoting=True)  # a document has many lines, also with tables
LARGEST_DOCUMENT = 100_000_000  # bytes; a document is read at once
HELD_OUT_SEED = 20181011


class Document(NamedTuple):
    """A document."""

    file: str  # or the dataset and its split
    line: int  # its first one, or its row, from 1
    text: str  # empty if it is invalid
    problem: str = ""  # why it is invalid, else empty


@dataclass(frozen=True)
class Source:
    """The documents of one split of a corpus."""

    data: CorpusData
    name: str  # for messages
    key: str  # identifies them in the cache
    files: tuple[str, ...] = ()
    rows: Any = None  # of a dataset without files: mappings that can be read repeatedly
    commit: str | None = None  # of a dataset on the Hub

    def read(self) -> Iterator[Document]:
        """Read the documents in order, including invalid ones."""
        return islice(self._read(), self.data.max_documents)

    def _read(self) -> Iterator[Document]:
        if self.rows is not None:
            yield from self._convert(self.name, map(Record, count(1), self.rows))
        for file in self.files:
            if find_suffix(file) in PLAIN_SUFFIXES:
                yield from read_text(file, self.data.documents)
            else:
                columns = (self.data.text_column,)
                yield from self._convert(file, read_records(file, columns, file_format=OWN_LINES))

    def _convert(self, file: str, records: Iterable[Record]) -> Iterator[Document]:
        column = self.data.text_column
        for record in records:
            text, problem = record.values.get(column), record.problem
            if not problem and column not in record.values:
                problem = f"no column {column!r}"
            elif not problem and not isinstance(text, str):
                problem = f"column {column!r} holds {shorten(repr(text))}, not text"
            yield Document(file, record.line, "" if problem else str(text), problem)


def read_text(path: str, documents: str) -> Iterator[Document]:
    """Read the documents of a plain text: its lines, parts between blank lines, or the file."""
    lines: list[bytes] = []  # of a document that is not complete
    first, size = 1, 0
    with open_bytes(path) as file:
        for number, raw in read_lines(file, path, LARGEST_DOCUMENT):
            line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            is_blank = not line.decode("utf-8", "replace").strip()
            if documents == "file" or not is_blank:
                first, size = (first, size + len(line)) if lines else (number, len(line))
                lines.append(line)
            if size > LARGEST_DOCUMENT:
                raise ValueError(
                    f"{path}:{first}: the document that starts here is larger than "
                    f"{LARGEST_DOCUMENT // 1_000_000} MB, the limit; separate documents by blank "
                    "lines and give documents: blank_line, or line if every line is one"
                )
            if lines and (documents == "line" or (documents == "blank_line" and is_blank)):
                yield _decode(path, first, lines)
                lines = []
    if lines:
        yield _decode(path, first, lines)


def _decode(path: str, first: int, lines: list[bytes]) -> Document:
    try:
        return Document(path, first, b"".join(lines).decode("utf-8"))
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 ({error.reason}); save the file with that encoding"
        return Document(path, first, "", problem)


def find_sources(data: CorpusData, cache_dir: str | Path | None) -> dict[str, Source]:
    """Locate the documents of a corpus by split; text of files and streams is not read yet."""
    if data.hub_id is not None:
        return _find_hub_sources(data, cache_dir)
    if data.dataset is None:
        return _find_file_sources(data)
    texts: dict[str, list[str]]
    if data.dataset == SAMPLE_TEXT:
        texts = read_sample(SAMPLE_TEXT)
    else:  # the distinct sentences of a task, none in both splits
        task = load_task(data.to_task(), cache_dir)
        texts = {}
        for split in ("train", "validation"):
            seen = set(texts.get("train", ()))
            sentences = dict.fromkeys(task.row_format.texts(task.splits[split]))
            texts[split] = [sentence for sentence in sentences if sentence not in seen]
    sources = {}
    for split, split_texts in texts.items():
        joined = "\0".join(split_texts).encode()
        sources[split] = Source(
            data,
            name=f"{data.dataset}:{split}",
            key=hashlib.sha256(joined).hexdigest(),
            rows=[{data.text_column: text} for text in split_texts],
        )
    return sources


def find_all_sources(
    corpora: Sequence[CorpusData], cache_dir: str | Path | None
) -> list[dict[str, Source]]:
    """Locate the documents of corpora; no file may be used for training and held out."""
    located = [find_sources(data, cache_dir) for data in corpora]
    held: dict[Path, str] = {}
    for sources in located:
        if "validation" in sources:
            source = sources["validation"]
            held |= dict.fromkeys(map(Path.resolve, map(Path, source.files)), source.data.where)
    for sources in located:
        for file in map(Path, sources["train"].files):
            if owner := held.get(file.resolve()):
                raise ValueError(
                    f"{sources['train'].data.where}: {file.resolve()} is in train_file and in "
                    f"validation_file (of {owner}); do not train on held-out text"
                )
    return located


def _find_file_sources(data: CorpusData) -> dict[str, Source]:
    patterns = {"train": data.train_file, "validation": data.validation_file}
    files = {split: _find_files(data, names) for split, names in patterns.items() if names}
    paths = [path for split_paths in files.values() for path in split_paths]
    plain = [find_suffix(path) in PLAIN_SUFFIXES for path in paths]
    for key, is_used in (("text_column", not all(plain)), ("documents", any(plain))):
        value = getattr(data, key)
        if not is_used and value != getattr(CorpusData, key):
            raise ValueError(
                f"{data.where}: {key}={value!r} has no effect on {paths[0]}; text has no columns, "
                "and a row of a table or of JSON is a document"
            )
    sources = {}
    for split, paths in files.items():
        stats = [Path(path).stat() for path in paths]
        stamps = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
        sources[split] = Source(
            data,
            name=paths[0] if len(paths) == 1 else ", ".join(patterns[split] or ()),
            key=repr((paths, stamps, data.documents, data.text_column)),
            files=tuple(paths),
        )
    return sources


def _find_files(data: CorpusData, patterns: Sequence[str]) -> list[str]:
    """List the files that match some patterns, without duplicates, and check them."""
    paths: dict[Path, str] = {}
    for pattern in patterns:
        matching = [pattern]
        if glob.has_magic(pattern) and not Path(pattern).is_file():
            # Path.glob rejects absolute patterns
            matches = glob.glob(pattern, recursive=True)  # noqa: PTH207
            matching = sorted(match for match in matches if Path(match).is_file())
        if not matching:
            raise FileNotFoundError(
                f"{data.where}: no file matches {pattern!r}; check the pattern and data_dir "
                f"(formats: {', '.join(filter(None, TEXT_SUFFIXES))})"
            )
        for file in matching:
            path = str(Path(file).absolute())
            check_file(path, TEXT_SUFFIXES)
            paths.setdefault(Path(file).resolve(), path)
    return list(paths.values())


def _find_hub_sources(data: CorpusData, cache_dir: str | Path | None) -> dict[str, Source]:
    hub_id, column = str(data.hub_id), data.text_column
    where = f"{data.where}: dataset {hub_id!r}"
    with readable_hub(where):
        builder = find_builder(hub_id, data.revision, cache_dir)
        if data.streaming:
            splits = builder.as_streaming_dataset()
        else:
            builder.download_and_prepare()
            splits = builder.as_dataset()
    sources = {}
    for split in ("train", "validation"):
        hub_split = next((name for name in HUB_NAMES[split] if name in splits), None)
        if hub_split is None:
            if split == "train":
                raise ValueError(f"{where} has no split 'train'; its splits: {', '.join(splits)}")
            continue
        rows = splits[hub_split]
        # the columns of a stream may be unknown, but its first row has them
        columns = rows.column_names or [name for row in rows.take(1) for name in row]
        if column not in columns:
            raise ValueError(
                f"{where}: split {hub_split!r} has no column {column!r}; its columns: {columns}; "
                "choose one as text_column"
            )
        sources[split] = Source(
            data,
            name=f"{hub_id}:{hub_split}",
            key=f"{builder.cache_dir} {hub_split} {column}",
            rows=rows.select_columns([column]),
            commit=find_commit(hub_id, builder),
        )
    return sources


# Texts for a vocabulary


def held_out(share: float, total: float = inf) -> Iterator[int]:
    """Yield the number of one of every ``1 / share`` consecutive documents, below ``total``."""
    if share == 0:
        return
    rng = random.Random(HELD_OUT_SEED)
    for window in count():
        first, last = ceil(window / share), ceil((window + 1) / share)
        number = first + int(rng.random() * (last - first))
        if number >= total:
            return
        yield number


class TrainingTexts:
    """The training documents of corpora as texts, without held-out and invalid ones.

    Every iteration reads them again, one document at a time.

    Args:
        corpora: The corpora.
        cache_dir: Folder for rows of the Hub and of tasks; None uses the cache of `datasets`.
        others: Further texts, which come first.

    Raises:
        ValueError: If a file or a dataset cannot be read or lacks the column.
        OSError: If a file or a dataset does not exist.
    """

    def __init__(
        self,
        corpora: Sequence[CorpusData],
        cache_dir: str | Path | None = None,
        *,
        others: Sequence[str] = (),
    ) -> None:
        self.others = others
        self.sources = find_all_sources(corpora, cache_dir)

    def __iter__(self) -> Iterator[str]:
        yield from self.others
        for sources in self.sources:
            train = sources["train"]
            skipped = held_out(0 if "validation" in sources else train.data.validation_share)
            skip = next(skipped, -1)
            for number, document in enumerate(train.read()):
                if number == skip:
                    skip = next(skipped)
                elif not document.problem:
                    yield document.text


# Sentences


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
