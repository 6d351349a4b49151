"""The documents of a corpus as tokens: made once by `datasets`, on disk, and held out."""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from datasets_scripts.encoding import (
    digest_text,
    hash_sources,
    make_features,
    progress_bars,
    show_progress,
)
from datasets_scripts.hub import readable_hub
from datasets_scripts.loading import InvalidRow, check_invalid_fraction, log_invalid_rows

from .corpus_data import CorpusData
from .sources import Document, Source, find_all_sources, held_out, split_sentences

logger = logging.getLogger(__name__)

BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1_000_000
MAX_SMALL_VOCABULARY = 65_535  # tokens whose ids fit into two bytes
MOST_SENTENCES = 100  # of a passage: long enough to fill rows, and short enough to spread

Numbers = NDArray[np.int64]


# Tables on disk


class _Tables(datasets.ArrowBasedBuilder):  # type: ignore[misc]
    """Tables of one kind, one after another."""

    def __init__(self, tables: Iterable[pa.Table], **kwargs: Any) -> None:
        self.tables = tables
        super().__init__(**kwargs)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(
        self, dl_manager: datasets.DownloadManager
    ) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train")]

    def _generate_tables(self) -> Iterator[tuple[int, pa.Table]]:
        yield from enumerate(self.tables)


def store_tables(
    tables: Iterable[pa.Table],
    features: datasets.Features,
    name: str,
    key: Any,
    *,
    cache_dir: str | Path | None = None,
) -> datasets.Dataset:
    """Write tables into the cache of `datasets`, or open those that are there.

    Args:
        tables: The tables; they are computed only if they are not in the cache. Processes that
            want the same ones wait for the one that computes them.
        features: Their columns.
        name: What they are, a part of the name of the folder.
        key: All that determines them, with a ``repr`` that is always the same.
        cache_dir: The cache; None for the usual one.
    """
    digest = hashlib.sha256(f"{hash_sources()} {key!r}".encode()).hexdigest()
    options = {"cache_dir": cache_dir, "dataset_name": f"minbert_{name}", "hash": digest}
    builder = _Tables(tables, features=features, **options)
    with progress_bars(shown=False):
        try:
            builder.download_and_prepare()
        except DatasetGenerationError as error:
            # the reader's own message is the useful one
            if isinstance(error.__cause__, ValueError | OSError):
                raise error.__cause__ from None
            raise
    return builder.as_dataset()["train"]


# Tokens of a split


