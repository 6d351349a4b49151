# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Weights in int8: their modules, and their format among the quantizers of transformers.

Shapes: D hidden size; K inputs and N outputs of a dense layer.
"""

import copy
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

from .prepared import dequantize_weight, is_int8, quantize_weight, weights_of

METHOD = "minbert_int8"
# Modules with dense layers, and their names there, of a layer of BERT or of ModernBERT.
DENSE = {
    **dict.fromkeys(("attention.output", "intermediate", "output"), ("dense",)),
    "attention.self": ("query", "key", "value"),
}
MODERN_DENSE = {"attn": ("Wqkv", "Wo"), "mlp": ("Wi", "Wo")}


class Int8Module(nn.Module):
    """A module with weights in int8, to which float ones would only be cast."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        weight = state_dict.get(f"{prefix}weight")
        if weight is not None and weight.is_floating_point():
            raise ValueError(
                f"{prefix}weight is in {weight.dtype}, but this model is in int8: dequantize() it "
                "first, or quantize() a model that has loaded these weights"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


class MinBertInt8Linear(Int8Module):
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

    def to_float(self, dtype: torch.dtype) -> nn.Linear:
        """Return a layer with weights in `dtype`."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta")
        linear.weight = nn.Parameter(dequantize_weight(weights_of(self)).to(dtype))
        bias = None if self.bias is None else nn.Parameter(self.bias.detach().to(dtype))
        linear.register_parameter("bias", bias)
        return linear

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., K) -> (..., N), with inputs in full precision."""
        weight = dequantize_weight(weights_of(self)).to(hidden.dtype)
        return F.linear(hidden, weight, None if self.bias is None else self.bias.to(hidden.dtype))


class MinBertInt8Embedding(Int8Module):
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

    def to_float(self, dtype: torch.dtype) -> nn.Embedding:
        """Return an embedding with weights in `dtype`."""
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


class MinBertInt8Config(QuantizationConfigMixin):
    """Weights in int8, for inference: `from_pretrained(..., quantization_config=...)`.

    The dense layers of the encoder are stored in int8, and the word embeddings unless the output
    layer of a masked language model is tied to them. All other weights keep their precision.

    Args:
        word_embeddings: Whether the word embeddings are in int8; None decides by the model.
    """

    def __init__(self, word_embeddings: bool | None = None, quant_method: Any = METHOD) -> None:
        self.quant_method = quant_method
        self.word_embeddings = word_embeddings


class MinBertInt8Quantizer(HfQuantizer):
    """Loads models with weights in int8, and quantizes others while loading."""

    quantization_config: MinBertInt8Config

    def __init__(self, quantization_config: MinBertInt8Config, **kwargs: Any) -> None:
        # of the caller, who may load another model by it
        super().__init__(copy.copy(quantization_config), **kwargs)

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
        for module in filter(is_int8, model.modules()):
            module.requires_grad_(False)  # which loading forgets
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
        del dtype  # of the configuration, where it may be a text
        dtype = model.dtype  # that of the other weights
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
    # do not keep what was replaced
    model.base_model.calls.tree = model.base_model.calls.prepared = None


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
