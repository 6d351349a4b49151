"""The endless stream of batches of one task: a function of (seed, step)."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .oversampling import Oversampling

# Global batches that are sorted by length together: enough for little padding, few enough to keep
# the order random.
GROUP_BATCHES = 50

# Rows of a step, (ranks, rows of a rank); row r of pass p of a task with N rows is r + p * N. A
# pass has every row once, or with oversampling some rows several times.
Step = NDArray[np.int64]
# A count for every row, (N,), or a function from the pass index to these counts.
Counts = Sequence[int] | NDArray[np.int64] | Callable[[int], NDArray[np.int64]]


def counts_of(counts: Counts, pass_index: int) -> NDArray[np.int64]:
    """Return the counts of a pass, (N,)."""
    given: Any = counts
    return np.asarray(given(pass_index) if callable(given) else given)


class RowStream:
    """Steps with ``batch_size`` rows per rank, always full: one may have rows of two passes.

    ``seed`` has the seed of the run, >= 0, and the position of the task.

    Attributes:
        size: Rows of a pass.
        stride: Rows of the task, without repetitions.
        batch: Description of the batch size, such as ``2 x 32``.
        pass_steps: Steps of one pass over the rows.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        num_replicas: int,
        seed: tuple[int, int],
        lengths: Counts | None,
        oversampling: Oversampling | None = None,
    ) -> None:
        self.stride = size
        self.size = size if oversampling is None else oversampling.size
        self._oversampling = oversampling
        self.batch = f"{num_replicas} x {batch_size}"
        self._ranks = num_replicas
        self._rows = num_replicas * batch_size
        self.pass_steps = self.size / self._rows
        self._seed = seed
        self._lengths = lengths

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
        order = permute_rows(self.size, self._oversampling, pass_index, generator)
        if self._lengths is not None:
            # these rows complete the last batch of the previous pass; then every cut is a batch
            head = min(self.size, -pass_index * self.size % self._rows)
            lengths = counts_of(self._lengths, pass_index)
            order = group_by_length(order, lengths, self._rows, head, generator)
        return order + pass_index * self.stride


def permute_rows(
    size: int,
    oversampling: Oversampling | None,
    pass_index: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the order of the rows of a pass, (size,)."""
    order = generator.permutation(size)
    return order if oversampling is None else oversampling.draw(pass_index)[order]


def group_by_length(
    order: NDArray[np.int64],
    lengths: NDArray[np.int64],
    batch: int,
    head: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Reorder a permutation, (N,), so that the rows of a batch have similar lengths.

    The first ``head`` rows, before the first whole batch, stay; an incomplete batch comes last.
    """
    body = order[head:]
    group = GROUP_BATCHES * batch
    chunks: list[NDArray[np.int64]] = []
    for first in range(0, len(body), group):
        rows = body[first : first + group]
        rows = rows[np.argsort(-lengths[rows], kind="stable")]
        chunks += [rows[start : start + batch] for start in range(0, len(rows), batch)]
    rest = [chunks.pop()] if len(body) % batch else []
    shuffled = [chunks[position] for position in generator.permutation(len(chunks))]
    return np.concatenate([order[:head], *shuffled, *rest])
