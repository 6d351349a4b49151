"""Batches by tokens: the endless rows of a task, cut where a budget is full."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .streams import GROUP_BATCHES, Counts, Seed, Step, counts_of


class TokenStream:
    """Steps of as many rows as a budget of tokens allows.

    A pass is dealt in stripes of one row per rank, so that at every step all ranks have the same
    number of rows: the mean of their mean losses is the mean over all rows. A stripe costs as much
    as the longest of its rows; a step takes stripes while their sum is within the budget. The last
    two steps of a pass share what is left evenly. A pass whose rows cannot be dealt evenly has a
    few of its first rows twice.

    Within about a quarter of a step, rows are sorted: the rows of a stripe are of similar length,
    and all ranks come close to the budget, while it is chance which rows make up a step. With
    ``lengths`` many steps are sorted together, and then their order is shuffled.

    The loss of a step is the mean over its rows, and every step counts the same, also in gradient
    accumulation: rows of steps with fewer rows count a little more.

    Passes in different orders may differ by a few steps. How many steps came before a pass is
    computed from the orders of all passes before it, once, at the cost of about 0.2 seconds for
    each pass over a million rows; a text, whose rows change, is planned anew for each of them.

    Args:
        task: Its name, for errors.
        tokens: Tokens of every row, of both sentences of a pair, without padding.
        budget: Tokens per rank and step.
        num_replicas: Number of ranks.
        seed: Source of the orders.
        lengths: Length of every row; if given, batches have rows of similar length.

    Raises:
        ValueError: If a row is longer than the budget.
    """

    def __init__(
        self,
        task: str,
        tokens: Counts,
        budget: int,
        *,
        num_replicas: int,
        seed: Seed,
        lengths: Counts | None = None,
    ) -> None:
        self._task = task
        counts = counts_of(tokens, 0)
        self.size = len(counts)
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
        self._ends: list[int] = []  # steps until the end of each pass; filled when asked for
        self.pass_steps: float = self._end(0)

    def read(self, first: int) -> Iterator[Step]:
        """Yield the steps from number ``first`` on; rank r reads row r of each."""
        number = self._pass_of(first)
        skipped = first - self._start(number)
        while True:
            stripes, cuts, order = self._pass(number)
            for step in order[skipped:].tolist():
                yield stripes[cuts[step] : cuts[step + 1]].T
            number, skipped = number + 1, 0

    def count_rows(self, first: int, steps: int) -> int:
        """Count the rows of some steps, over all ranks."""
        rows, number = 0, self._pass_of(first)
        while steps:
            _, cuts, order = self._pass(number)
            skipped = first - self._start(number)
            taken = np.diff(cuts)[order][skipped : skipped + steps]
            rows += self._ranks * int(taken.sum())
            first, steps, number = first + len(taken), steps - len(taken), number + 1
        return rows

    def _start(self, number: int) -> int:
        """Count the steps before pass ``number``."""
        return self._end(number - 1) if number else 0

    def _end(self, number: int) -> int:
        """Count the steps until the end of pass ``number``."""
        while len(self._ends) <= number:
            _, cuts, _ = self._pass(len(self._ends))
            self._ends.append((self._ends or [0])[-1] + len(cuts) - 1)
        return self._ends[number]

    def _pass_of(self, step: int) -> int:
        """Find the pass that has step ``step``."""
        number = 0
        while self._end(number) <= step:
            number += 1
        return number

    def _pass(self, number: int) -> tuple[Step, NDArray[np.int64], NDArray[np.int64]]:
        """Order the rows of a pass and cut them into steps.

        Returns:
            The stripes, (S, ranks); where steps begin and end in them, (steps + 1,); and the order
            of the steps, (steps,).
        """
        generator = self._seed.generator(number)
        tokens, lengths = (counts_of(each, number) for each in (self._tokens, self._lengths))
        self._check(int(tokens.max()))
        count = -(-self.size // self._ranks)
        rows = np.resize(generator.permutation(self.size), count * self._ranks)
        rows = rows[_snake(lengths[rows], self._group)]
        stripes = rows.reshape(count, self._ranks)
        cuts = cut_by_cost(tokens[stripes].max(axis=1), self._budget)
        order = np.arange(len(cuts) - 1)
        if self._shuffles_steps:
            order = generator.permutation(order)
        return stripes + number * self.size, cuts, order

    def _check(self, longest: int) -> None:
        """Refuse a row that no step has room for."""
        if longest > self._budget:
            raise ValueError(
                f"task {self._task!r} has a row of {longest:,} tokens, but max_tokens_per_batch is "
                f"{self._budget:,}; make it at least {longest:,}, or cut the rows with a smaller "
                "max_length"
            )


def cut_by_cost(costs: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """Cut a sequence into parts that cost at most ``budget`` each, as few as that order allows.

    The last part would be whatever is left over; it takes from the part before it until both cost
    about the same.

    Args:
        costs: Cost of each element, each >= 1 and at most ``budget``, (N,).
        budget: Cost of a part at most.

    Returns:
        Where the parts begin, and N at the end, (parts + 1,).
    """
    sums = np.concatenate([[0], np.cumsum(costs)])
    ends = (np.searchsorted(sums, sums + budget, side="right") - 1).tolist()
    cuts = [0]
    while cuts[-1] < len(costs):
        cuts.append(ends[cuts[-1]])
    if len(cuts) > 2:
        half = (sums[cuts[-3]] + sums[-1]) / 2
        # a cut after the old one could leave too much before it
        cuts[-2] = min(cuts[-2], int(np.searchsorted(sums, half)))
    return np.asarray(cuts)


def _snake(lengths: NDArray[np.int64], group: int) -> NDArray[np.int64]:
    """Sort groups of rows by length, falling and rising in turn.

    Where two groups meet, the rows of a batch are of similar length, too.

    Args:
        lengths: Length of each row, (N,).
        group: Rows of a group.

    Returns:
        Positions of the rows in their new order, (N,).
    """
    groups = np.arange(len(lengths)) // group
    return np.lexsort((np.where(groups % 2, lengths, -lengths), groups))
