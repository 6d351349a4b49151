"""How fast the heads learn."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainingArguments

from datasets_scripts.checking import Positive, check_value
from trainers.files import find_inner

from .base import Method, refuse_sharding

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer


@dataclass
class HeadLearningRate(Method):
    """A learning rate of the heads: all parameters outside the base model.

    The pooler is part of the base model. A schedule multiplies both rates by the same factors.

    Args:
        rate: Learning rate of the heads, > 0.

    Raises:
        ValueError: If the rate is out of range.
    """

    rate: float

    def __post_init__(self) -> None:
        # null, in a recipe, is the default of a run
        check_value("", "head_learning_rate", self.rate, Positive | None)

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if not _find_heads(model):
            raise ValueError(
                f"head_learning_rate={self.rate!r}, but {type(model).__name__} has no parameters "
                "outside its base model; leave it out"
            )

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        refuse_sharding(trainer, "head_learning_rate")

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Split the parameter groups of a new optimizer by rate.

        A schedule multiplies the rate of every group, so they keep their ratio. The groups of the
        heads come last: the Trainer logs the rate of the first.
        """
        heads = _find_heads(model)
        shared_groups, head_groups = [], []
        for group in optimizer.param_groups:
            shared = [value for value in group["params"] if id(value) not in heads]
            own = [value for value in group["params"] if id(value) in heads]
            if shared:
                shared_groups.append({**group, "params": shared})
            if own:
                head_groups.append({**group, "params": own, "lr": self.rate})
        optimizer.param_groups[:] = [*shared_groups, *head_groups]


def _find_heads(model: nn.Module) -> set[int]:
    """Return the ids of the parameters outside the base model."""
    base: Any = getattr(find_inner(model), "base_model", model)
    return {id(value) for value in model.parameters()} - {id(value) for value in base.parameters()}
