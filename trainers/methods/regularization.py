"""R-Drop and SMART: predictions should not change with small changes of the input.

Both compare predictions by the model's ``divergence``.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import TrainerState, TrainingArguments

from datasets_scripts.checking import Positive, check_fields, check_value, whole_number
from trainers.methods.base import Batch, ComputeLoss, Method, StepLoss, refuse_sharding
from trainers.problems import PROBLEMS

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

logger = logging.getLogger(__name__)


class Regularizer(Method):
    """A method that adds a divergence between predictions to the loss of some tasks."""

    key: ClassVar[str]
    """Key of a recipe that turns it on."""
    model: Any
    tasks: frozenset[str] = frozenset()

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        # a second pass would write to buffers that the first still needs
        args.ddp_broadcast_buffers = False
        self.model = model

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        refuse_sharding(trainer, self.key)
        self.trainer = trainer
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

    def count_terms(self, task: str, inputs: Batch) -> dict[str, int | Tensor]:
        return {"rows": len(inputs["labels"])} if task in self.tasks else {}


# Keeps the gradient of a tiny divergence away from zero in half precision.
SCALE = 2.0**16


@dataclass(frozen=True, kw_only=True)
class SmartConfig:
    """Settings of SMART.

    The change is added to the output of the embeddings, after layer norm and dropout. All passes
    have the same dropout masks: without a change the divergence is 0.

    The change is noise plus gradient steps, each scaled to ``step_size`` in its largest element per
    sequence and clipped to ``epsilon``. Sizes are in units of the root mean square of the
    embeddings. The absolute values of the paper, 1e-5 and 1e-3, give a divergence of about 1e-8;
    the default here is larger. The authors' public code neither scales nor clips the steps as the
    paper does: its change is close to random noise.

    Args:
        weight: Weight of the smoothness term, lambda in the paper.
        epsilon: Largest change of an element.
        noise: Standard deviation of the initial noise.
        step_size: Size of a gradient step.
        steps: Number of gradient steps.

    Raises:
        ValueError: If a value is out of range.

    Source: Jiang et al. 2020, section 3.1.
    """

    weight: Positive = 1.0
    epsilon: Positive = 0.1
    noise: Positive = 1e-5
    step_size: Positive = 0.1
    steps: Annotated[int, whole_number(1, 10_000)] = 1

    def __post_init__(self) -> None:
        check_fields(self, "smart")


def unlabeled(inputs: Batch) -> dict[str, Any]:
    """Remove the labels from a batch: a pass without them computes no loss."""
    return {name: value for name, value in inputs.items() if name != "labels"}


@contextmanager
def whole_precision(model: Any) -> Iterator[None]:
    """Compute in the precision of the weights, without the autocast of mixed precision.

    bfloat16 rounds a change of 1e-5 away: for many rows divergence and gradient would be 0.
    """
    # the forward that accelerate has wrapped in autocast, if it has
    original, wrapped = vars(model).get("_original_forward"), model.forward
    if original is None:
        yield
        return
    model.forward = original
    try:
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            yield
    finally:
        model.forward = wrapped


class DropoutReplay:
    """Repeats the dropout masks that are drawn on a device after this object is made."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._module: Any = torch.get_device_module(device)
        self._devices = [device] if device.type != "cpu" else []
        self._state = torch.get_rng_state()
        self._states = [self._module.get_rng_state(device) for device in self._devices]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same random numbers again, and restore the random state afterwards."""
        with torch.random.fork_rng(self._devices, device_type=self._kind):
            torch.set_rng_state(self._state)
            for device, state in zip(self._devices, self._states, strict=True):
                self._module.set_rng_state(state, device)
            yield


@contextmanager
def perturbed(model: nn.Module, change: Tensor | None, seen: list[Tensor]) -> Iterator[None]:
    """Record the output of the embeddings, (..., D), in ``seen``, and add a change to it."""
    embeddings: Any = model.base_model.embeddings  # type: ignore[union-attr]

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:  # noqa: ARG001
        seen.append(output.detach())
        return output if change is None else output + change.to(output.dtype)

    handle = embeddings.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def take_steps(
    config: SmartConfig,
    embeddings: Tensor,
    sequences: Tensor,
    noise: Tensor,
    gradient_at: Callable[[Tensor], Tensor],
) -> Tensor:
    """Search for the change of embeddings, (T, D), that changes predictions most.

    ``sequences`` are those of the tokens, (T,), -1 for padding, which is not changed, and ``noise``
    standard normal numbers, (T, D). ``gradient_at`` returns the gradient of the divergence.
    """
    real = (sequences >= 0).unsqueeze(1)
    index, count = sequences.clamp(min=0), int(sequences.max()) + 1
    kept = embeddings.float().masked_fill(~real, 0)
    unit = (kept.square().sum() / (real.sum() * embeddings.shape[1])).sqrt()
    limit = config.epsilon * unit
    change = (noise * config.noise * unit).masked_fill(~real, 0)
    for _ in range(config.steps):
        gradient = gradient_at(change).float().masked_fill(~real, 0)
        by_token = gradient.abs().amax(dim=1)
        largest = by_token.new_zeros(count).scatter_reduce(0, index, by_token, "amax")[index]
        step = gradient / largest.unsqueeze(1).clamp(min=torch.finfo(gradient.dtype).tiny)
        change = (change + config.step_size * unit * step).clamp(-limit, limit)
    return change


def number_sequences(inputs: Batch) -> Tensor:
    """Return the sequence of each token of a batch, packed or padded; -1 for padding."""
    ids = inputs["input_ids"]
    bounds = inputs.get("cu_seq_lens_q")
    if bounds is not None:
        places = torch.arange(ids.numel(), device=ids.device)
        sequences = torch.searchsorted(bounds.to(places.dtype), places, right=True) - 1
        return sequences.masked_fill(places >= bounds[-1], -1).view(ids.shape)
    rows = ids.flatten(0, -2)
    sequences = torch.arange(len(rows), device=ids.device).unsqueeze(1).expand(rows.shape)
    mask = inputs.get("attention_mask")
    return sequences if mask is None else sequences.masked_fill(mask.flatten(0, -2) == 0, -1)


@dataclass
class Smart(Regularizer):
    """SMART (Jiang et al. 2020): predictions that change little with the embeddings.

    It leaves the random state as it was: dropout masks are those of a run without SMART.
    """

    config: SmartConfig = field(default_factory=SmartConfig)
    key = "smart"

    def prepare(self, model: Any, args: TrainingArguments) -> None:
        super().prepare(model, args)
        self.seed = (args.seed, args.process_index)
        if args.n_gpu > 1:
            raise ValueError(
                f"smart needs one process for each of the {args.n_gpu} GPUs; start it with "
                "`accelerate launch --multi_gpu`, or show it one with CUDA_VISIBLE_DEVICES"
            )

    def begin(self) -> None:
        self.batches = 0

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        if task not in self.tasks:
            return compute()
        self.batches += 1  # distinguishes the batches of one optimizer step
        embeddings: list[Tensor] = []
        replay = DropoutReplay(inputs["input_ids"].device)
        with perturbed(self.model, None, embeddings):
            step = compute()
        divergence = self._smoothness(inputs, step.outputs.logits, embeddings[0], replay)
        loss = step.loss + self.config.weight * divergence * step.weigh("rows")
        facts = step.facts | {"smart_divergence": divergence.detach()}
        return replace(step, loss=loss, facts=facts)

    def _smoothness(
        self, inputs: Batch, logits: Tensor, embeddings: Tensor, replay: DropoutReplay
    ) -> Tensor:
        """Compute how much a small change of the embeddings, (..., D), changes the predictions.

        ``replay`` repeats the dropout masks of the pass without a change, which has the logits.
        """
        model, shape = self.model, embeddings.shape
        given, target = unlabeled(inputs), logits.detach()
        if "_original_forward" in vars(model):
            with torch.no_grad(), replay.again(), whole_precision(model):
                target = model(**given).logits
        sequences = number_sequences(inputs).flatten()
        if len(sequences) != shape[:-1].numel():  # the model takes padding out by itself
            sequences = sequences[sequences >= 0]

        def gradient_at(change: Tensor) -> Tensor:
            change = change.detach().requires_grad_()
            with replay.again(), whole_precision(model), perturbed(model, change.view(shape), []):
                moved = model(**given).logits
            divergence = SCALE * model.divergence(inputs["task"], moved, target)
            (gradient,) = torch.autograd.grad(divergence, change)
            return torch.nan_to_num(gradient / SCALE)

        # a function of the step alone, also in a resumed run
        key = (*self.seed, self.trainer.state.global_step, self.batches)
        state = np.random.SeedSequence(key).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        noise = torch.randn(shape, generator=generator).to(embeddings.device)
        flat = (embeddings.flatten(0, -2), sequences, noise.flatten(0, -2))
        change = take_steps(self.config, *flat, gradient_at)
        with replay.again(), perturbed(model, change.detach().view(shape), []):
            moved = model(**given).logits
        divergence: Tensor = model.divergence(inputs["task"], moved, logits)
        return divergence

    def after_step(self, state: TrainerState) -> None:
        self.batches = 0


@dataclass
class RDrop(Regularizer):
    """R-Drop (Wu et al. 2021, section 2.2).

    The loss is the mean over both passes, plus ``alpha`` times half of the symmetric divergence
    between them. This is the mean of the published code; the paper has the sum, which is twice
    that with twice the alpha.

    Args:
        alpha: Weight of the divergence, > 0; 0.5 to 5 in the paper.

    Raises:
        ValueError: If alpha is not a number > 0.
    """

    alpha: float = 1.0
    key = "r_drop"

    def __post_init__(self) -> None:
        check_value("r_drop", "alpha", self.alpha, Positive)

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        if task not in self.tasks:
            return compute()
        first, second = compute(), compute()
        divergence = self.model.divergence(task, first.outputs.logits, second.outputs.logits)
        weighted = divergence * first.weigh("rows")
        loss = (first.loss + second.loss) / 2 + self.alpha / 2 * weighted
        facts = first.facts | {"rdrop_divergence": divergence.detach()}
        return replace(first, loss=loss, facts=facts)
