"""Batches of tasks in the order of their sampling, by numbers of rows or of tokens."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from modeling_minbert import unknown

from .task_sampling import DrawnOrder, RoundRobin, StepsPerEpoch, TaskSampling, TaskSizes

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
        ranks: int,
        seed: tuple[int, int],
        lengths: Counts | None = None,
    ) -> None:
        self._task, self._tokens, self._budget = task, tokens, budget
        self._ranks, self._seed = ranks, seed
        counts = counts_of(tokens, 0)
        self.size = len(counts)
        self.batch = f"{ranks} x {budget:,} tokens"
        self._shuffles_steps = lengths is not None
        self._lengths = tokens if lengths is None else lengths
        rows_of_rank = max(1, int(budget / counts.mean()))
        sorted_rows = max(1, rows_of_rank // 4) if lengths is None else GROUP_BATCHES * rows_of_rank
        self._group = ranks * sorted_rows
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
        rows = np.resize(generator.permutation(self.size), count * self._ranks)
        # groups by length, alternately down and up
        groups, sizes = np.arange(len(rows)) // self._group, lengths[rows]
        rows = rows[np.lexsort((np.where(groups % 2, sizes, -sizes), groups))]
        stripes = rows.reshape(count, self._ranks)
        cuts = cut_by_cost(tokens[stripes].max(axis=1), self._budget)
        order = np.arange(len(cuts) - 1)
        if self._shuffles_steps:
            order = generator.permutation(order)
        return stripes + pass_index * self.size, cuts, order


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

    Attributes:
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
    ) -> None:
        self.sizes, self.token_budgets = dict(sizes), dict(token_budgets or {})
        if num_replicas < 1 or seed < 0 or not sizes:
            raise ValueError(
                f"num_replicas={num_replicas}, seed={seed}, {len(sizes)} tasks; expected >= 1, "
                ">= 0 and at least one"
            )
        for task in self.token_budgets:
            if task not in sizes:
                raise ValueError(f"token_budgets: {unknown('task', task, sizes)}")
        self.num_replicas, self.seed = num_replicas, seed
        self.changing = frozenset(changing)
        self.epoch, self.epochs = 0, 1
        self.sampling = sampling or RoundRobin()
        self.batch_sizes: dict[str, int] = {}
        self._streams: list[RowStream | TokenStream] = []
        for task in sizes:
            row_lengths = None if lengths is None else lengths[task]
            self._add_stream(task, batch_sizes.get(task, 0), row_lengths, (tokens or {}).get(task))
        passes = np.asarray([stream.pass_steps for stream in self._streams], dtype=np.float64)
        task_sizes = TaskSizes(list(sizes), passes, np.asarray(list(sizes.values())))
        self.order = self.sampling.make_order(task_sizes, steps_per_epoch, seed)
        self.steps = self.order.steps

    def _add_stream(
        self, task: str, rows: int, lengths: Counts | None, tokens: Counts | None
    ) -> None:
        """Add the stream of a task, whose steps have so many rows if there is no budget."""
        size, budget = self.sizes[task], self.token_budgets.get(task)
        if size < 1 or (rows if budget is None else budget) < 1:
            raise ValueError(
                f"task {task!r} has {size} training rows, and batches of "
                f"{f'{rows} rows' if budget is None else f'{budget} tokens'}; expected at least one"
            )
        for counts in (lengths, () if tokens is None and budget is not None else tokens):
            if counts is not None and (found := len(counts_of(counts, 0))) != size:
                raise ValueError(f"task {task!r} has {size} rows but {found} lengths")
        seed = (self.seed, len(self._streams))
        if budget is None or tokens is None:
            self.batch_sizes[task] = rows
            self._streams.append(RowStream(size, rows, self.num_replicas, seed, lengths))
        else:
            stream = TokenStream(task, tokens, budget, self.num_replicas, seed, lengths)
            self._streams.append(stream)

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
            numbers, rows = np.divmod(next(readers[index]), self._streams[index].size)
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

    def describe(self, validation: Mapping[str, int]) -> str:
        """Show the shares of the current epoch as a table, one line per task.

        Args:
            validation: Number of validation rows by task.
        """
        names = ("task", "rows", "validation", "batch", "steps/epoch", "rows/epoch", "passes/epoch")
        lines: list[tuple[str, ...]] = [(*names, "share")]
        for stream, (task, share) in zip(self._streams, self.shares().items(), strict=True):
            sizes = (f"{stream.size:,}", f"{validation.get(task, 0):,}", stream.batch)
            counts = (f"{share.steps:,}", f"{share.rows:,}", f"{share.passes:.3f}")
            lines.append((task, *sizes, *counts, f"{share.share:.1%}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = []
        for name, *cells in lines:
            right = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            table.append("  ".join([name.ljust(widths[0]), *right]))
        order, last = self.order, self.epochs - 1
        if not isinstance(order, DrawnOrder):
            return "\n".join(table)
        drawn = f"{self.sampling.name} sampling, epoch {self.epoch + 1} of {self.epochs}"
        if self.sampling.changes and self.epoch < last:
            shares = ", ".join(f"{share:.1%}" for share in order.probabilities(last, self.epochs))
            drawn += f"; the last one draws {shares}"
        return "\n".join([drawn, *table])
