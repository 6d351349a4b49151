"""The documents of a corpus as tokens: made once by `datasets`, on disk, and held out."""

import hashlib
import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate, chain, groupby, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from datasets_scripts.hub import digest_text, hash_sources, progress_bars, readable_hub
from datasets_scripts.reading import InvalidRow, check_invalid_fraction, log_invalid_rows
from datasets_scripts.row_format import make_features

from .corpus_data import CorpusData
from .sources import (
    Document,
    Shard,
    Source,
    find_all_sources,
    find_lines,
    held_out,
    split_sentences,
    warn_of_language,
)

logger = logging.getLogger(__name__)

LARGE_FILES = 20_000_000  # bytes; smaller ones need neither processes nor a progress bar
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1_000_000
MAX_SMALL_VOCABULARY = 65_535  # tokens whose ids fit into two bytes
MOST_SENTENCES = 100  # of a passage: long enough to fill rows, and short enough to spread

Numbers = NDArray[np.int64]


# Tokens of a split


@dataclass(frozen=True)
class Selection:
    """Some rows of a dataset, in order."""

    total: int  # all rows of the dataset
    numbers: Numbers  # row numbers, ascending, (K,)
    is_inverted: bool  # all rows but these, so that a few held-out rows suffice

    def __len__(self) -> int:
        return self.total - len(self.numbers) if self.is_inverted else len(self.numbers)

    def rows(self) -> Numbers:
        """Return the numbers of the rows, ascending, (len(self),), int64."""
        return np.flatnonzero(self.mask()) if self.is_inverted else self.numbers

    def mask(self) -> NDArray[np.bool_]:
        """Return for every row of the dataset whether it is selected, (total,)."""
        mask = np.full(self.total, self.is_inverted)
        mask[self.numbers] = not self.is_inverted
        return mask


class _Chunk(NamedTuple):
    """Views of the buffers of a part of the column ``sentences``."""

    documents: NDArray[np.int32]  # first sentence of each document, and the end, (D + 1,), int32
    sentences: NDArray[np.int32]  # first token of each sentence, and the end, int32
    tokens: NDArray[Any]  # all tokens, uint16 or int32


class TokenizedDocuments:
    """The documents of a split as tokens, read from files, without special tokens."""

    def __init__(
        self, parts: Sequence[tuple[datasets.Dataset, Selection]], split: str, empty: int = 0
    ) -> None:
        self.split = split
        self.empty = empty
        self._parts = list(parts)
        self._ends = list(accumulate(len(selection) for _, selection in self._parts))
        # number of dropped rows before each document
        self._gaps = [
            selection.numbers - np.arange(len(selection.numbers)) for _, selection in self._parts
        ]
        self._chunks = [_view_chunks(dataset) for dataset, _ in self._parts]
        self._starts = [
            list(accumulate((len(chunk.documents) - 1 for chunk in chunks), initial=0))
            for chunks in self._chunks
        ]

    def __reduce__(self) -> tuple[Any, ...]:  # another process opens the views again
        return type(self), (self._parts, self.split, self.empty)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def offsets(self, document: int) -> NDArray[np.int32]:
        """Return the first token of each sentence of a document, and the end, (S + 1,)."""
        chunk, row = self._locate(document)
        first, last = chunk.documents[row], chunk.documents[row + 1]
        offsets = chunk.sentences[first : last + 1]
        return offsets - offsets[0]

    def sentence_lengths(self, document: int) -> NDArray[np.int32]:
        """Count the tokens of each sentence of a document, (S,)."""
        offsets = self.offsets(document)
        return offsets[1:] - offsets[:-1]  # np.diff would take longer than the rest

    def tokens(self, document: int, first: int, last: int) -> NDArray[Any]:
        """Return the tokens ``first`` to ``last - 1`` of a document, (T,), uint16 or int32."""
        chunk, row = self._locate(document)
        start = int(chunk.sentences[chunk.documents[row]])
        return chunk.tokens[start + first : start + last]

    def count(self, longest: int) -> tuple[int, int, int]:
        """Count sentences, tokens, and sentences of more than ``longest`` tokens."""
        sentences = tokens = long_sentences = 0
        for (_, selection), chunks, starts in zip(
            self._parts, self._chunks, self._starts, strict=True
        ):
            mask = selection.mask()
            for chunk, start in zip(chunks, starts, strict=False):
                sizes = np.diff(chunk.documents)
                lengths = np.diff(chunk.sentences[chunk.documents[0] : chunk.documents[-1] + 1])
                lengths = lengths[np.repeat(mask[start : start + len(sizes)], sizes)]
                sentences += len(lengths)
                tokens += int(lengths.sum(dtype=np.int64))
                long_sentences += int((lengths > longest).sum())
        return sentences, tokens, long_sentences

    def _locate(self, document: int) -> tuple[_Chunk, int]:
        """Return the chunk of a document, and its row there."""
        part = bisect_right(self._ends, document)
        selection = self._parts[part][1]
        row = document - (self._ends[part - 1] if part else 0)
        if selection.is_inverted:
            row += int(self._gaps[part].searchsorted(row, side="right"))
        else:
            row = int(selection.numbers[row])
        chunk = bisect_right(self._starts[part], row) - 1
        return self._chunks[part][chunk], row - self._starts[part][chunk]


