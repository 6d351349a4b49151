# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The encoder on the T real tokens of (B, L), in N sequences, M tokens read; D hidden size."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .attention_minbert import can_attend, make_block_mask
from .cpu_minbert import is_followed
from .packing_minbert import MinBertSequences, Read, read_padded
from .precision_minbert import (
    MinBertCalls,
    choose_precision,
    count_extra,
    find_predicting,
    needs_few_shapes,
)
from .prepared_encoder_minbert import prepare
from .quantization_minbert import is_int8
from .readings_minbert import Reading, Stop


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
