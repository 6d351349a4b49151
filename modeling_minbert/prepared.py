# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Layers of the encoder, converted and arranged for predictions in a precision on the CPU.

That is done once, and again when their weights have changed. Every call compares them with a copy,
since torch does not count changes through `.data`.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size; K inputs and N
outputs of a product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .cpu import count_extra, runs_other_code, walk, walk_parameters

# Tokens of a batch that oneDNN expects when it arranges weights; any number works.
EXPECTED_TOKENS = 1024
# int8 weights are symmetric; inputs use all values of a byte.
LARGEST_WEIGHT = 127


class Weights(NamedTuple):
    """Weights of a dense layer."""

    weight: Tensor  # (N, K), int8 if there is a scale
    scale: Tensor | None  # of each output, (N,)
    bias: Tensor  # (N,)


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows to int8, (N, K), each with a scale, (N,)."""
    weight = weight.float()
    scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT
    return torch.round(weight / scale.unsqueeze(1)).to(torch.int8), scale


def dequantize_weight(weights: Weights) -> Tensor:
    """Return the weight in float32, (N, K)."""
    weight = weights.weight.float()
    return weight if weights.scale is None else weight * weights.scale.float().unsqueeze(1)


class Product:
    """A dense layer whose weights were prepared; this one computes in float32."""

    dtype = torch.float32  # of inputs and outputs

    def __init__(self, weights: Weights, activation: Callable[[Tensor], Tensor] | None) -> None:
        self.bias, self.activation = weights.bias.to(self.dtype), activation
        self.weight = self.prepare(weights)

    def prepare(self, weights: Weights) -> Tensor:
        """Convert and arrange the weight."""
        return dequantize_weight(weights)

    def multiply(self, hidden: Tensor) -> Tensor:
        """Multiply, (T, K) -> (T, N)."""
        return F.linear(hidden, self.weight, self.bias)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Multiply and activate, (T, K) -> (T, N)."""
        product = self.multiply(hidden)
        return product if self.activation is None else self.activation(product)

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """Multiply and add, (T, K) and (T, N) -> (T, N)."""
        return F.linear(hidden, self.weight, self.bias).add_(residual)


class Bfloat16Product(Product):
    """In bfloat16, accumulated in float32; oneDNN adds bias and residual before it rounds."""

    dtype = torch.bfloat16

    def prepare(self, weights: Weights) -> Tensor:
        weight = dequantize_weight(weights).to(self.dtype)
        self.fused: tuple[object, ...] = ("none", [], "")
        self.has_kernel = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if self.has_kernel:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight, EXPECTED_TOKENS)
            if type(self.activation).__name__ == "GELUActivation":  # the exact one
                self.fused, self.activation = ("gelu", [], "none"), None
        return weight

    def multiply(self, hidden: Tensor) -> Tensor:
        if not self.has_kernel:
            return super().multiply(hidden)
        multiply = torch.ops.mkldnn._linear_pointwise
        product: Tensor = multiply(hidden, self.weight, self.bias, *self.fused)
        return product

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:
        if not self.has_kernel:
            return super().add(hidden, residual)
        multiply = torch.ops.mkldnn._linear_pointwise.binary
        product: Tensor = multiply(hidden, residual, self.weight, self.bias, "add")
        return product


