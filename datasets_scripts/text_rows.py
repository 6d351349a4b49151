"""Rows of text for pretraining: planned for a pass, on disk, and read from tokens.

Pairs for next-sentence prediction, the algorithm and the order of its random draws follow
google-research/bert, ``create_pretraining_data.py``; Devlin et al. 2019, section 3.1 and appendix
A.2. Rows of whole sentences follow RoBERTa, Liu et al. 2019, section 4.2: FULL- and DOC-SENTENCES.
"""

import logging
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from modeling_minbert import unknown
from modeling_minbert.pieces import Layout, find_layout

from .checking import errors_of
from .corpus import TokenizedDocuments, store_tables
from .loading import show_progress
from .row_format import make_features

logger = logging.getLogger(__name__)

SCHEMA = make_features(
    pieces=["int32"],  # document, first token and end of each piece
    length="int32",  # tokens, with special ones
    is_random="bool",
).arrow_schema
ROWS_IN_MEMORY = 10_000  # while a plan is written
SHORT_PAIRS = 0.1  # share of the documents of a pass whose target is a random number
RANDOM_TRIES = 10
BALANCE_ROWS = 20  # surplus of random pairs at which no further one is drawn
MANY_RANDOM = 0.8  # share of random pairs that causes a warning
PACKINGS = ("segment_pairs", "full_sentences", "doc_sentences")

# Returns the first token of each sentence of a document, and the end.
Offsets = Callable[[int], Any]


class Piece(NamedTuple):
    """Consecutive tokens of a document."""

    document: int
    first: int  # its first token, from 0
    last: int  # its last token, exclusive


class PlannedRow(NamedTuple):
    """The content of a row."""

    pieces: Sequence[Piece]  # with special tokens between them
    is_random: bool = False  # whether the second piece is random


def plan_pairs(
    offsets: Offsets,
    order: Iterable[int],
    *,
    documents: int,
    max_tokens: int,
    seed: str,
    is_balanced: bool = False,
) -> Iterator[PlannedRow]:
    """Plan the pairs of documents in one pass, with draws in Google's order.

    Sentences are collected up to a target number of tokens; a random number of them is A, and
    either the rest is B, or B is a run of sentences of another document and the rest starts the
    next pair. If ten draws give no other document, B is from the same one, as in Google's code;
    with two documents that happens to one random pair in a thousand.

    Args:
        offsets: Of the sentences of a document.
        order: The documents of A; B is drawn from all.
        documents: Number of all documents.
        max_tokens: Tokens of A and B together.
        seed: Of all draws; each document has its own generator.
        is_balanced: Whether half of all pairs are random, where Google's code makes more: the
            larger their surplus, the rarer a random B.
    """
    surplus = 0  # of random pairs
    for document in order:
        rng = random.Random(f"{seed} {document}")
        target = max_tokens
        if rng.random() < SHORT_PAIRS:
            target = 2 + rng.randrange(max_tokens - 1)
        starts = np.asarray(offsets(document)).tolist()  # faster access to single numbers
        first = 0
        while first < len(starts) - 1:
            last = _find_end(starts, first, target)
            has_choice = last - first > 1
            middle = first + 1 + (rng.randrange(last - first - 1) if has_choice else 0)
            a = [starts[first], starts[middle]]
            chance = 0.5 - 0.5 * surplus / BALANCE_ROWS if is_balanced else 0.5
            is_random = not has_choice or rng.random() < chance
            other, b = document, [starts[middle], starts[last]]
            if is_random:
                for _ in range(RANDOM_TRIES):
                    other = rng.randrange(documents)
                    if other != document:
                        break
                others = offsets(other)
                begin = rng.randrange(len(others) - 1)
                end = _find_end(others, begin, target - (a[1] - a[0]))
                b = [int(others[begin]), int(others[end])]
            # the longer segment is cut at random ends, B if both are equal
            for _ in range(a[1] - a[0] + b[1] - b[0] - max_tokens):
                longer = a if a[1] - a[0] > b[1] - b[0] else b
                if rng.random() < 0.5:
                    longer[0] += 1
                else:
                    longer[1] -= 1
            yield PlannedRow((Piece(document, *a), Piece(other, *b)), is_random)
            surplus += 1 if is_random else -1
            first = middle if is_random else last


def _find_end(starts: Sequence[int], first: int, target: int) -> int:
    """Return the end of the shortest run of sentences from ``first`` with ``target`` tokens."""
    end = bisect_left(starts, starts[first] + target, first + 1)
    return min(end, len(starts) - 1)


