"""Pack sentences into rows (RoBERTa, Liu et al. 2019, section 4.2: FULL- and DOC-SENTENCES)."""

from collections.abc import Callable, Iterable, Iterator
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


def plan_sentences(
    pass_index: int, *, documents: TokenizedDocuments, max_tokens: int, is_across: bool, seed: int
) -> Iterator[PlannedRow]:
    """Plan rows of whole sentences in one pass; rows across documents follow a random order."""
    order: Iterable[int] = range(len(documents))
    if is_across:
        order = map(int, draw_order(f"{seed} {pass_index} order", len(documents)))
    lengths = documents.sentence_lengths
    return map(
        PlannedRow, pack_sentences(lengths, order, max_tokens=max_tokens, is_across=is_across)
    )


def _cut(sizes: Iterable[int], longest: int) -> Iterator[int]:
    """Split sizes that are too long."""
    for size in sizes:
        rest = size
        while rest > longest:
            yield longest
            rest -= longest
        yield rest
