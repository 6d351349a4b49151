"""What a training method is: hooks that the trainer calls in order, and the keys of a recipe."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerState, TrainingArguments

from datasets_scripts.checking import Part, Positive, check_keys, option
from trainers.data.collate import Batch as Batch
from trainers.data.sampling import TaskSampling

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer


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

    averages_gradients = False
    """Whether the method averages gradients over processes itself, in place of DDP."""

    # Before training

    def check_sampling(self, sampling: TaskSampling) -> None:
        """Raise ValueError if the method does not work with this choice of tasks."""

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        """Check, freeze or change what is needed before the Trainer; may raise ValueError."""

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        """Take what is needed from the trainer, which is now built; may raise ValueError."""

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Change the parameter groups of a new optimizer."""

    # Training

    def begin(self) -> None:
        """Start; model and optimizer are on their devices."""

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        """Compute the loss of a batch; ``compute`` does so without this method."""
        del task, inputs
        return compute()

    def replaces_loss(self, task: str) -> bool:
        """Whether a task learns from this method alone, and its own loss does not count."""
        del task
        return False

    def count_terms(self, task: str, inputs: Batch) -> dict[str, int | Tensor]:
        """Count the terms of what ``loss`` adds for a batch, by part: numbers or tensors.

        Batches with more terms than others weigh more among those of an optimizer step.
        """
        del task, inputs
        return {}

    def after_backward(self, task: str) -> None:
        """Run after the backward pass of a batch."""

    def before_optimizer(self, state: TrainerState) -> None:
        """Run after the last backward pass of an optimizer step, before gradients are clipped."""

    def after_step(self, state: TrainerState) -> None:
        """Run after an optimizer step."""

    def finish(self) -> None:
        """Run after a training that succeeded: the model gets its final weights."""

    # Evaluation and logs

    def evaluating(self) -> AbstractContextManager[None]:
        """Wrap an evaluation of all tasks."""
        return nullcontext()

    def before_evaluation(self, task: str) -> None:
        """Run before a task is evaluated during training."""

    def log(self, logs: dict[str, float]) -> None:
        """Add to the logs of training."""

    # Checkpoints

    def save(self, folder: Path) -> None:
        """Write the state to a checkpoint."""

    def load(self, folder: Path) -> None:
        """Read the state from a checkpoint, after ``begin``."""

    def load_best(self, folder: Path) -> None:
        """Read what belongs to the weights of the best checkpoint, which were just loaded."""


def refuse_sharding(trainer: "MultiTaskTrainer", name: str) -> None:
    """Raise ValueError if the trainer shards weights."""
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ValueError(f"{name} needs whole weights on every rank; train without sharding")


class MethodCallback(TrainerCallback):
    """Calls the hooks of methods after optimizer steps."""

    def __init__(self, methods: Sequence[Method]) -> None:
        self.methods = methods

    def on_step_end(self, args: object, state: TrainerState, *_: object, **__: object) -> None:
        for method in self.methods:
            method.after_step(state)


@dataclass(kw_only=True)
class MethodArguments:
    """Flags and recipe keys of the training methods.

    Raises:
        ValueError: If a value is out of range, or two keys contradict each other.
    """

    teacher: str | list[str] | None = option(
        None, "Distillation: the folder or Hub id of a teacher, or several, as in a,b,c."
    )
    distillation_alpha: Part | None = option(
        None, "Share of the teachers in the loss; by default 0.5, and 1 for vectors."
    )
    distillation_temperature: Positive | None = option(
        None, "Temperature of the teachers' probabilities; 2 by default."
    )
    layerwise_lr_decay: float | None = option(
        None, "Learning rate factor from a layer to the one below."
    )
    head_learning_rate: float | None = option(
        None,
        "Learning rate of the heads; by default 100 times learning_rate for a pretrained encoder.",
    )
    freeze_layers: int | None = option(
        None, "Number of lowest layers to freeze together with the embeddings."
    )
    weight_averaging: Literal["ema", "swa"] | None = option(
        None, "Evaluate and save a moving (ema) or plain (swa) average of weights."
    )
    averaging_decay: float | None = option(
        None, "Weight of the old average in ema; 0.999 by default."
    )
    r_drop: float | None = option(None, "Weight of R-Drop's divergence between two passes.")
    smart: dict[str, Any] | None = option(
        None, "SMART: fields of SmartConfig, such as {weight: 1.0}."
    )
    lora: dict[str, Any] | None = option(None, "LoRA: fields of peft's LoraConfig, such as {r: 8}.")
    gradient_surgery: Literal["pcgrad"] | None = option(
        None, "How to resolve gradient conflicts of mixed tasks; null sums them."
    )

    def __post_init__(self) -> None:
        self.make_methods()
        if self.freeze_layers is not None and self.lora is not None:
            raise ValueError("freeze_layers and lora both choose what to train; give one of them")
        if self.averaging_decay is not None and self.weight_averaging != "ema":
            raise ValueError("averaging_decay has no effect without weight_averaging: ema")

    def make_methods(self) -> list[Method]:
        """Build the chosen methods in the order in which they apply; the others are not loaded.

        SMART wraps R-Drop: it perturbs the first of the two passes. Distillation, which comes
        before all, is made with its teachers.
        """
        methods: list[Method] = []
        if self.r_drop is not None:
            from .regularization import RDrop

            methods.append(RDrop(self.r_drop))
        if self.smart is not None:
            from .regularization import Smart, SmartConfig

            (keys,) = check_keys("smart", self.smart, SmartConfig)
            methods.append(Smart(SmartConfig(**keys)))
        if self.layerwise_lr_decay is not None or self.head_learning_rate is not None:
            from .layers import LayerwiseLearningRates

            decay = 1.0 if self.layerwise_lr_decay is None else self.layerwise_lr_decay
            methods.append(LayerwiseLearningRates(decay, self.head_learning_rate))
        if self.freeze_layers is not None:
            from .layers import FreezeLayers

            methods.append(FreezeLayers(self.freeze_layers))
        if self.weight_averaging is not None:
            from .averaging import WeightAveraging

            decay = 0.999 if self.averaging_decay is None else self.averaging_decay
            methods.append(WeightAveraging(self.weight_averaging, decay))
        if self.gradient_surgery is not None:
            from .gradient_surgery import GradientSurgery

            methods.append(GradientSurgery())
        return methods
