"""What a model offers to the trainer, also behind a wrapper, such as that of peft."""

from inspect import Parameter, signature

from torch import nn
from transformers import PreTrainedModel


def find_inner(model: nn.Module) -> nn.Module:
    """Return the model of transformers that ``model`` is or wraps; without one, ``model``."""
    wrapped = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    return next(wrapped, model)


def takes_task(model: nn.Module) -> bool:
    """Tell whether the forward pass has an argument ``task``, which a wrapper must pass on."""
    outer = signature(model.forward).parameters
    passes_on = any(each.kind is Parameter.VAR_KEYWORD for each in outer.values())
    inner = signature(find_inner(model).forward).parameters
    return "task" in outer or (passes_on and "task" in inner)
