# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The layers of the encoder in another precision than its weights, for inference on the CPU.

Weights are converted and arranged once, and again when they have changed: every call compares them
with a copy, since torch does not count changes through `.data`.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention_minbert import attend
from .modules_minbert import runs_other_code, walk, walk_parameters
from .packing_minbert import MinBertSequences
from .precision_minbert import count_extra
from .products_minbert import PRODUCTS, Product, Weights
from .quantization_minbert import is_int8
from .readings_minbert import Stop, run_layers

# Freed memory up to this size stays with the process: see `keep_freed_memory`.
KEPT_BYTES = 31 * 2**20


class Norm(NamedTuple):
    """A layer norm."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, module: Any, dtype: torch.dtype) -> "Norm":
        """Convert the weights of a module."""
        return cls(module.weight.detach().to(dtype), module.bias.detach().to(dtype), module.eps)

    def __call__(self, hidden: Tensor) -> Tensor:
        """(T, D) -> (T, D)."""
        return F.layer_norm(hidden, hidden.shape[1:], self.weight, self.bias, self.eps)


def round_up(hidden: Tensor) -> Tensor:
    """Add rows of zeros, so that few numbers of rows occur: see `count_extra`."""
    extra = count_extra(len(hidden)) if len(hidden) else 0
    return F.pad(hidden, (0, 0, 0, extra)) if extra else hidden


class PreparedLayer:
    """A layer of the encoder; query, key and value are one product."""

    def __init__(self, layer: Any, precision: str) -> None:
        product = PRODUCTS[precision]
        own = layer.attention.self
        self.heads: int = own.config.num_attention_heads
        self.projection: Product = product(_join([own.query, own.key, own.value]), None)
        self.attended: Product = product(weights_of(layer.attention.output.dense), None)
        activation = layer.intermediate.activation
        self.inner: Product = product(weights_of(layer.intermediate.dense), activation)
        self.outer: Product = product(weights_of(layer.output.dense), None)
        self.norms = [
            Norm.of(each.LayerNorm, product.dtype)
            for each in (layer.attention.output, layer.output)
        ]

    def __call__(
        self, hidden: Tensor, sequences: MinBertSequences, select: Tensor | None
    ) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens."""
        tokens = int(sequences.offsets[-1])  # the rows after them are padding
        query, key, value = self.projection(hidden)[:tokens].chunk(3, dim=1)
        if select is not None:
            query, hidden = query.index_select(0, select), round_up(hidden.index_select(0, select))
        context = round_up(attend(query, key, value, sequences, self.heads, select=select))
        attended = self.norms[0](self.attended.add(context, hidden))
        return self.norms[1](self.outer.add(self.inner(attended), attended))


class PreparedEncoder:
    """All layers of an encoder."""

    def __init__(self, encoder: Any, precision: str) -> None:
        keep_freed_memory()
        self.layers = [PreparedLayer(layer, precision) for layer in encoder.layer]
        self.dtype: torch.dtype = PRODUCTS[precision].dtype

    def __call__(
        self,
        hidden: Tensor,
        sequences: MinBertSequences,
        stops: Sequence[Stop],
    ) -> list[Tensor]:
        """(T, D) -> (T, D), or (M, D) of the selected tokens, in the same precision, by stop."""

        def run(layer: PreparedLayer, states: Tensor, select: Tensor | None) -> Tensor:
            return layer(states, sequences, select)

        found = run_layers(self.layers, round_up(hidden.to(self.dtype)), stops, run)
        counts = (len(hidden) if stop.select is None else len(stop.select) for stop in stops)
        return [
            states[:count].to(hidden.dtype) for states, count in zip(found, counts, strict=True)
        ]


def weights_of(module: Any) -> Weights:
    """Return the weights of a dense layer."""
    if is_int8(module):
        weights: Weights = module.weights
        return weights
    return Weights(module.weight.detach(), None, module.bias.detach())


def _join(modules: list[Any]) -> Weights:
    """Put the outputs of several layers side by side."""
    weight, scale, bias = zip(*map(weights_of, modules), strict=True)
    joined = None if scale[0] is None else torch.cat(scale)
    return Weights(torch.cat(weight), joined, torch.cat(bias))


class _Prepared(NamedTuple):
    settings: list[Any]
    weights: list[Tensor]  # copies of those that were prepared
    encoders: dict[str, PreparedEncoder]  # by precision

    def fits(self, settings: list[Any], weights: list[Tensor]) -> bool:
        """Return whether neither settings nor weights have changed."""
        return (
            self.settings == settings
            and [each.dtype for each in self.weights] == [each.dtype for each in weights]
            and all(map(torch.equal, self.weights, weights))
        )


# Not attributes of the models: they are neither copied, pickled nor saved.
_PREPARED: WeakKeyDictionary[nn.Module, _Prepared] = WeakKeyDictionary()


def prepare(encoder: Any, precision: str) -> PreparedEncoder | None:
    """Return the prepared layers; None if other code takes part in them, such as hooks."""
    if not all(map(_is_plain, walk(encoder))):
        return None
    settings = list(map(_list_settings, encoder.layer))
    weights = [parameter.detach() for parameter in walk_parameters(encoder)]
    known = _PREPARED.get(encoder)
    if known is None or not known.fits(settings, weights):
        # copied first: a change while they are prepared shows at the next call
        known = _Prepared(settings, [each.clone() for each in weights], {})
        _PREPARED[encoder] = known
    if precision not in known.encoders:
        known.encoders[precision] = PreparedEncoder(encoder, precision)
    return known.encoders[precision]


def _list_settings(layer: Any) -> tuple[Any, ...]:
    """List what a prepared layer takes from a layer beside its weights."""
    heads = layer.attention.self.config.num_attention_heads
    norms = layer.attention.output.LayerNorm, layer.output.LayerNorm
    return heads, layer.intermediate.activation, *(norm.eps for norm in norms)


def _is_plain(module: nn.Module) -> bool:
    """Return whether a module is what this code computes: adapters replace dense layers."""
    if module.training or runs_other_code(module):
        return False
    own = type(module)
    if own is nn.Linear:
        return module.bias is not None
    is_known = own in (nn.LayerNorm, nn.ModuleList) or own.__name__.startswith("MinBert")
    return is_known or next(module.parameters(), None) is None


def keep_freed_memory() -> None:
    """Let the C library reuse freed memory instead of returning it to the system.

    glibc returns blocks above a threshold, and getting them again costs more than many operations
    of a layer do. It raises the threshold to the size of a block that is freed (mallopt(3),
    M_MMAP_THRESHOLD), even of one that was never used.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)
