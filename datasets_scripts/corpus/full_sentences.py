"""Pack sentences into rows (RoBERTa, Liu et al. 2019, section 4.2: FULL- and DOC-SENTENCES)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .plans import Piece, PlannedRow, draw_order
from .tokenized import TokenizedDocuments


def pack_sentences(
    lengths: Callable[[int], Any], order: Iterable[int], *, max_tokens: int, is_across: bool
) -> Iterator[list[Piece]]:
    """Fill rows of at most ``max_tokens`` with consecutive sentences, [SEP] between documents.

    Longer sentences are cut; with ``is_across`` a row may continue with the next document.
    """
    row: list[Piece] = []
    room = max_tokens
    for document in order:
        if row and not is_across:
            yield row
            row, room = [], max_tokens
        room -= bool(row)  # the [SEP] before the document
        first = last = 0
        for size in _cut(np.asarray(lengths(document)).tolist(), max_tokens):
            if size > room:
                if last > first:
                    row.append(Piece(document, first, last))
                yield row
                row, room, first = [], max_tokens, last
            last += size
            room -= size
        row.append(Piece(document, first, last))
    if row:
        yield row


@dataclass(frozen=True)
class SentencePlanner:
    """Plans rows of whole sentences."""

    documents: TokenizedDocuments
    max_tokens: int  # of a row, including the [SEP] between two documents
    is_across: bool  # rows span documents, which every pass shuffles
    seed: int

    def plan(self, pass_index: int) -> Iterator[PlannedRow]:
        order: Iterable[int] = range(len(self.documents))
        if self.is_across:
            order = map(int, draw_order(f"{self.seed} {pass_index} order", len(self.documents)))
        rows = pack_sentences(
            self.documents.sentence_lengths,
            order,
            max_tokens=self.max_tokens,
            is_across=self.is_across,
        )
        return map(PlannedRow, rows)


def _cut(sizes: Iterable[int], longest: int) -> Iterator[int]:
    """Split sizes that are too long."""
    for size in sizes:
        rest = size
        while rest > longest:
            yield longest
            rest -= longest
        yield rest
