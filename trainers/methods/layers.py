"""Which layer of the encoder a parameter belongs to."""

import re

from torch import nn

EMBEDDINGS = -1
HEAD = re.compile(r"(?:^|\.)heads\.")
LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")


def layer_of(name: str, num_layers: int) -> int:
    """Return the layer of a parameter, from its name in BERT.

    Args:
        name: Name of the parameter in its model.
        num_layers: Layers of the encoder.

    Returns:
        `EMBEDDINGS`, 0 to ``num_layers - 1``, or ``num_layers`` for everything above: pooler and
        heads.
    """
    if HEAD.search(name):  # of a task that may be called "embeddings"
        return num_layers
    if match := LAYER.search(name):
        return int(match[1])
    return EMBEDDINGS if re.search(r"(?:^|\.)embeddings\.", name) else num_layers


def freeze_below(model: nn.Module, layer: int) -> None:
    """Train only the layers from this one on.

    Args:
        model: A model with parameter names of BERT.
        layer: The lowest trainable layer; -1 for all including the embeddings, the number of
            layers for heads and pooler only.

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


def count_layers(model: nn.Module, key: str) -> int:
    """Return the number of encoder layers of a model.

    Args:
        model: The model.
        key: The argument that needs it, for errors.

    Raises:
        ValueError: If the configuration has no ``num_hidden_layers``.
    """
    count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if not isinstance(count, int):
        raise ValueError(  # noqa: TRY004  a setting does not suit the model
            f"{key} needs a model with encoder layers; the config of {type(model).__name__} has no "
            "num_hidden_layers"
        )
    return count
