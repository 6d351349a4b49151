"""LoRA: small matrices that learn in the place of the encoder's weights."""

from collections.abc import Mapping
from typing import Any

from torch import nn

# In every layer, as in Hu et al. 2021, section 4.2.
TARGETS = ("query", "value")
# What peft trains beside its matrices in wrappers of its own, which no plain checkpoint has.
WRAPPED = ("modules_to_save", "trainable_token_indices")


def add_lora(model: nn.Module, keys: Mapping[str, Any], *, trained: tuple[str, ...]) -> None:
    """Put LoRA into a model; only that and some other parts learn from then on.

    Args:
        model: The model, which stays the same object.
        keys: Fields of peft's ``LoraConfig``, such as ``r``, ``lora_alpha`` and ``lora_dropout``;
            ``target_modules`` are by default the query and value of every layer.
        trained: Beginnings of the names of what else learns: the heads.

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
            f"lora: {given[0]}={keys[given[0]]!r} would not get into the saved weights; the heads "
            "and the pooler learn anyway, leave it out"
        )
    try:
        config = LoraConfig(**{"target_modules": list(TARGETS), **keys})
        inject_adapter_in_model(config, model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"lora: {error}") from None
    for name, value in model.named_parameters():
        if name.startswith(trained):
            value.requires_grad = True


def merge_lora(model: nn.Module) -> None:
    """Add what LoRA has learnt to the weights, and take it out of the model.

    Afterwards all weights can learn, and the model is saved as any other. Without LoRA nothing is
    done.

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
