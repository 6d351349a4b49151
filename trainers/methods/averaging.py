"""Weight averaging: evaluate and save an average of the weights instead of the last ones."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn
from transformers import TrainerState, TrainingArguments

from datasets_scripts.checking import Share, check_value

from .base import Method, refuse_sharding

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

AVERAGE_FILE = "average.safetensors"
COUNT_KEY = "steps_averaged"


class WeightAverage:
    """A running average of unwrapped weights."""

    def __init__(self, model: nn.Module) -> None:
        # tied parameters occur once
        self.weights = {name: value.detach() for name, value in model.named_parameters()}
        self.averages = {name: value.clone() for name, value in self.weights.items()}
        self.count = 0

    @torch.no_grad()
    def update(self, kind: str, decay: float) -> None:
        """Add the current weights; ``decay`` is the weight of the old average in ``ema``."""
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
        for weight, average in zip(self.weights.values(), self.averages.values(), strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def save(self, path: Path) -> None:
        whole = {name: value.contiguous() for name, value in self.averages.items()}
        save_file(whole, path, metadata={COUNT_KEY: str(self.count)})

    def load(self, path: Path) -> None:
        """Read the averages that ``save`` wrote."""
        averages = load_file(path)
        shapes = {name: value.shape for name, value in averages.items()}
        if shapes != {name: value.shape for name, value in self.averages.items()}:
            raise ValueError(f"{path} holds the averages of another model; begin the run again")
        for name, value in averages.items():
            self.averages[name].copy_(value)
        with safe_open(path, framework="pt") as file:
            self.count = int(file.metadata()[COUNT_KEY])


@dataclass
class WeightAveraging(Method):
    """Evaluate and save an average of the weights.

    Args:
        kind: ``ema``, an exponential moving average over all steps; ``swa``, the plain mean over
            the last quarter of training (stochastic weight averaging, Izmailov et al. 2018).
        decay: Weight of the old average in a step of ``ema``, in [0, 1). In early steps it is
            less, (1 + steps) / (10 + steps), or a short run would keep its initial weights.

    Raises:
        ValueError: If a value is out of range.
    """

    kind: Literal["ema", "swa"]
    decay: float = 0.999

    def __post_init__(self) -> None:
        self.average: WeightAverage | None = None
        check_value("", "weight_averaging", self.kind, Literal["ema", "swa"])
        check_value("", "averaging_decay", self.decay, Share)

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if args.save_only_model and args.load_best_model_at_end:
            raise ValueError(
                "save_only_model leaves the average out of checkpoints, but load_best_model_at_end "
                "needs it; leave one of them out"
            )

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        refuse_sharding(trainer, "weight_averaging")
        self.trainer = trainer

    def begin(self) -> None:
        self.average = WeightAverage(self.trainer.accelerator.unwrap_model(self.trainer.model))

    def after_step(self, state: TrainerState) -> None:
        start = 0.75 if self.kind == "swa" else 0.0  # share of all steps
        first = min(math.floor(start * state.max_steps) + 1, state.max_steps)
        if self.average is not None and state.global_step >= first:
            count = self.average.count
            self.average.update(self.kind, min(self.decay, (1 + count) / (10 + count)))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        average = self.average
        if average is None or not average.count:
            yield
            return
        average.swap()
        try:
            yield
        finally:
            average.swap()

    def finish(self) -> None:
        if self.average is not None and self.average.count:
            self.average.swap()
        self.average = None

    def save(self, folder: Path) -> None:
        if self.average is not None:
            self.average.save(folder / AVERAGE_FILE)

    def load(self, folder: Path) -> None:
        if self.average is not None:
            self.average.load(folder / AVERAGE_FILE)

    def load_best(self, folder: Path) -> None:
        self.load(folder)
