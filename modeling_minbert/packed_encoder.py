# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The path of packed sequences through the encoder, in training and inference.

`MinBertPackedMixin` takes padding out and runs the layers on the tokens that are left. On the CPU,
inference may have another precision than the weights: these are converted and arranged once, and
again when they have changed. Every call compares them with a copy, since torch does not count
changes through `.data`.

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
    Weights,
    choose_precision,
    count_extra,
    find_predicting,
    is_int8,
    needs_few_shapes,
)
from .packing import MinBertSequences, Options, Read, Reading, Stop, read_padded, run_layers

# Freed memory up to this size stays with the process; see `PreparedEncoder`.
KEPT_BYTES = 31 * 2**20


def round_up(hidden: Tensor) -> Tensor:
    """Add rows of zeros, so that few numbers of rows occur: see `count_extra`."""
    extra = count_extra(len(hidden)) if len(hidden) else 0
    return F.pad(hidden, (0, 0, 0, extra)) if extra else hidden


def weights_of(module: Any) -> Weights:
    """Return the weights of a dense layer."""
    if is_int8(module):
        weights: Weights = module.weights
        return weights
    return Weights(module.weight.detach(), None, module.bias.detach())


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
        self.norms = [
            (*(x.detach().to(product.dtype) for x in (norm.weight, norm.bias)), norm.eps)
            for norm in norms
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
        attended = self.attended.add(context, hidden)
        attended = F.layer_norm(attended, attended.shape[1:], *self.norms[0])
        states = self.outer.add(self.inner(attended), attended)
        return F.layer_norm(states, states.shape[1:], *self.norms[1])


class PreparedEncoder:
    """All layers of an encoder.

    It lets the C library reuse freed memory: glibc returns blocks above a threshold to the system,
    and getting them again costs more than many operations of a layer do. The threshold rises to the
    size of a block that is freed (mallopt(3), M_MMAP_THRESHOLD), even of one that was never used.
    """

    def __init__(self, encoder: Any, precision: str) -> None:
        torch.empty(KEPT_BYTES, dtype=torch.uint8)
        self.layers = [PreparedLayer(layer, precision) for layer in encoder.layer]
        self.dtype: torch.dtype = PRODUCTS[precision].dtype

    def __call__(
        self, hidden: Tensor, sequences: MinBertSequences, stops: Sequence[Stop]
    ) -> list[Tensor]:
        """(T, D) -> (T, D), or (M, D) of the selected tokens, in the same precision, by stop."""

        def run(layer: PreparedLayer, states: Tensor, select: Tensor | None) -> Tensor:
            return layer(states, sequences, select)

        stopped = run_layers(self.layers, round_up(hidden.to(self.dtype)), stops, run)
        counts = (len(hidden) if stop.select is None else len(stop.select) for stop in stops)
        return [
            states[:count].to(hidden.dtype) for states, count in zip(stopped, counts, strict=True)
        ]


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
        if kind is nn.Linear:
            is_plain = module.bias is not None
        else:  # adapters replace dense layers
            is_plain = kind in (nn.LayerNorm, nn.ModuleList) or kind.__name__.startswith("MinBert")
        if not is_plain and next(module.parameters(), None) is not None:
            return True
    return False


def prepare(encoder: Any, precision: str) -> PreparedEncoder | None:
    """Return the prepared layers; None if other code takes part in them, such as hooks."""
    if has_other_code(encoder):
        return None
    settings = []
    for layer in encoder.layer:
        norms = layer.attention.output.LayerNorm, layer.output.LayerNorm
        heads = layer.attention.self.config.num_attention_heads
        settings.append((heads, layer.intermediate.activation, *(norm.eps for norm in norms)))
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
        self, inputs: tuple[Tensor | None, ...], mask: Tensor | None, read: Read, kwargs: Options
    ) -> MinBertSequences | None:
        """Return the sequences of the batch; None for a padded one that stays padded."""
        given: Any = inputs[3] if inputs[0] is None else inputs[0]
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

    def _uses_kernels(self, like: Tensor, kwargs: Options) -> bool:
        """Return whether `attend` computes the attention: for sdpa, if no layer is recorded."""
        for name in ("output_hidden_states", "output_attentions"):
            wanted = kwargs.get(name, getattr(self.config, name, False))
            if wanted is not None and wanted is not False:
                return False
        followed = like.device.type == "cpu" and is_followed(like)
        return not followed and can_attend(self.config, like.dtype, like.device)

    def _forward_packed(
        self,
        inputs: tuple[Tensor | None, ...],
        sequences: MinBertSequences,
        readings: Sequence[Reading],
        kwargs: Options,
    ) -> list[MinBertModelOutput]:
        """Encode the real tokens; of the last layer, only the states that are read."""
        if inputs[2] is None:
            self.embeddings.check_length(sequences.max_length)
        hidden: Tensor = self.embeddings(*sequences.unpad_inputs(*inputs))
        uses_kernels = self._uses_kernels(hidden, kwargs)
        if uses_kernels and needs_few_shapes(hidden):  # zeros round up the number of tokens
            sequences.extra = count_extra(hidden.shape[1])
            hidden = F.pad(hidden, (0, 0, 0, sequences.extra))
        with_first = self.pooler is not None
        chosen = [sequences.choose(reading.read, with_first=with_first) for reading in readings]
        stops = [
            Stop(reading.num_layers, select)
            for reading, (select, _) in zip(readings, chosen, strict=True)
        ]
        if uses_kernels:
            stopped = self._encode_tokens(hidden[0], sequences, stops)
        else:
            stopped = self._encode_masked(hidden, sequences, stops, kwargs)
        return [
            self._read_packed(states, sequences, reading.read, order)
            for states, reading, (_, order) in zip(stopped, readings, chosen, strict=True)
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

    def _encode_tokens(
        self, hidden: Tensor, sequences: MinBertSequences, stops: Sequence[Stop]
    ) -> list[Tensor]:
        """Encode a packed batch by `attend`, (T, D) -> (T, D) or (M, D) for each stop."""
        prepares = hidden.device.type == "cpu" and not torch.is_grad_enabled()
        if prepares and not self.training and not torch.is_autocast_enabled("cpu"):
            call = find_predicting(self)
            precision = call.precision
            if self.is_int8:
                precision = precision or choose_precision("int8", hidden.device)
            elif precision == "float32" and hidden.dtype == torch.float32:
                precision = None  # what the modules of the layers compute
            if precision is not None:
                # weights are compared once in a call that predicts many batches
                call.prepared = call.prepared or prepare(self.encoder, precision)
                if call.prepared is not None:
                    return call.prepared(hidden, sequences, stops)
        with self.autocast(hidden):
            stopped = self.run_encoder(hidden, None, stops, sequences=sequences)
        real = len(hidden) - sequences.extra
        return [
            (states if stop.select is not None else states[:real]).to(hidden.dtype)
            for states, stop in zip(stopped, stops, strict=True)
        ]

    def run_encoder(
        self, hidden: Tensor, mask: object, stops: Sequence[Stop], **kwargs: Any
    ) -> list[Tensor]:
        """Call the stack of layers once; with one stop it returns a tensor, as hooks expect."""
        if len(stops) == 1:
            kwargs |= {"select": stops[0].select, "num_layers": stops[0].num_layers}
            return [self.encoder(hidden, mask, **kwargs)]
        stopped: list[Tensor] = self.encoder(hidden, mask, stops=stops, **kwargs)
        return stopped

    @property
    def is_int8(self) -> bool:
        """Whether the weights are stored in int8."""
        layers = self.encoder.layer
        return bool(len(layers)) and is_int8(layers[0].output.dense)

    def autocast(self, hidden: Tensor) -> AbstractContextManager[object]:
        """Compute the modules of the layers in the precision, where no prepared layers can."""
        if torch.is_grad_enabled() or self.training or is_followed(hidden):
            return nullcontext()
        if find_predicting(self).precision != "bfloat16":
            return nullcontext()
        return torch.autocast(hidden.device.type, torch.bfloat16)

    def _encode_masked(
        self, hidden: Tensor, sequences: MinBertSequences, stops: Sequence[Stop], kwargs: Options
    ) -> list[Tensor]:
        """Encode a packed batch by any attention implementation, (1, T, D) -> (T, D) or (M, D)."""
        mask = make_block_mask(self.config, hidden, sequences)
        offsets, longest = sequences.offsets, sequences.max_length
        # the flash implementations use these instead of a mask
        kwargs = {**kwargs, "cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets}
        kwargs |= {"max_length_q": longest, "max_length_k": longest}
        whole = [stop._replace(select=None) for stop in stops]
        with self.autocast(hidden):
            stopped = self.run_encoder(hidden, mask, whole, **kwargs)
        return [
            (states[0] if stop.select is None else states[0].index_select(0, stop.select)).to(
                hidden.dtype
            )
            for states, stop in zip(stopped, stops, strict=True)
        ]
