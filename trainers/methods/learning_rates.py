"""Learning rates by layer, of the heads, and by epoch."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments

from trainers.options import is_positive
from trainers.wrapped_models import find_inner

from .base import Method, refuse_sharding
from .layers import EMBEDDINGS, count_layers, layer_of

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
        if self.head_learning_rate is not None and not is_positive(self.head_learning_rate):
            raise ValueError(f"{HEAD_KEY}={self.head_learning_rate!r}; expected a number > 0")

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
