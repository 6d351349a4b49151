"""What R-Drop and SMART share: they compare predictions by the model's ``divergence``."""

import logging
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import nn
from transformers import TrainingArguments

from trainers.methods.base import ComputeLoss, Method, StepLoss, refuse_sharding
from trainers.problems import PROBLEMS

logger = logging.getLogger(__name__)


class Regularizer(Method, ABC):
    """A method that adds a divergence between predictions to the loss of some tasks."""

    key: ClassVar[str]
    """Key of a recipe that turns it on."""
    model: Any
    tasks: frozenset[str] = frozenset()

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if args.torch_compile:
            raise ValueError(
                f"{self.key} computes a batch several times with hooks, which torch_compile does "
                "not follow; leave one of them out"
            )
        if not hasattr(model, "divergence"):
            raise ValueError(
                f"{self.key} needs a model with divergence(task, logits, other), such as "
                f"MinBertForMultiTask; {type(model).__name__} has none"
            )
        # a second pass would write to buffers that the first still needs
        args.ddp_broadcast_buffers = False
        self.model = model

    def attach(self, trainer: Any) -> None:
        refuse_sharding(trainer, self.key)
        self.tasks = frozenset(
            task
            for task, problem in trainer.problems.items()
            if problem.is_comparable and trainer.tasks[task].training.regularize
        )
        others = [task for task in trainer.problems if task not in self.tasks]
        if not self.tasks:
            types = ", ".join(name for name, kind in PROBLEMS.items() if kind.is_comparable)
            raise ValueError(
                f"{self.key} compares predictions of tasks of the types {types} with regularize: "
                f"true, which no task is ({', '.join(others)}); leave {self.key} out"
            )
        if others:
            logger.warning("%s: trained without %s", ", ".join(others), self.key)

    def count_terms(self, task: str, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"rows": len(inputs["labels"])} if task in self.tasks else {}

    def loss(self, compute: ComputeLoss, task: str, inputs: dict[str, Any]) -> StepLoss:
        return self.regularized(compute, inputs) if task in self.tasks else compute()

    @abstractmethod
    def regularized(self, compute: ComputeLoss, inputs: dict[str, Any]) -> StepLoss:
        """Compute the loss of a batch with the terms of this method."""
