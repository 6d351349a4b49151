"""Operations of a training step, and the throughput of the GPU."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tasks import TASKS
from .workloads import SIZES, VOCABULARY, Rows

SPEC_TFLOPS = 989.0  # dense bf16 of an H100 or H200 according to its data sheet
SMALL = (256, 512, 1024, 2048, 4096, 16384, 65536)


def flops_per_token(rows: Rows, task: str, size: str) -> float:
    """Count the operations of matrix products per token, forward and backward.

    Padding, the vocabulary at unmasked tokens and recomputation count as nothing, so that what is
    saved is no loss of utilisation: ``6 L (4 H^2 + 2 H F)`` for the layers, ``12 L H s`` for
    attention with ``s = E[length^2] / E[length]``, and ``6 m (H^2 + H V)`` for the head of masked
    language models at the share m of masked tokens.

    Args:
        rows: Rows of the task.
        task: Its name.
        size: Name of the model.
    """
    width = SIZES[size]["hidden_size"]
    encoder = 3 * forward_flops(np.diff(rows.starts), SIZES[size])
    if TASKS[task].kind != "mlm":
        return encoder
    masked = (rows.labels >= 0).mean()
    return float(encoder + 6 * masked * (width**2 + width * VOCABULARY))


def forward_flops(lengths: NDArray[np.int64], shape: Mapping[str, int]) -> float:
    """Count the operations of the encoder's matrix products per token of a forward pass.

    Args:
        lengths: Tokens of each sequence, (S,).
        shape: ``hidden_size`` and ``num_hidden_layers``.
    """
    layers, width = shape["num_hidden_layers"], shape["hidden_size"]
    attended = (lengths.astype(float) ** 2).sum() / lengths.sum()
    return float(2 * layers * (4 * width**2 + 8 * width**2) + 4 * layers * width * attended)


class Ceilings(NamedTuple):
    """Throughput of this GPU.

    Args:
        tflops: Of a large matrix product, 10^12 operations per second.
        copy: Of a large copy, 10^12 bytes read and written per second.
        small: (model, tokens) to the 10^12 operations per second of a layer's products.
    """

    tflops: float
    copy: float
    small: dict[str, float]


def measure_ceilings(sizes: list[str], device: str, largest: int = 8192) -> Ceilings:
    """Measure matrix products and a copy on random data.

    Args:
        sizes: Names of models, whose shapes are measured too.
        device: Where.
        largest: Rows and columns of the large product.
    """
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(largest, largest, device=device, dtype=dtype) for _ in range(2))
    product = seconds(lambda: a @ b, device)
    source = torch.randn(largest * largest * 4, device=device)
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), device)
    small = {
        f"{size} {tokens}": _layer_rate(size, tokens, device, dtype)
        for size in sizes
        for tokens in SMALL
        if tokens <= 8 * largest
    }
    return Ceilings(2 * largest**3 / product / 1e12, 2 * source.nbytes / copied / 1e12, small)


def _layer_rate(size: str, tokens: int, device: str, dtype: torch.dtype) -> float:
    """Measure the four products of a layer: queries to values, output, and feed-forward."""
    width = SIZES[size]["hidden_size"]
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    inputs = {inner: torch.randn(tokens, inner, device=device, dtype=dtype) for inner, _ in shapes}
    weights = [torch.randn(*shape, device=device, dtype=dtype) for shape in shapes]

    def layer() -> list[Tensor]:
        return [inputs[weight.shape[0]] @ weight for weight in weights]

    operations = sum(2 * tokens * inner * outer for inner, outer in shapes)
    return operations / seconds(layer, device) / 1e12


def seconds(work: Callable[[], Any], device: str, repeats: int = 20) -> float:
    """Return the mean time of a function after a warmup."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        work()
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - start) / repeats
