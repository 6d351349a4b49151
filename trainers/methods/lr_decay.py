"""Exponential decay of the learning rate, one factor per epoch."""

from dataclasses import dataclass
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from .base import Method


@dataclass
class ExponentialDecay(Method):
    """Multiply the learning rate by a factor after every epoch; replaces ``lr_scheduler_type``.

    Warmup stays.

    Args:
        gamma: The factor, in (0, 1].

    Raises:
        ValueError: If it is out of range.
    """

    gamma: float

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"exponential_lr_gamma={self.gamma!r}; expected in (0, 1]")

    def make_scheduler(
        self, optimizer: Optimizer, *, steps_per_epoch: int, warmup_steps: int
    ) -> LambdaLR:
        factor = partial(
            exponential_factor,
            gamma=self.gamma,
            steps_per_epoch=steps_per_epoch,
            warmup_steps=warmup_steps,
        )
        return LambdaLR(optimizer, factor)


def exponential_factor(
    step: int, *, gamma: float, steps_per_epoch: int, warmup_steps: int
) -> float:
    """Return the factor at a step: linear warmup times ``gamma`` for every finished epoch."""
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return warmup * gamma ** (step // steps_per_epoch)
