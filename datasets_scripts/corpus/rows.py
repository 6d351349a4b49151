"""Rows of text for pretraining: planned for a pass, on disk, and read from tokens.

Pairs for next-sentence prediction, the algorithm and the order of its random draws follow
google-research/bert, ``create_pretraining_data.py``; Devlin et al. 2019, section 3.1 and appendix
A.2. Rows of whole sentences follow RoBERTa, Liu et al. 2019, section 4.2: FULL- and DOC-SENTENCES.
"""

import logging
import math
import os
import random
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from datasets_scripts.hub import show_progress
from modeling_minbert import unknown

from .tokens import TokenizedDocuments

logger = logging.getLogger(__name__)

KEPT_PASSES = 2
TYPES: dict[str, Any] = {
    "rows": np.int64,
    "starts": np.int64,
    "lengths": np.int32,
    "is_random": np.int8,
    "pieces": np.int32,
}
ROWS_IN_MEMORY = 10_000  # while a plan is written
RANDOM_TRIES = 10
CACHED_DOCUMENTS = 64  # a document and its random ones are read repeatedly
BALANCE_ROWS = 20  # surplus of random pairs at which no further one is drawn
MANY_RANDOM = 0.8  # share of random pairs that causes a warning
PACKINGS = ("segment_pairs", "full_sentences", "doc_sentences")


# Plans


class Piece(NamedTuple):
    """Consecutive tokens of a document."""

    document: int
    first: int  # its first token, from 0
    last: int  # its last token, exclusive


class PlannedRow(NamedTuple):
    """The content of a row."""

    pieces: Sequence[Piece]  # each followed by [SEP]
    is_random: bool = False  # whether the second piece is random


# Plans the rows of a pass, deterministically; it can be pickled.
Planner = Callable[[int], Iterator[PlannedRow]]


class Plan(NamedTuple):
    """The plan of a pass: arrays that are memory-mapped from files."""

    rows: NDArray[np.int64]  # planned row of each row, (N,); some of M may be dropped or repeated
    starts: NDArray[np.int64]  # first piece of each planned row, and the end, (M + 1,)
    lengths: NDArray[np.int32]  # tokens of each planned row, with special tokens, (M,)
    is_random: NDArray[np.int8]  # whether its second piece is random, (M,)
    pieces: NDArray[np.int32]  # document, first token and end of each piece, (P, 3)


class PlanFolder:
    """The plans of the last two passes, in a temporary folder that its process removes."""

    def __init__(self, planner: Planner, seed: int) -> None:
        self._planner = planner
        self._seed = seed
        self._rows: int | None = None
        self._plans: dict[int, Plan] = {}
        self._make_folder()
        self._rows = len(self.open(0).rows)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def __len__(self) -> int:
        return self._rows or 0

    def open(self, pass_index: int) -> Plan:
        """Open the plan of a pass, after writing it if it does not exist."""
        while pass_index not in self._plans:
            plan = _map(self._folder / f"pass-{pass_index}")
            if plan is None:
                self._write(pass_index)
            else:
                kept = list(self._plans.items())[1 - KEPT_PASSES :]
                self._plans = dict([*kept, (pass_index, plan)])
        return self._plans[pass_index]

    def _make_folder(self) -> None:
        # next to the tokens: the system's temporary folder may be in memory
        place = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_plans"
        place.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname()
        _remove_left_over(place, host)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{host}-{os.getpid()}-", dir=place))
        weakref.finalize(self, _remove, self._folder, os.getpid())

    def _write(self, pass_index: int) -> None:
        """Write the plan of a pass, in one of several processes."""
        if not self._folder.is_dir():
            self._make_folder()
        with FileLock(self._folder / "lock"):
            if (self._folder / f"pass-{pass_index}").is_dir():
                return
            # written as a draft and then renamed: no other process sees an incomplete plan
            draft = Path(tempfile.mkdtemp(dir=self._folder))
            rows = show_progress(self._planner(pass_index), f"plan pass {pass_index}", self._rows)
            planned = _write_rows(draft, rows)
            wanted = self._rows or planned
            chosen = np.arange(wanted) % planned  # repeats the first ones if there are too few
            if planned > wanted:
                chosen = np.sort(draw_order(f"{self._seed} {pass_index} rows", planned)[:wanted])
            chosen.astype(TYPES["rows"]).tofile(draft / "rows")
            draft.rename(self._folder / f"pass-{pass_index}")
            for old in sorted(self._folder.glob("pass-*"), key=_find_age)[:-KEPT_PASSES]:
                shutil.rmtree(old, ignore_errors=True)


