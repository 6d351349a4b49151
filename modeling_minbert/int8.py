# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Predictions in another precision than that of the weights, and weights in int8.

On the CPU, layers of the encoder are converted and arranged once, and again when their weights have
changed. Every call compares them with a copy, since torch does not count changes through `.data`.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size; K inputs and N
outputs of a product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.quantizers.auto import (
    AUTO_QUANTIZATION_CONFIG_MAPPING,
    AUTO_QUANTIZER_MAPPING,
)
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

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


class PreparedModernLayer:
    """A layer of ModernBERT."""

    def __init__(self, layer: Any, precision: str) -> None:
        product = PRODUCTS[precision]
        self.attention, self.activation = layer.attn, layer.mlp.activation
        dense = (layer.attn.Wqkv, layer.attn.Wo, layer.mlp.Wi, layer.mlp.Wo)
        products = [product(weights_of(module), None) for module in dense]
        self.projection, self.attended, self.inner, self.outer = products
        norms = layer.attn_norm, layer.mlp_norm
        self.norms = [PreparedNorm(norm, product.dtype) for norm in norms]

    def __call__(self, hidden: Tensor, sequences: Any, select: Tensor | None) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens."""
        tokens = int(sequences.offsets[-1])  # the rows after them are padding
        joined = self.projection(self.norms[0](hidden))[:tokens]
        context = round_up(self.attention.attend(joined, sequences, select, 0.0))
        if select is not None:
            hidden = round_up(hidden.index_select(0, select))
        hidden = self.attended.add(context, hidden)
        values, gate = self.inner(self.norms[1](hidden)).chunk(2, dim=1)
        return self.outer.add(self.activation(values).mul_(gate), hidden)


class PreparedEncoder:
    """All layers of an encoder.

    It lets the C library reuse freed memory: glibc returns blocks above a threshold to the system,
    and getting them again costs more than many operations of a layer do. The threshold rises to the
    size of a block that is freed (mallopt(3), M_MMAP_THRESHOLD), even of one that was never used.
    """

    def __init__(self, encoder: Any, precision: str) -> None:
        torch.empty(KEPT_BYTES, dtype=torch.uint8)
        self.dtype: torch.dtype = PRODUCTS[precision].dtype
        last = getattr(encoder, "final_norm", None)  # of ModernBERT
        kind = PreparedLayer if last is None else PreparedModernLayer
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


# Weights in int8

METHOD = "minbert_int8"
# Modules with dense layers, and their names there, of a layer of BERT or of ModernBERT.
DENSE = {
    **dict.fromkeys(("attention.output", "intermediate", "output"), ("dense",)),
    "attention.self": ("query", "key", "value"),
}
MODERN_DENSE = {"attn": ("Wqkv", "Wo"), "mlp": ("Wi", "Wo")}


class MinBertInt8Linear(nn.Module):
    """A dense layer with weights in int8, for inference.

    Args:
        linear: The layer that it replaces, of which it takes the sizes; see `quantize`.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = _constant(torch.zeros(linear.weight.shape, dtype=torch.int8))
        self.weight_scale = _constant(torch.ones(linear.out_features))
        bias: nn.Parameter | None = linear.bias
        self.bias = None if bias is None else _constant(torch.zeros(linear.out_features))

    def quantize(self, linear: nn.Linear) -> None:
        """Take the weights of a layer."""
        weight, scale = quantize_weight(linear.weight.detach())
        self.weight, self.weight_scale = _constant(weight), _constant(scale)
        if self.bias is not None:
            self.bias = _constant(linear.bias.detach().float())

    def to_float(self, dtype: torch.dtype | None = None) -> nn.Linear:
        """Return a layer with weights in `dtype`, None for float32."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta")
        linear.weight = nn.Parameter(dequantize_weight(weights_of(self)).to(dtype))
        bias = None if self.bias is None else nn.Parameter(self.bias.detach().to(dtype))
        linear.register_parameter("bias", bias)
        return linear

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., K) -> (..., N), with inputs in full precision."""
        weight = dequantize_weight(weights_of(self)).to(hidden.dtype)
        return F.linear(hidden, weight, None if self.bias is None else self.bias.to(hidden.dtype))


