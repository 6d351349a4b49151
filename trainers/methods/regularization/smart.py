"""SMART: predictions should not change under the worst small change of the embeddings."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from transformers import TrainerState, TrainingArguments

from trainers.methods.averaging import WeightAverage
from trainers.methods.base import ComputeLoss, StepLoss, refuse_shared_rows

from .base import Regularizer
from .smart_perturbation import (
    DropoutReplay,
    SmartConfig,
    perturbed,
    smoothness,
    unlabeled,
)

BREGMAN_FILE = "bregman.safetensors"
# Decay of the moving average in the first tenth of training, and later: Jiang et al. 2020, 4.1.
EARLY, DECAY, LATE_DECAY = 0.1, 0.99, 0.999


@dataclass
class Smart(Regularizer):
    """SMART (Jiang et al. 2020): smoothness, and proximity to a moving average of the weights.

    It leaves the random state as it was: dropout masks are those of a run without SMART.
    """

    config: SmartConfig = field(default_factory=SmartConfig)
    key = "smart"

    def __post_init__(self) -> None:
        self.average: WeightAverage | None = None
        self.batches = 0

    def prepare(self, model: Any, args: TrainingArguments) -> None:
        super().prepare(model, args)
        self.seed = (args.seed, args.process_index)
        if args.n_gpu > 1:
            raise ValueError(
                f"smart needs one process for each of the {args.n_gpu} GPUs; start it with "
                "`accelerate launch --multi_gpu`, or show it one with CUDA_VISIBLE_DEVICES"
            )

    def attach(self, trainer: Any) -> None:
        super().attach(trainer)
        reason = f"{self.key} perturbs the input of one task"
        refuse_shared_rows(trainer.tasks, self.tasks, reason, "give the task regularize: false")
        self.trainer = trainer

    def begin(self) -> None:
        self.batches = 0
        if self.config.bregman_weight > 0:
            self.average = WeightAverage(self.model, from_start=True)

    def fact_names(self, task: str) -> tuple[str, ...]:
        if task not in self.tasks:
            return ()
        names = ("smart_divergence", "smart_change", "smart_cosine") if self.config.weight else ()
        return (*names, "bregman_divergence") if self.config.bregman_weight else names

    def regularized(self, compute: ComputeLoss, inputs: dict[str, Any]) -> StepLoss:
        self.batches += 1  # distinguishes the batches of one optimizer step
        embeddings: list[Tensor] = []
        replay = DropoutReplay(inputs["input_ids"].device)
        with perturbed(self.model, None, embeddings):
            step = compute()
        loss, logits, facts = step.loss, step.outputs.logits, dict(step.facts)
        if self.config.weight:
            key = (*self.seed, self.trainer.state.global_step, self.batches)
            noise = draw_noise(key, embeddings[0])
            facts |= smoothness(
                self.config, self.model, inputs, logits, embeddings[0], noise, replay
            )
            loss = loss + self.config.weight * facts["smart_divergence"] * step.weigh("rows")
        if self.average is not None:
            with torch.no_grad(), replay.again():
                averaged = functional_call(self.model, self.average.averages, (), unlabeled(inputs))
            divergence = self.model.divergence(inputs["task"], logits, averaged.logits)
            loss = loss + self.config.bregman_weight * divergence * step.weigh("rows")
            facts["bregman_divergence"] = divergence
        facts = {name: fact.detach() for name, fact in facts.items()}
        return replace(step, loss=loss, facts=facts)

    def after_step(self, state: TrainerState) -> None:
        self.batches = 0
        if self.average is not None:
            is_early = state.global_step <= EARLY * state.max_steps
            self.average.update("ema", DECAY if is_early else LATE_DECAY)

    def save(self, folder: Path) -> None:
        if self.average is not None:
            self.average.save(folder / BREGMAN_FILE)

    def load(self, folder: Path) -> None:
        if self.average is not None:
            self.average.load(folder / BREGMAN_FILE)


def draw_noise(key: tuple[int, ...], like: Tensor) -> Tensor:
    """Draw standard normal noise, a function of the key alone, in the shape of a tensor."""
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
    return torch.randn(like.shape, generator=generator).to(like.device)
