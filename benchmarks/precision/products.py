"""The rate of matrix products with the shapes of a model, measured where a block ran."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch.nn import functional as F

PASSES = 5


def make_weights(shape: Mapping[str, int], dtype: torch.dtype) -> list[torch.Tensor]:
    """Create the weights of all layers, (outputs, inputs) each."""
    width = shape["hidden_size"]
    # queries to values, output, feed-forward
    sizes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    layers = range(shape["num_hidden_layers"])
    return [torch.randn(*size).to(dtype) for _ in layers for size in sizes]


@torch.no_grad()
def measure_products(
    shape: Mapping[str, int],
    tokens: int,
    precision: str,
    *,
    backward: bool,
    seconds: float = 1.0,
) -> float:
    """Measure the products of all layers with one batch: x W, and backward g W^T and g^T x.

    Args:
        shape: ``hidden_size`` and ``num_hidden_layers``.
        tokens: Real tokens of a batch.
        precision: ``float32`` or ``bfloat16``.
        backward: Whether the products of the backward pass count, too.
        seconds: Least time to measure.

    Returns:
        Operations per second, the median of at least five passes.
    """
    dtype = getattr(torch, precision)
    weights = make_weights(shape, dtype)
    widths = {size for weight in weights for size in weight.shape}
    states = {width: torch.randn(tokens, width).to(dtype) for width in widths}

    def run() -> None:
        for weight in weights:
            inputs, gradient = states[weight.shape[1]], states[weight.shape[0]]
            F.linear(inputs, weight)
            if backward:
                gradient @ weight
                gradient.T @ inputs

    products = 3 if backward else 1
    operations = sum(2 * products * tokens * weight.numel() for weight in weights)
    return operations / _time(run, seconds)


def _time(run: Callable[[], None], seconds: float) -> float:
    """Return the median time of a function after a first call."""
    run()
    times: list[float] = []
    while len(times) < PASSES or sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times)
