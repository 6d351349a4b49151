"""Batches of tasks in the order of their sampling, by numbers of rows or of tokens."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from modeling_minbert import unknown

from .streams import (
    GROUP_BATCHES,
    ClassShares,
    Counts,
    Oversampling,
    RowStream,
    Step,
    counts_of,
    permute_rows,
)
from .task_sampling import DrawnOrder, RoundRobin, StepsPerEpoch, TaskOrder, TaskSampling, TaskSizes


class TokenStream:
    """Steps with a budget of tokens per rank, with the interface of `RowStream`.

    A pass is divided into stripes of one row per rank: with equal numbers of rows the mean of the
    ranks' losses is the mean over all rows. A stripe costs as much as its longest row. Rows are
    sorted within groups of about a quarter of a step, with ``lengths`` of many steps. The last two
    steps of a pass share their rows evenly. A pass that cannot be divided repeats a few rows.

    Every step counts the same in gradient accumulation: rows of steps with fewer rows weigh more.
    Passes may differ by a few steps; text, whose rows change, is planned anew for each pass.
    """

    def __init__(
        self,
        task: str,
        tokens: Counts,
        budget: int,
        *,
        num_replicas: int,
        seed: tuple[int, int],
        lengths: Counts | None,
        oversampling: Oversampling | None = None,
    ) -> None:
        self._task = task
        counts = counts_of(tokens, 0)
        self.stride = len(counts)
        self.size = self.stride if oversampling is None else oversampling.size
        self._oversampling = oversampling
        self.batch = f"{num_replicas} x {budget:,} tokens"
        self._tokens = tokens
        self._budget = budget
        self._ranks = num_replicas
        self._seed = seed
        rows_of_rank = max(1, int(budget / counts.mean()))
        self._shuffles_steps = lengths is not None
        self._lengths = tokens if lengths is None else lengths
        sorted_rows = max(1, rows_of_rank // 4) if lengths is None else GROUP_BATCHES * rows_of_rank
        self._group = num_replicas * sorted_rows
        self._starts = [0]  # first step of each pass, filled on demand
        self.pass_steps: float = self._start(1)

    def read(self, first: int) -> Iterator[Step]:
        pass_index = self._pass_of(first)
        skipped = first - self._start(pass_index)
        while True:
            stripes, cuts, order = self._pass(pass_index)
            for step in order[skipped:].tolist():
                yield stripes[cuts[step] : cuts[step + 1]].T
            pass_index, skipped = pass_index + 1, 0

    def count_rows(self, first: int, steps: int) -> int:
        rows, pass_index = 0, self._pass_of(first)
        while steps:
            _, cuts, order = self._pass(pass_index)
            skipped = first - self._start(pass_index)
            taken = np.diff(cuts)[order][skipped : skipped + steps]
            rows += self._ranks * int(taken.sum())
            first, steps, pass_index = first + len(taken), steps - len(taken), pass_index + 1
        return rows

    def count_step_rows(self) -> NDArray[np.int64]:
        """Count the rows of every step of the first pass, over all ranks, (steps,)."""
        _, cuts, order = self._pass(0)
        return self._ranks * np.diff(cuts)[order]

    def _start(self, pass_index: int) -> int:
        """Count the steps before a pass."""
        while len(self._starts) <= pass_index:
            _, cuts, _ = self._pass(len(self._starts) - 1)
            self._starts.append(self._starts[-1] + len(cuts) - 1)
        return self._starts[pass_index]

    def _pass_of(self, step: int) -> int:
        """Find the pass of a step."""
        pass_index = 0
        while self._start(pass_index + 1) <= step:
            pass_index += 1
        return pass_index

    def _pass(self, pass_index: int) -> tuple[Step, NDArray[np.int64], NDArray[np.int64]]:
        """Order the rows of a pass and cut them into steps.

        Returns the stripes, (S, ranks), the boundaries of steps, (steps + 1,), and their order.
        """
        generator = np.random.default_rng((*self._seed, pass_index))
        tokens, lengths = (counts_of(each, pass_index) for each in (self._tokens, self._lengths))
        if (longest := int(tokens.max())) > self._budget:
            raise ValueError(
                f"task {self._task!r} has a row of {longest:,} tokens, but max_tokens_per_batch is "
                f"{self._budget:,}; make it at least {longest:,}, or cut the rows with a smaller "
                "max_length"
            )
        count = -(-self.size // self._ranks)
        drawn = permute_rows(self.size, self._oversampling, pass_index, generator)
        rows = np.resize(drawn, count * self._ranks)
        rows = rows[_snake(lengths[rows], self._group)]
        stripes = rows.reshape(count, self._ranks)
        cuts = cut_by_cost(tokens[stripes].max(axis=1), self._budget)
        order = np.arange(len(cuts) - 1)
        if self._shuffles_steps:
            order = generator.permutation(order)
        return stripes + pass_index * self.stride, cuts, order


def cut_by_cost(costs: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """Cut a sequence with costs (N,) into as few parts as possible within the budget.

    The last two parts are balanced. Returns the boundaries of the parts, (parts + 1,).
    """
    sums = np.concatenate([[0], np.cumsum(costs)])
    ends = (np.searchsorted(sums, sums + budget, side="right") - 1).tolist()
    cuts = [0]
    while cuts[-1] < len(costs):
        cuts.append(ends[cuts[-1]])
    if len(cuts) > 2:
        half = (sums[cuts[-3]] + sums[-1]) / 2
        # a later cut than before could exceed the budget
        cuts[-2] = min(cuts[-2], int(np.searchsorted(sums, half)))
    return np.asarray(cuts)


def _snake(lengths: NDArray[np.int64], group: int) -> NDArray[np.int64]:
    """Return the order, (N,), that sorts groups of rows by length, alternately down and up."""
    groups = np.arange(len(lengths)) // group
    return np.lexsort((np.where(groups % 2, lengths, -lengths), groups))


class TaskShare(NamedTuple):
    """Share of a task in an epoch: steps per rank, rows over all ranks, passes, share in [0, 1]."""

    steps: int
    rows: int
    passes: float
    share: float


class TaskBatchSampler(Sampler[list[int]]):
    """Draw batches of tasks, with the same tasks on every rank at every step.

    A step has a batch of one task, or with ``mixed`` sampling of every task in turn, as a
    `TaskOrder` determines.

    Each task has an endless stream of rows, one reshuffled permutation of its data after the other.
    It continues over epochs, so that in the long run all rows are seen equally often, even if one
    epoch sees a small part of a task. A step takes one global batch from the stream of its task and
    yields it as ``num_replicas`` consecutive batches of equally many rows; accelerate sends batch i
    to rank i modulo ``num_replicas``. Two ranks with batches of b rows therefore see the rows of
    one rank with batches of 2b.

    The batches of a task have a number of rows, or as many rows as fit into a token budget (see
    ``TokenStream``). With a budget, passes may differ by a few steps; all epochs have the steps of
    the first pass.

    Args:
        sizes: Rows of each task, in the order in which the tasks are concatenated.
        batch_sizes: Rows per rank and step of each task that has no budget.
        num_replicas: Number of ranks.
        seed: Seed of all orders, >= 0.
        steps_per_epoch: ``"shortest"``: an epoch ends when the next round would exceed the data of
            some task; ``"longest"``: when every task has seen all its data (smaller ones are
            reshuffled and start over); or a number of micro-steps per rank. For drawn tasks these
            are expectations; see `DrawnOrder`.
        sampling: How the task of a step is chosen; None for one after the other.
        lengths: Tokens of every row of each task; if given, batches have rows of similar length.
        token_budgets: Tokens per rank and step of the tasks that have a budget.
        tokens: Tokens of every row of such a task, of both sentences of a pair.
        changing: Tasks whose rows differ in every pass: the index of a row encodes its pass, as
            `TaskDataset` expects.
        oversampled: Shares of the classes of tasks whose rows are repeated. Their passes consist of
            whole steps, unless they have a token budget.

    Attributes:
        oversampling: Which rows the passes of these tasks have.
        epochs: Epochs of the run, for ``annealed`` sampling.

    Raises:
        ValueError: If a size, a batch size, a budget or ``steps_per_epoch`` is out of range, names
            do not match, or a row is longer than the budget of its task.
    """

    # with a size, accelerate's BatchSamplerShard would complete a last batch from other tasks
    batch_size: int | None = None
    drop_last: bool = False

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_sizes: Mapping[str, int],
        *,
        num_replicas: int = 1,
        seed: int = 0,
        steps_per_epoch: StepsPerEpoch = "shortest",
        sampling: TaskSampling | None = None,
        lengths: Mapping[str, Counts] | None = None,
        token_budgets: Mapping[str, int] | None = None,
        tokens: Mapping[str, Counts] | None = None,
        changing: Collection[str] = (),
        oversampled: Mapping[str, ClassShares] | None = None,
    ) -> None:
        self.token_budgets = dict(token_budgets or {})
        if num_replicas < 1 or seed < 0:
            raise ValueError(f"num_replicas={num_replicas}, seed={seed}; expected >= 1 and >= 0")
        _check_sizes(sizes, batch_sizes, self.token_budgets)
        tokens = tokens or {}
        _check_counts("lengths", sizes, sizes, lengths)
        _check_counts("counts of tokens", self.token_budgets, sizes, tokens)
        self.sizes = dict(sizes)
        self.batch_sizes = {
            task: batch_sizes[task] for task in sizes if task not in self.token_budgets
        }
        self.num_replicas = num_replicas
        self.changing = frozenset(changing)
        self.seed = seed
        self.epoch = 0
        self.epochs = 1
        self.sampling = sampling or RoundRobin()
        self.oversampling = {
            task: self._oversample(task, shares) for task, shares in (oversampled or {}).items()
        }
        self._streams = [self._make_stream(task, lengths, tokens) for task in sizes]
        self.order = self._make_order(steps_per_epoch)
        self.steps = self.order.steps

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
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
            numbers, rows = np.divmod(next(readers[index]), self._streams[index].stride)
            if tasks[index] in self.changing:
                rows += numbers * starts[-1]
            return starts[index] + rows

        for step in self.order.tasks(self.epoch, self.epochs).tolist():
            yield from np.concatenate([read(index) for index in step], axis=1).tolist()

    @property
    def is_drawn(self) -> bool:
        """Whether tasks are drawn, so that shares differ between epochs."""
        return isinstance(self.order, DrawnOrder)

    def shares(self, first_epochs: int | None = None) -> dict[str, TaskShare]:
        """Compute the share of each task in the current epoch, or in the first epochs together."""
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

    def count_micro_steps(self, steps: int, accumulation: int) -> int:
        """Count the micro-steps, ``accumulation`` per step, of the first optimizer steps.

        The last optimizer step of an epoch has the rest of its micro-steps.
        """
        epoch, rest = divmod(steps, math.ceil(self.steps / accumulation))
        return epoch * self.steps + rest * accumulation

    def count_batch_rows(self, task: str) -> NDArray[np.int64]:
        """Count the rows, over all ranks, of every step of the first pass of a task, (steps,)."""
        return self._streams[list(self.sizes).index(task)].count_step_rows()

    def count_task_rows(self, steps: int) -> dict[str, int]:
        """Count the rows of each task, over all ranks, in the first micro-steps of the run."""
        epoch, rest = divmod(steps, self.steps)
        counts = self.order.count_before(epoch, self.epochs).copy()
        if rest:
            chosen = self.order.tasks(epoch, self.epochs)[:rest]
            counts += np.bincount(chosen.ravel(), minlength=len(counts))
        triples = zip(self.sizes, self._streams, counts.tolist(), strict=True)
        return {task: stream.count_rows(0, count) for task, stream, count in triples}

    def describe(self, validation: Mapping[str, int] | None = None) -> str:
        """Show the shares of the current epoch as a table, one line per task, and oversampling.

        Args:
            validation: Number of validation rows by task, for a column of its own.
        """
        header = ("task", "rows", "batch", "steps/epoch", "rows/epoch", "passes/epoch", "share")
        lines: list[tuple[str, ...]] = [header]
        for stream, (task, share) in zip(self._streams, self.shares().items(), strict=True):
            counts = (f"{stream.stride:,}", stream.batch, f"{share.steps:,}", f"{share.rows:,}")
            lines.append((task, *counts, f"{share.passes:.3f}", f"{share.share:.1%}"))
        if validation is not None:
            held_out = ["validation", *(f"{validation.get(line[0], 0):,}" for line in lines[1:])]
            lines = [
                (*line[:2], cell, *line[2:]) for line, cell in zip(lines, held_out, strict=True)
            ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        passes = [f"{task} {own.describe()}" for task, own in self.oversampling.items()]
        return "\n".join([*self._describe_draws(), *table, *passes])

    def _describe_draws(self) -> list[str]:
        """Name the epoch of the table, if tasks are drawn."""
        order, last = self.order, self.epochs - 1
        if not isinstance(order, DrawnOrder):
            return []
        line = f"{self.sampling.name} sampling, epoch {self.epoch + 1} of {self.epochs}"
        if not self.sampling.changes or self.epoch >= last:
            return [line]
        shares = ", ".join(f"{share:.1%}" for share in order.probabilities(last, self.epochs))
        return [f"{line}; the last one draws {shares}"]

    def _make_stream(
        self, task: str, lengths: Mapping[str, Counts] | None, tokens: Mapping[str, Counts]
    ) -> RowStream | TokenStream:
        options: Any = {
            "num_replicas": self.num_replicas,
            "seed": self._seed_of(task),
            "lengths": None if lengths is None else lengths[task],
            "oversampling": self.oversampling.get(task),
        }
        if task not in self.token_budgets:
            return RowStream(self.sizes[task], self.batch_sizes[task], **options)
        return TokenStream(task, tokens[task], self.token_budgets[task], **options)

    def _make_order(self, steps_per_epoch: StepsPerEpoch) -> TaskOrder:
        passes = np.asarray([stream.pass_steps for stream in self._streams], dtype=np.float64)
        sizes = TaskSizes(list(self.sizes), passes, np.asarray(list(self.sizes.values())))
        return self.sampling.make_order(sizes, steps_per_epoch, self.seed)

    def _seed_of(self, task: str) -> tuple[int, int]:
        return self.seed, list(self.sizes).index(task)

    def _oversample(self, task: str, shares: ClassShares) -> Oversampling:
        return shares.plan(self._seed_of(task), self.num_replicas * self.batch_sizes.get(task, 1))


def _check_sizes(
    sizes: Mapping[str, int], batch_sizes: Mapping[str, int], budgets: Mapping[str, int]
) -> None:
    if not sizes:
        raise ValueError("no tasks; expected at least one")
    for task in budgets:
        if task not in sizes:
            raise ValueError(f"token_budgets: {unknown('task', task, sizes)}")
    for task, size in sizes.items():
        if size < 1:
            raise ValueError(f"task {task!r} has {size} training rows; expected at least one")
        name, values = (
            ("max_tokens_per_batch", budgets) if task in budgets else ("batch size", batch_sizes)
        )
        if values.get(task, 0) < 1:
            raise ValueError(f"{name} of task {task!r} is {values.get(task)}; expected >= 1")


def _check_counts(
    what: str, tasks: Iterable[str], sizes: Mapping[str, int], counts: Mapping[str, Counts] | None
) -> None:
    """Check that there is one count for every row of some tasks."""
    for task in tasks:
        if counts is None:
            return
        found = len(counts_of(counts.get(task, ()), 0))
        if found != sizes[task]:
            raise ValueError(f"task {task!r} has {sizes[task]} rows but {found} {what}")
