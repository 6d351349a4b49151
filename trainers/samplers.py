"""Which rows of which task at which step: a pure function of (seed, epoch)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

# Global batches that are sorted by length together: enough for little padding, and few enough that
# the order stays random.
GROUP_BATCHES = 50


class TaskShare(NamedTuple):
    """What one epoch gives to a task.

    Args:
        steps: Batches per rank and epoch.
        rows: Rows per epoch, over all ranks.
        passes: Times that an epoch goes through the data of the task.
        share: Share of all steps, in [0, 1].
    """

    steps: int
    rows: int
    passes: float
    share: float


class RoundRobinBatchSampler(Sampler[list[int]]):
    """Deal batches of one task after the other, the same task to every rank at every step.

    Each task has an endless stream of rows, one reshuffled permutation of its data after the other.
    It goes on over the epochs, so that in the long run all rows are seen equally often, also those
    of a task of which one epoch sees a small part. A step takes one global batch of
    ``num_replicas * batch_size`` rows from the stream of its task and yields it as ``num_replicas``
    consecutive batches; accelerate deals batch i to rank i modulo ``num_replicas``. Two ranks with
    batches of b rows therefore see the rows of one rank with batches of 2b.

    Args:
        sizes: Rows of each task, in the order in which the tasks are concatenated.
        batch_sizes: Rows per rank and step of each task.
        num_replicas: Number of ranks.
        seed: Seed of all orders, >= 0.
        stop: End of an epoch: ``"shortest"`` when the next round would go beyond the data of some
            task, ``"longest"`` when every task has seen all its data (smaller ones are reshuffled
            and begin again), or a number of steps per rank (micro-steps, not optimizer steps).
        lengths: Tokens of every row of each task; if given, batches have rows of similar length.

    Raises:
        ValueError: If a size, a batch size or ``stop`` is out of range, or names do not match.
    """

    # accelerate's BatchSamplerShard fills up a last batch from other tasks if it knows the size
    batch_size: int | None = None
    drop_last: bool = False

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_sizes: Mapping[str, int],
        *,
        num_replicas: int = 1,
        seed: int = 0,
        stop: Literal["shortest", "longest"] | int = "shortest",
        lengths: Mapping[str, Sequence[int] | NDArray[np.int64]] | None = None,
    ) -> None:
        _check(sizes, batch_sizes, num_replicas, seed, lengths)
        self.sizes = dict(sizes)
        self.batch_sizes = {task: batch_sizes[task] for task in sizes}
        self.num_replicas = num_replicas
        self.seed = seed
        self.epoch = 0
        self.steps = self._steps_per_epoch(stop)
        self._lengths: dict[str, NDArray[np.int64]] | None = None
        if lengths is not None:
            self._lengths = {task: np.asarray(lengths[task]) for task in sizes}

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch over all ranks."""
        return self.steps * self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        tasks = list(self.sizes)
        streams = [self._stream(index) for index in range(len(tasks))]
        for step in range(self.steps):
            index = step % len(tasks)
            rows = next(streams[index])
            batch_size = self.batch_sizes[tasks[index]]
            for first in range(0, len(rows), batch_size):
                yield rows[first : first + batch_size].tolist()

    def shares(self) -> dict[str, TaskShare]:
        """Count what one epoch gives to each task."""
        shares = {}
        for index, (task, size) in enumerate(self.sizes.items()):
            steps = self._task_steps(index)
            rows = steps * self._global_batch(task)
            shares[task] = TaskShare(steps, rows, rows / size, steps / self.steps)
        return shares

    def describe(self) -> str:
        """Show the shares as a table, one line per task."""
        header = ("task", "rows", "batch", "steps/epoch", "rows/epoch", "passes/epoch", "share")
        lines = [header]
        for task, share in self.shares().items():
            batch = f"{self.num_replicas} x {self.batch_sizes[task]}"
            counts = (f"{self.sizes[task]:,}", batch, f"{share.steps:,}", f"{share.rows:,}")
            lines.append((task, *counts, f"{share.passes:.3f}", f"{share.share:.1%}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )

    def _global_batch(self, task: str) -> int:
        return self.num_replicas * self.batch_sizes[task]

    def _task_steps(self, index: int) -> int:
        """Steps per epoch of the task at ``index``: the first ones get the rest of a cut round."""
        rounds, rest = divmod(self.steps, len(self.sizes))
        return rounds + (index < rest)

    def _steps_per_epoch(self, stop: Literal["shortest", "longest"] | int) -> int:
        """Translate the stop policy into steps per rank."""
        if isinstance(stop, int) and not isinstance(stop, bool) and stop >= 1:
            return stop
        if stop == "shortest":
            rounds = min(size // self._global_batch(task) for task, size in self.sizes.items())
            return max(1, rounds) * len(self.sizes)
        if stop == "longest":
            rounds = max(
                math.ceil(size / self._global_batch(task)) for task, size in self.sizes.items()
            )
            return rounds * len(self.sizes)
        raise ValueError(
            f"stop={stop!r}; expected 'shortest', 'longest' or a number of steps per epoch >= 1"
        )

    def _stream(self, index: int) -> Iterator[NDArray[np.int64]]:
        """Yield global batches of the task at ``index``, from where the last epoch left off."""
        task = list(self.sizes)[index]
        size, batch = self.sizes[task], self._global_batch(task)
        start = sum(list(self.sizes.values())[:index])
        cycle, offset = divmod(self.epoch * self._task_steps(index) * batch, size)
        rows = self._order(index, cycle)[offset:]
        while True:
            while len(rows) < batch:
                cycle += 1
                rows = np.concatenate([rows, self._order(index, cycle)])
            yield start + rows[:batch]
            rows = rows[batch:]

    def _order(self, index: int, cycle: int) -> NDArray[np.int64]:
        """Permute the rows of a task for one pass over its data."""
        task = list(self.sizes)[index]
        size, batch = self.sizes[task], self._global_batch(task)
        generator = np.random.default_rng((self.seed, index, cycle))
        order = generator.permutation(size)
        if self._lengths is None:
            return order
        # the rows that complete the last batch of the pass before; then every cut is a batch
        head = min(size, -cycle * size % batch)
        return group_by_length(order, self._lengths[task], batch, head, generator)


def group_by_length(
    order: NDArray[np.int64],
    lengths: NDArray[np.int64],
    batch: int,
    head: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Reorder a permutation so that the rows of each batch have similar lengths.

    Args:
        order: A random permutation of the rows, (N,).
        lengths: Tokens per row, (N,).
        batch: Rows per batch.
        head: Rows at the beginning that stay where they are, before the first whole batch.
        generator: Source of the order of the batches.

    Returns:
        A permutation of the rows, (N,); a rest that fills no batch comes last.
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


def _check(
    sizes: Mapping[str, int],
    batch_sizes: Mapping[str, int],
    num_replicas: int,
    seed: int,
    lengths: Mapping[str, Sequence[int] | NDArray[np.int64]] | None,
) -> None:
    if not sizes:
        raise ValueError("no tasks; expected at least one")
    if num_replicas < 1 or seed < 0:
        raise ValueError(f"num_replicas={num_replicas}, seed={seed}; expected >= 1 and >= 0")
    for task, size in sizes.items():
        if size < 1:
            raise ValueError(f"task {task!r} has {size} training rows; expected at least one")
        if batch_sizes.get(task, 0) < 1:
            raise ValueError(
                f"batch size of task {task!r} is {batch_sizes.get(task)}; expected >= 1"
            )
        if lengths is not None and len(lengths.get(task, ())) != size:
            raise ValueError(
                f"task {task!r} has {size} rows but {len(lengths.get(task, ()))} lengths"
            )
