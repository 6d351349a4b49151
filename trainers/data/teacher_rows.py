"""Outputs of teachers for the training rows of a task, which a student learns from."""

import numpy as np
from numpy.typing import NDArray

# Name of the outputs in rows and batches.
TEACHER = "teacher_logits"


class TeacherRows:
    """Outputs of M teachers, read by row; NaN where there is no teacher.

    Args:
        values: Of N rows, (N, M, ...), or of all their T tokens in the order of the rows, (T, M,
            K).
        lengths: Tokens of each row, (N,), if the values are of tokens.
    """

    def __init__(
        self, values: NDArray[np.float32], lengths: NDArray[np.int64] | None = None
    ) -> None:
        self._values = values
        self._lengths = lengths
        self._starts = None if lengths is None else np.cumsum(lengths) - lengths

    @property
    def is_of_tokens(self) -> bool:
        """Whether there is a value for every token."""
        return self._starts is not None

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the values of some rows, (B, M, ...), or of their tokens, (T, M, K)."""
        if self._starts is None or self._lengths is None:
            return np.asarray(self._values[rows], dtype=np.float32)
        lengths = self._lengths[rows]
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self._starts[rows] - before, lengths) + np.arange(lengths.sum())
        return np.asarray(self._values[places], dtype=np.float32)


def pad_tokens(
    values: NDArray[np.float32], lengths: NDArray[np.int64], rows: int, longest: int
) -> NDArray[np.float32]:
    """Lay the values of tokens, (T, ...), out by rows, (rows, longest, ...); NaN elsewhere."""
    padded = np.full((rows, longest, *values.shape[1:]), np.nan, dtype=np.float32)
    padded[: len(lengths)][np.arange(longest) < lengths[:, None]] = values
    return padded
