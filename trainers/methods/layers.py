"""Layers of the encoder: which parameters they have, freezing, and gradual unfreezing."""

import re
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import TrainerState, TrainingArguments

from .base import Method

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