def _view_chunks(dataset: datasets.Dataset) -> list[_Chunk]:
    chunks = []
    for documents in dataset.data.column("sentences").chunks:
        if len(documents):
            sentences = documents.values
            views = (documents.offsets, sentences.offsets, sentences.values)
            chunks.append(_Chunk(*(view.to_numpy() for view in views)))
    return chunks


# Corpora


@dataclass(frozen=True)
class EncodedCorpus:
    """Corpora as tokens.

    Args:
        splits: The training documents, ``train``, and the held-out ones, ``validation``.
        bad_rows: Invalid documents, which were skipped.
        empty_documents: Number of documents without a token.
        repeated_documents: Number of training documents that were skipped because they equal a
            held-out one, up to white space.
        fingerprint: Hash of the documents and their sentences.
        commits: Commits of the corpora on the Hub, by name.
        notes: What a reader should know of the splits, a sentence each.
    """

    splits: dict[str, TokenizedDocuments]
    bad_rows: list[InvalidRow]
    empty_documents: int
    repeated_documents: int
    fingerprint: str
    commits: dict[str, str]
    notes: list[str]

    @property
    def problems(self) -> list[str]:
        """What was skipped, and why."""
        counts = {
            "documents without a token": self.empty_documents,
            "training documents that equal held-out ones": self.repeated_documents,
        }
        return [
            *map(str, self.bad_rows),
            *(f"{count} {what}" for what, count in counts.items() if count),
        ]


def encode_corpus(
    corpora: Sequence[CorpusData],
    tokenizer: PreTrainedTokenizerBase,
    *,
    num_proc: int | None = None,
    cache_dir: str | Path | None = None,
) -> EncodedCorpus:
    """Tokenize corpora, or load their tokens from the cache.

    Training documents that equal a held-out one, in any of the corpora, are skipped with a warning.

    Args:
        corpora: The corpora, from ``CorpusData.from_recipe``, in order.
        tokenizer: Tokenizer of the model.
        num_proc: Processes; None uses one for small texts, else all cores.
        cache_dir: Folder for the tokens; None uses the cache of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks the column, or has too many invalid
            documents, a split is empty, or a file is used for training and held out.
        OSError: If a file or a dataset does not exist.
    """
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    parts: list[_Part] = []
    commits: dict[str, str] = {}
    for data, sources in zip(corpora, find_all_sources(corpora, cache_dir), strict=True):
        if data.sentences == "split":
            warn_of_language(data.where, data.language)
        if (commit := sources["train"].commit) is not None:
            commits[data.name] = commit
        share = 0.0 if "validation" in sources else data.validation_share
        for split, source in sources.items():
            dataset = _build_tokens(data, source, copy.to_str(), num_proc, cache_dir)
            bad_rows = _find_invalid(data, source, dataset)
            parts.append(_split_source(dataset, split, share, bad_rows))
    names = ", ".join(repr(data.name) for data in corpora)
    parts, notes = _hold_out_passages(parts)
    repeated = _drop_repeated(parts)
    if repeated:
        logger.warning(
            "corpus %s: skipped %d training documents that equal held-out ones", names, repeated
        )
    splits = {}
    for split in ("train", "validation"):
        chosen = [
            (part.dataset, part.selections[split]) for part in parts if split in part.selections
        ]
        empty = sum(part.empty for part in parts if part.split == split)
        splits[split] = TokenizedDocuments(chosen, split, empty)
    _check_splits(corpora, names, splits, repeated)
    return EncodedCorpus(
        splits,
        bad_rows=list(chain.from_iterable(part.bad_rows for part in parts)),
        empty_documents=sum(part.empty for part in parts),
        repeated_documents=repeated,
        fingerprint=" ".join(_fingerprint(part.dataset) for part in parts),
        commits=commits,
        notes=notes,
    )


