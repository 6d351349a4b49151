"""Plan pairs of segments for next-sentence prediction, one document at a time.

The algorithm and the order of its random draws are those of google-research/bert,
``create_pretraining_data.py`` (facts only); Devlin et al. 2019, section 3.1 and appendix A.2.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .plans import Piece, PlannedRow, draw_order
from .tokenized import TokenizedDocuments

RANDOM_TRIES = 10
BALANCE_ROWS = 20  # a surplus of as many random pairs leaves no chance to another one

# Tokens of each sentence of a document: a list, or an array.
Lengths = Callable[[int], Any]


class Pair(NamedTuple):
    """A planned pair; sentences are counted from 0 in their document, ends are exclusive.

    Args:
        document: The document of A.
        first: Where A begins.
        middle: Where A ends, and an actual B begins.
        last: Where the chunk ends from which A was taken; an actual B ends here, and after a
            random B the sentences from ``middle`` on begin the next chunk.
        other: The document of B; that of A for an actual B.
        other_first: Where B begins.
        other_last: Where B ends.
        is_random: Whether B is a random one.
        a_front: Tokens that are cut from the front of A.
        a_back: Tokens that are cut from the back of A.
        b_front: Tokens that are cut from the front of B.
        b_back: Tokens that are cut from the back of B.
    """

    document: int
    first: int
    middle: int
    last: int
    other: int
    other_first: int
    other_last: int
    is_random: bool
    a_front: int
    a_back: int
    b_front: int
    b_back: int


class Balance:
    """Keeps half of all pairs random, although a chunk of one sentence can only have a random B.

    Where there is a choice, a random B is less probable the more pairs had one so far. Google
    chooses with equal chances, so that more than half of the pairs are random.
    """

    def __init__(self) -> None:
        self._surplus = 0  # of random pairs

    def chance(self) -> float:
        """Probability that the next B is a random one, if there is a choice."""
        return 0.5 - 0.5 * self._surplus / BALANCE_ROWS

    def count(self, *, is_random: bool) -> None:
        """Take a pair into account."""
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
    """Plan the pairs of a document in one pass.

    Sentences are gathered until they have as many tokens as is aimed at; a random part of them is
    A, and either the rest is B, or B is a run of sentences of another document and the rest begins
    the next pair. If ten draws find no other document, B is from the same one, as with google; of
    two documents that happens to one random pair in a thousand.

    Args:
        lengths: Gives the tokens of each sentence of a document.
        document: The document.
        documents: How many there are, two or more.
        max_tokens: Tokens of A and B together at most, two or more.
        short_seq_prob: Probability that this pass over the document aims at fewer.
        rng: Gives every draw, in google's order.
        balanced: Keeps the labels of all documents balanced; None draws them as google does.

    Yields:
        The pairs in the order of the document.
    """
    target = max_tokens
    if rng.random() < short_seq_prob:
        target = 2 + rng.randrange(max_tokens - 1)
    sizes = np.asarray(lengths(document)).tolist()  # faster where single numbers are read
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


@dataclass(frozen=True)
class PairPlanner:
    """Plans the pairs of all documents.

    Args:
        documents: The documents.
        max_tokens: Tokens of A and B together at most.
        short_seq_prob: Probability that a pass over a document aims at fewer.
        is_balanced: Whether half of the pairs are to be random.
        seed: Seed of all draws.
    """

    documents: TokenizedDocuments
    max_tokens: int
    short_seq_prob: float
    is_balanced: bool
    seed: int

    def plan(self, number: int) -> Iterator[PlannedRow]:
        """Plan the rows of a pass."""
        total = len(self.documents)
        order: Iterable[int] = range(total)
        balanced = None
        if self.is_balanced:
            # In the order of the text, surplus rows of its last documents could not be worn off.
            balanced = Balance()
            order = map(int, draw_order(f"{self.seed} {number} order", total))
        for document in order:
            offsets = _Offsets(self.documents)
            pairs = plan_pairs(
                offsets.lengths,
                document,
                documents=total,
                max_tokens=self.max_tokens,
                short_seq_prob=self.short_seq_prob,
                rng=random.Random(f"{self.seed} {number} {document}"),
                balanced=balanced,
            )
            for pair in pairs:
                yield PlannedRow(offsets.find_pieces(pair), pair.is_random)


class _Offsets:
    """Where sentences begin in the documents that were asked for, which are few."""

    def __init__(self, documents: TokenizedDocuments) -> None:
        self._documents = documents
        self._found: dict[int, Any] = {}

    def lengths(self, document: int) -> Any:
        """Count the tokens of each sentence of a document, (S,)."""
        offsets = self._found.get(document)
        if offsets is None:
            self._found[document] = offsets = self._documents.offsets(document)
        return offsets[1:] - offsets[:-1]

    def find_pieces(self, pair: Pair) -> tuple[Piece, Piece]:
        """Find the tokens of a pair."""
        own, other = self._found[pair.document], self._found[pair.other]
        first = int(own[pair.first]) + pair.a_front
        last = int(own[pair.middle]) - pair.a_back
        other_first = int(other[pair.other_first]) + pair.b_front
        other_last = int(other[pair.other_last]) - pair.b_back
        return Piece(pair.document, first, last), Piece(pair.other, other_first, other_last)


def _find_end(sizes: Sequence[int], first: int, target: int) -> int:
    """Find the end of the fewest sentences from ``first`` on that have ``target`` tokens."""
    size = 0
    for number in range(first, len(sizes)):
        size += int(sizes[number])
        if size >= target:
            return number + 1
    return len(sizes)


def _draw_segment(
    lengths: Lengths, document: int, documents: int, target: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Draw a run of sentences of another document.

    Returns:
        The document, where the run begins and ends, and its tokens.
    """
    other = document
    for _ in range(RANDOM_TRIES):
        other = rng.randrange(documents)
        if other != document:
            break
    sizes = lengths(other)
    first = rng.randrange(len(sizes))
    last = _find_end(sizes, first, target)
    return other, first, last, int(sum(sizes[first:last]))


def _truncate(
    a_size: int, b_size: int, max_tokens: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Cut the longer segment token by token, at a random end; B if both are equal.

    Returns:
        Tokens cut from the front and the back of A, and of B.
    """
    sizes, cuts = [a_size, b_size], [0, 0, 0, 0]
    for _ in range(a_size + b_size - max_tokens):
        longer = 0 if sizes[0] > sizes[1] else 1
        sizes[longer] -= 1
        cuts[2 * longer + (rng.random() >= 0.5)] += 1
    return cuts[0], cuts[1], cuts[2], cuts[3]
