# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""In which precision predictions are computed: what this machine can do, and products in int8.

Shapes: T tokens, K inputs and N outputs of a product.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock, get_ident
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
from transformers.utils import logging
from transformers.utils.quantization_config import QuantizationConfigMixin

from .names import unknown

logger = logging.get_logger(__name__)

PRECISIONS = ("float32", "bfloat16", "int8", "auto")
# Batches are rounded up to a multiple of this many tokens, or of more if they are large.
LEAST_STEP = 32


def check_precision(precision: str | None) -> None:
    """Refuse a precision that does not exist.

    Raises:
        ValueError: If it is not None, and not one of `PRECISIONS`.
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"{unknown('precision', precision, PRECISIONS)} (the precision of the computation; "
            "results are float32)"
        )


def bfloat16_is_fast(device: torch.device) -> bool:
    """Return whether products in bfloat16 are clearly faster than in float32."""
    if device.type == "cuda":
        # emulated bfloat16 would be slower than float32
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    features = _capabilities()
    if features.get("bf16"):  # ARM
        return True
    # a user may keep oneDNN from instructions
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    if features.get("amx_bf16") and (allowed in ("ALL", "DEFAULT") or "AMX" in allowed):
        return True
    # Processors with AVX512-FP16 have AMX. Where that is hidden, their AVX512-BF16 takes longer
    # than float32; that of others takes half the time.
    return bool(features.get("avx512_bf16")) and not features.get("avx512_fp16")


@cache
def _capabilities() -> Mapping[str, object]:
    """Return the instruction sets of the CPU by name; empty if torch does not list them."""
    return getattr(torch.cpu, "get_capabilities", dict)()


def count_extra(tokens: int) -> int:
    """Return how many tokens to add to a batch, so that few numbers of tokens occur.

    oneDNN compiles a product for each shape, which takes longer than the product. There are at
    most 16 numbers between two powers of two.
    """
    step = max(LEAST_STEP, 2 ** (tokens.bit_length() - 5))
    return -tokens % step


def needs_few_shapes(weight: torch.Tensor) -> bool:
    """Return whether a model trains in bfloat16 on the CPU, where oneDNN computes the products."""
    if weight.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else weight.dtype
    return dtype == torch.bfloat16


@cache
def int8_is_exact() -> bool:
    """Return whether this CPU multiplies bytes fast and without overflow.

    Processors without instructions for it add two products of bytes in 16 bits, which overflow
    (Intel's VNNI, AMX and later ones do not).
    """
    found = _capabilities()
    if not any(found.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    # the largest products there are: two of them exceed 16 bits
    inputs = torch.full((2, 64), 255, dtype=torch.uint8)
    weight = torch.full((16, 64), 127, dtype=torch.int8)
    ones, zeros = torch.ones(16), torch.zeros(16, dtype=torch.int64)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        product = torch.ops.onednn.qlinear_pointwise(
            inputs, 1.0, 0, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    except (AttributeError, RuntimeError):  # another version of torch
        return False
    return bool((product == 64 * 255 * 127).all())


def choose_precision(precision: str, device: torch.device) -> str:
    """Return the precision that a device computes for a requested one.

    `auto` is bfloat16 where the device is fast in it, else float32. It is never int8, which
    changes predictions more. What the device cannot do becomes float32, with a warning; on a GPU
    int8 becomes bfloat16 or float32.

    Raises:
        ValueError: If there is no such precision.
    """
    check_precision(precision)
    reduced = "bfloat16" if bfloat16_is_fast(device) else "float32"
    if precision == "auto":
        return reduced
    is_cuda = device.type == "cuda"
    if precision == "int8" and (device.type != "cpu" or not int8_is_exact()):
        instead = reduced if is_cuda else "float32"
        _warn_once(f"int8 needs a CPU with VNNI or AMX: computed in {instead} instead")
        return instead
    if precision == "bfloat16" and reduced == "float32":
        _warn_once(
            f"this {device.type} is not fast in bfloat16: float32 is not slower, and more exact"
        )
        return reduced if is_cuda else precision
    return precision


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def precision_for(encoder: Any, precision: str | None) -> str | None:
    """Return the precision that an encoder computes; None for that of its weights."""
    if precision is None or (precision == "auto" and encoder.is_int8):
        return None
    return choose_precision(precision, encoder.device)


@dataclass
class Predicting:
    """What one call that predicts knows of an encoder."""

    precision: str | None  # None for that of the weights
    prepared: Any = None  # the `PreparedEncoder` of this call


class MinBertCalls:
    """The calls that predict with an encoder now, of all threads; a copy of the encoder has none.

    An attribute of the encoder, since a checkpoint that brings its code has several copies of it.

    Attributes:
        running: By thread, what its call knows.
        evaluated: The modules in training mode that are in evaluation mode for now, and how many
            calls need them so.
        lock: For these.
    """

    def __init__(self) -> None:
        self.running: dict[int, Predicting] = {}
        self.evaluated: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self.lock = Lock()

    def __reduce__(self) -> tuple[type["MinBertCalls"], tuple[()]]:
        """Copy and pickle an object without calls."""
        return type(self), ()


@contextmanager
def using_precision(model: Any, precision: str | None) -> Iterator[None]:
    """Compute the encoder of a model in a precision in this thread; None for that of the model."""
    encoder = model.base_model
    chosen = encoder.precision if precision is None else precision_for(encoder, precision)
    running, thread = encoder.calls.running, get_ident()
    before = running.get(thread)
    running[thread] = Predicting(chosen)
    try:
        yield
    finally:
        if before is None:
            del running[thread]
        else:
            running[thread] = before


def find_predicting(encoder: Any) -> Predicting:
    """Return what the call knows in which an encoder computes, or what holds for a single batch."""
    return encoder.calls.running.get(get_ident()) or Predicting(encoder.precision)


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

METHOD = "minbert_int8"
# Dense layers of a layer of the encoder.
PER_LAYER = 6


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
        self.bias = _constant(torch.zeros(linear.out_features))

    def quantize(self, linear: nn.Linear) -> None:
        """Take the weights of a layer."""
        weight, scale = quantize_weight(linear.weight.detach())
        self.weight, self.weight_scale = _constant(weight), _constant(scale)
        self.bias = _constant(linear.bias.detach().float())

    @property
    def weights(self) -> Weights:
        """The stored weights."""
        return Weights(self.weight.detach(), self.weight_scale.detach(), self.bias.detach())

    def to_float(self, dtype: torch.dtype | None = None) -> nn.Linear:
        """Return a layer with weights in `dtype`, None for float32."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta")
        linear.weight = nn.Parameter(dequantize_weight(self.weights).to(dtype))
        linear.bias = nn.Parameter(self.bias.detach().to(dtype))
        return linear

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., K) -> (..., N), with inputs in full precision."""
        weight, bias = dequantize_weight(self.weights), self.bias
        return F.linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype))


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
                layer: Any = kind(module)
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


def float_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a model with float weights, under the names of BERT."""
    state = dict(model.state_dict())
    for name in [name for name in state if name.endswith(".weight_scale")]:
        weight, scale = name.removesuffix("_scale"), state.pop(name)
        state[weight] = state[weight].float() * scale.unsqueeze(1)
    return state


