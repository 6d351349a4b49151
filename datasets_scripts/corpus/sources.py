"""The documents of a corpus: in files, in datasets on the Hub, or built in.

Files are read by this module and not by the builders of `datasets`. Those fail at the first byte
that is not UTF-8 and at the first line that is not JSON, fill missing cells of a CSV file silently,
do not take a line of white space for a blank one, and read a document of any size at once. Here an
invalid document has a place and a reason, the others are used, and memory is bounded.
"""

import codecs
import glob
import hashlib
import logging
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from math import ceil
from pathlib import Path
from typing import IO, Any, NamedTuple

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from sentencex import segment

from datasets_scripts.hub import find_builder, find_commit, readable_hub
from datasets_scripts.loading import load_task
from datasets_scripts.readers import (
    HUB_NAMES,
    FileFormat,
    Record,
    check_file,
    check_header,
    find_suffix,
    is_compressed,
    open_bytes,
    parse_json,
    read_records,
    shorten,
)
from datasets_scripts.samples import read_sample

from .corpus_data import SAMPLE_TEXT, CorpusData

logger = logging.getLogger(__name__)

PLAIN_SUFFIXES = (".txt", "")
TABLE_SUFFIXES = (".csv", ".tsv")
OWN_LINES = FileFormat(quoting=True)  # a document has many lines, also with tables
TEXT_SUFFIXES = (*PLAIN_SUFFIXES, ".jsonl", ".json", *TABLE_SUFFIXES, ".parquet")
SHARD_BYTES = 8_000_000
SHARD_ROWS = 20_000
LARGEST_DOCUMENT = 100_000_000  # bytes; a document is read at once
BLOCK = 1 << 20  # bytes read at a time, of what is only counted or skipped
PARQUET_ROWS = 1000  # read at a time
HELD_OUT_SEED = 20181011
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
class Shard:
    """A part of a source that can be read on its own, from one document to another."""

    name: str  # path, or the dataset and its split
    text_column: str  # in all formats but plain text
    first: int = 0  # first byte of a text, row group of a Parquet file, or row of a dataset
    last: int = sys.maxsize  # exclusive
    documents: str = "line"  # ``blank_line``, ``file`` or ``line``, in plain text
    rows: datasets.Dataset | datasets.IterableDataset | None = None  # of a dataset

    def read(self) -> Iterator[Document]:
        """Read the documents in order, including invalid ones."""
        suffix = find_suffix(self.name)
        if self.rows is not None:
            is_stream = isinstance(self.rows, datasets.IterableDataset)
            rows = self.rows if is_stream else self.rows.select(range(self.first, self.last))
            for number, row in enumerate(rows, start=self.first + 1):
                yield self._check_text(number, row.get(self.text_column))
        elif suffix == ".parquet":
            with pq.ParquetFile(self.name) as file:
                number = sum(file.metadata.row_group(n).num_rows for n in range(self.first))
                groups = list(range(self.first, self.last))
                for batch in file.iter_batches(PARQUET_ROWS, groups, [self.text_column]):
                    for value in batch.column(0).to_pylist():
                        number += 1
                        yield self._check_text(number, value)
        elif suffix in TABLE_SUFFIXES:
            for record in read_records(self.name, (self.text_column,), file_format=OWN_LINES):
                yield self._convert(record.line, record)
        else:
            for position, raw in self.split_bytes():
                try:
                    text = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    problem = (
                        f"not UTF-8 ({error.reason} at byte {position + error.start}); save the "
                        "file with that encoding"
                    )
                    yield Document(position, "", problem)
                    continue
                if suffix in PLAIN_SUFFIXES:
                    yield Document(position, text)
                else:
                    yield self._convert(position, parse_json(0, text))

    def split_bytes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the first byte of each document of a text file, and its bytes."""
        with open_bytes(self.name) as file:
            if self.documents == "file":
                raw = file.read(LARGEST_DOCUMENT + 1)
                _check_size(self.name, 0, len(raw), "give documents: line or blank_line")
                yield 0, raw.removeprefix(codecs.BOM_UTF8)
                return
            if self.first:  # never in a compressed file
                file.seek(self.first)
            lines: list[bytes] = []  # of a document that is not complete
            start = end = self.first
            while end < self.last and (raw := file.readline(LARGEST_DOCUMENT + 1)):
                _check_size(self.name, end, len(raw), "put a newline after every line")
                line = raw if end else raw.removeprefix(codecs.BOM_UTF8)
                start = start if lines else end
                end += len(raw)
                if _is_blank(line):
                    if lines:
                        yield start, b"".join(lines)
                        lines = []
                elif self.documents == "line":
                    yield start, line
                else:
                    lines.append(line)
                    advice = "if a line is a document, give documents: line, else put blank lines"
                    _check_size(self.name, start, end - start, f"{advice} between them")
            if lines:
                yield start, b"".join(lines)

    def _convert(self, position: int, record: Record) -> Document:
        if record.problem:
            return Document(position, "", record.problem)
        if self.text_column not in record.values:
            return Document(position, "", f"no column {self.text_column!r}")
        return self._check_text(position, record.values[self.text_column])

    def _check_text(self, position: int, value: Any) -> Document:
        if isinstance(value, str):
            return Document(position, value)
        problem = f"column {self.text_column!r} holds {shorten(repr(value))}, not text"
        return Document(position, "", problem)


@dataclass(frozen=True)
class Source:
    """The documents of one split of a corpus."""

    name: str  # for messages
    key: str  # identifies them in the cache
    shards: list[Shard]  # in order
    size: int | None  # approximate bytes; None if unknown
    files: tuple[str, ...] = ()  # with links resolved
    commit: str | None = None  # of a dataset on the Hub

    def read(self, max_documents: int | None) -> Iterator[Document]:
        """Read the documents in order, including invalid ones."""
        documents = (document for shard in self.shards for document in shard.read())
        return islice(documents, max_documents)


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
        name, joined = f"{data.dataset}:{split}", "\0".join(split_texts).encode()
        rows = datasets.Dataset.from_dict({data.text_column: split_texts})
        shard = Shard(name, data.text_column, last=len(rows), rows=rows)
        sources[split] = Source(name, hashlib.sha256(joined).hexdigest(), [shard], len(joined))
    return sources


def find_all_sources(
    corpora: Sequence[CorpusData], cache_dir: str | Path | None
) -> list[dict[str, Source]]:
    """Locate the documents of corpora; no file may be used for training and held out."""
    located = [find_sources(data, cache_dir) for data in corpora]
    held = {
        file: data.where
        for data, sources in zip(corpora, located, strict=True)
        if "validation" in sources
        for file in sources["validation"].files
    }
    for data, sources in zip(corpora, located, strict=True):
        if both := sorted(held.keys() & set(sources["train"].files)):
            raise ValueError(
                f"{data.where}: {both[0]} is in train_file and in validation_file (of "
                f"{held[both[0]]}); do not train on held-out text"
            )
    return located


def _find_file_sources(data: CorpusData) -> dict[str, Source]:
    patterns = {"train": data.train_file, "validation": data.validation_file}
    files = {split: _find_files(data, names) for split, names in patterns.items() if names}
    paths = list(chain.from_iterable(files.values()))
    plain = [find_suffix(path) in PLAIN_SUFFIXES for path in paths]
    if all(plain) and data.text_column != CorpusData.text_column:
        raise ValueError(
            f"{data.where}: text_column={data.text_column!r} has no effect on plain text, which "
            "has no columns; remove it"
        )
    if not any(plain) and data.documents != CorpusData.documents:
        raise ValueError(
            f"{data.where}: documents={data.documents!r} has no effect on {paths[0]}, where "
            "every row is a document; remove it"
        )
    sources = {}
    for split, paths in files.items():
        shards = [cut_file(path, data.documents, data.text_column) for path in paths]
        stats = [Path(path).stat() for path in paths]
        stamps = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
        sources[split] = Source(
            name=paths[0] if len(paths) == 1 else ", ".join(patterns[split] or ()),
            key=repr((paths, stamps, data.documents, data.text_column)),
            shards=list(chain.from_iterable(shards)),
            size=sum(size for size, _ in stamps),
            files=tuple(str(Path(path).resolve()) for path in paths),
        )
    return sources


def _find_files(data: CorpusData, patterns: Sequence[str]) -> list[str]:
    """List the files that match some patterns, without duplicates."""
    paths: dict[Path, str] = {}
    for pattern in patterns:
        if Path(pattern).is_dir():
            raise ValueError(
                f"{data.where}: {pattern} is a folder; name its files, such as "
                f"{Path(pattern) / '*.txt'}"
            )
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
            paths.setdefault(Path(file).resolve(), str(Path(file).absolute()))
    return list(paths.values())


def _find_hub_sources(data: CorpusData, cache_dir: str | Path | None) -> dict[str, Source]:
    hub_id = str(data.hub_id)
    column = data.text_column
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
        rows = rows.select_columns([column])
        name = f"{hub_id}:{hub_split}"
        shards = [Shard(name, column, rows=rows)]
        if not data.streaming:
            cuts = [*range(0, len(rows), SHARD_ROWS), len(rows)]
            shards = [Shard(name, column, *cut, rows=rows) for cut in pairwise(cuts)]
        sources[split] = Source(
            name,
            key=f"{builder.cache_dir} {hub_split} {column}",
            shards=shards,
            size=None if data.streaming else rows.data.nbytes,
            commit=find_commit(hub_id, builder),
        )
    return sources


# Texts for a vocabulary


def held_out(share: float) -> Iterator[int]:
    """Yield the number of one of every ``1 / share`` consecutive documents, without end."""
    if share == 0:
        return
    rng = random.Random(HELD_OUT_SEED)
    for window in count():
        first, last = ceil(window / share), ceil((window + 1) / share)
        yield first + int(rng.random() * (last - first))


@dataclass(frozen=True)
class ChainedTexts:
    """Texts of several sources, one after another, which can be read repeatedly.

    Args:
        parts: The sources.
    """

    parts: tuple[Iterable[str], ...]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)


@dataclass(frozen=True)
class _TrainingTexts:
    """The training documents of a corpus, including those that equal held-out ones."""

    data: CorpusData
    sources: dict[str, Source]

    def __iter__(self) -> Iterator[str]:
        skipped = held_out(0 if "validation" in self.sources else self.data.validation_share)
        skip = next(skipped, -1)
        for number, document in enumerate(self.sources["train"].read(self.data.max_documents)):
            if number == skip:
                skip = next(skipped)
            elif not document.problem:
                yield document.text


def corpus_texts(
    corpora: Sequence[CorpusData], cache_dir: str | Path | None = None
) -> ChainedTexts:
    """Read the training documents of corpora, without held-out and invalid ones.

    Args:
        corpora: The corpora.
        cache_dir: Folder for rows of the Hub and of tasks; None uses the cache of `datasets`.

    Returns:
        The texts; every iteration reads them again, one document at a time. A stream of the Hub,
        which every iteration fetches, causes a warning.

    Raises:
        ValueError: If a file or a dataset cannot be read or lacks the column.
        OSError: If a file or a dataset does not exist.
    """
    for data in corpora:
        if data.streaming and data.hub_id is not None:
            logger.warning(
                "%s: %r is fetched up to twice for the vocabulary, and again for its tokens; to "
                "fetch it once, give streaming: false, which stores it, or use the vocabulary of a "
                "checkpoint",
                data.where,
                data.source,
            )
    sources = find_all_sources(corpora, cache_dir)
    return ChainedTexts(tuple(map(_TrainingTexts, corpora, sources)))


# Files


def cut_file(
    path: str, documents: str, text_column: str, shard_bytes: int = SHARD_BYTES
) -> list[Shard]:
    """Split a file into shards of about ``shard_bytes`` each, between documents."""
    check_file(path, TEXT_SUFFIXES)
    suffix = find_suffix(path)
    unit = documents if suffix in PLAIN_SUFFIXES else "line"
    cuts = [0, sys.maxsize]
    if suffix == ".parquet":
        cuts = _cut_row_groups(path, text_column, shard_bytes)
    elif suffix in TABLE_SUFFIXES:
        next(read_records(path, (text_column,), file_format=OWN_LINES))  # fails if it has no rows
    else:
        if suffix not in PLAIN_SUFFIXES:
            _check_json(path, text_column)
        if unit != "file" and not is_compressed(path):
            cuts = _cut_lines(path, shard_bytes, by_line=unit == "line")
    return [Shard(path, text_column, *cut, documents=unit) for cut in pairwise(cuts)]


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


def _is_blank(raw: bytes) -> bool:
    return not raw.decode("utf-8", "replace").strip()


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
    for position, raw in Shard(path, text_column).split_bytes():
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


def _check_size(path: str, position: int, size: int, advice: str) -> None:
    """Refuse a document that is too large; ``position`` is its first byte."""
    if size > LARGEST_DOCUMENT:
        (line,) = find_lines(path, [position])
        raise ValueError(
            f"{path}:{line}: the document that starts here is larger than "
            f"{LARGEST_DOCUMENT // 1_000_000} MB, the limit; {advice}"
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
