"""Learning rates by layer: each layer learns more slowly than the one above it."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainingArguments

from .base import Method, refuse_sharding
from .layers import EMBEDDINGS, count_layers, layer_of

KEY = "layerwise_lr_decay"


@dataclass
class LayerwiseLearningRates(Method):
    """Layer-wise learning rate decay (Sun et al. 2020, section 5.3.3).

    Args:
        decay: Factor from a layer to the one below, in (0, 1].
        decay_embeddings: Whether the embeddings count as the layer below the first, as in ELECTRA
            (Clark et al. 2020, appendix A). Otherwise they have the full rate, as in the code of
            Sun et al.

    Raises:
        ValueError: If the decay is out of range.
    """

    decay: float
    decay_embeddings: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ValueError(f"{KEY}={self.decay!r}; expected in (0, 1]")

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

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        count_layers(model, KEY)

    def attach(self, trainer: Any) -> None:
        refuse_sharding(trainer, KEY)
        self.trainer = trainer

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Split the parameter groups of a new optimizer by factor.

        A schedule multiplies the rate of every group, so factors persist. The groups with the
        largest rate come first: the Trainer logs the rate of the first.
        """
        factors = self.factors(model)
        factor_of = {id(value): factors[name] for name, value in model.named_parameters()}
        groups = []
        for group in optimizer.param_groups:
            for factor in sorted({factor_of[id(value)] for value in group["params"]}, reverse=True):
                own = [value for value in group["params"] if factor_of[id(value)] == factor]
                groups.append({**group, "params": own, "lr": group["lr"] * factor})
        groups.sort(key=lambda group: -group["lr"])
        optimizer.param_groups[:] = groups

    def describe(self) -> str:
        model, rate = self.trainer.model, self.trainer.args.learning_rate
        count, factors = count_layers(model, KEY), self.factors(model)
        sizes: dict[tuple[int, float], int] = {}
        for name, value in model.named_parameters():
            row = (layer_of(name, count), factors[name])
            sizes[row] = sizes.get(row, 0) + value.numel() * value.requires_grad
        titles = {EMBEDDINGS: "embeddings", count: "pooler, heads"}
        lines = [f"{'layer':<15}{'factor':>8}{'learning rate':>15}{'parameters':>14}"]
        for (layer, factor), size in sorted(sizes.items(), reverse=True):
            title = titles.get(layer, f"layer {layer}")
            lines.append(f"{title:<15}{factor:>8.4f}{rate * factor:>15.3e}{size:>14,}")
        return "\n".join(lines)
