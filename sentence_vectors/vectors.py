"""Validation of vectors."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BYTES = (torch.uint8, torch.int8)


def as_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and convert them to a tensor.

    Args:
        given: (n, D): a tensor, an array, or a list of either.
        name: Name in error messages.

    Returns:
        Float64 if they were float64, else float32, on their device.

    Raises:
        ValueError: If there are no vectors, their shape is wrong, one is not finite, or they are
            integers of 8 bits, which may be packed bits or quantized numbers.
    """
    vectors = _as_matrix(given, name)
    if vectors.dtype in BYTES:
        raise ValueError(
            f"{name} are 8-bit integers: for packed bits, use semantic_search with "
            "similarity='hamming'; if they are numbers, convert them to float32"
        )
    if vectors.dtype != torch.float64:
        vectors = vectors.float()
    bad = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: vector {int(bad[0])} has values that are not finite")
    return vectors


def packed_bits(given: Any, name: str = "vectors") -> Tensor:
    """Check bits that are packed in bytes, (n, D / 8), as sentence-transformers packs them: uint8.

    Its format `binary` is int8, the same bytes minus 128.
    """
    packed = _as_matrix(given, name)
    if packed.dtype not in BYTES:
        raise ValueError(
            f"{name}: similarity='hamming' needs packed bits (uint8 or int8), not {packed.dtype}"
        )
    return packed if packed.dtype == torch.uint8 else (packed.short() + 128).to(torch.uint8)


def products(first: Tensor, second: Tensor) -> Tensor:
    """Multiply all vectors of (N, D) with all of (M, D), also under autocast as they are."""
    with torch.autocast(first.device.type, enabled=False):
        return first @ second.T


def unit_vectors(given: Any, name: str = "vectors") -> Tensor:
    """Check vectors and scale them to length 1, except zero vectors."""
    return F.normalize(as_vectors(given, name), dim=1)


def _as_matrix(given: Any, name: str) -> Tensor:
    if isinstance(given, list | tuple) and given and isinstance(given[0], Tensor):
        given = torch.stack(list(given))
    vectors = torch.as_tensor(given).detach()
    if not len(vectors.shape) or not len(vectors):
        raise ValueError(f"{name} is empty; at least one vector is needed")
    if vectors.dim() != 2:
        raise ValueError(f"{name} of shape {tuple(vectors.shape)}; expected (n, D)")
    return vectors