class MinBertInt8Embedding(nn.Module):
    """Word embeddings in int8, each with its own scale.

    Args:
        embedding: What it replaces, of which it takes the sizes; see `quantize`.
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.weight.shape
        self.padding_idx = embedding.padding_idx
        self.weight = _constant(torch.zeros(embedding.weight.shape, dtype=torch.int8))
        # in the precision of the other embeddings, since it is that of the output
        scale = torch.ones(self.num_embeddings, dtype=embedding.weight.dtype)
        self.weight_scale = _constant(scale)

    def quantize(self, embedding: nn.Embedding) -> None:
        """Take the weights of an embedding."""
        weight, scale = quantize_weight(embedding.weight.detach())
        self.weight = _constant(weight)
        self.weight_scale = _constant(scale.to(embedding.weight.dtype))

    def to_float(self, dtype: torch.dtype | None = None) -> nn.Embedding:
        """Return an embedding with weights in `dtype`, None for float32."""
        weight = self.weight.float() * self.weight_scale.unsqueeze(1)
        return nn.Embedding.from_pretrained(
            weight.to(dtype), freeze=False, padding_idx=self.padding_idx
        )

    def forward(self, ids: Tensor) -> Tensor:
        """(...) -> (..., D)."""
        scale = self.weight_scale[ids].unsqueeze(-1)
        return F.embedding(ids, self.weight) * scale


def _constant(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)


def is_int8(module: Any) -> bool:
    """Return whether a layer has weights in int8."""
    return hasattr(module, "weight_scale")  # the class may be a copy that came with a checkpoint


class MinBertInt8Config(QuantizationConfigMixin):
    """Weights in int8, for inference: `from_pretrained(..., quantization_config=...)`.

    The dense layers of the encoder are stored in int8, and the word embeddings unless the output
    layer of a masked language model is tied to them. All other weights stay in float32.

    Args:
        word_embeddings: Whether the word embeddings are in int8; None decides by the model.
    """

    def __init__(self, word_embeddings: bool | None = None, quant_method: Any = METHOD) -> None:
        self.quant_method = quant_method
        self.word_embeddings = word_embeddings


class MinBertInt8Quantizer(HfQuantizer):
    """Loads models with weights in int8, and quantizes others while loading."""

    quantization_config: MinBertInt8Config

    def is_serializable(self) -> bool:
        """Return whether models can be saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Whether models can be trained."""
        return False

    def _process_model_before_weight_loading(self, model: Any, **_: object) -> Any:
        if self.pre_quantized:
            self._replace(model)
        return model

    def _process_model_after_weight_loading(self, model: Any, **_: object) -> Any:
        if not self.pre_quantized:
            self._replace(model)
        return model

    def _replace(self, model: Any) -> None:
        """Put layers in int8 in the place of others: with their weights, or to load some."""
        config = self.quantization_config
        is_tied = model.get_output_embeddings() is not None
        if config.word_embeddings is None:
            config.word_embeddings = not is_tied
        if config.word_embeddings and is_tied:
            raise ValueError(
                f"{type(model).__name__} ties its output layer to the word embeddings, which this "
                "checkpoint has in int8: load the checkpoint that was quantized"
            )
        places = _dense_layers(model)
        embeddings = model.base_model.embeddings
        if config.word_embeddings:
            places.append((embeddings, "word_embeddings", embeddings.word_embeddings))
        for parent, name, module in places:
            if is_int8(module):
                continue
            kind = MinBertInt8Linear if isinstance(module, nn.Linear) else MinBertInt8Embedding
            with torch.device("meta"):
                layer: Any = kind(module).train(module.training)
            if not self.pre_quantized:
                layer.quantize(module)
            setattr(parent, name, layer)

    def _dequantize(self, model: Any, dtype: torch.dtype | None = None) -> Any:
        for parent, name, module in _dense_layers(model):
            if is_int8(module):
                setattr(parent, name, module.to_float(dtype))
        embeddings = model.base_model.embeddings
        if is_int8(embeddings.word_embeddings):
            embeddings.word_embeddings = embeddings.word_embeddings.to_float(dtype)
        return model


def quantize(model: Any) -> None:
    """Convert the weights of the encoder to int8; see `MinBertPrecision.quantize`."""
    if getattr(model, "is_quantized", False):
        raise ValueError("the weights are quantized already")
    per_layer = 4 if hasattr(model.base_model.encoder, "final_norm") else 6
    if len(_dense_layers(model)) < per_layer * len(model.base_model.encoder.layer):
        raise ValueError("an adapter wraps layers of the encoder; merge or unload it first")
    quantizer = MinBertInt8Quantizer(MinBertInt8Config(), pre_quantized=False)
    quantizer.preprocess_model(model)
    quantizer.postprocess_model(model)
    model.hf_quantizer = quantizer


def _dense_layers(model: Any) -> list[tuple[nn.Module, str, Any]]:
    """List the dense layers of the encoder: the module that each is in, its name, and itself."""
    found = []
    for layer in model.base_model.encoder.layer:
        for place, names in (MODERN_DENSE if hasattr(layer, "mlp") else DENSE).items():
            parent = layer.get_submodule(place)
            for name in names:
                module = getattr(parent, name)
                if isinstance(module, nn.Linear) or is_int8(module):
                    found.append((parent, name, module))
    return found


def register_int8() -> None:
    """Register the format of the weights with transformers."""
    # setdefault: code that came with a checkpoint may be a copy of this
    AUTO_QUANTIZATION_CONFIG_MAPPING.setdefault(METHOD, MinBertInt8Config)
    AUTO_QUANTIZER_MAPPING.setdefault(METHOD, MinBertInt8Quantizer)


register_int8()