class MinBertPrecision:
    """Mixin of models: the precision of their predictions, and of their weights."""

    base_model: Any

    def set_precision(self, precision: str | None) -> None:
        """Set in which precision predictions are computed, also by pipelines.

        It concerns the layers of the encoder, in evaluation mode without gradients. Inputs, heads
        and results stay in the precision of the weights, which do not change: they are converted
        once, and again after they have changed, for which every call compares them with a copy.

        Args:
            precision: `float32`; `bfloat16`, whose results differ by about 0.1 %; `int8`, by about
                1 % (see `quantize` for weights that are stored so); `auto` for bfloat16 where the
                device is fast in it, else that of the weights; None for that of the weights.

        Raises:
            ValueError: If there is no such precision.
        """
        self.base_model.precision = precision_for(self.base_model, precision)

    def quantize(self) -> None:
        """Convert the weights of the encoder to int8, for inference; see `MinBertInt8Config`.

        `save_pretrained` then writes a folder of about a quarter of the size, which loads as any
        other. A model in int8 cannot be trained; `dequantize` makes it float32 again.

        Raises:
            ValueError: If it already is in int8, or an adapter wraps its layers.
        """
        if getattr(self, "is_quantized", False):
            raise ValueError("the weights are quantized already")
        model: Any = self
        if len(_dense_layers(model)) < PER_LAYER * len(model.base_model.encoder.layer):
            raise ValueError("an adapter wraps layers of the encoder; merge or unload it first")
        quantizer = MinBertInt8Quantizer(MinBertInt8Config(), pre_quantized=False)
        quantizer.preprocess_model(model)
        quantizer.postprocess_model(model)
        model.hf_quantizer = quantizer


def _dense_layers(model: Any) -> list[tuple[nn.Module, str, Any]]:
    """List the dense layers of the encoder: the module that each is in, its name, and itself."""
    found = []
    for layer in model.base_model.encoder.layer:
        attention = layer.attention
        for parent in (attention.self, attention.output, layer.intermediate, layer.output):
            for name, module in parent.named_children():
                if isinstance(module, nn.Linear) or is_int8(module):
                    found.append((parent, name, module))
    return found


# setdefault: code that came with a checkpoint may be a copy of this
AUTO_QUANTIZATION_CONFIG_MAPPING.setdefault(METHOD, MinBertInt8Config)
AUTO_QUANTIZER_MAPPING.setdefault(METHOD, MinBertInt8Quantizer)
