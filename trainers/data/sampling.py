"""Which task and which rows every step takes: a function of (seed, epoch)."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from datasets_scripts.checking import check_value, is_number, key_types, option

MAX_STEPS = 10_000_000  # of an epoch, whose order is kept in memory
# Global batches that are sorted by length together: enough for little padding, few enough to keep
# the order random.
GROUP_BATCHES = 50

# Rows of a step, (ranks, rows of a rank); row r of pass p of a task with N rows is r + p * N.
Step: TypeAlias = NDArray[np.int64]
# A count for every row, (N,), or a function from the pass index to these counts.
Counts: TypeAlias = Sequence[int] | NDArray[np.int64] | Callable[[int], NDArray[np.int64]]

StepsPerEpoch = Literal["shortest", "longest"] | int


@dataclass
class TaskSampling:
    """How the task of a step is chosen; its fields are flags and recipe keys.

    - ``round_robin``: one task after the other.
    - The others draw the task of every step: ``proportional`` in proportion to the batches of a
      pass over the task, ``weighted`` in proportion to given weights.

    With gradient accumulation every micro-batch has its own task, so an optimizer step has several.

    Raises:
        ValueError: If a key is missing, out of range, or belongs to another strategy.
    """

    task_sampling: Literal["round_robin", "proportional", "weighted"] = option(
        "round_robin", "How the task of a step is chosen."
    )
    sampling_weights: dict[str, Any] | None = option(
        None, "Weight of each task, for weighted sampling."
    )

    def __post_init__(self) -> None:
        for key, kind in key_types(TaskSampling).items():
            check_value("", key, getattr(self, key), kind)
        if self.sampling_weights is not None and self.task_sampling != "weighted":
            raise ValueError(
                f"sampling_weights={self.sampling_weights!r} has no effect with task_sampling="
                f"{self.task_sampling!r}; leave it out, or use task_sampling: weighted"
            )
        if self.task_sampling == "weighted" and not self.sampling_weights:
            raise ValueError(
                "task_sampling: weighted needs sampling_weights, such as {sst: 1, quora: 3}"
            )
        for task, weight in (self.sampling_weights or {}).items():
            if not (is_number(weight) and weight > 0):
                raise ValueError(
                    f"sampling_weights: {task}={weight!r}; expected a number > 0 (to train without "
                    "a task, remove it from the recipe)"
                )

    @property
    def is_drawn(self) -> bool:
        """Whether tasks are drawn, so that shares differ between epochs."""
        return self.task_sampling != "round_robin"


@dataclass(frozen=True, eq=False, repr=False)
class RowStream:
    """Steps with ``batch_size`` rows per rank, always full: one may have rows of two passes."""

    size: int  # rows of a pass
    batch_size: int
    ranks: int
    seed: tuple[int, int]  # that of the run, >= 0, and the position of the task
    lengths: Counts | None  # if given, the rows of a step have similar ones

    @property
    def step_rows(self) -> int:
        """Rows of a step, over all ranks."""
        return self.ranks * self.batch_size

    def read(self, first: int) -> Iterator[Step]:
        """Yield the steps from step ``first`` of training on, without end."""
        pass_index, offset = divmod(first * self.step_rows, self.size)
        rows = self._order(pass_index)[offset:]
        while True:
            while len(rows) < self.step_rows:
                pass_index += 1
                rows = np.concatenate([rows, self._order(pass_index)])
            yield rows[: self.step_rows].reshape(self.ranks, -1)
            rows = rows[self.step_rows :]

    def _order(self, pass_index: int) -> NDArray[np.int64]:
        generator = np.random.default_rng((*self.seed, pass_index))
        order = generator.permutation(self.size)
        if (counts := self.lengths) is not None:
            # these rows complete the last batch of the previous pass; then every cut is a batch
            head = min(self.size, -pass_index * self.size % self.step_rows)
            lengths = np.asarray(counts(pass_index) if callable(counts) else counts)
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


class TaskShare(NamedTuple):
    """Share of a task in an epoch: steps per rank, rows over all ranks, passes, share in [0, 1]."""

    steps: int
    rows: int
    passes: float
    share: float


class TaskBatchSampler(Sampler[list[int]]):
    """Draw batches of tasks, with the same tasks on every rank at every step.

    A step has a batch of one task. Of drawn tasks, counts are drawn first, from a multinomial
    distribution, and then shuffled: so the counts of earlier epochs are known without their steps.

    Each task has an endless stream of rows, one reshuffled permutation of its data after the other.
    It continues over epochs, so that in the long run all rows are seen equally often, even if one
    epoch sees a small part of a task. A step takes one global batch from the stream of its task and
    yields it as ``num_replicas`` consecutive batches of equally many rows; accelerate sends batch i
    to rank i modulo ``num_replicas``. Two ranks with batches of b rows therefore see the rows of
    one rank with batches of 2b.

    Args:
        sizes: Rows of each task, in the order in which the tasks are concatenated.
        batch_sizes: Rows per rank and step of each task.
        num_replicas: Number of ranks.
        seed: Seed of all orders, >= 0.
        steps_per_epoch: ``"shortest"``: an epoch ends when the next round would exceed the data of
            some task; ``"longest"``: when every task has seen all its data (smaller ones are
            reshuffled and start over); or a number of micro-steps per rank. For drawn tasks these
            are expectations.
        sampling: How the task of a step is chosen; None for one after the other.
        lengths: Tokens of every row of each task; if given, batches have rows of similar length.
        changing: Tasks whose rows differ in every pass: the index of a row encodes its pass, as
            `TaskDataset` expects.

    Attributes:
        probabilities: That of each task at a step, if they are drawn, (T,).
        steps: Steps of an epoch, per rank.

    Raises:
        ValueError: If ``steps_per_epoch`` is out of range, or a task has no weight.
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
        steps_per_epoch: StepsPerEpoch = "longest",
        sampling: TaskSampling | None = None,
        lengths: Mapping[str, Counts] | None = None,
        changing: Collection[str] = (),
    ) -> None:
        self.sizes, self.num_replicas = dict(sizes), num_replicas
        self.changing = frozenset(changing)
        self.epoch = 0
        self._streams: list[RowStream] = []
        for position, (task, size) in enumerate(sizes.items()):
            row_lengths = None if lengths is None else lengths[task]
            parts = (batch_sizes[task], num_replicas, (seed, position), row_lengths)
            self._streams.append(RowStream(size, *parts))
        passes = np.asarray([stream.size / stream.step_rows for stream in self._streams])
        self.sampling, self._seed = sampling or TaskSampling(), seed
        weights, batches = self.sampling.sampling_weights, passes
        if weights is not None:
            if set(weights) != set(sizes):
                raise ValueError(
                    f"sampling_weights names {', '.join(map(str, weights))}; expected one weight "
                    f"for each of {', '.join(sizes)}"
                )
            batches = np.asarray([weights[name] for name in sizes], dtype=np.float64)
        # by logarithms: probabilities with other last digits would draw other tasks
        logits = np.log(batches)
        ratios = np.exp(logits - logits.max())
        self.probabilities: NDArray[np.float64] = ratios / ratios.sum()
        self.steps = self._count_steps(steps_per_epoch, passes)

    def _count_steps(self, length: StepsPerEpoch, passes: NDArray[np.float64]) -> int:
        """Count the steps of an epoch from those of a pass over each task, (T,)."""
        unit = len(passes)  # of a round
        if self.sampling.is_drawn:
            # rounded: the sum of all passes can be slightly above a whole number
            unit, passes = 1, np.round(passes / self.probabilities, 6)
        if type(length) is int and 1 <= length <= MAX_STEPS:
            return length
        if length == "shortest":
            return max(1, math.floor(passes.min())) * unit
        if length == "longest":
            return math.ceil(passes.max()) * unit
        raise ValueError(
            f"steps_per_epoch={length!r}; expected 'shortest', 'longest' or a number from 1 to "
            f"{MAX_STEPS:,}"
        )

    def choose_tasks(self, epoch: int) -> NDArray[np.int64]:
        """List the task of each step of an epoch, by its number, (steps,)."""
        if not self.sampling.is_drawn:  # the round goes on from epoch to epoch
            return (epoch * self.steps + np.arange(self.steps)) % len(self.sizes)
        counts, generator = self._draw(epoch)
        return generator.permutation(np.repeat(np.arange(len(counts)), counts))

    def _count_before(self, epoch: int) -> NDArray[np.int64]:
        """Count the batches of each task in all earlier epochs, (T,)."""
        numbers, steps = np.arange(len(self.sizes)), epoch * self.steps
        if not self.sampling.is_drawn:
            return (steps + len(numbers) - 1 - numbers) // len(numbers)
        return sum((self._draw(earlier)[0] for earlier in range(epoch)), np.zeros_like(numbers))

    def _draw(self, epoch: int) -> tuple[NDArray[np.int64], np.random.Generator]:
        # the spawn key separates it from the orders of rows, which use the same seed
        seed = np.random.SeedSequence((self._seed, epoch), spawn_key=(1,))
        generator = np.random.default_rng(seed)
        return generator.multinomial(self.steps, self.probabilities), generator

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch over all ranks."""
        return self.steps * self.num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, *np.cumsum(list(self.sizes.values())).tolist()]
        tasks = list(self.sizes)
        before = self._count_before(self.epoch).tolist()
        readers = [stream.read(first) for stream, first in zip(self._streams, before, strict=True)]
        for index in self.choose_tasks(self.epoch).tolist():
            numbers, rows = np.divmod(next(readers[index]), self._streams[index].size)
            if tasks[index] in self.changing:
                rows += numbers * starts[-1]
            yield from (starts[index] + rows).tolist()

    def shares(self) -> dict[str, TaskShare]:
        """Compute the share of each task in the current epoch."""
        counts = self._count_before(self.epoch + 1) - self._count_before(self.epoch)
        shares = {}
        for task, stream, steps in zip(self.sizes, self._streams, counts.tolist(), strict=True):
            rows = steps * stream.step_rows
            shares[task] = TaskShare(steps, rows, rows / stream.size, steps / int(counts.sum()))
        return shares

    def count_micro_steps(self, steps: int, accumulation: int) -> int:
        """Count the micro-steps, ``accumulation`` per step, of the first optimizer steps.

        The last optimizer step of an epoch has the rest of its micro-steps.
        """
        epoch, rest = divmod(steps, math.ceil(self.steps / accumulation))
        return epoch * self.steps + rest * accumulation

    def count_batch_rows(self, task: str) -> int:
        """Count the rows, over all ranks, of a step of a task."""
        return self._streams[list(self.sizes).index(task)].step_rows

    def count_rows(self, steps: int) -> int:
        """Count the rows of all tasks, over all ranks, in the first micro-steps of the run."""
        epoch, rest = divmod(steps, self.steps)
        chosen = self.choose_tasks(epoch)[:rest]
        counts = self._count_before(epoch) + np.bincount(chosen, minlength=len(self.sizes))
        return int(counts @ [stream.step_rows for stream in self._streams])

    def describe(self, validation: Mapping[str, int]) -> str:
        """Show the shares of the current epoch and the validation rows, one line per task."""
        names = ("task", "rows", "validation", "batch", "steps/epoch", "rows/epoch", "passes/epoch")
        lines: list[tuple[str, ...]] = [(*names, "share")]
        for stream, (task, share) in zip(self._streams, self.shares().items(), strict=True):
            batch = f"{stream.ranks} x {stream.batch_size}"
            sizes = (f"{stream.size:,}", f"{validation.get(task, 0):,}", batch)
            counts = (f"{share.steps:,}", f"{share.rows:,}", f"{share.passes:.3f}")
            lines.append((task, *sizes, *counts, f"{share.share:.1%}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = []
        for name, *cells in lines:
            right = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            table.append("  ".join([name.ljust(widths[0]), *right]))
        if self.sampling.is_drawn:
            table.insert(0, f"{self.sampling.task_sampling} sampling, epoch {self.epoch + 1}")
        return "\n".join(table)
