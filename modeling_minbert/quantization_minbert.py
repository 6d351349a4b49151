# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Weights in int8: one scale per output channel, w = scale * q with q from -127 to 127.

Inputs are quantized at run time, each row with its own range (Dettmers et al. 2022, section 3, call
it vector-wise), so no calibration data is needed, and no sequence changes the vectors of another.

Shapes: T tokens, K inputs and N outputs of a layer, V vocabulary, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.quantizers.auto import (
    AUTO_QUANTIZATION_CONFIG_MAPPING,
    AUTO_QUANTIZER_MAPPING,
)
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .precision_minbert import precision_for
from .products_minbert import Weights, dequantize_weight, quantize_weight

METHOD = "minbert_int8"
# Dense layers of a layer of the encoder.
PER_LAYER = 6


class MinBertInt8Linear(nn.Module):
    """A dense layer with weights in int8, for inference."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _constant(torch.zeros(out_features, in_features, dtype=torch.int8))
        self.weight_scale = _constant(torch.ones(out_features))
        self.bias = _constant(torch.zeros(out_features))

    @classmethod
    def like(cls, linear: nn.Linear) -> "MinBertInt8Linear":
        """Return a layer of the same sizes, for weights to load."""
        return cls(linear.in_features, linear.out_features)

    @classmethod
    def of(cls, linear: nn.Linear) -> "MinBertInt8Linear":
        """Quantize a layer."""
        with torch.device("meta"):
            own = cls.like(linear)
        weight, scale = quantize_weight(linear.weight.detach())
        own.weight, own.weight_scale = _constant(weight), _constant(scale)
        own.bias = _constant(linear.bias.detach().float())
        return own

    @property
    def weights(self) -> Weights:
        """The stored weights."""
        return Weights(self.weight.detach(), self.weight_scale.detach(), self.bias.detach())

    def to_float(self, dtype: torch.dtype | None = None) -> nn.Linear:
        """Return a layer with weights in `dtype`, None for float32."""
        own = nn.Linear(self.in_features, self.out_features, device="meta")
        own.weight = nn.Parameter(dequantize_weight(self.weights).to(dtype))
        own.bias = nn.Parameter(self.bias.detach().to(dtype))
        return own

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., K) -> (..., N), with inputs in full precision."""
        weight, bias = dequantize_weight(self.weights), self.bias
        return F.linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype))


class MinBertInt8Embedding(nn.Module):
    """Word embeddings in int8, each with its own scale."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = _constant(torch.zeros(num_embeddings, embedding_dim, dtype=torch.int8))
        # in the precision of the other embeddings, since it is that of the output
        self.weight_scale = _constant(torch.ones(num_embeddings, dtype=dtype))

    @classmethod
    def like(cls, embedding: nn.Embedding) -> "MinBertInt8Embedding":
        """Return an embedding of the same sizes, for weights to load."""
        sizes = (embedding.num_embeddings, embedding.embedding_dim)
        return cls(*sizes, embedding.padding_idx, embedding.weight.dtype)

    @classmethod
    def of(cls, embedding: nn.Embedding) -> "MinBertInt8Embedding":
        """Quantize an embedding."""
        with torch.device("meta"):
            own = cls.like(embedding)
        weight, scale = quantize_weight(embedding.weight.detach())
        own.weight = _constant(weight)
        own.weight_scale = _constant(scale.to(embedding.weight.dtype))
        return own

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

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:
        if self.pre_quantized:
            with torch.device("meta"):
                self._replace(model, MinBertInt8Linear.like, MinBertInt8Embedding.like)
        return model

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        if not self.pre_quantized:
            self._replace(model, MinBertInt8Linear.of, MinBertInt8Embedding.of)
        return model

    def _replace(self, model: Any, linear: Any, embedding: Any) -> None:
        config = self.quantization_config
        is_tied = model.get_output_embeddings() is not None
        if config.word_embeddings is None:
            config.word_embeddings = not is_tied
        if config.word_embeddings and is_tied:
            raise ValueError(
                f"{type(model).__name__} ties its output layer to the word embeddings, which this "
                "checkpoint has in int8: load the checkpoint that was quantized"
            )
        for parent, name, module in _dense_layers(model):
            if isinstance(module, nn.Linear):
                setattr(parent, name, linear(module))
        embeddings = model.base_model.embeddings
        if config.word_embeddings and isinstance(embeddings.word_embeddings, nn.Embedding):
            embeddings.word_embeddings = embedding(embeddings.word_embeddings)

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

    device: Any
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
        encoder: Any = self.base_model
        encoder.precision = precision_for(encoder, precision)

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
