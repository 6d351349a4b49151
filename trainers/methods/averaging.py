"""Averages of the weights of a training: what is evaluated and saved in the place of the last."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

COUNT = "steps_averaged"


@dataclass(frozen=True)
class Averaging:
    """How weights are averaged.

    Args:
        kind: ``ema``, an exponential moving average of every step; ``swa``, the plain mean of the
            last part of the training, taken at every step (stochastic weight averaging, Izmailov
            et al. 2018).
        decay: What the average keeps of itself at a step of ``ema``, in [0, 1); at the beginning
            less, (1 + steps) / (10 + steps), or a short run would keep the weights of its start.
        start: Share of all steps after which averaging begins, in [0, 1).

    Raises:
        ValueError: If a value is out of range.
    """

    kind: Literal["ema", "swa"]
    decay: float = 0.999
    start: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("ema", "swa"):
            raise ValueError(f"weight_averaging={self.kind!r}; expected 'ema' or 'swa'")
        for name in ("decay", "start"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"averaging_{name}={value!r}; expected in [0, 1)")


class WeightAverage:
    """The average of the weights of a model that is being trained.

    Args:
        model: The model, not wrapped.
        from_start: Whether the weights at the start are a part of it. Otherwise it begins with
            those of the first update.
    """

    def __init__(self, model: nn.Module, *, from_start: bool = False) -> None:
        self.model, self.from_start = model, from_start
        self.begin()

    def begin(self) -> None:
        """Begin again with the weights as and where they are now."""
        # parameters that are tied are there once
        self.weights = {name: value.detach() for name, value in self.model.named_parameters()}
        self.averages = {name: value.clone() for name, value in self.weights.items()}
        self.count = int(self.from_start)

    @torch.no_grad()
    def update(self, kind: str, decay: float) -> None:
        """Take in the weights as they are now.

        Args:
            kind: ``ema`` or ``swa``.
            decay: What an ``ema`` keeps of itself.
        """
        current = list(self.weights.values())
        average = list(self.averages.values())
        if self.count == 0:
            torch._foreach_copy_(average, current)
        else:
            rule = get_ema_multi_avg_fn(decay) if kind == "ema" else get_swa_multi_avg_fn()
            rule(average, current, torch.tensor(self.count))
        self.count += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the model and the averages."""
        for name, weight in self.weights.items():
            average = self.averages[name]
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model have the averages for a while, if there are any."""
        if not self.count:
            yield
            return
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def keep(self) -> None:
        """Give the averages to the model for good, if there are any."""
        if self.count:
            torch._foreach_copy_(list(self.weights.values()), list(self.averages.values()))

    def save(self, path: Path) -> None:
        """Write the averages to a file.

        Args:
            path: The file, of the type safetensors.
        """
        whole = {name: value.contiguous() for name, value in self.averages.items()}
        save_file(whole, path, metadata={COUNT: str(self.count)})

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote.

        Args:
            path: The file.

        Raises:
            ValueError: If it is not that of this model.
        """
        found = load_file(path)
        if {name: value.shape for name, value in found.items()} != {
            name: value.shape for name, value in self.averages.items()
        }:
            raise ValueError(f"{path} holds the averages of another model; begin the run again")
        for name, value in found.items():
            self.averages[name].copy_(value)
        self.count = _read_count(path)


def _read_count(path: Path) -> int:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata: dict[str, Any] = file.metadata()
    return int(metadata[COUNT])


def first_step(start: float, steps: int) -> int:
    """Find the first step, counted from 1, that is averaged."""
    return min(math.floor(start * steps) + 1, steps)
