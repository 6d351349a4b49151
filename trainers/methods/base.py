"""What a training method is: hooks that the trainer calls, in the order of its list of methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainingArguments

from trainers.data.rows import Batch as Batch

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

OwnTrainer: TypeAlias = "MultiTaskTrainer"  # of which the methods are a part


@dataclass(frozen=True)
class Terms:
    """How many terms a mean of one batch has, and how many those of all batches of its step have.

    The batches are those of the same task, over micro-batches and processes.
    """

    count: Tensor
    mean: Tensor

    @property
    def weight(self) -> Tensor:
        """The factor that makes the mean over batches one over all terms."""
        return self.count / self.mean


@dataclass(frozen=True)
class StepLoss:
    """The loss of one batch.

    Every part of it is a mean over its terms, times the weight of these: a method multiplies what
    it adds by ``weigh``.
    """

    loss: Tensor  # with what all methods add, a scalar
    plain: Tensor  # of the first forward pass, without that
    outputs: Any  # of the first forward pass
    facts: dict[str, Tensor] = field(default_factory=dict)  # detached scalars for the logs
    terms: Mapping[str, Terms] = field(default_factory=dict)  # by part; empty for a step's only one
    teacher: Tensor | None = None  # outputs of teachers for the batch

    def weigh(self, part: str) -> Tensor | float:
        """Return the weight of a part, by the name that ``Method.count_terms`` has for it."""
        return self.terms[part].weight if part in self.terms else 1.0


ComputeLoss: TypeAlias = Callable[[], StepLoss]


class Method:
    """A change to the training of a model. All hooks do nothing by default.

    The hooks that nest (``loss``) wrap those of earlier methods of the list; all others run in the
    order of the list.
    """

    # Before training

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        """Check, freeze or change what is needed before the Trainer; may raise ValueError."""

    def attach(self, trainer: OwnTrainer) -> None:
        """Take what is needed from the trainer, which is now built; may raise ValueError."""

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Change the parameter groups of a new optimizer."""

    # Training

    def begin(self) -> None:
        """Start; model and optimizer are on their devices."""

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        """Compute the loss of a batch; ``compute`` does so without this method."""
        return compute()

    def replaces_loss(self, task: str) -> bool:
        """Whether a task learns from this method alone, and its own loss does not count."""
        return False

    def count_terms(self, task: str, inputs: Batch) -> dict[str, Tensor]:
        """Count the terms of what ``loss`` adds for a batch, by part.

        Batches with more terms than others weigh more among those of an optimizer step.
        """
        return {}

    def finish(self) -> None:
        """Run after a training that succeeded: the model gets its final weights."""

    # Evaluation

    def before_evaluation(self, task: str) -> None:
        """Run before a task is evaluated during training."""


def refuse_sharding(trainer: OwnTrainer, name: str) -> None:
    """Raise ValueError if the trainer shards weights."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ValueError(f"{name} needs whole weights on every rank; train without sharding")


def check_dropout(model: nn.Module, task: str, what: str) -> None:
    """Raise ValueError if two passes over a row of a task, which something needs, are equal."""
    others = tuple(f"heads.{name}." for name in getattr(model, "heads", ()) if name != task)
    for path, module in model.named_modules():
        is_used = not path.startswith((*others, "cls."))
        if is_used and isinstance(module, nn.Dropout) and module.p:
            return
    raise ValueError(
        f"task {task!r}: {what}, which differ by dropout, but the model has none "
        "(hidden_dropout_prob=0, attention_probs_dropout_prob=0): give the task a dropout such as "
        "0.1, or take a model with dropout"
    )
