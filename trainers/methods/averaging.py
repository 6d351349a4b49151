"""Weight averaging: evaluate and save an average of the weights instead of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainingArguments

from datasets_scripts.checking import Share, check_value

from .base import Method, refuse_sharding

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

AVERAGE_FILE = "average.safetensors"
COUNT_KEY = "steps_averaged"


@dataclass
class WeightAveraging(Method, TrainerCallback):
    """Evaluate and save an exponential moving average of the weights over all steps.

    Args:
        decay: Weight of the old average in a step, in [0, 1). In early steps it is less,
            (1 + steps) / (10 + steps), or a short run would keep its initial weights.

    Raises:
        ValueError: If the decay is out of range.
    """

    decay: float = 0.999

    def __post_init__(self) -> None:
        check_value("", "averaging_decay", self.decay, Share)
        self.averages: dict[str, Tensor] = {}
        self.count = 0  # of averaged steps

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if args.save_only_model and args.load_best_model_at_end:
            raise ValueError(
                "save_only_model leaves the average out of checkpoints, but load_best_model_at_end "
                "needs it; leave one of them out"
            )

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        refuse_sharding(trainer, "weight_averaging")
        self.trainer = trainer
        trainer.add_callback(self)

    def begin(self) -> None:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        # tied parameters occur once
        self.weights = {name: value.detach() for name, value in model.named_parameters()}
        self.averages, self.count = {}, 0

    @torch.no_grad()
    def on_step_end(self, *_: object, **__: object) -> None:
        if not self.averages:
            self.averages = {name: value.clone() for name, value in self.weights.items()}
        else:
            decay = min(self.decay, (1 + self.count) / (10 + self.count))
            averages, weights = list(self.averages.values()), list(self.weights.values())
            torch._foreach_lerp_(averages, weights, 1 - decay)
        self.count += 1

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchange the weights of the model and the averages, if there are any."""
        for name, average in self.averages.items():
            kept = self.weights[name].clone()
            self.weights[name].copy_(average)
            average.copy_(kept)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def finish(self) -> None:
        self._swap()
        self.averages, self.count = {}, 0

    def save(self, folder: Path) -> None:
        whole = {name: value.contiguous() for name, value in self.averages.items()}
        save_file(whole, folder / AVERAGE_FILE, metadata={COUNT_KEY: str(self.count)})

    def load(self, folder: Path) -> None:
        path = folder / AVERAGE_FILE
        averages = load_file(path)
        shapes = {name: value.shape for name, value in averages.items()}
        if shapes != {name: value.shape for name, value in self.weights.items()}:
            raise ValueError(f"{path} holds the averages of another model; begin the run again")
        # in the order of the weights, not of the file
        self.averages = {name: averages[name].to(x.device) for name, x in self.weights.items()}
        with safe_open(path, framework="pt") as file:
            self.count = int(file.metadata()[COUNT_KEY])
