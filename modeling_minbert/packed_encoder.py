# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The layers of the encoder in another precision than its weights, for inference on the CPU.

Weights are converted and arranged once, and again when they have changed: every call compares them
with a copy, since torch does not count changes through `.data`.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .attention import attend, can_attend, make_block_mask
from .cpu import is_followed, runs_other_code, walk, walk_parameters
from .int8 import (
    PRODUCTS,
    MinBertCalls,
    Product,
    Weights,
    choose_precision,
    count_extra,
    find_predicting,
    is_int8,
    needs_few_shapes,
)
from .packing import MinBertSequences, Read, Reading, Stop, read_padded, run_layers

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


@dataclass
class MinBertModelOutput(BaseModelOutputWithPooling):
    """States of the encoder; with `sequences`, of the real tokens only, (T, D)."""

    sequences: MinBertSequences | None = None
    readings: tuple[Any, ...] | None = None  # outputs for each of several readings of one pass


class MinBertPackedMixin(nn.Module):
    """The path of `MinBertModel` for batches without padding."""

    config: Any
    embeddings: Any
    encoder: Any
    pooler: Any
    calls: MinBertCalls
    # In which predictions are computed on the CPU or by autocast; None for that of the weights.
    precision: str | None = None

    def _find_sequences(
        self, inputs: tuple[Any, ...], mask: Tensor | None, read: Read, kwargs: Any
    ) -> MinBertSequences | None:
        """Return the sequences of the batch; None for a padded one that stays padded."""
        given = inputs[3] if inputs[0] is None else inputs[0]
        shape = (given.shape[0], given.shape[1])
        if kwargs.get("cu_seq_lens_q") is not None:
            if mask is not None:
                raise ValueError("a packed batch has no padding: leave attention_mask out")
            longest = kwargs.get("max_length_q")
            return MinBertSequences.from_offsets(kwargs["cu_seq_lens_q"], longest, shape)
        if read_padded(read, mask, shape) or is_followed(given) or kwargs.get("is_causal"):
            return None
        like = self.embeddings.LayerNorm.weight
        if not given.numel() or not self._uses_kernels(like, kwargs):
            return None
        # hooks that move states between devices do not move the offsets of sequences
        last: Any = self.encoder.layer[-1] if len(self.encoder.layer) else self.embeddings
        if next(last.parameters()).device != like.device:
            return None
        return MinBertSequences.from_mask(mask, shape, given.device)

    def _uses_kernels(self, like: Tensor, kwargs: Any) -> bool:
        """Return whether `attend` computes the attention: for sdpa, if no layer is recorded."""
        for name in ("output_hidden_states", "output_attentions"):
            wanted = kwargs.get(name, getattr(self.config, name, False))
            if wanted is not None and wanted is not False:
                return False
        followed = like.device.type == "cpu" and is_followed(like)
        return not followed and can_attend(self.config, like.dtype, like.device)

    def _forward_packed(
        self,
        inputs: tuple[Any, ...],
        sequences: MinBertSequences,
        readings: Sequence[Reading],
        kwargs: Any,
    ) -> list[MinBertModelOutput]:
        """Encode the real tokens; of the last layer, only the states that are read."""
        if inputs[2] is None:
            self.embeddings.check_length(sequences.max_length)
        hidden = self._embed_tokens(inputs, sequences, kwargs)
        with_first = self.pooler is not None
        chosen = [sequences.choose(each.read, with_first=with_first) for each in readings]
        stops = [
            Stop(each.num_layers, select)
            for each, (select, _) in zip(readings, chosen, strict=True)
        ]
        if self._uses_kernels(hidden, kwargs):
            found = self._encode_tokens(hidden[0], sequences, stops)
        else:
            found = self._encode_masked(hidden, sequences, stops, kwargs)
        return [
            self._read_packed(states, sequences, each.read, order)
            for states, each, (_, order) in zip(found, readings, chosen, strict=True)
        ]

    def _read_packed(
        self, states: Tensor, sequences: MinBertSequences, read: Read, order: Tensor | None
    ) -> MinBertModelOutput:
        """Return the states that are read, of those that were chosen, (M, D)."""
        if order is not None:
            states = states.index_select(0, order.argsort())
        if isinstance(read, Tensor):
            count = 0 if self.pooler is None else len(sequences.first)
            first, states = states[:count], states[count:]
        elif read == "tokens":
            return MinBertModelOutput(states, sequences=sequences)
        elif read == "first":
            first = states = states.unsqueeze(1)
        else:
            first, states = states.index_select(0, sequences.first), sequences.pad(states)
        pooled = None if self.pooler is None else self.pooler(first.view(-1, 1, first.shape[-1]))
        return MinBertModelOutput(states, pooled)

    def _embed_tokens(
        self, inputs: tuple[Any, ...], sequences: MinBertSequences, kwargs: Any
    ) -> Tensor:
        """Embed the real tokens, and add zeros that round up their number, (1, T + extra, D)."""
        hidden: Tensor = self.embeddings(*sequences.unpad_inputs(*inputs))
        if not needs_few_shapes(hidden) or not self._uses_kernels(hidden, kwargs):
            return hidden
        sequences.extra = count_extra(hidden.shape[1])
        return F.pad(hidden, (0, 0, 0, sequences.extra))

    def _encode_tokens(
        self, hidden: Tensor, sequences: MinBertSequences, stops: Sequence[Stop]
    ) -> list[Tensor]:
        """Encode a packed batch by `attend`, (T, D) -> (T, D) or (M, D) for each stop."""
        if self._may_prepare(hidden):
            call = find_predicting(self)
            if (precision := self._find_precision(call.precision, hidden)) is not None:
                # weights are compared once in a call that predicts many batches
                call.prepared = call.prepared or prepare(self.encoder, precision)
                if call.prepared is not None:
                    return call.prepared(hidden, sequences, stops)
        with self.autocast(hidden):
            found = self.run_encoder(hidden, None, stops, sequences=sequences)
        real = len(hidden) - sequences.extra
        return [
            (states if stop.select is not None else states[:real]).to(hidden.dtype)
            for states, stop in zip(found, stops, strict=True)
        ]

    def run_encoder(
        self, hidden: Tensor, mask: Any, stops: Sequence[Stop], **kwargs: Any
    ) -> list[Tensor]:
        """Call the stack of layers once; with one stop it returns a tensor, as hooks expect."""
        if len(stops) == 1:
            kwargs |= {"select": stops[0].select, "num_layers": stops[0].num_layers}
            return [self.encoder(hidden, mask, **kwargs)]
        found: list[Tensor] = self.encoder(hidden, mask, stops=stops, **kwargs)
        return found

    def _may_prepare(self, hidden: Tensor) -> bool:
        """Return whether prepared layers may compute: on the CPU, without gradients."""
        if hidden.device.type != "cpu" or torch.is_grad_enabled() or self.training:
            return False
        return not torch.is_autocast_enabled("cpu")

    def _find_precision(self, wanted: str | None, hidden: Tensor) -> str | None:
        """Return the precision of prepared layers; None if the layers' own modules compute."""
        if self.is_int8:
            return wanted or choose_precision("int8", hidden.device)
        is_own = wanted == "float32" and hidden.dtype == torch.float32
        return None if is_own else wanted

    @property
    def is_int8(self) -> bool:
        """Whether the weights are stored in int8."""
        layers = self.encoder.layer
        return bool(len(layers)) and is_int8(layers[0].output.dense)

    def autocast(self, hidden: Tensor) -> AbstractContextManager[Any]:
        """Compute the modules of the layers in the precision, where no prepared layers can."""
        if torch.is_grad_enabled() or self.training or is_followed(hidden):
            return nullcontext()
        if find_predicting(self).precision != "bfloat16":
            return nullcontext()
        return torch.autocast(hidden.device.type, torch.bfloat16)

    def _encode_masked(
        self, hidden: Tensor, sequences: MinBertSequences, stops: Sequence[Stop], kwargs: Any
    ) -> list[Tensor]:
        """Encode a packed batch by any attention implementation, (1, T, D) -> (T, D) or (M, D)."""
        mask = make_block_mask(self.config, hidden, sequences)
        offsets, longest = sequences.offsets, sequences.max_length
        # the flash implementations use these instead of a mask
        kwargs = {**kwargs, "cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets}
        kwargs |= {"max_length_q": longest, "max_length_k": longest}
        whole = [stop._replace(select=None) for stop in stops]
        with self.autocast(hidden):
            found = self.run_encoder(hidden, mask, whole, **kwargs)
        return [
            (states[0] if stop.select is None else states[0].index_select(0, stop.select)).to(
                hidden.dtype
            )
            for states, stop in zip(found, stops, strict=True)
        ]
