"""Which task each step takes: the sampling strategies, and the orders of tasks that they build.

An order is a function of (seed, epoch, epochs of the run), the same on all ranks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from datasets_scripts.checking import is_number, option

# Decrease of alpha between the first and the last epoch (Stickland and Murray 2019).
ANNEALED_BY = 0.8
# Of an epoch, whose order is kept in memory.
MAX_STEPS = 10_000_000


StepsPerEpoch = Literal["shortest", "longest"] | int


class FixedOrder:
    """The same steps in all epochs: ``period``, (steps, tasks); ``passes``, (T,), in steps.

    Attributes:
        steps: Steps of an epoch, per rank.
    """

    def __init__(
        self,
        period: NDArray[np.int64],
        passes: NDArray[np.float64],
        steps_per_epoch: StepsPerEpoch,
    ) -> None:
        self._period = period
        self.steps = count_steps(steps_per_epoch, passes, unit=len(period))

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """List the tasks of each step of an epoch, (steps, tasks of a step)."""
        return np.resize(self._period, (self.steps, self._period.shape[1]))

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in an epoch, (T,)."""
        return np.bincount(self.tasks(epoch, epochs).ravel(), minlength=self._period.size)

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in all earlier epochs, (T,)."""
        return epoch * self.count(0, epochs)


class DrawnOrder:
    """Tasks that are drawn independently, step by step, with p ~ sizes^alpha; see `FixedOrder`.

    Counts are drawn first, from a multinomial distribution, and then shuffled: so the counts of
    earlier epochs are known without their steps. An epoch ends when the expected number of batches
    of the first task (``shortest``) or of the last one (``longest``) is one pass over its data. All
    epochs have the length of the first, even if p changes.
    """

    def __init__(
        self,
        sizes: NDArray[np.float64],
        alpha: Callable[[int, int], float],
        passes: NDArray[np.float64],
        steps_per_epoch: StepsPerEpoch,
        seed: int,
    ) -> None:
        self._sizes, self.alpha, self._seed = sizes, alpha, seed
        # rounded: the sum of all passes can be slightly above a whole number
        self.steps = count_steps(steps_per_epoch, np.round(passes / self.probabilities(0, 1), 6))

    def probabilities(self, epoch: int, epochs: int) -> NDArray[np.float64]:
        """Compute the probability of each task at a step of an epoch, (T,)."""
        logits = self.alpha(epoch, epochs) * np.log(self._sizes)
        powers = np.exp(logits - logits.max())
        return powers / powers.sum()

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        generator = self._generator(epoch)
        counts = generator.multinomial(self.steps, self.probabilities(epoch, epochs))
        return generator.permutation(np.repeat(np.arange(len(counts)), counts))[:, None]

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        return self._generator(epoch).multinomial(self.steps, self.probabilities(epoch, epochs))

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        none = np.zeros(len(self._sizes), dtype=np.int64)
        return sum((self.count(earlier, epochs) for earlier in range(epoch)), none)

    def _generator(self, epoch: int) -> np.random.Generator:
        # the spawn key separates it from the orders of rows, which use the same seed
        return np.random.default_rng(np.random.SeedSequence((self._seed, epoch), spawn_key=(1,)))


def count_steps(steps_per_epoch: StepsPerEpoch, passes: NDArray[np.float64], unit: int = 1) -> int:
    """Convert ``steps_per_epoch`` to steps; ``passes`` are the units of a pass over each task."""
    if type(steps_per_epoch) is int and 1 <= steps_per_epoch <= MAX_STEPS:
        return steps_per_epoch
    if steps_per_epoch == "shortest":
        return max(1, math.floor(passes.min())) * unit
    if steps_per_epoch == "longest":
        return math.ceil(passes.max()) * unit
    raise ValueError(
        f"steps_per_epoch={steps_per_epoch!r}; expected 'shortest', 'longest' or a number from 1 "
        f"to {MAX_STEPS:,}"
    )


TaskOrder: TypeAlias = FixedOrder | DrawnOrder


class TaskSizes(NamedTuple):
    """The sizes of T tasks."""

    names: Sequence[str]
    passes: NDArray[np.float64]  # steps of a pass over each task, (T,)
    rows: NDArray[np.int64]  # rows of each task, (T,)


@dataclass(frozen=True)
class TaskSampling(ABC):
    """A sampling strategy; the recipe key ``sampling_<field>`` fills a field."""

    name: ClassVar[str]
    """Value of ``task_sampling`` in a recipe."""
    mixes_tasks: ClassVar[bool] = False
    """Whether every step has a batch of every task."""
    changes: ClassVar[bool] = False
    """Whether the probabilities change from epoch to epoch."""

    @abstractmethod
    def make_order(self, sizes: TaskSizes, steps_per_epoch: StepsPerEpoch, seed: int) -> TaskOrder:
        """Build the order of the tasks; ValueError if the strategy does not suit them."""


class RoundRobin(TaskSampling):
    """One task after the other."""

    name = "round_robin"

    def make_order(self, sizes: TaskSizes, steps_per_epoch: StepsPerEpoch, seed: int) -> TaskOrder:
        return FixedOrder(np.arange(len(sizes.names))[:, None], sizes.passes, steps_per_epoch)


class Mixed(TaskSampling):
    """A batch of every task at every step; their weighted losses are summed."""

    name = "mixed"
    mixes_tasks = True

    def make_order(self, sizes: TaskSizes, steps_per_epoch: StepsPerEpoch, seed: int) -> TaskOrder:
        return FixedOrder(np.arange(len(sizes.names))[None], sizes.passes, steps_per_epoch)


class DrawnSampling(TaskSampling):
    """The task of every step is drawn with p ~ N^alpha, N the batches in a pass over the task."""

    power: ClassVar[float] = 1.0

    def alpha(self, epoch: int, epochs: int) -> float:
        """Return alpha of an epoch."""
        return self.power

    def weigh(self, sizes: TaskSizes) -> NDArray[np.float64]:
        """Return N of each task, (T,)."""
        return sizes.passes

    def make_order(self, sizes: TaskSizes, steps_per_epoch: StepsPerEpoch, seed: int) -> TaskOrder:
        return DrawnOrder(self.weigh(sizes), self.alpha, sizes.passes, steps_per_epoch, seed)


class Proportional(DrawnSampling):
    """p ~ N."""

    name = "proportional"


class SquareRoot(DrawnSampling):
    """p ~ N^(1/2)."""

    name = "square_root"
    power = 0.5


class Uniform(DrawnSampling):
    """Equal probabilities."""

    name = "uniform"
    power = 0.0


class Annealed(DrawnSampling):
    """Alpha falls linearly from 1 in the first epoch to 0.2 in the last (Stickland and Murray)."""

    name = "annealed"
    changes = True

    def alpha(self, epoch: int, epochs: int) -> float:
        last = epochs - 1
        return 1 - ANNEALED_BY * min(epoch, last) / max(1, last)


@dataclass(frozen=True)
class Temperature(DrawnSampling):
    """p ~ min(N, cap)^(1/T), cap in rows; T = 1 is proportional, a large T nearly uniform."""

    temperature: float
    cap: int | None = None

    name = "temperature"

    def __post_init__(self) -> None:
        if not (is_number(self.temperature) and self.temperature > 0):
            raise ValueError(
                f"sampling_temperature={self.temperature!r}; task_sampling: temperature needs a "
                "number > 0, such as 2 (1 is proportional, large values are close to uniform)"
            )
        if self.cap is not None and self.cap < 1:
            raise ValueError(f"sampling_cap={self.cap}; expected a number of rows >= 1")

    def alpha(self, epoch: int, epochs: int) -> float:
        return 1 / self.temperature

    def weigh(self, sizes: TaskSizes) -> NDArray[np.float64]:
        passes = sizes.passes
        return passes if self.cap is None else passes * np.minimum(1, self.cap / sizes.rows)


@dataclass(frozen=True)
class Weighted(DrawnSampling):
    """p ~ given weights, one > 0 for every task."""

    weights: dict[str, Any]

    name = "weighted"

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError(
                "task_sampling: weighted needs sampling_weights, such as {sst: 1, quora: 3}"
            )
        for task, weight in self.weights.items():
            if not (is_number(weight) and weight > 0):
                raise ValueError(
                    f"sampling_weights: {task}={weight!r}; expected a number > 0 (to train without "
                    "a task, remove it from the recipe)"
                )

    def weigh(self, sizes: TaskSizes) -> NDArray[np.float64]:
        if set(self.weights) != set(sizes.names):
            raise ValueError(
                f"sampling_weights names {', '.join(map(str, self.weights))}; expected one weight "
                f"for each of {', '.join(sizes.names)}"
            )
        return np.asarray([self.weights[name] for name in sizes.names], dtype=np.float64)


STRATEGIES: dict[str, type[TaskSampling]] = {
    kind.name: kind
    for kind in (
        RoundRobin,
        Proportional,
        Uniform,
        SquareRoot,
        Temperature,
        Annealed,
        Weighted,
        Mixed,
    )
}


@dataclass(kw_only=True)
class SamplingArguments:
    """Flags and recipe keys of the sampling strategy.

    With gradient accumulation every micro-batch has its own task, so an optimizer step has several;
    with ``mixed`` every micro-batch has all of them.

    Raises:
        ValueError: If a key is missing, out of range, or belongs to another strategy.
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
    ] = option("round_robin", "How the task of a step is chosen.")
    sampling_temperature: float | None = option(
        None, "T of temperature sampling, p ~ min(N, cap)^(1/T)."
    )
    sampling_cap: int | None = option(None, "Cap of temperature sampling, in rows.")
    sampling_weights: dict[str, Any] | None = option(
        None, "Weight of each task, for weighted sampling."
    )

    def __post_init__(self) -> None:
        for strategy in STRATEGIES.values():
            for key in (f"sampling_{entry.name}" for entry in fields(strategy)):
                value = getattr(self, key)
                if value is not None and self.task_sampling != strategy.name:
                    raise ValueError(
                        f"{key}={value!r} has no effect with task_sampling={self.task_sampling!r}; "
                        f"leave it out, or use task_sampling: {strategy.name}"
                    )
        self.make_sampling()

    def make_sampling(self) -> TaskSampling:
        """Build the strategy."""
        strategy = STRATEGIES[self.task_sampling]
        given = {entry.name: getattr(self, f"sampling_{entry.name}") for entry in fields(strategy)}
        return strategy(**given)
