"""Which task a step takes: the strategies, and the order of tasks that they give an epoch.

Every order is a function of (seed, epoch, epochs of the run), the same on all ranks, and says how
many batches of each task came before an epoch without going through them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Stop = Literal["shortest", "longest"] | int
# alpha of p ~ N^alpha
ALPHAS = {"uniform": 0.0, "square_root": 0.5, "proportional": 1.0}
# Keys beside `task_sampling`, and the strategy that reads each.
READ_BY = {
    "sampling_temperature": "temperature",
    "sampling_cap": "temperature",
    "sampling_weights": "weighted",
}
# What alpha loses between the first and the last epoch (Stickland and Murray 2019).
ANNEALED_BY = 0.8


@dataclass(kw_only=True)
class SamplingArguments:
    """How the task of a step is chosen.

    ``round_robin`` takes one task after the other. ``mixed`` takes a batch of every task at every
    step and sums their weighted losses. The others draw the task of every step with probabilities
    p, independently of the steps before:

    - ``proportional``, ``square_root``, ``uniform``: p ~ N^alpha, alpha = 1, 1/2, 0;
    - ``temperature``: p ~ min(N, cap)^(1/T);
    - ``annealed``: alpha falls from 1 in the first epoch to 0.2 in the last one, evenly (Stickland
      and Murray 2019); a run of one epoch has alpha = 1;
    - ``weighted``: p ~ ``sampling_weights``.

    N is what a task has to be seen once, counted in its batches: with equal batches the number of
    its rows, and in any case ``proportional`` shows every row of all tasks equally often. A cap is
    a number of rows.

    With gradient accumulation every micro-batch has its own task, drawn or next in turn: an
    optimizer step then sees several tasks. With ``mixed`` each micro-batch has all of them.

    Args:
        task_sampling: The strategy.
        sampling_temperature: T > 0 of ``temperature``; 1 is proportional, large ones are uniform.
        sampling_cap: Rows that a task counts at most, with ``temperature``; None for all.
        sampling_weights: Weight > 0 of every task, with ``weighted``.

    Raises:
        ValueError: If a key is missing, out of range, or read by another strategy only.
    """

    task_sampling: Literal[
        "round_robin",
        "proportional",
        "uniform",
        "square_root",
        "temperature",
        "annealed",
        "weighted",
        "mixed",
    ] = field(default="round_robin", metadata={"help": "How the task of a step is chosen."})
    sampling_temperature: float | None = field(
        default=None, metadata={"help": "T of temperature sampling, p ~ min(N, cap)^(1/T)."}
    )
    sampling_cap: int | None = field(
        default=None, metadata={"help": "Rows that a task counts at most there."}
    )
    sampling_weights: dict[str, Any] | None = field(
        default=None, metadata={"help": "Task name to its weight, for weighted sampling."}
    )

    def __post_init__(self) -> None:
        for name, strategy in READ_BY.items():
            value = getattr(self, name)
            if value is not None and self.task_sampling != strategy:
                raise ValueError(
                    f"{name}={value!r} means nothing with task_sampling={self.task_sampling!r}; "
                    f"leave it out, or take task_sampling: {strategy}"
                )
        if self.task_sampling == "temperature" and not _is_positive(self.sampling_temperature):
            raise ValueError(
                f"sampling_temperature={self.sampling_temperature!r}; task_sampling: temperature "
                "needs a number > 0, such as 2 (1 is proportional, large ones are uniform)"
            )
        if self.sampling_cap is not None and self.sampling_cap < 1:
            raise ValueError(f"sampling_cap={self.sampling_cap}; expected a number of rows >= 1")
        if self.task_sampling == "weighted" and not self.sampling_weights:
            raise ValueError(
                "task_sampling: weighted needs sampling_weights, as in {sst: 1, quora: 3}"
            )
        for task, weight in (self.sampling_weights or {}).items():
            if not _is_positive(weight):
                raise ValueError(
                    f"sampling_weights: {task}={weight!r}; expected a number > 0 (leave a task out "
                    "of the recipe to train without it)"
                )


def _is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0


class TaskOrder(Protocol):
    """The tasks of every step."""

    steps: int
    """Steps of an epoch, per rank."""

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """List the tasks of each step of an epoch, (steps, tasks of a step)."""

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in an epoch, (T,)."""

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in all epochs before this one, (T,)."""


class FixedOrder:
    """The same order in all epochs.

    Args:
        period: Tasks of the steps that come again and again, (steps of the period, tasks of a
            step); every task is in it once.
        passes: Steps of a pass over each task, (T,).
        stop: End of an epoch: when the next period would go beyond the data of some task, when
            every task has seen all its data, or after a number of steps.
    """

    def __init__(self, period: NDArray[np.int64], passes: NDArray[np.float64], stop: Stop) -> None:
        self._period = period
        self.steps = count_steps(stop, passes, unit=len(period))

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:  # noqa: ARG002  all are equal
        """List the tasks of each step of an epoch, (steps, tasks of a step)."""
        return np.resize(self._period, (self.steps, self._period.shape[1]))

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in an epoch, (T,)."""
        return np.bincount(self.tasks(epoch, epochs).ravel(), minlength=self._period.size)

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in all epochs before this one, (T,)."""
        return epoch * self.count(0, epochs)


class DrawnOrder:
    """Tasks that are drawn independently, step by step.

    That is the same as first drawing how often each task comes, from a multinomial distribution,
    and then shuffling: so the counts of all earlier epochs are known without their steps.

    An epoch ends when the expected number of batches of a task is a pass over its data: of the
    first task (``shortest``: the smallest N/p) or of the last one (``longest``: the largest N/p).
    With ``proportional`` all N/p are the sum of all N: an epoch goes once through all data, on
    average. All epochs have the length of the first, also where p changes.

    Args:
        arguments: The strategy.
        names: The tasks.
        passes: Steps of a pass over each task, (T,).
        rows: Rows of each task, (T,).
        stop: End of an epoch.
        seed: Of the run, >= 0.

    Raises:
        ValueError: If there is not one weight for every task.
    """

    def __init__(
        self,
        arguments: SamplingArguments,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
        stop: Stop,
        seed: int,
    ) -> None:
        self._arguments = arguments
        self._seed = seed
        self._sizes = passes
        weights = arguments.sampling_weights
        if weights is not None:
            _check_weights(weights, names)
            self._sizes = np.asarray([weights[name] for name in names], dtype=np.float64)
        elif arguments.sampling_cap is not None:
            self._sizes = passes * np.minimum(1, arguments.sampling_cap / rows)
        # rounded: the sum of all passes may come out a hair above a whole number
        self.steps = count_steps(stop, np.round(passes / self.probabilities(0, 1), 6))

    def alpha(self, epoch: int, epochs: int) -> float:
        """Find the power of the size that tasks are drawn with."""
        strategy = self._arguments.task_sampling
        if strategy == "annealed":
            return annealed_alpha(epoch, epochs)
        if self._arguments.sampling_temperature is not None:
            return 1 / self._arguments.sampling_temperature
        return ALPHAS.get(strategy, 1.0)

    def probabilities(self, epoch: int, epochs: int) -> NDArray[np.float64]:
        """Compute how probable each task is at a step of an epoch, (T,)."""
        logits = self.alpha(epoch, epochs) * np.log(self._sizes)
        powers = np.exp(logits - logits.max())
        probabilities: NDArray[np.float64] = powers / powers.sum()
        return probabilities

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """List the task of each step of an epoch, (steps, 1)."""
        generator = self._generator(epoch)
        counts = generator.multinomial(self.steps, self.probabilities(epoch, epochs))
        return generator.permutation(np.repeat(np.arange(len(counts)), counts))[:, None]

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in an epoch, (T,)."""
        return self._generator(epoch).multinomial(self.steps, self.probabilities(epoch, epochs))

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in all epochs before this one, (T,)."""
        none = np.zeros(len(self._sizes), dtype=np.int64)
        return sum((self.count(number, epochs) for number in range(epoch)), none)

    def _generator(self, epoch: int) -> np.random.Generator:
        # the key parts it from the orders of rows, which have the seed too
        return np.random.default_rng(np.random.SeedSequence((self._seed, epoch), spawn_key=(1,)))


def make_order(
    arguments: SamplingArguments,
    names: Sequence[str],
    passes: NDArray[np.float64],
    rows: NDArray[np.int64],
    stop: Stop,
    seed: int,
) -> TaskOrder:
    """Make the order of a strategy; see `DrawnOrder` for what is given.

    Raises:
        ValueError: If there is not one weight for every task, or ``stop`` is no policy.
    """
    numbers = np.arange(len(names))
    if arguments.task_sampling == "round_robin":
        return FixedOrder(numbers[:, None], passes, stop)
    if arguments.task_sampling == "mixed":
        return FixedOrder(numbers[None], passes, stop)
    return DrawnOrder(arguments, names, passes, rows, stop, seed)


def annealed_alpha(epoch: int, epochs: int) -> float:
    """Compute alpha of an epoch, 1 - 0.8 (e - 1) / (E - 1) for e = epoch + 1 of E epochs.

    The only epoch of a run is its first one: alpha = 1. Epochs after the last one have its alpha.
    """
    last = epochs - 1
    return 1 - ANNEALED_BY * min(epoch, last) / max(1, last)


def count_steps(stop: Stop, passes: NDArray[np.float64], unit: int = 1) -> int:
    """Translate the stop policy into steps.

    Args:
        stop: The policy.
        passes: Units after which each task has seen all its data, (T,).
        unit: Steps of a unit.

    Raises:
        ValueError: If it is none.
    """
    if isinstance(stop, int) and not isinstance(stop, bool) and stop >= 1:
        return stop
    if stop == "shortest":
        return max(1, math.floor(passes.min())) * unit
    if stop == "longest":
        return math.ceil(passes.max()) * unit
    raise ValueError(
        f"stop={stop!r}; expected 'shortest', 'longest' or a number of steps per epoch >= 1"
    )


def _check_weights(weights: dict[str, Any], names: Sequence[str]) -> None:
    if set(weights) != set(names):
        raise ValueError(
            f"sampling_weights names {', '.join(map(str, weights))}; expected one weight for each "
            f"of {', '.join(names)}"
        )