@dataclass(frozen=True)
class _Part:
    """A tokenized source."""

    split: str
    dataset: datasets.Dataset  # its documents, including invalid ones
    selections: dict[str, Selection]  # documents of its split, and those held out from it
    empty: int  # documents without a token
    bad_rows: list[InvalidRow]
    share: float  # of its documents that is held out


def _split_source(
    dataset: datasets.Dataset, split: str, share: float, bad_rows: list[InvalidRow]
) -> _Part:
    """Assign the documents of a source to the splits."""
    total = len(dataset)
    counts = [np.diff(chunk.documents) for chunk in _view_chunks(dataset)]
    without = np.flatnonzero(np.concatenate([np.empty(0, np.int32), *counts]) == 0)
    held = np.fromiter(takewhile(lambda number: number < total, held_out(share)), np.int64)
    selections = {split: Selection(total, np.union1d(without, held), is_inverted=True)}
    if share:
        selections["validation"] = Selection(total, np.setdiff1d(held, without), is_inverted=False)
    return _Part(split, dataset, selections, len(without) - len(bad_rows), bad_rows, share)


def _hold_out_passages(parts: list[_Part]) -> tuple[list[_Part], list[str]]:
    """Hold out passages if the documents are too few to hold whole ones out, and say so."""
    held = sum(
        len(part.selections["validation"]) for part in parts if "validation" in part.selections
    )
    documents = sum(len(part.selections["train"]) for part in parts if part.share)
    if held or not documents:
        return parts, []
    split = [
        _split_source(
            _split_documents(part.dataset, part.share), part.split, part.share, part.bad_rows
        )
        if part.share
        else part
        for part in parts
    ]
    held = sum(len(part.selections["validation"]) for part in split if part.share)
    total = held + sum(len(part.selections["train"]) for part in split if part.share)
    if not held:  # too few sentences, too
        return parts, []
    note = (
        f"validation: {held:,} of the {total:,} passages of consecutive sentences that the text "
        f"was split into, chosen at random, since whole documents are too few ({documents:,})"
    )
    return split, [note]


def _split_documents(dataset: datasets.Dataset, share: float) -> datasets.Dataset:
    """Split documents into passages of sentences, so many that ``share`` of them is two or more.

    Each passage is a document of the same columns, and shares the memory of its tokens.
    """
    columns = dataset.data.column("sentences").chunks
    total = sum(
        int(documents.offsets[-1].as_py() - documents.offsets[0].as_py()) for documents in columns
    )
    size = min(MOST_SENTENCES, max(1, int(total * share / 2)))
    tables, first_row = [], 0
    for documents in columns:
        rows = dataset.data.table.slice(first_row, len(documents))
        first_row += len(documents)
        offsets = documents.offsets.to_numpy()
        starts = [
            list(range(first, last, size)) or [first]  # also a document without sentences
            for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ]
        owners = np.repeat(np.arange(len(starts)), list(map(len, starts)))
        cuts = np.fromiter(chain(*starts, [offsets[-1]]), np.int32)
        passages = pa.ListArray.from_arrays(pa.array(cuts), documents.values)
        # of tokens, since the texts are not stored
        digests = [digest_text(repr(passage)) for passage in passages.to_pylist()]
        changed = {"sentences": passages, "digest": pa.array(np.array(digests, np.uint64))}
        kept = rows.drop_columns(list(changed)).take(pa.array(owners))
        others = dict(zip(kept.column_names, kept.columns, strict=True))
        table = pa.table({**others, **changed}).select(rows.column_names)
        tables.append(table.cast(rows.schema))
    table = datasets.table.InMemoryTable(pa.concat_tables(tables))
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=dataset.features))


