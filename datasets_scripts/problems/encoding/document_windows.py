"""Long texts as windows, whose vectors the model pools (Sun et al. 2019, section 5.3.1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from .spans import Span, cut_windows

Window = tuple[list[int], list[int]]  # token ids and token types
ENCODED_NAMES = ("input_ids", "token_type_ids", "num_windows", "length")


@dataclass(frozen=True)
class DocumentWindows:
    """How texts are split into windows.

    Args:
        max_length: Maximum tokens of a window, including special tokens.
        overlap: Tokens that a window shares with the one before.
        most: Maximum windows of a text; of a longer one as many are evenly spread. None for all.

    Raises:
        ValueError: If a token would be in more than two windows, or a text in none.
    """

    max_length: int
    overlap: int
    most: int | None

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= self.max_length // 2:
            raise ValueError(
                f"window_overlap={self.overlap} must be from 0 to half of "
                f"max_length={self.max_length}"
            )
        if self.most is not None and self.most < 1:
            raise ValueError(f"max_windows={self.most} must be at least 1")

    def choose(self, count: int) -> list[int]:
        """Choose the windows of a text to keep, evenly spread, with the first and the last."""
        if self.most is None or count <= self.most:
            return list(range(count))
        return [place * (count - 1) // max(1, self.most - 1) for place in range(self.most)]

    def encode(
        self, texts: list[list[str]], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, list[Any]]:
        """Tokenize columns of texts.

        Returns:
            A list for each row: ``input_ids`` and ``token_type_ids`` of its windows, text by text,
            ``num_windows`` of each text, and ``length``, the tokens of all windows.
        """
        columns = [self._split(column, tokenizer) for column in texts]
        rows = [_join_texts(row) for row in zip(*columns, strict=True)]
        return {name: [row[name] for row in rows] for name in ENCODED_NAMES}

    def _split(self, texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[list[Window]]:
        """Tokenize texts to windows."""
        encoded = tokenizer(
            texts,
            padding=False,
            truncation=True,
            max_length=self.max_length,
            stride=self.overlap,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=True,
        )
        windows: list[list[Window]] = [[] for _ in texts]
        names = ("overflow_to_sample_mapping", "input_ids", "token_type_ids")
        for text, ids, types in zip(*(encoded[name] for name in names), strict=True):
            windows[text].append((ids, types))
        return [[own[place] for place in self.choose(len(own))] for own in windows]

    def count_cut(self, lengths: Iterable[int], special: int) -> int:
        """Count the tokens that are in no kept window, of texts with these ``special`` ones."""
        return sum(self._count_cut(int(length) - special, special) for length in lengths)

    def _count_cut(self, length: int, special: int) -> int:
        room = self.max_length - special
        windows: list[Span] = cut_windows(length, room, room - self.overlap)
        is_kept = np.zeros(length, dtype=bool)
        for place in self.choose(len(windows)):
            is_kept[slice(*windows[place])] = True
        return int(length - is_kept.sum())


def _join_texts(texts: Sequence[list[Window]]) -> dict[str, Any]:
    """Put the windows of the texts of a row one after the other."""
    windows = list(chain.from_iterable(texts))
    return {
        "input_ids": [ids for ids, _ in windows],
        "token_type_ids": [types for _, types in windows],
        "num_windows": [len(own) for own in texts],
        "length": sum(len(ids) for ids, _ in windows),
    }