def draw_order(seed: str, count: int) -> NDArray[np.int64]:
    """Shuffle the numbers from 0 to ``count - 1``, (count,), int64."""
    rng = np.random.default_rng(random.Random(seed).getrandbits(64))
    return rng.permutation(count)


def _write_rows(folder: Path, rows: Iterator[PlannedRow]) -> int:
    """Write planned rows to files in chunks, and count them."""
    names = ("starts", "lengths", "is_random", "pieces")
    planned = end = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        np.zeros(1, TYPES["starts"]).tofile(files["starts"])
        while part := list(islice(rows, ROWS_IN_MEMORY)):
            pieces = np.asarray([piece for row in part for piece in row.pieces])
            counts = np.asarray([len(row.pieces) for row in part])
            ends = np.cumsum(counts)
            sizes = np.add.reduceat(pieces[:, 2] - pieces[:, 1], ends - counts)
            columns = {
                "starts": end + ends,
                "lengths": 1 + sizes + counts,  # [CLS], and a [SEP] after each piece
                "is_random": np.asarray([row.is_random for row in part]),
                "pieces": pieces,
            }
            for name, column in columns.items():
                column.astype(TYPES[name]).tofile(files[name])
            planned, end = planned + len(part), end + len(pieces)
    return planned


def _map(folder: Path) -> Plan | None:
    """Map the files of a pass; None if they do not exist."""
    try:
        columns = {name: np.memmap(folder / name, dtype, mode="r") for name, dtype in TYPES.items()}
    except FileNotFoundError:
        return None
    return Plan(**columns | {"pieces": columns["pieces"].reshape(-1, 3)})


