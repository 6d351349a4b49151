"""LoRA: small trainable matrices instead of the encoder's weights."""

from collections.abc import Mapping
from typing import Any

from torch import nn

# Keys of peft that wrap whole modules; their weights are not part of a plain checkpoint.
WRAPPED = ("modules_to_save", "trainable_token_indices")


def add_lora(model: nn.Module, keys: Mapping[str, Any], *, trained: tuple[str, ...]) -> None:
    """Add LoRA to a model; only its matrices and the parts in ``trained`` train from then on.

    Args:
        model: The model, changed in place.
        keys: Fields of peft's ``LoraConfig``, such as ``r``, ``lora_alpha`` and ``lora_dropout``;
            ``target_modules`` are by default those of peft for BERT, the query and value of every
            layer, as in Hu et al. 2021, section 4.2.
        trained: Name prefixes of other trainable parameters: the heads.

    Raises:
        ValueError: If peft is not installed, refuses a key, or would wrap whole modules.

    Source: Hu et al. 2021, section 4.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ValueError("lora needs the package peft: pip install peft") from None
    if given := [name for name in WRAPPED if keys.get(name)]:
        raise ValueError(
            f"lora: {given[0]}={keys[given[0]]!r} would be missing from the saved weights; the "
            "heads and the pooler train anyway, leave it out"
        )
    rank, most = keys.get("r"), getattr(getattr(model, "config", None), "hidden_size", None)
    if isinstance(rank, int) and most is not None and rank > most:
        raise ValueError(f"lora: r={rank} is more than the hidden size, {most}")
    try:
        inject_adapter_in_model(LoraConfig(**keys), model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"lora: {error}") from None
    for name, value in model.named_parameters():
        if name.startswith(trained):
            value.requires_grad = True


def merge_lora(model: nn.Module) -> None:
    """Merge the LoRA matrices into the weights and remove them, if there are any.

    Afterwards all weights are trainable, and the model is saved like any other.

    Args:
        model: The model.
    """
    if not hasattr(model, "peft_config"):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.get_base_layer())
    del model.peft_config
    for value in model.parameters():
        value.requires_grad = True
