"""A small set of shapes for packed batches, for compiled models and CUDA graphs."""

import math
from collections.abc import Mapping
from typing import NamedTuple

MIN_LENGTH = 32
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
    """Chooses one of few shapes for a batch of real rows; filler rows come after them.

    - Tokens: the maximum of a batch of the task, plus 1/32 for the fillers, and seven smaller
      sizes, each a fifth less. Larger batches, as in evaluation, continue in these steps.
    - Rows: 1, 2, 3, 4, 6, 8, 12, 16 and so on, powers of two and halfway between.
    - ``max_length_q``: 32 or a higher power of two.

    Each sequence of a filler has at least one token, and not more than the longest real sequence
    (or two, if that has only one).
    """

    def __init__(self, max_tokens: Mapping[str, int]) -> None:
        self.max_tokens = dict(max_tokens)

    def fit(self, task: str, tokens: int, rows: int, longest: int, sequences_per_row: int) -> Shape:
        """Find the smallest shape that fits the rows; filler sequences get the remaining tokens."""
        most = self.max_tokens[task] * (1 + SPARE)
        step = max(-STEPS_DOWN, math.ceil(math.log(tokens / most, STEP)))
        while True:
            size = math.ceil(most * STEP**step / MULTIPLE) * MULTIPLE
            filling = max(0, size - tokens)
            fillers = math.ceil(filling / (max(longest, 2) * sequences_per_row))
            filled_rows = _rows(rows + fillers)
            # a filler sequence without a token would have no first token
            if size >= tokens and (filled_rows - rows) * sequences_per_row <= filling:
                most_length = 1 << (longest - 1).bit_length()
                return Shape(size, filled_rows, max(MIN_LENGTH, most_length))
            step += 1


def _rows(rows: int) -> int:
    power: int = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if rows <= 3 * power // 4 else power
