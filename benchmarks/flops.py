"""Operations that the work needs, and the rate at which this device multiplies matrices."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

PASSES = 5


def count_flops(lengths: NDArray[np.int64], shape: Mapping[str, Any], masked: int = 0) -> float:
    """Count the operations of the matrix products of one forward pass; a training step has thrice.

    Padding, the vocabulary at unmasked tokens and recomputation count as nothing, so that what is
    saved is no loss of utilisation: ``2 L 12 H^2`` a token for the layers of BERT, ``4 L H length``
    for attention, and ``2 (H^2 + H V)`` a masked token for the head of masked language models.

    Args:
        lengths: Tokens of each sequence.
        shape: Configuration of the encoder.
        masked: Masked tokens.
    """
    layers, width = shape["num_hidden_layers"], shape["hidden_size"]
    tokens, squares = float(lengths.sum()), float((lengths.astype(float) ** 2).sum())
    weights = sum(outputs * inputs for outputs, inputs in list_products(shape))
    encoder = 2 * layers * weights * tokens + 4 * layers * width * squares
    return encoder + 2 * masked * (width**2 + width * shape["vocab_size"])


def list_products(shape: Mapping[str, Any]) -> list[tuple[int, int]]:
    """List outputs and inputs of the products of a layer: attention, feed-forward."""
    width, inner = shape["hidden_size"], shape["intermediate_size"]
    gated = 2 if shape["model_type"] == "modernbert" else 1
    return [(3 * width, width), (width, width), (gated * inner, width), (width, inner)]


@torch.no_grad()
def measure_products(
    shape: Mapping[str, Any],
    tokens: int,
    dtype: torch.dtype,
    device: str = "cpu",
    *,
    backward: bool,
    seconds: float = 1.0,
) -> float:
    """Measure the products of all layers with one batch: x W, and backward g W^T and g^T x.

    Args:
        shape: Configuration of the encoder.
        tokens: Real tokens of a batch.
        dtype: Of the operands.
        device: Where.
        backward: Whether the products of the backward pass count, too.
        seconds: Least time to measure.

    Returns:
        Operations per second, the median of at least five passes.
    """
    weights = [
        torch.randn(*size, device=device).to(dtype)
        for _ in range(shape["num_hidden_layers"])
        for size in list_products(shape)
    ]
    widths = {size for weight in weights for size in weight.shape}
    states = {size: torch.randn(tokens, size, device=device).to(dtype) for size in widths}

    def run() -> None:
        for weight in weights:
            inputs, gradient = states[weight.shape[1]], states[weight.shape[0]]
            F.linear(inputs, weight)
            if backward:
                gradient @ weight
                gradient.T @ inputs

    products = 3 if backward else 1
    operations = sum(2 * products * tokens * weight.numel() for weight in weights)
    return operations / measure_seconds(run, device, seconds)


def measure_ceilings(device: str, largest: int = 8192) -> dict[str, float]:
    """Measure a large matrix product and a copy.

    Args:
        device: Where; bfloat16 on a GPU, float32 elsewhere.
        largest: Rows and columns of the product.

    Returns:
        ``tflops``, 10^12 operations per second, and ``copy``, 10^12 bytes read and written.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(largest, largest, device=device, dtype=dtype) for _ in range(2))
    product = measure_seconds(lambda: a @ b, device, 0.2)
    source = torch.randn(largest * largest, device=device)
    target = torch.empty_like(source)
    copied = measure_seconds(lambda: target.copy_(source), device, 0.2)
    return {"tflops": 2 * largest**3 / product / 1e12, "copy": 2 * source.nbytes / copied / 1e12}


def measure_seconds(work: Callable[[], Any], device: str, seconds: float) -> float:
    """Return the median time of a function, after a first call, over at least five calls."""
    times: Sequence[float] = []
    work()
    while len(times) < PASSES or sum(times) < seconds:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times = [*times, time.perf_counter() - start]
    return median(times)
