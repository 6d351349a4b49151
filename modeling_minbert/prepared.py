# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Layers of the encoder, converted and arranged for predictions in a precision on the CPU.

That is done once, and again when their weights have changed; see `Preparation`.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size; K inputs and N
outputs of a product.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .cpu import ModuleTree, count_extra, find_tree, run_other_code

if TYPE_CHECKING:
    from .packing import MinBertSequences

# Tokens of a batch that oneDNN expects when it arranges weights; any number works.
EXPECTED_TOKENS = 1024
# int8 weights are symmetric; inputs use all values of a byte.
LARGEST_WEIGHT = 127


class Weights(NamedTuple):
    """Weights of a dense layer."""

    weight: Tensor  # (N, K), int8 if there is a scale
    scale: Tensor | None  # of each output, (N,)
    bias: Tensor  # (N,)


def check_finite(total: Tensor) -> None:
    """Refuse values by their sum: bytes, among which there is no NaN, would hide it."""
    if not total.isfinite():
        raise ValueError(
            "int8 would hide that values of the encoder are not finite: its training diverged, or "
            "its weights are damaged, as predictions in precision='float32' show"
        )


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows to int8, (N, K), each with a scale, (N,)."""
    weight = weight.float()
    scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT
    check_finite(scale.sum())
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
        check_finite(weights.bias.sum())
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
            # a copy also of a single row, which starts where no float does
            copied = rows[:, self.size :].clone(memory_format=torch.contiguous_format)
            ends = copied.view(torch.float32)
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

    def __call__(
        self, hidden: Tensor, sequences: "MinBertSequences", select: Tensor | None
    ) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens."""
        # the rows after the tokens are padding
        query, key, value = self.projection(hidden)[: sequences.tokens].chunk(3, dim=1)
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
        self.precision = precision
        # CODEPATH: modernbert; all others have the layers of bert
        kind = getattr(encoder, "prepared_layer", PreparedLayer)
        self.layers = [kind(layer, precision) for layer in encoder.layer]
        self.norm = PreparedNorm(getattr(encoder, "final_norm", None), self.dtype)

    def __call__(
        self,
        hidden: Tensor,
        sequences: "MinBertSequences",
        select: Tensor | None,
        num_layers: int | None,
    ) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens, in the same precision."""
        states = round_up(hidden.to(self.dtype))
        if self.precision == "int8":
            check_finite(states.sum())
        layers = self.layers[:num_layers]
        for layer in layers[:-1]:
            states = layer(states, sequences, None)
        if layers:
            states = layers[-1](states, sequences, select)
        elif select is not None:
            states = states.index_select(0, select)
        states = self.norm(states) if len(layers) == len(self.layers) else states
        return states[: len(hidden) if select is None else len(select)].to(hidden.dtype)


# Values of each weight that are compared at every call if the weights are fixed.
SAMPLES = 8


class Preparation:
    """The prepared layers of an encoder, by precision, and what they were made from.

    torch counts the changes of a tensor, except those through `.data` or memory that is shared with
    numpy. To see these, too, all weights are compared with a copy; if they are fixed, a sample is.
    """

    def __init__(self, tree: ModuleTree, *, fixed: bool) -> None:
        self.tree, self.fixed = tree, fixed
        self.weights = [part for part in tree.parts if isinstance(part, Tensor)]
        # views, which see changes and keep the memory from another use
        views = [weight.detach() for weight in self.weights]
        self.views = [cut_sample(view) for view in views] if fixed else views
        self.copies = [] if fixed else [view.clone() for view in views]
        self.counted = [weight for weight in self.weights if not weight.is_inference()]
        self.norms = [state for state in tree.states if "eps" in state]
        self.configured = [state for state in tree.states if "config" in state]
        self.settings = self.read_settings()
        self.sample = torch.cat(self.views) if fixed else None
        self.encoders: dict[str, PreparedEncoder] = {}

    def read_settings(self) -> list[object]:
        """Return what besides the parts may change: the places, counts, classes and sizes."""
        return [
            *map(type, self.tree.modules),
            *map(Tensor.data_ptr, self.weights),
            *map(attrgetter("_version"), self.counted),
            *(state["eps"] for state in self.norms),
            *(vars(state["config"])["num_attention_heads"] for state in self.configured),
        ]

    def is_current(self, tree: ModuleTree, *, fixed: bool) -> bool:
        """Return whether this was made from these modules, and they have not changed."""
        if tree is not self.tree or fixed is not self.fixed:
            return False
        if self.read_settings() != self.settings:
            return False
        if self.sample is None:
            return all(map(torch.equal, self.views, self.copies))
        return torch.equal(torch.cat(self.views), self.sample)


def cut_sample(values: Tensor) -> Tensor:
    """Return a view of some values that are spread over a tensor, of a strange one of the first."""
    size = values.numel() if values.is_contiguous() else 1
    return values.as_strided((min(size, SAMPLES),), (max(1, size // SAMPLES),))


# What other modules may be in an encoder than those of minBERT, and in the place of a dropout or a
# norm, where they do nothing.
PLAIN, NOTHING = {nn.Linear, nn.LayerNorm, nn.ModuleList, nn.Embedding}, {nn.Dropout, nn.Identity}


def has_other_modules(tree: ModuleTree) -> bool:
    """Return whether a module is not one that prepared layers know, as those of adapters.

    Activations are called as they are, whatever they are.
    """
    package = type(tree.modules[0]).__module__.rpartition(".")[0]
    for module in tree.modules:
        for name, part in module.named_children():
            kind = type(part)
            is_own = kind.__module__.rpartition(".")[0] == package
            is_nothing = kind in NOTHING and ("norm" in name.lower() or "dropout" in name)
            is_activation = name == "activation" and next(part.parameters(), None) is None
            if not (kind in PLAIN or is_own or is_int8(part) or is_nothing or is_activation):
                return True
    return False


def prepare(model: Any, precision: str) -> PreparedEncoder | None:
    """Return the prepared layers of the encoder of a base model.

    None if other code takes part in them, such as hooks. Of fixed weights, only changes that torch
    counts are certainly seen.
    """
    tree, fixed = find_tree(model), model.fixed_weights
    if run_other_code(tree.states) or any(state["training"] for state in tree.states):
        return None
    known: Preparation | None = model.calls.prepared
    if known is None or not known.is_current(tree, fixed=fixed):
        if has_other_modules(tree):
            return None
        # read before the weights are prepared: a change in between shows at the next call
        known = model.calls.prepared = Preparation(tree, fixed=fixed)
    if precision not in known.encoders:
        known.encoders[precision] = PreparedEncoder(model.encoder, precision)
    return known.encoders[precision]
