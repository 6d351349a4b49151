"""What counts as vectors."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def as_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors, and make them a tensor.

    Args:
        given: (n, D): a tensor, an array, or a list of either.
        name: What they are called in a message.

    Returns:
        Float32, or float64 if they were that, on the device where they were.

    Raises:
        ValueError: If there are none, they are no table of numbers, or one is not finite.
    """
    if isinstance(given, list | tuple) and given and isinstance(given[0], Tensor):
        given = torch.stack(list(given))
    vectors = torch.as_tensor(given).detach()
    if not len(vectors.shape) or not len(vectors):
        raise ValueError(f"{name}: there are none; at least one is needed")
    if vectors.dim() != 2:
        raise ValueError(f"{name} of shape {tuple(vectors.shape)}; expected (number, size)")
    if vectors.dtype != torch.float64:
        vectors = vectors.float()
    bad = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: number {int(bad[0])} holds values that are not finite")
    return vectors


def unit_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors, and scale them to length 1; those of length 0 stay as they are."""
    return F.normalize(as_vectors(given, name), dim=1)
