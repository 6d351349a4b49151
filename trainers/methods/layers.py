"""Layers of an encoder: their learning rates, and which of them learn."""

import re
from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

EMBEDDINGS = -1
HEAD = re.compile(r"(?:^|\.)heads\.")
LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")


def layer_of(name: str, num_layers: int) -> int:
    """Find the layer of a parameter by the names that BERT gives them.

    Args:
        name: Name of the parameter in its model.
        num_layers: Layers of the encoder.

    Returns:
        `EMBEDDINGS`, 0 to ``num_layers - 1``, or ``num_layers`` for all that comes after them:
        pooler and heads.
    """
    if HEAD.search(name):  # of a task that may be called "embeddings"
        return num_layers
    if found := LAYER.search(name):
        return int(found[1])
    return EMBEDDINGS if re.search(r"(?:^|\.)embeddings\.", name) else num_layers


def learning_rate_factors(
    model: nn.Module, decay: float, *, decay_embeddings: bool = True
) -> dict[str, float]:
    """Give every parameter the factor on the learning rate that its layer has.

    The top layer and what comes after it have 1, every layer below ``decay`` times that of the
    layer above.

    Args:
        model: A model with a ``config.num_hidden_layers``, and BERT's names.
        decay: Factor from a layer to the one below, in (0, 1].
        decay_embeddings: Whether the embeddings are one below the first layer, as in ELECTRA
            (Clark et al. 2020, appendix A). Otherwise they have 1, as in the code of Sun et al.

    Returns:
        Name of a parameter to its factor.

    Raises:
        ValueError: If the decay is out of range, or the model has no such layers.

    Source: Sun et al. 2020, section 5.3.3.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"layerwise_lr_decay={decay!r}; expected in (0, 1]")
    count = count_layers(model, "layerwise_lr_decay")
    factors = {}
    for name, _ in model.named_parameters():
        layer = layer_of(name, count)
        if layer == EMBEDDINGS and not decay_embeddings:
            layer = count
        factors[name] = decay ** (count - 1 - min(layer, count - 1))
    return factors


def scale_learning_rates(optimizer: Optimizer, model: nn.Module, factors: dict[str, float]) -> None:
    """Cut the groups of a new optimizer by the factors of their parameters.

    A schedule multiplies the rate of every group, so factors stay what they are. The groups with
    the largest rate come first: the Trainer logs the rate of the first.

    Args:
        optimizer: Without a state yet.
        model: The model whose parameters it has.
        factors: Name of a parameter to its factor.
    """
    of_parameter = {id(value): factors[name] for name, value in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        found = sorted({of_parameter[id(value)] for value in group["params"]}, reverse=True)
        for factor in found:
            own = [value for value in group["params"] if of_parameter[id(value)] == factor]
            groups.append({**group, "params": own, "lr": group["lr"] * factor})
    groups.sort(key=lambda group: -group["lr"])
    optimizer.param_groups[:] = groups


def describe_learning_rates(model: nn.Module, factors: dict[str, float], rate: float) -> str:
    """Show the learning rate of every layer as a table, from the top down.

    Args:
        model: The model.
        factors: Name of a parameter to its factor.
        rate: Learning rate of the top.
    """
    count = count_layers(model, "layerwise_lr_decay")
    rows: dict[tuple[int, float], int] = {}
    for name, value in model.named_parameters():
        key = (layer_of(name, count), factors[name])
        rows[key] = rows.get(key, 0) + value.numel() * value.requires_grad
    titles = {EMBEDDINGS: "embeddings", count: "pooler, heads"}
    lines = [f"{'layer':<15}{'factor':>8}{'learning rate':>15}{'parameters':>14}"]
    for (layer, factor), size in sorted(rows.items(), reverse=True):
        title = titles.get(layer, f"layer {layer}")
        lines.append(f"{title:<15}{factor:>8.4f}{rate * factor:>15.3e}{size:>14,}")
    return "\n".join(lines)


class GradualUnfreezing(TrainerCallback):
    """Let one layer more learn after every so many epochs, from the top down.

    Heads and pooler learn from the start, the embeddings last. Which layers learn is a function of
    the epoch alone, so that a resumed run goes on alike. All parameters are in the optimizer; those
    without a gradient are left as they are, by weight decay, too.

    Args:
        epochs: Epochs between two layers, above 0; below 1 it happens within an epoch.

    Raises:
        ValueError: If it is not above 0.

    Source: Howard and Ruder 2018, section 3.3.
    """

    def __init__(self, epochs: float) -> None:
        if not epochs > 0:
            raise ValueError(f"unfreeze_layer_every={epochs!r}; expected a number of epochs > 0")
        self.epochs = epochs
        self._learning: int | None = None

    def on_step_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002  the signature of TrainerCallback
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Choose the layers of this step."""
        model = kwargs["model"]
        learning = int((state.epoch or 0.0) / self.epochs + 1e-9)
        if learning != self._learning:
            self._learning = learning
            freeze_below(model, count_layers(model, "unfreeze_layer_every") - learning)

    def on_train_end(
        self,
        args: TrainingArguments,  # noqa: ARG002  the signature of TrainerCallback
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Leave nothing frozen behind."""
        self._learning = None
        for value in kwargs["model"].parameters():
            value.requires_grad = True


def check_learning(model: nn.Module, layer: int, name: str) -> None:
    """Check that every task has something to learn if only the layers from this one on do.

    Args:
        model: A model with BERT's names; only ``MinBertForMultiTask`` has tasks to check.
        layer: As that of `freeze_below`.
        name: The argument that freezes the others.

    Raises:
        ValueError: If all that a task reads is frozen, and its head has no weights.
    """
    count = count_layers(model, name)
    heads = getattr(model, "heads", None)
    for task, head in heads.items() if isinstance(heads, nn.ModuleDict) else ():
        spec = getattr(head, "task", None)
        pooling = getattr(spec, "pooling", None)
        if spec is None or pooling == "pooler" or any(True for _ in head.parameters()):
            continue
        above = spec.pooling_layer
        if layer >= (above if above >= 0 else count + 1 + above):
            raise ValueError(
                f"task {task!r} has nothing to learn under {name}: a cosine has no weights; give "
                "it head: concat or projection: always, or leave the key out"
            )


def freeze_below(model: nn.Module, layer: int) -> None:
    """Let only the layers from this one on learn.

    Args:
        model: A model with BERT's names.
        layer: The lowest layer that learns; -1 for all with the embeddings, the number of layers
            for heads and pooler alone.

    Raises:
        ValueError: If the model has fewer layers.
    """
    count = count_layers(model, "freeze_layers")
    if layer > count:
        raise ValueError(
            f"freeze_layers={layer}, but the model has {count} layers; give at most that"
        )
    for name, value in model.named_parameters():
        value.requires_grad = layer_of(name, count) >= layer


def count_layers(model: nn.Module, flag: str) -> int:
    """Count the layers of the encoder of a model, for what a flag asks for.

    Raises:
        ValueError: If the model does not say how many it has.
    """
    count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if not isinstance(count, int):
        raise ValueError(  # noqa: TRY004  what a user asked for does not go with his model
            f"{flag} needs a model with encoder layers; {type(model).__name__} names no "
            "num_hidden_layers"
        )
    return count
