"""Batches by tokens: the endless stream of batches of one task with a token budget."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .oversampling import Oversampling
from .streams import GROUP_BATCHES, Counts, Step, counts_of, permute_rows


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
