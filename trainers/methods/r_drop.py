"""R-Drop: two passes over a batch, with other dropout masks, should give equal predictions."""

import logging
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers import TrainingArguments

from datasets_scripts.checking import Positive, check_value
from trainers.files import find_inner
from trainers.problems import PROBLEMS

from .base import Batch, ComputeLoss, Method, OwnTrainer, StepLoss, check_dropout, refuse_sharding

logger = logging.getLogger(__name__)


@dataclass
class RDrop(Method):
    """R-Drop (Liang et al. 2021, section 2.2).

    The loss is the mean over both passes, plus ``alpha`` times half of the symmetric divergence
    between them, as the model's ``divergence`` computes it. This is the mean of the published code;
    the paper has the sum, which is twice that with twice the alpha.

    Args:
        alpha: Weight of the divergence, > 0; 0.5 to 5 in the paper.

    Raises:
        ValueError: If alpha is not a number > 0.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_value("r_drop", "alpha", self.alpha, Positive)

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        # a second pass would write to buffers that the first still needs
        args.ddp_broadcast_buffers = False
        self.model: Any = model

    def attach(self, trainer: OwnTrainer) -> None:
        refuse_sharding(trainer, "r_drop")
        if not hasattr(self.model, "divergence"):
            raise ValueError(
                f"r_drop needs a model with the method divergence, as MinBertForMultiTask has it, "
                f"and not a {type(self.model).__name__}; leave it out"
            )
        self.tasks = [
            task
            for task, problem in trainer.problems.items()
            if problem.teaching == "logits" and trainer.tasks[task].training.regularize
        ]
        for task in self.tasks:
            check_dropout(find_inner(self.model), task, "r_drop compares two passes over a row")
        others = ", ".join(task for task in trainer.problems if task not in self.tasks)
        if not self.tasks:
            known = [name for name, kind in PROBLEMS.items() if kind.teaching == "logits"]
            raise ValueError(
                f"r_drop compares predictions of tasks of the types {', '.join(known)} with "
                f"regularize: true, which no task is ({others}); leave r_drop out"
            )
        if others:
            logger.warning("%s: trained without r_drop", others)

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        if task not in self.tasks:
            return compute()
        first, second = compute(), compute()
        divergence = self.model.divergence(task, first.outputs.logits, second.outputs.logits)
        loss = (first.loss + second.loss) / 2 + self.alpha / 2 * divergence
        facts = first.facts | {"rdrop_divergence": divergence.detach()}
        return replace(first, loss=loss, facts=facts)