class TokenizedDocuments:
    """The documents of a split as tokens, read from files, without special tokens.

    Args:
        dataset: The documents of all splits, with the columns ``sentences`` and ``digest``.
        rows: Numbers of those of the split, ascending, (N,).
        split: Its name.
    """

    def __init__(self, dataset: datasets.Dataset, rows: Numbers, split: str) -> None:
        self.dataset = dataset
        self.rows = rows
        self.split = split
        self._column = dataset.data.column("sentences")

    def __reduce__(self) -> tuple[Any, ...]:  # another process opens the files again
        return type(self), (self.dataset, self.rows, self.split)

    def __len__(self) -> int:
        return len(self.rows)

    def offsets(self, document: int) -> NDArray[np.int32]:
        """Return the first token of each sentence of a document, and the end, (S + 1,)."""
        offsets: NDArray[np.int32] = self._column[
            int(self.rows[document])
        ].values.offsets.to_numpy()
        return offsets - offsets[0]

    def tokens(self, document: int, first: int, last: int) -> NDArray[Any]:
        """Return the tokens ``first`` to ``last - 1`` of a document, (T,), uint16 or int32."""
        sentences = self._column[int(self.rows[document])].values
        tokens: NDArray[Any] = sentences.values.to_numpy()  # of all documents nearby
        start = sentences.offsets[0].as_py()
        return tokens[start + first : start + last]

    def count(self, longest: int) -> tuple[int, int, int]:
        """Count sentences, tokens, and sentences of more than ``longest`` tokens."""
        sentences = tokens = long_sentences = 0
        for _, lengths in self._measure():
            sentences += len(lengths)
            tokens += int(lengths.sum(dtype=np.int64))
            long_sentences += int((lengths > longest).sum())
        return sentences, tokens, long_sentences

    def fingerprint(self) -> str:
        """Hash texts and lengths of sentences; with the tokenizer, they determine the tokens."""
        digests = self.dataset.data.column("digest").to_numpy()[self.rows]
        hashes = [hashlib.blake2b(part, digest_size=16) for part in (digests.tobytes(), b"", b"")]
        for sizes, lengths in self._measure():
            hashes[1].update(sizes.tobytes())
            hashes[2].update(lengths.tobytes())
        return "".join(part.hexdigest() for part in hashes)

    def _measure(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Yield the sentences of each document, and the tokens of each sentence, by chunk."""
        start = 0
        for chunk in self._column.chunks:
            first, last = self.rows.searchsorted((start, start + len(chunk)))
            documents = chunk.take(pa.array(self.rows[first:last] - start))
            yield tuple(
                pc.list_value_length(part).to_numpy() for part in (documents, documents.flatten())
            )
            start += len(chunk)


# Corpora


@dataclass(frozen=True)
class EncodedCorpus:
    """Corpora as tokens.

    Args:
        splits: The training documents, ``train``, and the held-out ones, ``validation``.
        problems: What was skipped, and why: invalid documents, documents without a token, and
            training documents that equal a held-out one, up to white space.
        fingerprint: Hash of the documents and their sentences.
        commits: Commits of the corpora on the Hub, by name.
        notes: What a reader should know of the splits, a sentence each.
    """

    splits: dict[str, TokenizedDocuments]
    problems: list[str]
    fingerprint: str
    commits: dict[str, str]
    notes: list[str]


@dataclass(frozen=True)
class _Part:
    """A tokenized source."""

    split: str
    share: float  # of its documents that is held out
    documents: datasets.Dataset


def encode_corpus(
    corpora: Sequence[CorpusData],
    tokenizer: PreTrainedTokenizerBase,
    *,
    cache_dir: str | Path | None = None,
) -> EncodedCorpus:
    """Tokenize corpora, or load their tokens from the cache.

    Training documents that equal a held-out one, in any of the corpora, are skipped with a warning.

    Args:
        corpora: The corpora, from ``CorpusData.from_recipe``, in order.
        tokenizer: Tokenizer of the model.
        cache_dir: Folder for the tokens; None uses the cache of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks the column, or has too many invalid
            documents, a split is empty, or a file is used for training and held out.
        OSError: If a file or a dataset does not exist.
    """
    names = ", ".join(repr(data.name) for data in corpora)
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    copy.encode_special_tokens = True  # [MASK] in a text is plain text
    parts: list[_Part] = []
    bad_rows: list[InvalidRow] = []
    commits: dict[str, str] = {}
    for data, sources in zip(corpora, find_all_sources(corpora, cache_dir), strict=True):
        if (commit := sources["train"].commit) is not None:
            commits[data.name] = commit
        share = 0.0 if "validation" in sources else data.validation_share
        for split, source in sources.items():
            documents = _tokenize_source(source, copy, cache_dir)
            bad_rows += _find_invalid(source, documents)
            columns = documents.select_columns(["sentences", "digest"])
            parts.append(_Part(split, share, columns))

    train, validation = _hold_out(parts)
    empty = sum(len(part.documents) for part in parts) - len(train) - len(validation)
    problems = [*map(str, bad_rows)]
    if empty > len(bad_rows):
        problems.append(f"{empty - len(bad_rows)} documents without a token")
    notes = []
    if not len(validation):
        passages = [
            replace(part, documents=_split_documents(part)) if part.share else part
            for part in parts
        ]
        fewer, held = _hold_out(passages)
        if len(held):
            notes.append(
                f"validation: {len(held):,} of the {len(fewer) + len(held):,} passages of "
                "consecutive sentences that the text was split into, chosen at random, since whole "
                f"documents are too few ({len(train):,})"
            )
            parts, train, validation = passages, fewer, held

    dataset = datasets.concatenate_datasets([part.documents for part in parts])
    digests = dataset.data.column("digest").to_numpy()
    is_repeated = np.isin(digests[train], digests[validation])
    train = train[~is_repeated]
    repeated = int(is_repeated.sum())
    if repeated:
        problems.append(f"{repeated} training documents that equal held-out ones")
        logger.warning("corpus %s: skipped %s", names, problems[-1])
    _check_splits(corpora, names, len(train), len(validation), repeated)
    splits = {
        split: TokenizedDocuments(dataset, rows, split)
        for split, rows in (("train", train), ("validation", validation))
    }
    fingerprint = " ".join(documents.fingerprint() for documents in splits.values())
    return EncodedCorpus(splits, problems, fingerprint, commits, notes)


def _check_splits(
    corpora: Sequence[CorpusData], names: str, train: int, validation: int, repeated: int
) -> None:
    """Check the numbers of documents."""
    if not train:
        equal = f", since {repeated} equal held-out ones" if repeated else ""
        raise ValueError(f"corpus {names}: no training document is left{equal}; add documents")
    if not validation:
        shares = ", ".join(f"{data.validation_share:g}" for data in corpora)
        advice = "check the unit of a document, the key 'documents' (blank_line, file or line)"
        if train > 1:
            advice += f", or raise validation_share={shares} to {1 / train:.2g} or more"
        raise ValueError(
            f"corpus {names}: no document of {train} is held out; give validation_file, or {advice}"
        )


def _find_invalid(source: Source, documents: datasets.Dataset) -> list[InvalidRow]:
    numbers = np.flatnonzero(documents.data.column("problem").is_valid())
    rows = documents.select_columns(["file", "line", "problem"]).select(numbers)
    bad_rows = [InvalidRow(row["file"], row["line"], row["problem"]) for row in rows]
    allowed = source.data.max_invalid_fraction
    check_invalid_fraction(source.name, bad_rows, len(documents), allowed)
    log_invalid_rows(source.data.where, bad_rows)
    return bad_rows


def _hold_out(parts: Sequence[_Part]) -> tuple[Numbers, Numbers]:
    """Return the numbers of the documents with a token, for training and held out, ascending."""
    chosen: dict[str, list[Numbers]] = {"train": [], "validation": []}
    start = 0
    for part in parts:
        rows = np.flatnonzero(_count_sentences(part.documents))
        is_held = np.isin(rows, list(held_out(part.share, len(part.documents))))
        chosen[part.split].append(start + rows[~is_held])
        chosen["validation"].append(start + rows[is_held])
        start += len(part.documents)
    return np.concatenate(chosen["train"]), np.concatenate(chosen["validation"])


def _count_sentences(documents: datasets.Dataset) -> NDArray[np.int32]:
    counts: NDArray[np.int32] = pc.list_value_length(documents.data.column("sentences")).to_numpy()
    return counts


def _split_documents(part: _Part) -> datasets.Dataset:
    """Split documents into passages of sentences, so many that its share of them is two or more."""
    total = int(_count_sentences(part.documents).sum())
    size = min(MOST_SENTENCES, max(1, int(total * part.share / 2)))

    def split(batch: dict[str, Any]) -> dict[str, Any]:
        passages = [
            sentences[first : first + size]
            for sentences in batch["sentences"]
            for first in range(0, len(sentences), size)
        ]
        # of tokens, since the texts are not stored
        digests = np.array([digest_text(repr(passage)) for passage in passages], np.uint64)
        return {"sentences": passages, "digest": digests}

    features = part.documents.features
    with progress_bars(shown=False):
        return part.documents.map(split, batched=True, batch_size=1, features=features)


# Tokenizing


def _tokenize_source(
    source: Source, tokenizer: Tokenizer, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Tokenize the documents of a source, or load their tokens from the cache."""
    data = source.data
    language = data.language if data.sentences == "split" else None
    is_small = tokenizer.get_vocab_size() <= MAX_SMALL_VOCABULARY
    features = make_features(
        sentences=[["uint16" if is_small else "int32"]],
        digest="uint64",
        file="string",
        line="int64",
        problem="string",
    )
    documents = show_progress(source.read(), f"tokenize {source.name}")
    where = f"{data.where}: dataset {data.hub_id!r}"
    with readable_hub(where) if data.hub_id else nullcontext():
        return store_tables(
            _tokenize(source.name, documents, tokenizer, language, features.arrow_schema),
            features,
            "text",
            (source.key, tokenizer.to_str(), language, data.max_documents, version("sentencex")),
            cache_dir=cache_dir,
        )


def _tokenize(
    name: str,
    documents: Iterator[Document],
    tokenizer: Tokenizer,
    language: str | None,
    schema: pa.Schema,
) -> Iterator[pa.Table]:
    """Yield the documents of a source as tables.

    ``sentences`` has their tokens, without sentences that have none. ``digest`` ignores white
    space. ``file``, ``line`` and ``problem`` are those of invalid documents.
    """
    is_empty = True
    for batch in _batch(documents):
        is_empty = False
        texts = [split_sentences(document.text, language) for document in batch]
        sentences = list(chain.from_iterable(texts))
        # in parallel: reading and splitting take little time beside it
        encodings = iter(tokenizer.encode_batch_fast(sentences, add_special_tokens=False))
        tokens = [[next(encodings).ids for _ in text] for text in texts]
        columns = {
            "sentences": [list(filter(None, sentences)) for sentences in tokens],
            "digest": np.array([digest_text("".join(text)) for text in texts], np.uint64),
            "file": [document.file if document.problem else None for document in batch],
            "line": [document.line if document.problem else None for document in batch],
            "problem": [document.problem or None for document in batch],
        }
        yield pa.table(columns, schema=schema)
    if is_empty:
        raise ValueError(f"{name}: there are no documents; add some")


def _batch(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Split documents into batches of two or more: `datasets` keeps tables of one in memory."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        is_full = len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS
        if is_full and len(batch) > 1:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
