"""Batches of text: dynamic masks, drawn anew in every pass (Devlin et al. 2019, section 3.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.decoders import ByteLevel

from modeling_minbert.texts import SPACELESS

from .rows import IGNORED_LABEL, Ids, Joined

# Prefixes of pieces: of WordPiece of those that continue a word, of a byte-level tokenizer and of
# SentencePiece of those that begin one.
CONTINUATION, BYTES, METASPACE = "##", "\u0120", "\u2581"
# Pieces of a word that such a tokenizer marks: one that knows no Thai makes a word of a whole text
LONGEST_WORD = 10
# First bytes of Chinese and Japanese characters, as a byte-level tokenizer writes them
HAN_BYTES = tuple(map(chr, range(0xE3, 0xEA)))

Uniform = NDArray[np.float64]  # in [0, 1)


@dataclass(eq=False)
class Masking:
    """Chooses the tokens to predict, and masks them.

    Of a row with L tokens, special ones included, ``max(1, round(mlm_probability * L))`` are
    chosen, as in google-research/bert, but never special ones. With whole words, a word that would
    exceed that number is skipped; if no word fits, the first one is taken, so that every row with
    words has a prediction. A piece that continues a word belongs to the word before it unless a
    special token lies between them: a second segment that begins in the middle of a word does not
    continue the first.

    Args:
        mask_token_id: The mask token.
        special_ids: Tokens that are never chosen.
        continuation_ids: Tokens that continue a word.
        random_ids: Tokens that may replace a chosen one.
        mlm_probability: Share of the tokens that are chosen, in (0, 1].
        mask_replace_prob: Share of the chosen tokens replaced by the mask token.
        random_replace_prob: Share of them replaced by a random token; the others are kept.
        whole_word_mask: Whether all pieces of a word are chosen together; their replacements are
            drawn independently.
        longest_word: A word with more pieces than this, and than are chosen from its row, is read
            as several words of so many; None for words of any length.
        seed: Seed of the run, >= 0.

    Raises:
        ValueError: If a share is out of range.
    """

    mask_token_id: int
    special_ids: InitVar[Iterable[int]]
    continuation_ids: InitVar[Iterable[int]]
    random_ids: InitVar[Iterable[int]]
    _: KW_ONLY
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False
    longest_word: int | None = None
    seed: int = 0

    def __post_init__(
        self, special_ids: Iterable[int], continuation_ids: Iterable[int], random_ids: Iterable[int]
    ) -> None:
        check_shares(self.mlm_probability, self.mask_replace_prob, self.random_replace_prob)
        self._random_ids = np.fromiter(random_ids, dtype=np.int64)
        special, continuation = sorted({*special_ids, self.mask_token_id}), sorted(continuation_ids)
        # the last entry is for all higher tokens, which are ordinary words
        size = 2 + max([*special, *continuation])
        self._is_special = np.zeros(size, dtype=bool)
        self._is_special[special] = True
        self._continues = np.zeros(size, dtype=bool)
        self._continues[continuation] = self.whole_word_mask

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, **options: Any) -> "Masking":
        """Build masking for the vocabulary of a tokenizer, with options of the class.

        Its unknown token may be chosen. Special and ``[unused...]`` tokens are no random
        replacements. A tokenizer without a mask token raises ValueError, and one that does not mark
        words if these are masked as a whole.
        """
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has no mask token; for masked "
                "language modeling use that of a bert checkpoint, or train one"
            )
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        special = set(tokenizer.all_special_ids)
        added = tokenizer.added_tokens_decoder
        special |= {index for index, token in added.items() if token.special}
        unused = {index for token, index in vocabulary.items() if token.startswith("[unused")}
        hidden = special - {tokenizer.unk_token_id}
        continuation: list[int] = []
        if options.get("whole_word_mask"):
            words = {token: index for token, index in vocabulary.items() if index not in hidden}
            continuation = find_continuations(words)
            if find_mark(words) != CONTINUATION:
                options["longest_word"] = LONGEST_WORD
        return cls(
            tokenizer.mask_token_id,
            hidden,
            continuation,
            sorted(set(vocabulary.values()) - special - unused),
            **options,
        )

    def draw(self, task: int, passes: int | Ids, rows: Ids, lengths: Ids) -> Uniform:
        """Draw uniform numbers (3, T) for N rows: a function of (seed, task, pass, row) only.

        ``passes`` is the pass of all rows, or (N,); ``rows`` and ``lengths`` are (N,).
        """
        parts = [np.empty((3, 0))]
        columns = (np.broadcast_to(passes, rows.shape), rows, lengths)
        for pass_index, row, length in np.stack(columns, axis=1).tolist():
            # an independent stream for every row; the first word of the counter counts blocks
            stream = np.random.Philox(key=[self.seed, task], counter=[0, row, pass_index, 0])
            parts.append(np.random.Generator(stream).random((3, length)))
        return np.concatenate(parts, axis=1)

    def apply(self, input_ids: Ids, lengths: Ids, draws: Uniform) -> tuple[Ids, Ids]:
        """Mask concatenated rows: return the input of the model and the labels, both (T,).

        Of ``draws``, (3, T), the first determines the order in which words are chosen (that of
        their first tokens), the second whether a token is masked, replaced or kept, the third its
        replacement.
        """
        order, actions, picks = draws
        chosen = self._choose(input_ids, lengths, order)
        labels = np.full_like(input_ids, IGNORED_LABEL)
        labels[chosen] = input_ids[chosen]
        hidden = input_ids.copy()
        action = actions[chosen]
        hidden[chosen[action < self.mask_replace_prob]] = self.mask_token_id
        end = self.mask_replace_prob + self.random_replace_prob
        replaced = chosen[(action >= self.mask_replace_prob) & (action < end)]
        picked = (picks[replaced] * len(self._random_ids)).astype(np.int64)
        hidden[replaced] = self._random_ids[picked]
        return hidden, labels

    def _choose(self, input_ids: Ids, lengths: Ids, order: Uniform) -> Ids:
        """Return the positions of the chosen tokens, ascending, (M,)."""
        if not len(input_ids):
            return np.empty(0, dtype=np.int64)
        known = np.minimum(input_ids, len(self._is_special) - 1)
        special = self._is_special[known]
        joins = self._continues[known] & ~special
        joins[1:] &= ~special[:-1]
        joins[np.cumsum(lengths) - lengths] = False
        budgets = np.maximum(1, np.rint(self.mlm_probability * lengths)).astype(np.int64)
        row_of_token = np.repeat(np.arange(len(lengths)), lengths)
        if self.longest_word is not None:  # cut what is longer, and than what may be chosen
            places = np.arange(len(joins))
            starts = np.maximum.accumulate(np.where(joins, 0, places))
            sizes = np.bincount(starts, minlength=len(joins))[starts]
            is_long = sizes > np.maximum(self.longest_word, budgets[row_of_token])
            joins &= ~is_long | ((places - starts) % self.longest_word != 0)
        first = np.flatnonzero(~special & ~joins)
        word = np.cumsum(~special & ~joins) - 1  # word of each token that is not special
        sizes = np.bincount(word[~special], minlength=len(first))
        rows = row_of_token[first]
        sequence = np.lexsort((order[first], rows))
        taken = np.zeros(len(first), dtype=bool)
        taken[sequence[_fill(rows[sequence], sizes[sequence], budgets)]] = True
        return np.flatnonzero(~special & taken[word]) if len(first) else first


def find_mark(vocabulary: Iterable[str]) -> str:
    """Return the prefix that marks the tokens of a vocabulary which continue or begin a word.

    Raises:
        ValueError: If no token has one, and there are parts of words.
    """
    marks = (CONTINUATION, BYTES, METASPACE)
    counts = [sum(token.startswith(mark) for token in vocabulary) for mark in marks]
    if not any(counts) and any(token.endswith(("</w>", "@@")) for token in vocabulary):
        raise ValueError(
            "whole_word_mask: true needs a tokenizer that marks words at the start of its tokens, "
            "by ##, \u0120 or \u2581; leave it out"
        )
    return marks[counts.index(max(counts))]


def find_continuations(vocabulary: Mapping[str, int]) -> list[int]:
    """Find the tokens that continue a word, by the mark of `find_mark`.

    Words of WordPiece are also punctuation marks. Those of other tokenizers are what spaces
    separate, as in fairseq and in transformers; but as in BERT, a token of a script without spaces
    begins a word.
    """
    mark = find_mark(vocabulary)
    if mark == CONTINUATION:
        return [index for token, index in vocabulary.items() if token.startswith(mark)]
    begins, decoder = (mark, *HAN_BYTES) if mark == BYTES else (mark,), ByteLevel()
    return [
        index
        for token, index in vocabulary.items()
        if not token.startswith(begins)
        and not SPACELESS.match(decoder.decode([token]) if mark == BYTES else token)
    ]


def check_shares(
    mlm_probability: float, mask_replace_prob: float, random_replace_prob: float
) -> None:
    """Check the shares of masking."""
    if not 0 < mlm_probability <= 1:
        raise ValueError(f"mlm_probability={mlm_probability} must be in (0, 1]; BERT uses 0.15")
    shares = (mask_replace_prob, random_replace_prob)
    if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
        raise ValueError(
            f"mask_replace_prob={mask_replace_prob} and random_replace_prob={random_replace_prob} "
            "must be in [0, 1] and at most 1 together; BERT uses 0.8 and 0.1"
        )


def _fill(rows: Ids, sizes: Ids, budgets: Ids) -> NDArray[np.bool_]:
    """Take words in order that fit into the budget, (N,), of their row; return which, (W,)."""
    taken = np.zeros(len(rows), dtype=bool)
    counts = np.bincount(rows, minlength=len(budgets))
    starts = np.cumsum(counts) - counts
    left = budgets.copy()
    # all rows at once: the first word of each, the second of each, and so on
    for rank in range(counts.max(initial=0)):
        open_rows = np.flatnonzero((left > 0) & (counts > rank))
        if not len(open_rows):
            break
        words = starts[open_rows] + rank
        fits = sizes[words] <= left[open_rows]
        taken[words[fits]] = True
        left[open_rows[fits]] -= sizes[words[fits]]
    empty = np.flatnonzero((left == budgets) & (counts > 0))
    taken[starts[empty]] = True
    return taken


@dataclass(frozen=True)
class TextMasking:
    """Masks and pair labels of the batches of a task that trains on text without labels."""

    masking: Masking | None  # chooses the tokens to be predicted; None if none are
    is_paired: bool  # whether the task predicts if the segments of a pair follow each other
    position: int = 0  # of the task among all tasks

    def prepare(self, joined: Joined) -> Joined:
        """Draw the masks of a batch, or use the labels of its pairs."""
        if self.masking is None:
            return joined._replace(labels=joined.next_sentence_label, next_sentence_label=None)
        numbers, rows = joined.places
        draws = self.masking.draw(self.position, numbers, rows, joined.lengths)
        ids, labels = self.masking.apply(joined.input_ids, joined.lengths, draws)
        follows = joined.next_sentence_label if self.is_paired else None
        return joined._replace(
            input_ids=ids, labels=None, token_labels=labels, next_sentence_label=follows
        )
