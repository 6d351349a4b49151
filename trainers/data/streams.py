"""The rows of a task, step by step and without end."""

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
        step_rows: Rows of a step, over all ranks.
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
        self.step_rows = ranks * batch_size
        self._ranks, self._seed = ranks, seed
        self.pass_steps = size / self.step_rows

    def read(self, first: int) -> Iterator[Step]:
        """Yield the steps from step ``first`` of training on, without end."""
        pass_index, offset = divmod(first * self.step_rows, self.size)
        rows = self._order(pass_index)[offset:]
        while True:
            while len(rows) < self.step_rows:
                pass_index += 1
                rows = np.concatenate([rows, self._order(pass_index)])
            yield rows[: self.step_rows].reshape(self._ranks, -1)
            rows = rows[self.step_rows :]

    def _order(self, pass_index: int) -> NDArray[np.int64]:
        generator = np.random.default_rng((*self._seed, pass_index))
        order = generator.permutation(self.size)
        if self._lengths is not None:
            # these rows complete the last batch of the previous pass; then every cut is a batch
            head = min(self.size, -pass_index * self.size % self.step_rows)
            lengths = counts_of(self._lengths, pass_index)
            chunks: list[NDArray[np.int64]] = []
            for first in range(head, self.size, GROUP_BATCHES * self.step_rows):
                rows = order[first : first + GROUP_BATCHES * self.step_rows]
                rows = rows[np.argsort(-lengths[rows], kind="stable")]
                chunks += np.split(rows, range(self.step_rows, len(rows), self.step_rows))
            # an incomplete batch comes last
            rest = [chunks.pop()] if (self.size - head) % self.step_rows else []
            shuffled = [chunks[position] for position in generator.permutation(len(chunks))]
            order = np.concatenate([order[:head], *shuffled, *rest])
        return order + pass_index * self.size
