"""Layers of the encoder: their parameters and rates, freezing, and gradual unfreezing."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerState, TrainingArguments

from datasets_scripts.checking import Positive, check_value
from trainers.files import find_inner

from .base import Method, refuse_sharding

UNFREEZE_KEY = "unfreeze_layer_every"

EMBEDDINGS = -1
HEAD = re.compile(r"(?:^|\.)heads\.")
LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")


def layer_of(name: str, num_layers: int) -> int:
    """Return the layer of a parameter: `EMBEDDINGS`, 0 and up, ``num_layers`` above the layers."""
    if HEAD.search(name):  # of a task that may be called "embeddings"
        return num_layers
    if match := LAYER.search(name):
        return int(match[1])
    return EMBEDDINGS if re.search(r"(?:^|\.)embeddings\.", name) else num_layers


def freeze_below(model: nn.Module, layer: int) -> None:
    """Train only from this layer on; -1 for all, the number of layers for heads and pooler."""
    count = count_layers(model, "freeze_layers")
    if layer > count:
        raise ValueError(
            f"freeze_layers={layer}, but the model has {count} layers; give at most that"
        )
    for name, value in model.named_parameters():
        value.requires_grad = layer_of(name, count) >= layer


def count_layers(model: nn.Module, key: str) -> int:
    """Return the number of encoder layers; ``key`` is the argument that needs it, for errors."""
    count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if not isinstance(count, int):
        raise ValueError(  # noqa: TRY004  a setting does not suit the model
            f"{key} needs a model with encoder layers; the config of {type(model).__name__} has no "
            "num_hidden_layers"
        )
    return count


@dataclass
class FreezeLayers(Method):
    """Freeze the embeddings and the lowest layers.

    Args:
        layers: Number of layers to freeze, >= 0.

    Raises:
        ValueError: If it is negative.
    """

    layers: int

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ValueError(f"freeze_layers={self.layers}; expected 0 or more")

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        check_trainable(model, self.layers, "freeze_layers")
        freeze_below(model, self.layers)


@dataclass
class GradualUnfreezing(Method):
    """Unfreeze one more layer every few epochs, from the top down.

    Heads and pooler train from the start, the embeddings last. Which layers train is a function of
    the epoch alone, so a resumed run continues identically. All parameters are in the optimizer;
    it skips those without a gradient, including their weight decay.

    Args:
        epochs: Epochs between two layers, > 0; may be a fraction.

    Raises:
        ValueError: If it is not > 0.

    Source: Howard and Ruder 2018, section 3.3.
    """

    epochs: float

    def __post_init__(self) -> None:
        self.unfrozen: int | None = None
        if not self.epochs > 0:
            raise ValueError(f"{UNFREEZE_KEY}={self.epochs!r}; expected a number of epochs > 0")

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        check_trainable(model, count_layers(model, UNFREEZE_KEY), UNFREEZE_KEY)

    def attach(self, trainer: Any) -> None:
        self.model: nn.Module = trainer.model
        self.unfrozen = None

    def before_step(self, state: TrainerState) -> None:
        unfrozen = int((state.epoch or 0.0) / self.epochs + 1e-9)
        if unfrozen != self.unfrozen:
            self.unfrozen = unfrozen
            freeze_below(self.model, count_layers(self.model, UNFREEZE_KEY) - unfrozen)

    def finish(self) -> None:
        self.unfrozen = None
        self.model.requires_grad_(requires_grad=True)


def check_trainable(model: nn.Module, layer: int, key: str) -> None:
    """Check that every task has trainable weights from this layer on; ``key`` freezes the rest."""
    count = count_layers(model, key)
    heads: Any = getattr(model, "heads", None)
    for task, head in heads.items() if hasattr(heads, "items") else ():
        spec = getattr(head, "task", None)
        if spec is None or spec.pooling == "pooler" or any(True for _ in head.parameters()):
            continue
        above = spec.pooling_layer
        if layer >= (above if above >= 0 else count + 1 + above):
            raise ValueError(
                f"task {task!r} has nothing to learn under {key}: a cosine has no weights; give "
                "it head: concat or projection: always, or leave the key out"
            )


KEY = "layerwise_lr_decay"
HEAD_KEY = "head_learning_rate"


@dataclass
class LayerwiseLearningRates(Method):
    """Layer-wise learning rate decay (Sun et al. 2020, section 5.3.3), and a rate for the heads.

    Heads are all parameters outside the base model, such as those of the tasks; the pooler is part
    of the base model. A schedule multiplies both rates by the same factors.

    Args:
        decay: Factor from a layer to the one below, in (0, 1].
        decay_embeddings: Whether the embeddings count as the layer below the first, as in ELECTRA
            (Clark et al. 2020, appendix A). Otherwise they have the full rate, as in the code of
            Sun et al.
        head_learning_rate: Learning rate of the heads, > 0; None for that of the top layer.

    Raises:
        ValueError: If a value is out of range.
    """

    decay: float = 1.0
    decay_embeddings: bool = True
    head_learning_rate: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ValueError(f"{KEY}={self.decay!r}; expected in (0, 1]")
        check_value("", HEAD_KEY, self.head_learning_rate, Positive | None)

    def factors(self, model: nn.Module) -> dict[str, float]:
        """Return the learning rate factor of each parameter; from the top layer up it is 1."""
        count = count_layers(model, KEY)
        factors = {}
        for name, _ in model.named_parameters():
            layer = layer_of(name, count)
            if layer == EMBEDDINGS and not self.decay_embeddings:
                layer = count
            factors[name] = self.decay ** (count - 1 - min(layer, count - 1))
        return factors

    def heads(self, model: nn.Module) -> set[str]:
        """Return the names of the parameters with a rate of their own."""
        if self.head_learning_rate is None:
            return set()
        base: Any = getattr(find_inner(model), "base_model", model)
        shared = {id(value) for value in base.parameters()}
        return {name for name, value in model.named_parameters() if id(value) not in shared}

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        count_layers(model, KEY if self.head_learning_rate is None else HEAD_KEY)
        if self.head_learning_rate is not None and not self.heads(model):
            raise ValueError(
                f"{HEAD_KEY}={self.head_learning_rate!r}, but {type(model).__name__} has no "
                "parameters outside its base model; leave it out"
            )

    def attach(self, trainer: Any) -> None:
        refuse_sharding(trainer, KEY if self.head_learning_rate is None else HEAD_KEY)
        self.trainer = trainer

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Split the parameter groups of a new optimizer by rate.

        A schedule multiplies the rate of every group, so factors persist. The groups with the
        largest rate come first, and heads with a rate of their own last: the Trainer logs the rate
        of the first.
        """
        factors, heads = self.factors(model), self.heads(model)
        # by the id of a parameter: whether it has the rate of the heads, and its factor if not
        place_of = {
            id(value): (True, 0.0) if name in heads else (False, -factors[name])
            for name, value in model.named_parameters()
        }
        groups = []
        for group in optimizer.param_groups:
            for place in sorted({place_of[id(value)] for value in group["params"]}):
                own = [value for value in group["params"] if place_of[id(value)] == place]
                is_head, factor = place[0], -place[1]
                rate = self.head_learning_rate if is_head else group["lr"] * factor
                groups.append((place, {**group, "params": own, "lr": rate}))
        groups.sort(key=lambda placed: placed[0])
        optimizer.param_groups[:] = [group for _, group in groups]

    def describe(self) -> str:
        if self.decay == 1:
            return ""
        model, rate = self.trainer.model, self.trainer.args.learning_rate
        count, factors, heads = count_layers(model, KEY), self.factors(model), self.heads(model)
        sizes: dict[tuple[int, float], int] = {}
        for name, value in model.named_parameters():
            own = (count + 1, 0.0) if name in heads else (layer_of(name, count), factors[name])
            sizes[own] = sizes.get(own, 0) + value.numel() * value.requires_grad
        above = "pooler" if heads else "pooler, heads"
        titles = {EMBEDDINGS: "embeddings", count: above, count + 1: "heads"}
        lines = [f"{'layer':<15}{'factor':>8}{'learning rate':>15}{'parameters':>14}"]
        for (layer, factor), size in sorted(sizes.items(), reverse=True):
            title = titles.get(layer, f"layer {layer}")
            shown, own_rate = f"{factor:.4f}", rate * factor
            if layer > count:
                shown, own_rate = "", self.head_learning_rate
            lines.append(f"{title:<15}{shown:>8}{own_rate:>15.3e}{size:>14,}")
        return "\n".join(lines)


@dataclass
class ExponentialDecay(Method):
    """Multiply the learning rate by a factor after every epoch; replaces ``lr_scheduler_type``.

    Warmup stays.

    Args:
        gamma: The factor, in (0, 1].

    Raises:
        ValueError: If it is out of range.
    """

    gamma: float

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"exponential_lr_gamma={self.gamma!r}; expected in (0, 1]")

    def make_scheduler(
        self, optimizer: Optimizer, *, steps_per_epoch: int, warmup_steps: int
    ) -> LambdaLR:
        factor = partial(
            exponential_factor,
            gamma=self.gamma,
            steps_per_epoch=steps_per_epoch,
            warmup_steps=warmup_steps,
        )
        return LambdaLR(optimizer, factor)


def exponential_factor(
    step: int, *, gamma: float, steps_per_epoch: int, warmup_steps: int
) -> float:
    """Return the factor at a step: linear warmup times ``gamma`` for every finished epoch."""
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return warmup * gamma ** (step // steps_per_epoch)
