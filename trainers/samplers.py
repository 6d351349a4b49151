"""Which task at which step, and which of its rows: a pure function of (seed, epoch)."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
from torch.utils.data import Sampler

from .streams import Counts, RowStream, Seed, TaskStream, counts_of
from .token_streams import TokenStream


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
    of a task of which one epoch sees a small part. A step takes one global batch from the stream of
    its task and yields it as ``num_replicas`` consecutive batches of equally many rows; accelerate
    deals batch i to rank i modulo ``num_replicas``. Two ranks with batches of b rows therefore see
    the rows of one rank with batches of 2b.

    The batches of a task have a number of rows, or as many rows as fit into a budget of tokens (see
    ``TokenStream``). Passes over the rows of the latter may differ by a few steps; the steps of an
    epoch are those of the first pass in all epochs.

    Args:
        sizes: Rows of each task, in the order in which the tasks are concatenated.
        batch_sizes: Rows per rank and step of each task that has no budget.
        num_replicas: Number of ranks.
        seed: Seed of all orders, >= 0.
        stop: End of an epoch: ``"shortest"`` when the next round would go beyond the data of some
            task, ``"longest"`` when every task has seen all its data (smaller ones are reshuffled
            and begin again), or a number of steps per rank (micro-steps, not optimizer steps).
        lengths: Tokens of every row of each task; if given, batches have rows of similar length.
        token_budgets: Tokens per rank and step of the tasks that have a budget.
        tokens: Tokens that every row of such a task costs, of both sentences of a pair.
        changing: Tasks whose rows are other ones in every pass: the index of a row has the number
            of its pass, as `TaskDataset` reads it.

    Raises:
        ValueError: If a size, a batch size, a budget or ``stop`` is out of range, names do not
            match, or a row is longer than the budget of its task.
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
        lengths: Mapping[str, Counts] | None = None,
        token_budgets: Mapping[str, int] | None = None,
        tokens: Mapping[str, Counts] | None = None,
        changing: Collection[str] = (),
    ) -> None:
        self.token_budgets = dict(token_budgets or {})
        _check(sizes, num_replicas, seed)
        _check_batches(sizes, batch_sizes, self.token_budgets)
        _check_counts("lengths", sizes, lengths)
        _check_counts(
            "counts of tokens", {task: sizes[task] for task in self.token_budgets}, tokens or {}
        )
        self.sizes = dict(sizes)
        self.batch_sizes = {
            task: batch_sizes[task] for task in sizes if task not in self.token_budgets
        }
        self.num_replicas = num_replicas
        self.changing = frozenset(changing)
        self.seed = seed
        self.epoch = 0
        self._streams = [self._make_stream(task, lengths, tokens or {}) for task in sizes]
        self.steps = self._steps_per_epoch(stop)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch over all ranks."""
        return self.steps * self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, *np.cumsum(list(self.sizes.values())).tolist()]
        tasks = list(self.sizes)
        readers = [
            stream.read(self._first_step(index)) for index, stream in enumerate(self._streams)
        ]
        for step in range(self.steps):
            index = step % len(readers)
            numbers, rows = np.divmod(next(readers[index]), self._streams[index].size)
            if tasks[index] in self.changing:
                rows += numbers * starts[-1]
            yield from (starts[index] + rows).tolist()

    def shares(self) -> dict[str, TaskShare]:
        """Count what the epoch that was chosen gives to each task."""
        shares = {}
        for index, (task, stream) in enumerate(zip(self.sizes, self._streams, strict=True)):
            steps = self._task_steps(index)
            rows = stream.count_rows(self._first_step(index), steps)
            shares[task] = TaskShare(steps, rows, rows / stream.size, steps / self.steps)
        return shares

    def describe(self) -> str:
        """Show the shares as a table, one line per task."""
        header = ("task", "rows", "batch", "steps/epoch", "rows/epoch", "passes/epoch", "share")
        lines = [header]
        for stream, (task, share) in zip(self._streams, self.shares().items(), strict=True):
            counts = (f"{stream.size:,}", stream.batch, f"{share.steps:,}", f"{share.rows:,}")
            lines.append((task, *counts, f"{share.passes:.3f}", f"{share.share:.1%}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )

    def _make_stream(
        self, task: str, lengths: Mapping[str, Counts] | None, tokens: Mapping[str, Counts]
    ) -> TaskStream:
        """Make the rows of a task into the batches of its steps."""
        seed = Seed(self.seed, list(self.sizes).index(task))
        own = None if lengths is None else lengths[task]
        ranks = self.num_replicas
        if task not in self.token_budgets:
            size, batch = self.sizes[task], self.batch_sizes[task]
            return RowStream(size, batch, num_replicas=ranks, seed=seed, lengths=own)
        budget = self.token_budgets[task]
        return TokenStream(task, tokens[task], budget, num_replicas=ranks, seed=seed, lengths=own)

    def _task_steps(self, index: int) -> int:
        """Steps per epoch of the task at ``index``: the first ones get the rest of a cut round."""
        rounds, rest = divmod(self.steps, len(self.sizes))
        return rounds + (index < rest)

    def _first_step(self, index: int) -> int:
        """Steps of the task at ``index`` before the epoch."""
        return self.epoch * self._task_steps(index)

    def _steps_per_epoch(self, stop: Literal["shortest", "longest"] | int) -> int:
        """Translate the stop policy into steps per rank."""
        if isinstance(stop, int) and not isinstance(stop, bool) and stop >= 1:
            return stop
        if stop == "shortest":
            return max(1, min(stream.whole_steps for stream in self._streams)) * len(self.sizes)
        if stop == "longest":
            return max(stream.covering_steps for stream in self._streams) * len(self.sizes)
        raise ValueError(
            f"stop={stop!r}; expected 'shortest', 'longest' or a number of steps per epoch >= 1"
        )


def _check(sizes: Mapping[str, int], num_replicas: int, seed: int) -> None:
    if not sizes:
        raise ValueError("no tasks; expected at least one")
    if num_replicas < 1 or seed < 0:
        raise ValueError(f"num_replicas={num_replicas}, seed={seed}; expected >= 1 and >= 0")
    for task, size in sizes.items():
        if size < 1:
            raise ValueError(f"task {task!r} has {size} training rows; expected at least one")


def _check_batches(
    sizes: Mapping[str, int], batch_sizes: Mapping[str, int], budgets: Mapping[str, int]
) -> None:
    if unknown := sorted(set(budgets) - set(sizes)):
        raise ValueError(
            f"token_budgets names {', '.join(unknown)}; known tasks: {', '.join(sizes)}"
        )
    for task in sizes:
        name, values = (
            ("max_tokens_per_batch", budgets) if task in budgets else ("batch size", batch_sizes)
        )
        if values.get(task, 0) < 1:
            raise ValueError(f"{name} of task {task!r} is {values.get(task)}; expected >= 1")


def _check_counts(what: str, sizes: Mapping[str, int], counts: Mapping[str, Counts] | None) -> None:
    """Check that there is one count for every row."""
    for task, size in sizes.items():
        if counts is None:
            return
        found = len(counts_of(counts.get(task, ()), 0))
        if found != size:
            raise ValueError(f"task {task!r} has {size} rows but {found} {what}")
