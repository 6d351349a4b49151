"""Tokens of documents on disk, as views of memory-mapped columns."""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


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
    """Views of the buffers of a part of the column."""

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


def count_sentences(dataset: datasets.Dataset) -> Numbers:
    """Count the sentences of every row of a dataset with a column ``sentences``, (rows,)."""
    counts = [np.diff(chunk.documents) for chunk in _view_chunks(dataset)]
    return np.concatenate([np.empty(0, np.int64), *counts]).astype(np.int64)


def find_digests(dataset: datasets.Dataset, rows: Numbers) -> NDArray[np.uint64]:
    """Return the digests of some rows of a dataset, ascending, (K,)."""
    return dataset.data.column("digest").take(pa.array(rows)).to_numpy()


def find_equal(dataset: datasets.Dataset, digests: NDArray[np.uint64]) -> Numbers:
    """Return the numbers of the rows whose digests are in an ascending list, (D,), ascending."""
    equal = [np.empty(0, np.bool_)]
    for chunk in dataset.data.column("digest").chunks if len(digests) else []:
        own = chunk.to_numpy()
        places = np.searchsorted(digests, own).clip(max=len(digests) - 1)
        equal.append(digests[places] == own)
    return np.flatnonzero(np.concatenate(equal))


def fingerprint(dataset: datasets.Dataset) -> str:
    """Hash documents and lengths of sentences; with the tokenizer, they determine the tokens."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(3)]
    for chunk in _view_chunks(dataset):
        first, last = chunk.documents[0], chunk.documents[-1]
        hashes[0].update(np.diff(chunk.documents).tobytes())
        hashes[1].update(np.diff(chunk.sentences[first : last + 1]).tobytes())
    for digests in dataset.data.column("digest").chunks:
        hashes[2].update(digests.to_numpy().tobytes())
    return "".join(one.hexdigest() for one in hashes)


def _view_chunks(dataset: datasets.Dataset) -> list[_Chunk]:
    chunks = []
    for documents in dataset.data.column("sentences").chunks:
        if len(documents):
            sentences = documents.values
            views = (documents.offsets, sentences.offsets, sentences.values)
            chunks.append(_Chunk(*(view.to_numpy() for view in views)))
    return chunks
