"""Sampling strategies: how the task of a step is chosen."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .task_schedule import DrawnOrder, FixedOrder, StepsPerEpoch, TaskOrder

# Decrease of alpha between the first and the last epoch (Stickland and Murray 2019).
ANNEALED_BY = 0.8


class TaskSampling(ABC):
    """A sampling strategy."""

    name: ClassVar[str]
    """Value of ``task_sampling`` in a recipe."""
    keys: ClassVar[dict[str, str]] = {}
    """Recipe keys of the strategy, with the fields that they fill."""
    mixes_tasks: ClassVar[bool] = False
    """Whether every step has a batch of every task."""
    changes: ClassVar[bool] = False
    """Whether the probabilities change from epoch to epoch."""

    @abstractmethod
    def make_order(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
        steps_per_epoch: StepsPerEpoch,
        seed: int,
    ) -> TaskOrder:
        """Build the order of the tasks.

        Args:
            names: The tasks.
            passes: Steps of a pass over each task, (T,).
            rows: Rows of each task, (T,).
            steps_per_epoch: End of an epoch.
            seed: Seed of the run, >= 0.

        Raises:
            ValueError: If the strategy does not suit the tasks, or ``steps_per_epoch`` is invalid.
        """


class RoundRobin(TaskSampling):
    """One task after the other."""

    name = "round_robin"

    def make_order(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
        steps_per_epoch: StepsPerEpoch,
        seed: int,
    ) -> TaskOrder:
        return FixedOrder(np.arange(len(names))[:, None], passes, steps_per_epoch)


class Mixed(TaskSampling):
    """A batch of every task at every step; their weighted losses are summed."""

    name = "mixed"
    mixes_tasks = True

    def make_order(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
        steps_per_epoch: StepsPerEpoch,
        seed: int,
    ) -> TaskOrder:
        return FixedOrder(np.arange(len(names))[None], passes, steps_per_epoch)


class DrawnSampling(TaskSampling):
    """The task of every step is drawn with p ~ N^alpha, N the batches in a pass over the task."""

    power: ClassVar[float] = 1.0

    def alpha(self, epoch: int, epochs: int) -> float:
        """Return alpha of an epoch."""
        del epoch, epochs
        return self.power

    def sizes(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return N of each task, (T,)."""
        del names, rows
        return passes

    def make_order(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
        steps_per_epoch: StepsPerEpoch,
        seed: int,
    ) -> TaskOrder:
        sizes = self.sizes(names, passes, rows)
        return DrawnOrder(sizes, self.alpha, passes, steps_per_epoch, seed)


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
    keys: ClassVar[dict[str, str]] = {
        "sampling_temperature": "temperature",
        "sampling_cap": "cap",
    }

    def __post_init__(self) -> None:
        if not _is_positive(self.temperature):
            raise ValueError(
                f"sampling_temperature={self.temperature!r}; task_sampling: temperature needs a "
                "number > 0, such as 2 (1 is proportional, large values are close to uniform)"
            )
        if self.cap is not None and self.cap < 1:
            raise ValueError(f"sampling_cap={self.cap}; expected a number of rows >= 1")

    def alpha(self, epoch: int, epochs: int) -> float:
        return 1 / self.temperature

    def sizes(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        return passes if self.cap is None else passes * np.minimum(1, self.cap / rows)


@dataclass(frozen=True)
class Weighted(DrawnSampling):
    """p ~ given weights, one > 0 for every task."""

    weights: dict[str, Any]

    name = "weighted"
    keys: ClassVar[dict[str, str]] = {"sampling_weights": "weights"}

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError(
                "task_sampling: weighted needs sampling_weights, such as {sst: 1, quora: 3}"
            )
        for task, weight in self.weights.items():
            if not _is_positive(weight):
                raise ValueError(
                    f"sampling_weights: {task}={weight!r}; expected a number > 0 (to train without "
                    "a task, remove it from the recipe)"
                )

    def sizes(
        self,
        names: Sequence[str],
        passes: NDArray[np.float64],
        rows: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        if set(self.weights) != set(names):
            raise ValueError(
                f"sampling_weights names {', '.join(map(str, self.weights))}; expected one weight "
                f"for each of {', '.join(names)}"
            )
        return np.asarray([self.weights[name] for name in names], dtype=np.float64)


STRATEGIES: dict[str, type[Any]] = {
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
    ] = field(default="round_robin", metadata={"help": "How the task of a step is chosen."})
    sampling_temperature: float | None = field(
        default=None, metadata={"help": "T of temperature sampling, p ~ min(N, cap)^(1/T)."}
    )
    sampling_cap: int | None = field(
        default=None, metadata={"help": "Cap of temperature sampling, in rows."}
    )
    sampling_weights: dict[str, Any] | None = field(
        default=None, metadata={"help": "Weight of each task, for weighted sampling."}
    )

    def __post_init__(self) -> None:
        for strategy in STRATEGIES.values():
            for key in strategy.keys:
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
        sampling: TaskSampling = strategy(
            **{name: getattr(self, key) for key, name in strategy.keys.items()}
        )
        return sampling


def _is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0