def _drop_repeated(parts: list[_Part]) -> int:
    """Drop the training documents that equal held-out ones, and count them."""
    digests = [np.empty(0, np.uint64)]
    for part in parts:
        if "validation" in part.selections:
            rows = pa.array(part.selections["validation"].rows())
            digests.append(part.dataset.data.column("digest").take(rows).to_numpy())
    held = np.unique(np.concatenate(digests))
    repeated = 0
    for part in parts:
        if part.split == "train" and len(held):
            equal = [np.empty(0, np.bool_)]
            for chunk in part.dataset.data.column("digest").chunks:
                values = chunk.to_numpy()
                places = np.searchsorted(held, values).clip(max=len(held) - 1)
                equal.append(held[places] == values)
            before = part.selections["train"].numbers
            dropped = np.union1d(before, np.flatnonzero(np.concatenate(equal)))
            part.selections["train"] = Selection(len(part.dataset), dropped, is_inverted=True)
            repeated += len(dropped) - len(before)
    return repeated


def _check_splits(
    corpora: Sequence[CorpusData], names: str, splits: dict[str, TokenizedDocuments], repeated: int
) -> None:
    total = len(splits["train"])
    if not total:
        equal = f", since {repeated} equal held-out ones" if repeated else ""
        raise ValueError(f"corpus {names}: no training document is left{equal}; add documents")
    if not len(splits["validation"]):
        shares = ", ".join(f"{data.validation_share:g}" for data in corpora)
        advice = "check the unit of a document, the key 'documents' (blank_line, file or line)"
        if total > 1:
            advice += f", or raise validation_share={shares} to {1 / total:.2g} or more"
        raise ValueError(
            f"corpus {names}: no document of {total} is held out; give validation_file, or {advice}"
        )


def _find_invalid(data: CorpusData, source: Source, dataset: datasets.Dataset) -> list[InvalidRow]:
    """List the invalid documents with their lines."""
    numbers = np.flatnonzero(dataset.data.column("problem").is_valid())
    rows = dataset.select_columns(["file", "position", "problem"]).select(numbers)
    bad_rows = []
    for file, group in groupby(rows, key=lambda row: str(row["file"])):
        documents = list(group)
        lines = [row["position"] for row in documents]
        if data.train_file is not None:
            lines = find_lines(file, lines)
        bad_rows += [
            InvalidRow(file, line, row["problem"])
            for line, row in zip(lines, documents, strict=True)
        ]
    check_invalid_fraction(source.name, bad_rows, len(dataset), data.max_invalid_fraction)
    log_invalid_rows(data.where, bad_rows)
    return bad_rows


def _fingerprint(dataset: datasets.Dataset) -> str:
    """Hash documents and lengths of sentences; with the tokenizer, they determine the tokens."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(3)]
    for chunk in _view_chunks(dataset):
        first, last = chunk.documents[0], chunk.documents[-1]
        hashes[0].update(np.diff(chunk.documents).tobytes())
        hashes[1].update(np.diff(chunk.sentences[first : last + 1]).tobytes())
    for digests in dataset.data.column("digest").chunks:
        hashes[2].update(digests.to_numpy().tobytes())
    return "".join(part.hexdigest() for part in hashes)


# Tokenizing


@dataclass
class TokenizedTextConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Everything that determines the tokens of a text."""

    key: str = ""  # of the source
    tokenizer: str = ""  # as JSON
    language: str | None = None  # None treats lines as sentences
    max_documents: int | None = None
    splitter: str = ""  # version of the sentence splitter


