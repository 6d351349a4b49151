"""Validation of vectors."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def as_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and convert them to a tensor.

    Args:
        given: (n, D): a tensor, an array, or a list of either.
        name: Name in error messages.

    Returns:
        Float64 if they were float64, else float32, on their device.

    Raises:
        ValueError: If there are no vectors, their shape is wrong, or one is not finite.
    """
    if isinstance(given, list | tuple) and given and isinstance(given[0], Tensor):
        given = torch.stack(list(given))
    vectors = torch.as_tensor(given).detach()
    if not len(vectors.shape) or not len(vectors):
        raise ValueError(f"{name} is empty; at least one vector is needed")
    if vectors.dim() != 2:
        raise ValueError(f"{name} of shape {tuple(vectors.shape)}; expected (n, D)")
    if vectors.dtype != torch.float64:
        vectors = vectors.float()
    bad = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: vector {int(bad[0])} has values that are not finite")
    return vectors


def unit_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and scale them to length 1, except zero vectors."""
    return F.normalize(as_vectors(given, name), dim=1)
