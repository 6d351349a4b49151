"""The rows of a task, step by step and without end."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Global batches that are sorted by length together: enough for little padding, few enough to keep
# the order random.
GROUP_BATCHES = 50

# Rows of a step, (ranks, rows of a rank); row r of pass p of a task with N rows is r + p * N.
Step: TypeAlias = NDArray[np.int64]
# A count for every row, (N,), or a function from the pass index to these counts.
Counts: TypeAlias = Sequence[int] | NDArray[np.int64] | Callable[[int], NDArray[np.int64]]


def counts_of(counts: Counts, pass_index: int) -> NDArray[np.int64]:
    """Return the counts of a pass, (N,)."""
    return np.asarray(counts(pass_index) if callable(counts) else counts)


class RowStream:
    """Steps with ``batch_size`` rows per rank, always full: one may have rows of two passes.

    ``seed`` has the seed of the run, >= 0, and the position of the task. With ``lengths`` the rows
    of a step have similar ones.

    Attributes:
        size: Rows of a pass.
        batch: Description of the batch size, such as ``2 x 32``.
        pass_steps: Steps of one pass over the rows.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        ranks: int,
        seed: tuple[int, int],
        lengths: Counts | None = None,
    ) -> None:
        self.size, self._lengths = size, lengths
        self.batch = f"{ranks} x {batch_size}"
        self._ranks, self._rows, self._seed = ranks, ranks * batch_size, seed
        self.pass_steps = size / self._rows

    def read(self, first: int) -> Iterator[Step]:
        """Yield the steps from step ``first`` of training on, without end."""
        pass_index, offset = divmod(first * self._rows, self.size)
        rows = self._order(pass_index)[offset:]
        while True:
            while len(rows) < self._rows:
                pass_index += 1
                rows = np.concatenate([rows, self._order(pass_index)])
            yield rows[: self._rows].reshape(self._ranks, -1)
            rows = rows[self._rows :]

    def count_rows(self, first: int, steps: int) -> int:
        """Count the rows of ``steps`` steps from step ``first`` on, over all ranks."""
        return steps * self._rows

    def count_step_rows(self) -> NDArray[np.int64]:
        """Count the rows of every step of the first pass, over all ranks, (steps,)."""
        return np.full(math.ceil(self.pass_steps), self._rows)

    def _order(self, pass_index: int) -> NDArray[np.int64]:
        generator = np.random.default_rng((*self._seed, pass_index))
        order = generator.permutation(self.size)
        if self._lengths is not None:
            # these rows complete the last batch of the previous pass; then every cut is a batch
            head = min(self.size, -pass_index * self.size % self._rows)
            lengths = counts_of(self._lengths, pass_index)
            chunks: list[NDArray[np.int64]] = []
            for first in range(head, self.size, GROUP_BATCHES * self._rows):
                rows = order[first : first + GROUP_BATCHES * self._rows]
                rows = rows[np.argsort(-lengths[rows], kind="stable")]
                chunks += np.split(rows, range(self._rows, len(rows), self._rows))
            # an incomplete batch comes last
            rest = [chunks.pop()] if (self.size - head) % self._rows else []
            shuffled = [chunks[position] for position in generator.permutation(len(chunks))]
            order = np.concatenate([order[:head], *shuffled, *rest])
        return order + pass_index * self.size