def pack_sentences(
    offsets: Offsets, order: Iterable[int], *, max_tokens: int, is_across: bool, between: int = 1
) -> Iterator[PlannedRow]:
    """Fill rows of at most ``max_tokens`` with consecutive sentences.

    Longer sentences are cut; with ``is_across`` a row may continue with the next document, with
    ``between`` special tokens before it.
    """
    row: list[Piece] = []
    room = max_tokens
    for document in order:
        if row and not is_across:
            yield PlannedRow(row)
            row, room = [], max_tokens
        room -= between * bool(row)
        first = last = 0
        for sentence in np.diff(offsets(document)).tolist():
            for start in range(0, sentence, max_tokens):  # parts of a sentence that is too long
                size = min(sentence - start, max_tokens)
                if size > room:
                    if last > first:
                        row.append(Piece(document, first, last))
                    yield PlannedRow(row)
                    row, room, first = [], max_tokens, last
                last += size
                room -= size
        row.append(Piece(document, first, last))
    if row:
        yield PlannedRow(row)


def draw_order(seed: str, count: int) -> NDArray[np.int64]:
    """Shuffle the numbers from 0 to ``count - 1``, (count,), int64."""
    rng = np.random.default_rng(random.Random(seed).getrandbits(64))
    return rng.permutation(count)


def _to_tables(rows: Iterator[PlannedRow], layout: Layout) -> Iterator[dict[str, Any]]:
    added, between = layout.single - len(layout.middle), len(layout.middle)
    while part := list(islice(rows, ROWS_IN_MEMORY)):
        yield {
            "pieces": [list(chain.from_iterable(row.pieces)) for row in part],
            "length": [added + sum(p.last - p.first + between for p in row.pieces) for row in part],
            "is_random": [row.is_random for row in part],
        }


