"""Which parameters train, and how fast: layers of the encoder, heads, and LoRA."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainingArguments

from datasets_scripts.checking import Positive, check_value
from trainers.files import find_inner

from .base import Method, OwnTrainer, refuse_sharding

HEAD = re.compile(r"(?:^|\.)heads\.")
LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")
# All layers share the bias by distance of MPNet.
BELOW_ALL = re.compile(r"(?:^|\.)(embeddings|relative_attention_bias)\.")


def _is_below(name: str, layers: int) -> bool:
    if HEAD.search(name):  # of a task that may be called "embeddings"
        return False
    if match := LAYER.search(name):
        return int(match[1]) < layers
    return BELOW_ALL.search(name) is not None


@dataclass
class FreezeLayers(Method):
    """Freeze the embeddings and the lowest layers, which stay so after the training.

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
        count = getattr(getattr(model, "config", None), "num_hidden_layers", None)
        if not isinstance(count, int):
            raise ValueError(  # noqa: TRY004  a setting does not suit the model
                "freeze_layers needs a model with encoder layers; the config of "
                f"{type(model).__name__} has no num_hidden_layers"
            )
        if self.layers > count:
            raise ValueError(
                f"freeze_layers={self.layers}, but the model has {count} layers; give at most that"
            )
        heads: Any = getattr(model, "heads", None)
        for task, head in heads.items() if hasattr(heads, "items") else ():
            spec: Any = getattr(head, "task", None)
            pooling = getattr(spec, "pooling", "pooler")  # tokens have none
            if pooling == "pooler" or any(True for _ in head.parameters()):
                continue
            above = spec.pooling_layer
            if self.layers >= (above if above >= 0 else count + 1 + above):
                raise ValueError(
                    f"task {task!r} has nothing to learn under freeze_layers: a cosine has no "
                    "weights; give it head: concat or a projection, or leave the key out"
                )
        found = {
            int(match[1]) for name, _ in model.named_parameters() if (match := LAYER.search(name))
        }
        if not found >= {*range(self.layers)}:
            raise ValueError(
                f"freeze_layers={self.layers}, but the layers of {type(model).__name__} are not "
                "named encoder.layer.0 and so on: freeze its parameters, or load it as a minBERT"
            )
        for name, value in model.named_parameters():
            if _is_below(name, self.layers):
                value.requires_grad = False


@dataclass
class HeadLearningRate(Method):
    """A learning rate of the heads: all parameters outside the base model.

    The pooler is part of the base model. A schedule multiplies both rates by the same factors.

    Args:
        rate: Learning rate of the heads, > 0.

    Raises:
        ValueError: If the rate is out of range.
    """

    rate: float

    def __post_init__(self) -> None:
        # null, in a recipe, is the default of a run
        check_value("", "head_learning_rate", self.rate, Positive | None)

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if not _find_heads(model):
            raise ValueError(
                f"head_learning_rate={self.rate!r}, but {type(model).__name__} has no parameters "
                "outside its base model; leave it out"
            )

    def attach(self, trainer: OwnTrainer) -> None:
        refuse_sharding(trainer, "head_learning_rate")

    def scale_optimizer(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Split the parameter groups of a new optimizer by rate.

        A schedule multiplies the rate of every group, so they keep their ratio. The groups of the
        heads come last: the Trainer logs the rate of the first.
        """
        heads = _find_heads(model)
        shared_groups, head_groups = [], []
        for group in optimizer.param_groups:
            shared = [value for value in group["params"] if id(value) not in heads]
            own = [value for value in group["params"] if id(value) in heads]
            if shared:
                shared_groups.append({**group, "params": shared})
            if own:
                head_groups.append({**group, "params": own, "lr": self.rate})
        optimizer.param_groups[:] = [*shared_groups, *head_groups]


def _find_heads(model: nn.Module) -> set[int]:
    base: Any = getattr(find_inner(model), "base_model", model)
    return {id(value) for value in model.parameters()} - {id(value) for value in base.parameters()}


# Keys of peft that wrap whole modules; their weights are not part of a plain checkpoint.
WRAPPED = ("modules_to_save", "trainable_token_indices")
# Others with which nothing trains, or the matrices cannot be merged.
UNMERGED = ("inference_mode", "layer_replication", "alora_invocation_tokens")


def add_lora(model: nn.Module, keys: Mapping[str, Any], *, trained: tuple[str, ...]) -> None:
    """Add LoRA to a model; only its matrices and the parts in ``trained`` train from then on.

    Args:
        model: The model, changed in place.
        keys: Fields of peft's ``LoraConfig``, such as ``r``, ``lora_alpha`` and ``lora_dropout``;
            ``target_modules`` are by default those of peft for BERT, the query and value of every
            layer, as in Hu et al. 2021, section 4.2; ModernBERT has one matrix for these and the
            key.
        trained: Name prefixes of other trainable parameters: the heads.

    Raises:
        ValueError: If peft is not installed, refuses a key, would wrap whole modules, or adapts a
            weight that two layers share.

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
    if given := [name for name in UNMERGED if keys.get(name)]:
        raise ValueError(
            f"lora: {given[0]}={keys[given[0]]!r} trains nothing that can be merged "
            "into the weights; leave it out"
        )
    rank, most = keys.get("r"), getattr(getattr(model, "config", None), "hidden_size", None)
    if isinstance(rank, int) and most is not None and rank > most:
        raise ValueError(f"lora: r={rank} is more than the hidden size, {most}")
    try:
        inject_adapter_in_model(LoraConfig(**keys), model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"lora: {error}") from None
    refuse_tied(model)
    for name, value in model.named_parameters():
        if name.startswith(trained):
            value.requires_grad = True


def refuse_tied(model: nn.Module) -> None:
    """Refuse adapters of a weight that several layers share: merging changes them all."""
    layers: dict[int, list[str]] = {}  # of each weight
    for name, value in model.named_parameters(remove_duplicate=False):
        layers.setdefault(id(value), []).append(name.removesuffix(".weight"))
    for names in layers.values():
        if len(names) > 1 and any(name.endswith(".base_layer") for name in names):
            shown = " and ".join(name.removesuffix(".base_layer") for name in names)
            raise ValueError(
                f"lora: {shown} share one weight, into which the adapter of one cannot be merged; "
                "leave them out of target_modules"
            )


def merge_lora(model: nn.Module) -> None:
    """Merge the LoRA matrices into the weights and remove them, if there are any.

    Afterwards all weights are trainable, and the model is saved like any other.
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
    vars(model).pop("_hf_peft_config_loaded", None)  # of one that transformers has loaded
    for value in model.parameters():
        value.requires_grad = True
