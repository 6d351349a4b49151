"""The task of each step: a function of (seed, epoch, epochs of the run), the same on all ranks."""

import math
from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

StepsPerEpoch = Literal["shortest", "longest"] | int


class TaskOrder(Protocol):
    """The tasks of every step."""

    steps: int
    """Steps of an epoch, per rank."""

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """List the tasks of each step of an epoch, (steps, tasks of a step)."""

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in an epoch, (T,)."""

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        """Count the batches of each task in all earlier epochs, (T,)."""


class FixedOrder:
    """The same steps in all epochs: ``period``, (steps, tasks); ``passes``, (T,), in steps."""

    def __init__(
        self,
        period: NDArray[np.int64],
        passes: NDArray[np.float64],
        steps_per_epoch: StepsPerEpoch,
    ) -> None:
        self._period = period
        self.steps = count_steps(steps_per_epoch, passes, unit=len(period))

    def tasks(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        return np.resize(self._period, (self.steps, self._period.shape[1]))

    def count(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        return np.bincount(self.tasks(epoch, epochs).ravel(), minlength=self._period.size)

    def count_before(self, epoch: int, epochs: int) -> NDArray[np.int64]:
        return epoch * self.count(0, epochs)


class DrawnOrder:
    """Tasks that are drawn independently, step by step, with p ~ sizes^alpha.

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
        probabilities: NDArray[np.float64] = powers / powers.sum()
        return probabilities

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
    is_number = isinstance(steps_per_epoch, int) and not isinstance(steps_per_epoch, bool)
    if is_number and steps_per_epoch >= 1:  # type: ignore[operator]
        return steps_per_epoch  # type: ignore[return-value]
    if steps_per_epoch == "shortest":
        return max(1, math.floor(passes.min())) * unit
    if steps_per_epoch == "longest":
        return math.ceil(passes.max()) * unit
    raise ValueError(
        f"steps_per_epoch={steps_per_epoch!r}; expected 'shortest', 'longest' or a number >= 1"
    )