class TokenizedText(datasets.ArrowBasedBuilder):  # type: ignore[misc]
    """A document's sentences as tokens, or its error; ``digest`` ignores white space.

    Shards are read and tokenized in one pass, so that the text is not stored a second time, as it
    would be with `datasets.Dataset.map`.
    """

    BUILDER_CONFIG_CLASS = TokenizedTextConfig

    def __init__(self, source: Source, **kwargs: Any) -> None:
        self.source = source
        super().__init__(**kwargs)

    def _info(self) -> datasets.DatasetInfo:
        size = Tokenizer.from_str(self.config.tokenizer).get_vocab_size()
        kind = "uint16" if size <= MAX_SMALL_VOCABULARY else "int32"
        features = make_features(
            sentences=[[kind]], digest="uint64", file="string", position="int64", problem="string"
        )
        return datasets.DatasetInfo(features=features)

    def _split_generators(
        self, dl_manager: datasets.DownloadManager
    ) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={"shards": self.source.shards})]

    def _generate_tables(self, shards: list[Shard]) -> Iterator[tuple[int, pa.Table]]:
        tokenizer = Tokenizer.from_str(self.config.tokenizer)
        # [MASK] in a text is plain text
        tokenizer.encode_special_tokens = True
        schema = self.info.features.arrow_schema
        documents = ((shard.name, document) for shard in shards for document in shard.read())
        number = -1
        for number, batch in enumerate(_batch(islice(documents, self.config.max_documents))):
            texts = [split_sentences(document.text, self.config.language) for _, document in batch]
            columns = {
                "sentences": _tokenize(tokenizer, texts, schema.field("sentences").type),
                "digest": np.array([digest_text("".join(text)) for text in texts], np.uint64),
                "file": [name if document.problem else None for name, document in batch],
                "position": [doc.position if doc.problem else None for _, doc in batch],
                "problem": [document.problem or None for _, document in batch],
            }
            yield number, pa.table(columns, schema=schema)
        # a part of the shards may be empty, but not all of them
        if number < 0 and len(shards) == len(self.source.shards):
            raise ValueError(f"{self.source.name}: there are no documents; add some")


def _build_tokens(
    data: CorpusData,
    source: Source,
    tokenizer: str,
    num_proc: int | None,
    cache_dir: str | Path | None,
) -> datasets.Dataset:
    """Tokenize the documents of a source, or load their tokens from the cache."""
    builder = TokenizedText(
        source,
        cache_dir=cache_dir,
        dataset_name="minbert_text",
        hash=hash_sources(),
        key=source.key,
        tokenizer=tokenizer,
        language=data.language if data.sentences == "split" else None,
        max_documents=data.max_documents,
        splitter=version("sentencex"),
    )
    is_large = source.size is None or source.size > LARGE_FILES
    # not all systems tell the cores of a process
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processes = min(num_proc or (cores or 1 if is_large else 1), len(source.shards))
    if data.max_documents:  # the first documents can only be found by reading in order
        processes = 1
    where = f"{data.where}: dataset {data.hub_id!r}"
    threads = os.environ.get("TOKENIZERS_PARALLELISM")
    if processes > 1:  # no threads in each of them, and no warning about it
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        with readable_hub(where) if data.hub_id else nullcontext(), progress_bars(shown=is_large):
            try:
                builder.download_and_prepare(num_proc=processes if processes > 1 else None)
            except DatasetGenerationError as error:
                # the reader's own message is the useful one
                if isinstance(error.__cause__, ValueError | OSError):
                    raise error.__cause__ from None
                raise
            return builder.as_dataset()["train"]
    finally:
        if threads is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = threads
        else:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)


def _batch(documents: Iterable[tuple[str, Document]]) -> Iterator[list[tuple[str, Document]]]:
    """Split documents into batches of two or more."""
    batch: list[tuple[str, Document]] = []
    size = 0
    for name, document in documents:
        batch.append((name, document))
        size += len(document.text)
        is_full = len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS
        # `datasets` keeps tables of one row in memory
        if is_full and len(batch) > 1:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _tokenize(tokenizer: Tokenizer, documents: list[list[str]], kind: pa.DataType) -> pa.Array:
    """Tokenize documents, which are lists of sentences; sentences without a token are dropped."""
    sentences = list(chain.from_iterable(documents))
    encodings = tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
    ids = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    counts = np.bincount(owners[lengths > 0], minlength=len(documents))
    dtype = kind.value_type.value_type.to_pandas_dtype()
    values = np.fromiter(chain.from_iterable(ids), dtype, int(lengths.sum()))
    tokens = pa.ListArray.from_arrays(_to_offsets(lengths[lengths > 0]), pa.array(values))
    return pa.ListArray.from_arrays(_to_offsets(counts), tokens)


def _to_offsets(lengths: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
