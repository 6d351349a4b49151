"""Teachers that run during training, but are not trained."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

# A teacher, or a function that loads it when training starts.
Frozen: TypeAlias = nn.Module | Callable[[], nn.Module]


def load_frozen(given: Frozen, device: torch.device) -> nn.Module:
    """Return a teacher on a device, in evaluation mode.

    Loading a model draws random numbers, but the student draws the same ones as without it.
    """
    with torch.random.fork_rng(devices=[]):
        model = given if isinstance(given, nn.Module) else given()
    return model.to(device).eval()