class Int8Product(Product):
    """In int8, with outputs in float32.

    Each row of inputs becomes `least + scale * bytes`; its product with a weight is then
    `scale * (bytes @ weight.T) + least * weight.sum(dim=1)`, of which only the first is a matrix
    product, of bytes.
    """

    def prepare(self, weights: Weights) -> Tensor:
        weight, scale = weights.weight, weights.scale
        if scale is None:
            weight, scale = quantize_weight(weight)
        self.size = weight.shape[1]
        self.scale, self.zero = scale.float(), torch.zeros(len(weight), dtype=torch.int64)
        self.sums = weight.float().sum(dim=1) * self.scale
        packed: Tensor = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        return packed

    def multiply(self, hidden: Tensor, residual: Tensor | None = None) -> Tensor:
        rows: Tensor = torch.ops.quantized.embedding_bag_byte_prepack(hidden)
        options: tuple[object, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
        product = torch.ops.onednn.qlinear_pointwise(
            rows[:, : self.size], 1.0, 0, self.weight, self.scale, self.zero, *options
        )
        if self.size % 4:
            ends = rows[:, self.size :].contiguous().view(torch.float32)
        else:  # without a copy
            ends = rows.view(torch.float32)[:, self.size // 4 :]
        scale, least = ends[:, :1], ends[:, 1:]
        shift = torch.addcmul(self.bias, least, self.sums)
        shift = shift if residual is None else shift.add_(residual)
        return torch.addcmul(shift, product, scale, out=shift)

    def add(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.multiply(hidden, residual)


PRODUCTS = {"float32": Product, "bfloat16": Bfloat16Product, "int8": Int8Product}


# Prepared layers

# Freed memory up to this size stays with the process; see `PreparedEncoder`.
KEPT_BYTES = 31 * 2**20


def round_up(hidden: Tensor) -> Tensor:
    """Add rows of zeros, so that few numbers of rows occur: see `count_extra`."""
    extra = count_extra(len(hidden)) if len(hidden) else 0
    return F.pad(hidden, (0, 0, 0, extra)) if extra else hidden


def is_int8(module: Any) -> bool:
    """Return whether a layer has weights in int8."""
    return hasattr(module, "weight_scale")  # the class may be a copy that came with a checkpoint


def weights_of(module: Any) -> Weights:
    """Return the weights of a dense layer."""
    scale = module.weight_scale.detach() if is_int8(module) else None
    bias = torch.zeros(len(module.weight)) if module.bias is None else module.bias.detach()
    return Weights(module.weight.detach(), scale, bias)


class PreparedNorm:
    """A layer norm in a precision; of the first layer of ModernBERT, nothing."""

    def __init__(self, norm: Any, dtype: torch.dtype) -> None:
        self.eps: float | None = getattr(norm, "eps", None)
        weights = (getattr(norm, name, None) for name in ("weight", "bias"))
        self.weight, self.bias = (None if x is None else x.detach().to(dtype) for x in weights)

    def __call__(self, hidden: Tensor) -> Tensor:
        """(T, D) -> (T, D)."""
        if self.eps is None:
            return hidden
        return F.layer_norm(hidden, hidden.shape[1:], self.weight, self.bias, self.eps)


class PreparedLayer:
    """A layer of the encoder; query, key and value are one product."""

    def __init__(self, layer: Any, precision: str) -> None:
        product = PRODUCTS[precision]
        own = layer.attention.self
        self.heads: int = own.config.num_attention_heads
        weight, scale, bias = zip(*map(weights_of, (own.query, own.key, own.value)), strict=True)
        joined = None if scale[0] is None else torch.cat(scale)
        self.projection = product(Weights(torch.cat(weight), joined, torch.cat(bias)), None)
        self.attended = product(weights_of(layer.attention.output.dense), None)
        activation = layer.intermediate.activation
        self.inner = product(weights_of(layer.intermediate.dense), activation)
        self.outer = product(weights_of(layer.output.dense), None)
        norms = layer.attention.output.LayerNorm, layer.output.LayerNorm
        self.norms = [PreparedNorm(norm, product.dtype) for norm in norms]

    def __call__(self, hidden: Tensor, sequences: Any, select: Tensor | None) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens."""
        tokens = int(sequences.offsets[-1])  # the rows after them are padding
        query, key, value = self.projection(hidden)[:tokens].chunk(3, dim=1)
        if select is not None:
            query, hidden = query.index_select(0, select), round_up(hidden.index_select(0, select))
        context = round_up(sequences.attend(query, key, value, self.heads, select=select))
        attended = self.norms[0](self.attended.add(context, hidden))
        return self.norms[1](self.outer.add(self.inner(attended), attended))


class PreparedEncoder:
    """All layers of an encoder.

    It lets the C library reuse freed memory: glibc returns blocks above a threshold to the system,
    and getting them again costs more than many operations of a layer do. The threshold rises to the
    size of a block that is freed (mallopt(3), M_MMAP_THRESHOLD), even of one that was never used.
    """

    def __init__(self, encoder: Any, precision: str) -> None:
        torch.empty(KEPT_BYTES, dtype=torch.uint8)
        self.dtype: torch.dtype = PRODUCTS[precision].dtype
        last = getattr(encoder, "final_norm", None)
        # CODEPATH: modernbert; all others have the layers of bert
        if last is None:
            kind: Any = PreparedLayer
        else:
            from .modernbert import PreparedModernLayer

            kind = PreparedModernLayer
        self.layers = [kind(layer, precision) for layer in encoder.layer]
        self.norm = PreparedNorm(last, self.dtype)

    def __call__(
        self,
        hidden: Tensor,
        sequences: Any,
        select: Tensor | None,
        num_layers: int | None,
    ) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens, in the same precision."""
        states = round_up(hidden.to(self.dtype))
        layers = self.layers[:num_layers]
        for layer in layers[:-1]:
            states = layer(states, sequences, None)
        if layers:
            states = layers[-1](states, sequences, select)
        elif select is not None:
            states = states.index_select(0, select)
        states = self.norm(states) if len(layers) == len(self.layers) else states
        return states[: len(hidden) if select is None else len(select)].to(hidden.dtype)


class _Prepared(NamedTuple):
    settings: list[tuple[object, ...]]  # what a prepared layer takes beside weights
    weights: list[Tensor]  # copies of those that were prepared
    encoders: dict[str, PreparedEncoder]  # by precision


# Not attributes of the models: they are neither copied, pickled nor saved.
_PREPARED: WeakKeyDictionary[nn.Module, _Prepared] = WeakKeyDictionary()


def has_other_code(encoder: nn.Module) -> bool:
    """Return whether other code than the classes of minBERT takes part in an encoder."""
    for module in walk(encoder):
        if module.training or runs_other_code(module):
            return True
        kind = type(module)
        # adapters replace dense layers; there may be an embedding of distances
        known = (nn.Linear, nn.LayerNorm, nn.ModuleList, nn.Embedding)
        is_plain = kind in known or kind.__name__.startswith("MinBert")
        if not is_plain and next(module.parameters(), None) is not None:
            return True
    return False


def prepare(encoder: Any, precision: str) -> PreparedEncoder | None:
    """Return the prepared layers; None if other code takes part in them, such as hooks."""
    if has_other_code(encoder):
        return None
    settings: list[tuple[object, ...]] = []
    for module in walk(encoder):
        config = vars(module).get("config")
        heads = None if config is None else config.num_attention_heads
        settings.append((heads, vars(module).get("eps"), module._modules.get("activation")))
    weights = [parameter.detach() for parameter in walk_parameters(encoder)]
    known = _PREPARED.get(encoder)
    if known is None or not (
        known.settings == settings
        and [old.dtype for old in known.weights] == [new.dtype for new in weights]
        and all(map(torch.equal, known.weights, weights))
    ):
        # copied first: a change while they are prepared shows at the next call
        known = _Prepared(settings, [weight.clone() for weight in weights], {})
        _PREPARED[encoder] = known
    if precision not in known.encoders:
        known.encoders[precision] = PreparedEncoder(encoder, precision)
    return known.encoders[precision]
