"""Locate the documents of a corpus: files, datasets on the Hub, or built-in text."""

import glob
import hashlib
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from math import ceil
from pathlib import Path
from typing import Any

import datasets

from datasets_scripts.files.compression import find_suffix
from datasets_scripts.files.hub import find_builder, find_commit, readable_hub
from datasets_scripts.files.splits import HUB_NAMES
from datasets_scripts.samples.documents import generate_documents
from datasets_scripts.tasks.loading import load_task

from .corpus_data import SAMPLE_TEXT, CorpusData
from .documents import PLAIN_SUFFIXES, TEXT_SUFFIXES, Document, FileShard, cut_file, to_document

logger = logging.getLogger(__name__)

HELD_OUT_SEED = 20181011
SHARD_ROWS = 20_000


@dataclass(frozen=True)
class RowShard:
    """Rows of a dataset, each a document."""

    name: str  # the dataset and its split
    rows: datasets.Dataset | datasets.IterableDataset
    column: str
    first: int = 0  # from 0
    last: int | None = None  # exclusive; None for all of them

    def read(self) -> Iterator[Document]:
        rows = self.rows if self.last is None else self.rows.select(range(self.first, self.last))
        for number, row in enumerate(rows, start=self.first + 1):
            yield to_document(number, row.get(self.column), self.column)


Shard = FileShard | RowShard  # a part of a source that can be read independently


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
    sources = {}
    for split, texts in _read_built_in(data, cache_dir).items():
        name, joined = f"{data.dataset}:{split}", "\0".join(texts).encode()
        key = hashlib.sha256(joined).hexdigest()
        rows = datasets.Dataset.from_dict({data.text_column: texts})
        sources[split] = Source(name, key, [RowShard(name, rows, data.text_column)], len(joined))
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


def held_out(share: float) -> Iterator[int]:
    """Yield the number of one of every ``1 / share`` consecutive documents, without end."""
    if share == 0:
        return
    rng = random.Random(HELD_OUT_SEED)
    for window in count():
        first, last = ceil(window / share), ceil((window + 1) / share)
        yield first + int(rng.random() * (last - first))


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


@dataclass(frozen=True)
class ChainedTexts:
    """Texts of several sources, one after another, which can be read repeatedly.

    Args:
        parts: The sources.
    """

    parts: tuple[Iterable[str], ...]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)


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


def _find_file_sources(data: CorpusData) -> dict[str, Source]:
    patterns = {"train": data.train_file, "validation": data.validation_file}
    files = {split: _find_files(data, given) for split, given in patterns.items() if given}
    _check_formats(data, [path for paths in files.values() for path in paths])
    return {
        split: _describe_files(data, paths, ", ".join(patterns[split] or ()))
        for split, paths in files.items()
    }


def _describe_files(data: CorpusData, paths: list[str], pattern: str) -> Source:
    cut = partial(cut_file, documents=data.documents, text_column=data.text_column)
    shards: list[Shard] = list(chain.from_iterable(map(cut, paths)))
    stats = [Path(path).stat() for path in paths]
    stamps = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
    return Source(
        name=paths[0] if len(paths) == 1 else pattern,
        key=repr((paths, stamps, data.documents, data.text_column)),
        shards=shards,
        size=sum(stat.st_size for stat in stats),
        files=tuple(str(Path(path).resolve()) for path in paths),
    )


def _check_formats(data: CorpusData, files: Sequence[str]) -> None:
    """Reject keys that have no effect on any of the files."""
    plain = [find_suffix(path) in PLAIN_SUFFIXES for path in files]
    if all(plain) and data.text_column != CorpusData.text_column:
        raise ValueError(
            f"{data.where}: text_column={data.text_column!r} has no effect on plain text, which "
            "has no columns; remove it"
        )
    if not any(plain) and data.documents != CorpusData.documents:
        raise ValueError(
            f"{data.where}: documents={data.documents!r} has no effect on {files[0]}, where "
            "every row is a document; remove it"
        )


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


def _read_built_in(data: CorpusData, cache_dir: str | Path | None) -> dict[str, list[str]]:
    """Read the built-in text, or the distinct sentences of a task, none in both splits."""
    if data.dataset == SAMPLE_TEXT:
        return generate_documents()
    task = load_task(data.to_task(), cache_dir)
    seen: set[str] = set()
    splits: dict[str, list[str]] = {}
    for split in ("train", "validation"):
        texts = dict.fromkeys(task.row_format.texts(task.splits[split]))
        splits[split] = [text for text in texts if text not in seen]
        seen.update(texts)
    return splits


def _find_hub_sources(data: CorpusData, cache_dir: str | Path | None) -> dict[str, Source]:
    hub_id = str(data.hub_id)
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
        given = next((name for name in HUB_NAMES[split] if name in splits), None)
        if given is not None:
            rows = _select_text(where, given, splits[given], data.text_column)
            name = f"{data.hub_id}:{given}"
            key = f"{builder.cache_dir} {given} {data.text_column}"
            size = None if data.streaming else rows.data.nbytes
            shards = _cut_rows(name, rows, data.text_column)
            commit = find_commit(hub_id, builder)
            sources[split] = Source(name, key, shards, size, commit=commit)
        elif split == "train":
            raise ValueError(f"{where} has no split 'train'; its splits: {', '.join(splits)}")
    return sources


def _select_text(where: str, split: str, rows: Any, column: str) -> Any:
    """Keep the column of the text, and reject a split without it."""
    # the columns of a stream may be unknown, but its first row has them
    columns = rows.column_names or [name for row in rows.take(1) for name in row]
    if column not in columns:
        raise ValueError(
            f"{where}: split {split!r} has no column {column!r}; its columns: {columns}; choose "
            "one as text_column"
        )
    return rows.select_columns([column])


def _cut_rows(name: str, rows: Any, column: str) -> list[Shard]:
    if isinstance(rows, datasets.IterableDataset):
        return [RowShard(name, rows, column)]
    firsts = range(0, len(rows), SHARD_ROWS)
    return [
        RowShard(name, rows, column, first, min(first + SHARD_ROWS, len(rows))) for first in firsts
    ]
