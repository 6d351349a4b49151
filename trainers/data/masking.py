"""Masks of masked language modelling, drawn anew in every pass over the text.

Source: Devlin et al. 2019, section 3.1, task 1, and whole-word masking as in google-research/bert.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED_LABEL = -100  # what the losses of torch leave out
CONTINUATION = "##"  # begins the pieces of a word after the first one

Ids = NDArray[np.int64]
Uniform = NDArray[np.float64]


class Draws(NamedTuple):
    """The random numbers of some rows, each uniform in [0, 1), one for every token, (T,).

    Args:
        order: Words are tried in ascending order of the draw of their first token.
        action: Whether a chosen token is masked, replaced or kept.
        token: Which random token replaces it.
    """

    order: Uniform
    action: Uniform
    token: Uniform


class Masking:
    """Choose tokens to be predicted, and hide them.

    Of a row with L tokens, special ones included, ``max(1, round(mlm_probability * L))`` are
    chosen, as in google-research/bert, but never a special one. A row with nothing but special
    tokens has none. With whole words, a word that would exceed that number is skipped; if no word
    fits, the first one is taken, so that every row has something to predict. A piece that begins
    with ``##`` belongs to the word before it unless a special token lies between them: the second
    segment of a pair, cut in the middle of a word, does not join the first one.

    Args:
        mask_token_id: Token that hides another one.
        special_ids: Tokens that are never chosen.
        continuation_ids: Tokens that go on with a word.
        random_ids: Tokens that may replace a chosen one.
        mlm_probability: Share of the tokens that are chosen, in (0, 1].
        mask_replace_prob: Share of the chosen tokens that become the mask.
        random_replace_prob: Share of them that become a random token; the others stay as they are.
        whole_word_mask: Whether all pieces of a word are chosen together. What happens to each is
            still drawn for each.
        seed: Seed of the run, >= 0.

    Raises:
        ValueError: If a share is out of range.
    """

    def __init__(
        self,
        mask_token_id: int,
        special_ids: Iterable[int],
        continuation_ids: Iterable[int],
        random_ids: Iterable[int],
        *,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        whole_word_mask: bool = False,
        seed: int = 0,
    ) -> None:
        check_shares(mlm_probability, mask_replace_prob, random_replace_prob)
        self.mask_token_id = mask_token_id
        self.mlm_probability = mlm_probability
        self.mask_replace_prob = mask_replace_prob
        self.random_replace_prob = random_replace_prob
        self.whole_word_mask = whole_word_mask
        self.seed = seed
        self._random_ids = np.fromiter(random_ids, dtype=np.int64)
        special, continuation = sorted({*special_ids, mask_token_id}), sorted(continuation_ids)
        # The last entry stands for all tokens above, which are words like any other.
        size = 2 + max(*special, *continuation)
        self._is_special = np.zeros(size, dtype=bool)
        self._is_special[special] = True
        self._continues = np.zeros(size, dtype=bool)
        self._continues[continuation] = whole_word_mask

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, **options: Any) -> "Masking":
        """Find the tokens in the vocabulary of a WordPiece tokenizer.

        Args:
            tokenizer: Tokenizer of the model. Its unknown token may be chosen, but replaces none,
                as no special token and no ``[unused...]`` does.
            **options: As in the constructor.

        Raises:
            ValueError: If the tokenizer has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has no mask token; masked language "
                "modelling needs that of a bert checkpoint, or a trained one"
            )
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        special = set(tokenizer.all_special_ids)
        unused = {index for token, index in vocabulary.items() if token.startswith("[unused")}
        return cls(
            tokenizer.mask_token_id,
            special - {tokenizer.unk_token_id},
            [index for token, index in vocabulary.items() if token.startswith(CONTINUATION)],
            sorted(set(vocabulary.values()) - special - unused),
            **options,
        )

    def draw(self, task: int, number: int | Ids, rows: Ids, lengths: NDArray[np.int64]) -> Draws:
        """Draw the random numbers of some rows: a function of (seed, task, pass, row) alone.

        Args:
            task: Position of the task among all tasks.
            number: Pass over the data, of all rows or of each, (N,).
            rows: Number of each row in its task, (N,).
            lengths: Tokens of each row, (N,).
        """
        numbers = np.broadcast_to(number, rows.shape).tolist()
        parts = [
            # a stream of its own for every row; the first word of the counter counts the blocks
            np.random.Generator(
                np.random.Philox(key=[self.seed, task], counter=[0, row, drawn_in, 0])
            ).random((3, length))
            for drawn_in, row, length in zip(numbers, rows.tolist(), lengths.tolist(), strict=True)
        ]
        return Draws(*(np.concatenate(parts, axis=1) if parts else np.empty((3, 0))))

    def apply(self, input_ids: Ids, lengths: NDArray[np.int64], draws: Draws) -> tuple[Ids, Ids]:
        """Hide the chosen tokens.

        Args:
            input_ids: Rows one after the other, (T,).
            lengths: Tokens of each row, (N,).
            draws: Random numbers.

        Returns:
            What the model reads, and what it has to predict, -100 elsewhere; both (T,).
        """
        chosen = self._choose(input_ids, lengths, draws.order)
        labels = np.full_like(input_ids, IGNORED_LABEL)
        labels[chosen] = input_ids[chosen]
        hidden = input_ids.copy()
        action = draws.action[chosen]
        hidden[chosen[action < self.mask_replace_prob]] = self.mask_token_id
        replaced = chosen[
            (action >= self.mask_replace_prob)
            & (action < self.mask_replace_prob + self.random_replace_prob)
        ]
        picks = (draws.token[replaced] * len(self._random_ids)).astype(np.int64)
        hidden[replaced] = self._random_ids[picks]
        return hidden, labels

    def _choose(self, input_ids: Ids, lengths: NDArray[np.int64], order: Uniform) -> Ids:
        """Choose tokens; positions in ascending order, (M,)."""
        if not len(input_ids):
            return np.empty(0, dtype=np.int64)
        known = np.minimum(input_ids, len(self._is_special) - 1)
        special = self._is_special[known]
        joins = self._continues[known] & ~special
        joins[1:] &= ~special[:-1]
        joins[np.cumsum(lengths) - lengths] = False
        first = np.flatnonzero(~special & ~joins)
        word = np.cumsum(~special & ~joins) - 1  # of each token that is not special
        sizes = np.bincount(word[~special], minlength=len(first))
        rows = np.repeat(np.arange(len(lengths)), lengths)[first]
        budgets = np.maximum(1, np.rint(self.mlm_probability * lengths)).astype(np.int64)
        sequence = np.lexsort((order[first], rows))
        taken = np.zeros(len(first), dtype=bool)
        taken[sequence[_fill(rows[sequence], sizes[sequence], budgets)]] = True
        return np.flatnonzero(~special & taken[word]) if len(first) else first


def check_shares(
    mlm_probability: float, mask_replace_prob: float, random_replace_prob: float
) -> None:
    """Check the shares of masking.

    Raises:
        ValueError: If one is out of range, or the last two exceed 1 together.
    """
    if not 0 < mlm_probability <= 1:
        raise ValueError(
            f"mlm_probability={mlm_probability} must be in (0, 1]; 0.15 is what BERT takes"
        )
    shares = (mask_replace_prob, random_replace_prob)
    if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
        raise ValueError(
            f"mask_replace_prob={mask_replace_prob} and random_replace_prob={random_replace_prob} "
            "must be in [0, 1] and at most 1 together; 0.8 and 0.1 is what BERT takes"
        )


def _fill(rows: Ids, sizes: Ids, budgets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Take words in their order until the budget of their row is full, skipping those too large.

    Args:
        rows: Row of each word, ascending, (W,).
        sizes: Tokens of each word, (W,).
        budgets: Tokens that each row may have, (N,).

    Returns:
        Whether a word is taken, (W,).
    """
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
