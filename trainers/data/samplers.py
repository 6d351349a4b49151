"""Which task at which step, and which of its rows: a pure function of (seed, epoch)."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from .streams import Counts, RowStream, Seed, TaskStream, counts_of
from .task_sampling import DrawnOrder, SamplingArguments, Stop, make_order
from .token_streams import TokenStream


class TaskShare(NamedTuple):
    """What one epoch gives to a task.

    Args:
        steps: Batches per rank and epoch.
        rows: Rows per epoch, over all ranks.
        passes: Times that an epoch goes through the data of the task.
        share: Share of all batches, in [0, 1].
    """

    steps: int
    rows: int
    passes: float
    share: float


class TaskBatchSampler(Sampler[list[int]]):
    """Deal batches of tasks, the same tasks to every rank at every step.

    A step takes a batch of one task, or with ``mixed`` sampling of every task, one after the other;
    which one is the matter of a `TaskOrder`.

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
            and begin again), or a number of steps per rank (micro-steps, not optimizer steps). Of
            tasks that are drawn these are expectations; see `DrawnOrder`.
        sampling: How the task of a step is chosen; None for one after the other.
        lengths: Tokens of every row of each task; if given, batches have rows of similar length.
        token_budgets: Tokens per rank and step of the tasks that have a budget.
        tokens: Tokens that every row of such a task costs, of both sentences of a pair.
        changing: Tasks whose rows are other ones in every pass: the index of a row has the number
            of its pass, as `TaskDataset` reads it.

    Attributes:
        epochs: Epochs of the run, over which ``annealed`` sampling goes.

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
        stop: Stop = "shortest",
        sampling: SamplingArguments | None = None,
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
        self.epochs = 1
        self.sampling = sampling or SamplingArguments()
        self._streams = [self._make_stream(task, lengths, tokens or {}) for task in sizes]
        passes = np.asarray([stream.pass_steps for stream in self._streams], dtype=np.float64)
        rows = np.asarray(list(sizes.values()))
        self.order = make_order(self.sampling, list(sizes), passes, rows, stop, seed)
        self.steps = self.order.steps

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch over all ranks."""
        return self.steps * self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, *np.cumsum(list(self.sizes.values())).tolist()]
        tasks = list(self.sizes)
        before = self.order.count_before(self.epoch, self.epochs).tolist()
        readers = [stream.read(first) for stream, first in zip(self._streams, before, strict=True)]

        def read(index: int) -> NDArray[np.int64]:
            numbers, rows = np.divmod(next(readers[index]), self._streams[index].size)
            if tasks[index] in self.changing:
                rows += numbers * starts[-1]
            return starts[index] + rows

        for step in self.order.tasks(self.epoch, self.epochs).tolist():
            yield from np.concatenate([read(index) for index in step], axis=1).tolist()

    @property
    def is_drawn(self) -> bool:
        """Whether tasks are drawn, so that every epoch has other shares."""
        return isinstance(self.order, DrawnOrder)

    def shares(self, first_epochs: int | None = None) -> dict[str, TaskShare]:
        """Count what the epoch that was chosen gives to each task, or so many epochs together."""
        if first_epochs is None:
            counts = self.order.count(self.epoch, self.epochs).tolist()
            before = self.order.count_before(self.epoch, self.epochs).tolist()
        else:
            counts = self.order.count_before(first_epochs, self.epochs).tolist()
            before = [0] * len(counts)
        shares = {}
        for index, (task, stream) in enumerate(zip(self.sizes, self._streams, strict=True)):
            steps = counts[index]
            rows = stream.count_rows(before[index], steps)
            shares[task] = TaskShare(steps, rows, rows / stream.size, steps / sum(counts))
        return shares

    def describe(self) -> str:
        """Show the shares of the epoch that was chosen as a table, one line per task."""
        header = ("task", "rows", "batch", "steps/epoch", "rows/epoch", "passes/epoch", "share")
        lines = [header]
        for stream, (task, share) in zip(self._streams, self.shares().items(), strict=True):
            counts = (f"{stream.size:,}", stream.batch, f"{share.steps:,}", f"{share.rows:,}")
            lines.append((task, *counts, f"{share.passes:.3f}", f"{share.share:.1%}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join([*self._describe_draws(), *table])

    def _describe_draws(self) -> list[str]:
        """Say which epoch the table is of, where tasks are drawn: every epoch has other shares."""
        order, last = self.order, self.epochs - 1
        if not isinstance(order, DrawnOrder):
            return []
        line = f"{self.sampling.task_sampling} sampling, epoch {self.epoch + 1} of {self.epochs}"
        if self.sampling.task_sampling != "annealed" or self.epoch >= last:
            return [line]
        shares = ", ".join(f"{share:.1%}" for share in order.probabilities(last, self.epochs))
        return [f"{line}; the last one draws {shares}"]

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
