"""Few shapes for packed batches: what a compiled model or a CUDA graph needs."""

import math
from collections.abc import Mapping
from typing import NamedTuple

LENGTHS = (32, 64, 128, 256, 512)
STEP = 1.25
STEPS_DOWN = 7
MULTIPLE = 32  # tokens; whole tiles of a matrix product
SPARE = 1 / 32


class Shape(NamedTuple):
    """Shape of a packed batch: T tokens, rows (real ones and fillers), ``max_length_q``."""

    tokens: int
    rows: int
    max_length: int


class FixedShapes:
    """Choose one of few shapes for a batch of real rows.

    - Tokens: the most that a batch of the task can have, plus 1/32 for the fillers, and seven
      times a fifth less: eight sizes, and at most a fifth of a batch is filling (more in a batch
      below the smallest size). A batch above the most, as in evaluation, goes on up in the same
      steps.
    - Rows: 1, 2, 3, 4, 6, 8, 12, 16 and so on, powers of two and halfway between.
    - ``max_length_q``: 32, 64, 128, 256, 512 or a higher power of two.

    Fillers are rows after the real ones. Each of their sequences has at least one token, and not
    more than the longest real sequence (or two, if that has only one).

    Args:
        max_tokens: By task, the most tokens of a batch: its budget, or what the longest rows have.
    """

    def __init__(self, max_tokens: Mapping[str, int]) -> None:
        self.max_tokens = dict(max_tokens)

    def fit(self, task: str, tokens: int, rows: int, longest: int, sequences_per_row: int) -> Shape:
        """Find the smallest shape with room for the real rows.

        Args:
            task: Their task.
            tokens: Their tokens.
            rows: How many they are.
            longest: Tokens of their longest sequence.
            sequences_per_row: 1, 2 for separate pairs, or the sentences of a contrastive row.

        Returns:
            The shape; what it has beyond the real rows can be dealt to its filler sequences.
        """
        most = self.max_tokens[task] * (1 + SPARE)
        step = max(-STEPS_DOWN, math.ceil(math.log(tokens / most, STEP)))
        while True:
            size = math.ceil(most * STEP**step / MULTIPLE) * MULTIPLE
            filling = max(0, size - tokens)
            fillers = math.ceil(filling / (max(longest, 2) * sequences_per_row))
            filled_rows = _rows(rows + fillers)
            # a filler sequence without a token would have no first token
            if size >= tokens and (filled_rows - rows) * sequences_per_row <= filling:
                return Shape(size, filled_rows, _length(longest))
            step += 1


def _rows(rows: int) -> int:
    power: int = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if rows <= 3 * power // 4 else power


def _length(longest: int) -> int:
    return next(
        (length for length in LENGTHS if length >= longest), 1 << (longest - 1).bit_length()
    )
