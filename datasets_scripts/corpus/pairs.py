"""Plan pairs of segments for next-sentence prediction, one document at a time.

The algorithm and the order of its random draws follow google-research/bert,
``create_pretraining_data.py``; Devlin et al. 2019, section 3.1 and appendix A.2.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .plans import Piece, PlannedRow, draw_order
from .tokenized import TokenizedDocuments

RANDOM_TRIES = 10
CACHED_DOCUMENTS = 64  # a document and its random ones are read repeatedly
BALANCE_ROWS = 20  # surplus of random pairs at which no further one is drawn

# Returns the number of tokens of each sentence of a document: a list, or an array.
Lengths = Callable[[int], Any]


class Pair(NamedTuple):
    """A planned pair of segments; sentence numbers start at 0, ends are exclusive."""

    document: int  # document of A
    first: int  # first sentence of A
    middle: int  # end of A, and first sentence of an actual B
    last: int  # end of the chunk of A, and of an actual B; after a random B, `middle` is next
    other: int  # document of B
    other_first: int  # first sentence of B
    other_last: int  # end of B
    is_random: bool  # whether B is random
    a_front: int  # tokens truncated from the front of A
    a_back: int  # tokens truncated from the back of A
    b_front: int  # tokens truncated from the front of B
    b_back: int  # tokens truncated from the back of B


class Balance:
    """Keeps half of all pairs random: the larger their surplus, the rarer a random B."""

    def __init__(self) -> None:
        self._surplus = 0  # of random pairs

    def chance(self) -> float:
        # Google draws with equal probability, so more than half of its pairs are random.
        return 0.5 - 0.5 * self._surplus / BALANCE_ROWS

    def count(self, *, is_random: bool) -> None:
        self._surplus += 1 if is_random else -1


def plan_pairs(
    lengths: Lengths,
    document: int,
    *,
    documents: int,
    max_tokens: int,
    short_seq_prob: float,
    rng: random.Random,
    balanced: Balance | None = None,
) -> Iterator[Pair]:
    """Plan the pairs of a document in one pass, with draws in Google's order.

    Sentences are collected up to a target number of tokens; a random number of them is A, and
    either the rest is B, or B is a run of sentences of another document and the rest starts the
    next pair. If ten draws give no other document, B is from the same one, as in Google's code;
    with two documents that happens to one random pair in a thousand.
    """
    target = max_tokens
    if rng.random() < short_seq_prob:
        target = 2 + rng.randrange(max_tokens - 1)
    sizes = np.asarray(lengths(document)).tolist()  # faster access to single numbers
    first = 0
    while first < len(sizes):
        last = _find_end(sizes, first, target)
        has_choice = last - first > 1
        middle = first + 1 + (rng.randrange(last - first - 1) if has_choice else 0)
        a_size = sum(sizes[first:middle])
        is_random = not has_choice or rng.random() < (balanced.chance() if balanced else 0.5)
        if is_random:
            other, start, end, b_size = _draw_segment(
                lengths, document, documents, target - a_size, rng
            )
        else:
            other, start, end, b_size = document, middle, last, sum(sizes[middle:last])
        cuts = _truncate(a_size, b_size, max_tokens, rng)
        yield Pair(document, first, middle, last, other, start, end, is_random, *cuts)
        if balanced:
            balanced.count(is_random=is_random)
        first = middle if is_random else last


def plan_all_pairs(
    pass_index: int,
    *,
    documents: TokenizedDocuments,
    max_tokens: int,
    short_seq_prob: float,
    is_balanced: bool,
    seed: int,
) -> Iterator[PlannedRow]:
    """Plan the pairs of all documents in one pass."""
    order: Iterable[int] = range(len(documents))
    balanced = None
    if is_balanced:
        # in the order of the text, a surplus in its last documents could not be compensated
        balanced = Balance()
        order = map(int, draw_order(f"{seed} {pass_index} order", len(documents)))
    offsets = lru_cache(CACHED_DOCUMENTS)(documents.offsets)

    def lengths(document: int) -> NDArray[np.int32]:
        return offsets(document)[1:] - offsets(document)[:-1]

    for document in order:
        pairs = plan_pairs(
            lengths,
            document,
            documents=len(documents),
            max_tokens=max_tokens,
            short_seq_prob=short_seq_prob,
            rng=random.Random(f"{seed} {pass_index} {document}"),
            balanced=balanced,
        )
        for pair in pairs:
            yield PlannedRow(_find_pieces(pair, offsets), pair.is_random)


def _find_pieces(pair: Pair, offsets: Callable[[int], Any]) -> tuple[Piece, Piece]:
    own, other = offsets(pair.document), offsets(pair.other)
    first = int(own[pair.first]) + pair.a_front
    last = int(own[pair.middle]) - pair.a_back
    other_first = int(other[pair.other_first]) + pair.b_front
    other_last = int(other[pair.other_last]) - pair.b_back
    return Piece(pair.document, first, last), Piece(pair.other, other_first, other_last)


def _find_end(sizes: Sequence[int], first: int, target: int) -> int:
    """Return the end of the shortest run of sentences from ``first`` with ``target`` tokens."""
    size = 0
    for number in range(first, len(sizes)):
        size += int(sizes[number])
        if size >= target:
            return number + 1
    return len(sizes)


def _draw_segment(
    lengths: Lengths, document: int, documents: int, target: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Draw a run of sentences of another document: document, first, end and number of tokens."""
    other = document
    for _ in range(RANDOM_TRIES):
        other = rng.randrange(documents)
        if other != document:
            break
    sizes = lengths(other)
    first = rng.randrange(len(sizes))
    last = _find_end(sizes, first, target)
    return other, first, last, int(sum(sizes[first:last]))


def _truncate(a_size: int, b_size: int, max_tokens: int, rng: random.Random) -> list[int]:
    """Truncate the longer segment at random ends, B if equal: front and back of A, and of B."""
    sizes, cuts = [a_size, b_size], [0, 0, 0, 0]
    for _ in range(a_size + b_size - max_tokens):
        longer = 0 if sizes[0] > sizes[1] else 1
        sizes[longer] -= 1
        cuts[2 * longer + (rng.random() >= 0.5)] += 1
    return cuts
