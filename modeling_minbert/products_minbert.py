# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Matrix products of inference on the CPU, with weights prepared once.

Shapes: T tokens, K inputs and N outputs of a product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

# Tokens of a batch that oneDNN expects when it arranges weights; any number works.
EXPECTED_TOKENS = 1024
# int8 weights are symmetric; inputs use all values of a byte.
LARGEST_WEIGHT = 127
# A row of quantized inputs ends with its scale and its least value, both in float32.
SCALE_BYTES = 8


class Weights(NamedTuple):
    """Weights of a dense layer."""

    weight: Tensor  # (N, K), int8 if there is a scale
    scale: Tensor | None  # of each output, (N,)
    bias: Tensor  # (N,)


class Product(Protocol):
    """A dense layer whose weights were prepared."""

    dtype: torch.dtype  # of inputs and outputs

    def __call__(self, hidden: Tensor) -> Tensor:
        """Multiply and activate, (T, K) -> (T, N)."""

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Multiply and add, (T, K) and (T, N) -> (T, N)."""


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows to int8, (N, K), each with a scale, (N,)."""
    weight = weight.float()
    scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT
    return torch.round(weight / scale.unsqueeze(1)).to(torch.int8), scale


def dequantize_weight(weights: Weights) -> Tensor:
    """Return the weight in float32, (N, K)."""
    weight = weights.weight.float()
    return weight if weights.scale is None else weight * weights.scale.float().unsqueeze(1)


class Float32Product:
    """In the precision of the weights."""

    dtype = torch.float32

    def __init__(self, weights: Weights, activation: Callable[[Tensor], Tensor] | None) -> None:
        self.weight, self.bias = dequantize_weight(weights), weights.bias.float()
        self.activation = activation

    def __call__(self, hidden: Tensor) -> Tensor:  # noqa: D102 - as in Product
        product = F.linear(hidden, self.weight, self.bias)
        return product if self.activation is None else self.activation(product)

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:  # noqa: D102 - as in Product
        return F.linear(hidden, self.weight, self.bias).add_(residual)


class Bfloat16Product:
    """In bfloat16, accumulated in float32; oneDNN adds bias and residual before it rounds."""

    dtype = torch.bfloat16

    def __init__(self, weights: Weights, activation: Callable[[Tensor], Tensor] | None) -> None:
        weight = dequantize_weight(weights).to(self.dtype)
        self.bias, self.activation = weights.bias.to(self.dtype), activation
        self.fused: tuple[Any, ...] = ("none", [], "")
        self.has_kernel = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if self.has_kernel:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight, EXPECTED_TOKENS)
            if type(activation).__name__ == "GELUActivation":  # the exact one
                self.fused, self.activation = ("gelu", [], "none"), None
        self.weight = weight

    def __call__(self, hidden: Tensor) -> Tensor:  # noqa: D102 - as in Product
        if self.has_kernel:
            product = torch.ops.mkldnn._linear_pointwise(
                hidden, self.weight, self.bias, *self.fused
            )
        else:
            product = F.linear(hidden, self.weight, self.bias)
        return product if self.activation is None else self.activation(product)

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:  # noqa: D102 - as in Product
        if self.has_kernel:
            return torch.ops.mkldnn._linear_pointwise.binary(
                hidden, residual, self.weight, self.bias, "add"
            )
        return F.linear(hidden, self.weight, self.bias).add_(residual)


class Int8Product:
    """In int8, with outputs in float32.

    Each row of inputs becomes `least + scale * bytes`; its product with a weight is then
    `scale * (bytes @ weight.T) + least * weight.sum(dim=1)`, of which only the first is a matrix
    product, of bytes.
    """

    dtype = torch.float32

    def __init__(self, weights: Weights, activation: Callable[[Tensor], Tensor] | None) -> None:
        weight, scale = weights.weight, weights.scale
        if scale is None:
            weight, scale = quantize_weight(weight)
        self.size, self.activation = weight.shape[1], activation
        self.scale, self.zero = scale.float(), torch.zeros(len(weight), dtype=torch.int64)
        self.bias = weights.bias.float()
        self.sums = weight.float().sum(dim=1) * self.scale
        self.weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)

    def _multiply(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return products of bytes and weights, (T, N), and scale and least value, (T, 1)."""
        rows: Tensor = torch.ops.quantized.embedding_bag_byte_prepack(hidden)
        options: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
        product = torch.ops.onednn.qlinear_pointwise(
            rows[:, : self.size], 1.0, 0, self.weight, self.scale, self.zero, *options
        )
        if self.size % 4:
            ends = rows[:, self.size :].contiguous().view(torch.float32)
        else:  # without a copy
            ends = rows.view(torch.float32)[:, self.size // 4 :]
        return product, ends[:, :1], ends[:, 1:]

    def __call__(self, hidden: Tensor) -> Tensor:  # noqa: D102 - as in Product
        product, scale, least = self._multiply(hidden)
        shift = torch.addcmul(self.bias, least, self.sums)
        product = torch.addcmul(shift, product, scale, out=shift)
        return product if self.activation is None else self.activation(product)

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:  # noqa: D102 - as in Product
        product, scale, least = self._multiply(hidden)
        shift = torch.addcmul(self.bias, least, self.sums).add_(residual)
        return torch.addcmul(shift, product, scale, out=shift)


PRODUCTS: dict[str, Any] = {
    "float32": Float32Product,
    "bfloat16": Bfloat16Product,
    "int8": Int8Product,
}