class _Plan(NamedTuple):
    """The rows of a pass; the dropped ones are among them."""

    rows: datasets.Dataset
    gaps: NDArray[np.int64]  # number of rows that are used before each dropped one, ascending

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the planned rows of rows of the pass; missing ones repeat the first ones."""
        places = numbers % len(self.rows)
        return places + self.gaps.searchsorted(places, side="right")


class TextRows:
    """Rows of the documents of a split, with the special tokens of texts and of their pairs.

    The content of a row depends only on the seed, the pass and its number. Every pass has as many
    rows as the first one: surplus rows are dropped, and missing ones are filled by repeating the
    first ones. What a pass has is planned once, and stored in the cache of `datasets`.

    Args:
        documents: The documents, from `encode_corpus`.
        tokenizer: The tokenizer of their tokens.
        packing: ``segment_pairs`` (two segments, the second of which follows the first or is
            random), ``full_sentences`` (a row is filled with sentences, across documents) or
            ``doc_sentences`` (the same within one document).
        max_length: Maximum tokens of a row, including special tokens.
        seed: Seed of all draws.
        balanced_pairs: Whether half of the pairs are random; else more are, since a single sentence
            can only be paired with a random one.
        name: Name of the corpus, for messages.

    Raises:
        ValueError: If the packing is unknown, the tokenizer adds no special tokens, pairs are made
            of one document, or all are random.
    """

    def __init__(
        self,
        documents: TokenizedDocuments,
        tokenizer: PreTrainedTokenizerBase,
        *,
        packing: str,
        max_length: int,
        seed: int,
        balanced_pairs: bool = False,
        name: str,
    ) -> None:
        if packing not in PACKINGS:
            raise ValueError(f"{name}: {unknown('packing', packing, PACKINGS)}")
        self.has_pairs = packing == "segment_pairs"
        with errors_of(name):
            self.layout = find_layout(tokenizer)
        special = sum(map(len, self.layout)) if self.has_pairs else self.layout.single
        self.room = max_length - special  # tokens without special ones
        if self.has_pairs and len(documents) < 2:
            raise ValueError(
                f"{name}: {len(documents)} document in split {documents.split!r}, but next "
                "sentences need two, since a random one is of another document; add documents, "
                "give validation_file or a larger validation_share, check what the key 'documents' "
                "takes for one (blank_line, file or line), or learn masked tokens alone"
            )
        self.documents = documents
        self.packing = packing
        self.seed = seed
        self.balanced_pairs = balanced_pairs
        self._fingerprint = documents.fingerprint()
        self._plans: dict[int, _Plan] = {}
        self._rows: int | None = None
        self._rows = len(self._open(0).rows)
        if not self.has_pairs:
            return
        # pairs may be useless for training, or poor
        facts = self.describe()
        share, rows = facts["random_share"], facts["rows"]
        problem = (
            f"{name}: {share:.0%} of the {rows} pairs are random: most documents have one "
            "sentence, which only a random one can follow; check the keys 'documents' and "
            "'sentences', or train masked_lm only"
        )
        cannot_balance = self.balanced_pairs and share > 0.55 + 2 / math.sqrt(rows)
        if facts["sentences"] == facts["documents"] or cannot_balance:
            raise ValueError(problem)
        if share > MANY_RANDOM + 1 / math.sqrt(rows):
            logger.warning(problem)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def __len__(self) -> int:
        return self._rows or 0

    def count_tokens(self, number: int) -> NDArray[np.int64]:
        """Count the tokens of every row in pass ``number``, including special tokens, (N,)."""
        plan = self._open(number)
        lengths = plan.rows.data.column("length").to_numpy()
        return lengths[plan.places(np.arange(len(self)))].astype(np.int64)

    def read(self, number: int, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Read some rows of pass ``number``.

        Args:
            number: The pass, from 0.
            rows: Numbers of the rows, (B,).

        Returns:
            ``lengths`` (B,); ``input_ids`` and ``token_type_ids`` of all rows, concatenated and
            including special tokens, (T,); and for segment pairs ``next_sentence_label`` (B,), 0
            if B follows A and 1 if it is random.
        """
        plan = self._open(number)
        planned = plan.rows[plan.places(rows).tolist()]
        lengths = np.asarray(planned["length"], np.int64)
        ids = np.empty(lengths.sum(), np.int64)
        types = np.zeros_like(ids)
        end = 0
        for row in planned["pieces"]:
            pieces = np.reshape(row, (-1, 3)).tolist()
            start, end = end, end + len(self.layout.start)
            ids[start:end] = self.layout.start
            for place, (document, first, last) in enumerate(pieces):
                start, end = end, end + last - first
                ids[start:end] = self.documents.tokens(document, first, last)
                after = self.layout.end if place == len(pieces) - 1 else self.layout.middle
                ids[end : end + len(after)] = after
                end += len(after)
                types[start:end] = place if self.has_pairs else 0
        columns = {"lengths": lengths, "input_ids": ids, "token_type_ids": types}
        if self.has_pairs:
            columns["next_sentence_label"] = np.asarray(planned["is_random"], np.int64)
        return columns

    def describe(self) -> dict[str, int | float]:
        """Count documents, sentences and tokens, and the rows of the first pass."""
        sentences, tokens, cut = self.documents.count(self.room)
        facts: dict[str, int | float] = {
            "documents": len(self.documents),
            "sentences": sentences,
            "cut_sentences": cut,
            "tokens": tokens,
            "rows": len(self),
        }
        if self.has_pairs:
            is_random = self._open(0).rows.data.column("is_random").to_numpy()
            facts["random_share"] = float(is_random.mean())
        return facts

    def _open(self, number: int) -> _Plan:
        """Open the plan of a pass, after writing it if it is not in the cache."""
        if number in self._plans:
            return self._plans[number]
        options = (self.packing, self.room, self.seed, self.balanced_pairs)
        planned = show_progress(self._plan(number), f"plan pass {number}", self._rows)
        key = (self._fingerprint, *options, *map(len, self.layout), number)
        rows = store_tables(_to_tables(planned, self.layout), SCHEMA, "plan", key)
        surplus = max(0, len(rows) - (self._rows or len(rows)))
        order = draw_order(f"{self.seed} {number} rows", len(rows) if surplus else 0)
        dropped = np.sort(order[len(order) - surplus :])
        self._plans[number] = plan = _Plan(rows, dropped - np.arange(surplus))
        return plan

    def _plan(self, number: int) -> Iterator[PlannedRow]:
        documents = len(self.documents)
        order: Iterable[int] = range(documents)
        if self.packing == "full_sentences" or self.balanced_pairs:
            # in the order of the text, a surplus in its last documents could not be compensated
            order = map(int, draw_order(f"{self.seed} {number} order", documents))
        if self.has_pairs:
            return plan_pairs(
                self.documents.offsets,
                order,
                documents=documents,
                max_tokens=self.room,
                seed=f"{self.seed} {number}",
                is_balanced=self.balanced_pairs,
            )
        options: Any = {"max_tokens": self.room, "between": len(self.layout.middle)}
        is_across = self.packing == "full_sentences"
        return pack_sentences(self.documents.offsets, order, is_across=is_across, **options)