def _find_age(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:  # another process removed it
        return 0


def _remove_left_over(place: Path, host: str) -> None:
    """Remove the folders of killed processes of this machine."""
    for folder in place.glob(f"{host}-*-*"):
        owner = folder.name.removeprefix(f"{host}-").split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere the signal would kill it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder, but not in a fork of its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# Pairs of segments


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
            starts, other_starts = offsets(pair.document), offsets(pair.other)
            a_first = int(starts[pair.first]) + pair.a_front
            a_last = int(starts[pair.middle]) - pair.a_back
            b_first = int(other_starts[pair.other_first]) + pair.b_front
            b_last = int(other_starts[pair.other_last]) - pair.b_back
            pieces = Piece(pair.document, a_first, a_last), Piece(pair.other, b_first, b_last)
            yield PlannedRow(pieces, pair.is_random)


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


# Whole sentences


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
        for sentence in np.asarray(lengths(document)).tolist():
            for start in range(0, sentence, max_tokens):  # parts of a sentence that is too long
                size = min(sentence - start, max_tokens)
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


# Rows


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of a text, with [CLS] before and [SEP] after each piece.

    The content of a row depends only on the seed, the pass and its number. Every pass has as many
    rows as the first one: surplus rows are dropped, and missing ones are filled by repeating the
    first ones.
    """

    documents: TokenizedDocuments
    plans: PlanFolder
    has_pairs: bool
    special_ids: tuple[int, int]  # [CLS], [SEP]
    room: int  # tokens of a row without special ones

    def __len__(self) -> int:
        return len(self.plans)

    def count_tokens(self, number: int) -> NDArray[np.int64]:
        """Count the tokens of every row in pass ``number``, including special tokens, (N,)."""
        plan = self.plans.open(number)
        return plan.lengths[plan.rows].astype(np.int64)

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
        plan = self.plans.open(number)
        planned = plan.rows[rows]
        lengths = plan.lengths[planned].astype(np.int64)
        ids = np.empty(lengths.sum(), np.int64)
        types = np.zeros_like(ids)
        cls, sep = self.special_ids
        end = 0
        for row in planned.tolist():
            ids[end] = cls
            end += 1
            pieces = plan.pieces[plan.starts[row] : plan.starts[row + 1]].tolist()
            for place, (document, first, last) in enumerate(pieces):
                start, end = end, end + last - first
                ids[start:end] = self.documents.tokens(document, first, last)
                ids[end] = sep
                end += 1
                types[start:end] = place if self.has_pairs else 0
        columns = {"lengths": lengths, "input_ids": ids, "token_type_ids": types}
        if self.has_pairs:
            columns["next_sentence_label"] = plan.is_random[planned].astype(np.int64)
        return columns

    def describe(self) -> dict[str, int | float]:
        """Count documents, sentences and tokens, and the rows of the first pass."""
        sentences, tokens, cut = self.documents.count(self.room)
        facts: dict[str, int | float] = {
            "documents": len(self.documents),
            "empty_documents": self.documents.empty,
            "sentences": sentences,
            "cut_sentences": cut,
            "tokens": tokens,
            "rows": len(self),
        }
        if self.has_pairs:
            plan = self.plans.open(0)
            facts["random_share"] = float(plan.is_random[plan.rows].mean())
        return facts


def make_text_rows(
    documents: TokenizedDocuments,
    tokenizer: PreTrainedTokenizerBase,
    *,
    packing: str,
    max_length: int,
    seed: int,
    short_seq_prob: float = 0.1,
    balanced_pairs: bool = False,
    name: str,
) -> TextRows:
    """Make rows of the documents of a split.

    Args:
        documents: The documents, from `encode_corpus`.
        tokenizer: The tokenizer of their tokens.
        packing: ``segment_pairs`` (two segments, the second of which follows the first or is
            random), ``full_sentences`` (a row is filled with sentences, across documents) or
            ``doc_sentences`` (the same within one document).
        max_length: Maximum tokens of a row, including special tokens.
        seed: Seed of all draws.
        short_seq_prob: Share of the documents of a pass whose pairs have a random length.
        balanced_pairs: Whether half of the pairs are random; else more are, since a single sentence
            can only be paired with a random one.
        name: Name of the corpus, for messages.

    Raises:
        ValueError: If a setting is unknown or out of range, or pairs are made of one document.
    """
    if packing not in PACKINGS:
        raise ValueError(f"{name}: {unknown('packing', packing, PACKINGS)}")
    has_pairs = packing == "segment_pairs"
    shortest = 5 if has_pairs else 3  # special tokens, and one of each part
    if max_length < shortest:
        raise ValueError(f"{name}: max_length={max_length}; {packing} needs {shortest} or more")
    if not 0 <= short_seq_prob <= 1:
        raise ValueError(f"{name}: short_seq_prob={short_seq_prob} must be in [0, 1]")
    if has_pairs and len(documents) < 2:
        held_out = "give validation_file or a larger validation_share, "
        raise ValueError(
            f"{name}: {len(documents)} document in split {documents.split!r}, but next sentences "
            "need two, since a random one is of another document; "
            f"{held_out if documents.split == 'validation' else ''}add documents, check what the "
            "key 'documents' takes for one (blank_line, file or line), or learn masked tokens alone"
        )
    special_ids = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    if None in special_ids:
        raise ValueError(
            f"{name}: the tokenizer has no [CLS] or no [SEP]; use that of a BERT model"
        )
    room = max_length - (3 if has_pairs else 2)  # special tokens
    common: dict[str, Any] = {"documents": documents, "max_tokens": room, "seed": seed}
    planner: Planner = partial(plan_sentences, is_across=packing == "full_sentences", **common)
    if has_pairs:
        planner = partial(
            plan_all_pairs, short_seq_prob=short_seq_prob, is_balanced=balanced_pairs, **common
        )
    rows = TextRows(documents, PlanFolder(planner, seed), has_pairs, special_ids, room)
    if has_pairs:
        _check_share(rows.describe(), name, balanced_pairs=balanced_pairs)
    return rows


def _check_share(facts: dict[str, int | float], name: str, *, balanced_pairs: bool) -> None:
    """Reject pairs that are useless for training, and warn about poor ones."""
    share, rows = facts["random_share"], facts["rows"]
    advice = (
        "most documents have one sentence, which only a random one can follow; check the keys "
        "'documents' and 'sentences', or train masked_lm only"
    )
    if facts["sentences"] == facts["documents"]:
        raise ValueError(f"{name}: all {rows} pairs are random: {advice}")
    if balanced_pairs and share > 0.55 + 2 / math.sqrt(rows):
        raise ValueError(
            f"{name}: balanced_pairs=True, but {share:.0%} of the pairs are random: {advice}"
        )
    if share > MANY_RANDOM + 1 / math.sqrt(rows):
        logger.warning("%s: %.0f%% of the pairs are random: %s", name, 100 * share, advice)
