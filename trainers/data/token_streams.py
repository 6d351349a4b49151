"""The steps of a task whose batches have a budget of tokens instead of a number of rows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .streams import GROUP_BATCHES, Counts, Step, counts_of


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
        middle = np.searchsorted(sums, (sums[cuts[-3]] + sums[-1]) / 2)
        cuts[-2] = min(cuts[-2], int(middle))  # a later cut than before could exceed the budget
    return np.asarray(cuts)
