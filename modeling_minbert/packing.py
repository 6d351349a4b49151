# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Sequences without padding: their path through the encoder, and their vectors.

Shapes: N sequences, of T tokens in all, from B rows and L columns; M queries (T, or only the tokens
whose state is read), H heads, D hidden size.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask, packed_sequence_mask_function
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

from .attention import Plan, attend_cpu, attend_cuda, can_attend, join_bias
from .cpu import (
    MinBertCalls,
    choose_precision,
    count_extra,
    find_predicting,
    find_tree,
    is_followed,
    needs_few_shapes,
)
from .rows import warn_once

# Which states are read, as `MinBertModel.forward` explains.
Read = Tensor | Literal["first", "tokens", "padded"] | None
# These, and after how many layers of the encoder.
States = tuple[Read, int | None]

# Keyword arguments of a forward pass.
Options = dict[str, Any]


def read_padded(read: Read, mask: object, shape: tuple[int, int]) -> bool:
    """Return whether states of paddings are read, or the mask is not a padding mask."""
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape != shape:
        raise ValueError(
            f"attention_mask has the shape {tuple(mask.shape)}, but the tokens have {shape}"
        )
    if mask is not None and getattr(mask, "shape", None) != shape:
        return True
    return any_at_padding(read, mask) if isinstance(read, Tensor) else read == "padded"


def any_at_padding(chosen: Tensor, mask: Any) -> bool:
    """Return whether a padding is among the chosen tokens, (B, L), of a padding mask."""
    if getattr(mask, "shape", None) != chosen.shape:
        return False
    # a traced program cannot depend on the answer; True is always correct
    return is_followed(chosen) or bool((chosen & (mask == 0)).any())


@dataclass(eq=False)
class MinBertSequences:
    """The sequences of a packed batch, concatenated to T tokens."""

    offsets: Tensor  # where each sequence begins, and T, (N + 1,), int32
    max_length: int  # tokens of the longest sequence, or more
    rows: Tensor | None  # place of each token in the padded batch, (T,); None without padding
    shape: tuple[int, int]  # (B, L) of the padded batch, (1, T) of one that came packed
    # Plans of attention on the CPU, by number of heads and window; made once for all layers.
    plans: dict[tuple[int, int | None], Plan] = field(default_factory=dict)
    # First token, end and number of adjacent sequences of equal length, if they are read so.
    runs: list[tuple[int, int, int]] | None = None
    # Tokens after the last sequence that belong to none; their states are not read.
    extra: int = 0
    # Added to the scores of all layers, by distance, (H, L, L); None for an encoder without.
    bias: Tensor | None = None
    # Cosines and sines of the positions, of global and of local layers; None without rotation.
    angles: Any = None
    _segments: Tensor | None = None

    @classmethod
    def from_mask(
        cls, mask: Tensor | None, shape: tuple[int, int], device: torch.device
    ) -> "MinBertSequences | None":
        """Find real tokens by a mask, (B, L), if there is one; None if a first token is padding."""
        batch, length = shape
        if mask is not None:
            real = mask != 0
            lengths = real.sum(dim=1)
            starts, total = torch.stack([real[:, 0].sum(), lengths.sum()]).tolist()
            if starts < batch:
                return None
            if total < batch * length:
                rows = real.flatten().nonzero().squeeze(1)
                offsets = F.pad(lengths.cumsum(0), (1, 0)).int()
                return cls(offsets, length, rows, shape)
        offsets = torch.arange(
            0, batch * length + 1, max(length, 1), dtype=torch.int32, device=device
        )
        return cls(offsets, length, None, shape)

    @classmethod
    def from_offsets(
        cls, offsets: Tensor, max_length: int | None, shape: tuple[int, int]
    ) -> "MinBertSequences":
        """Check and take a packed batch; `max_length` may be None on the CPU."""
        # Checking the values elsewhere would synchronize the device.
        if shape[0] != 1 or offsets.dim() != 1:
            raise ValueError(
                "a packed batch is (1, T) tokens with cu_seq_lens_q of (N + 1,), got "
                f"{shape} and {tuple(offsets.shape)}"
            )
        if offsets.device.type == "cpu" and not is_followed(offsets):
            starts = offsets.tolist()
            lengths = [end - start for start, end in pairwise(starts)]
            if (starts[:1], starts[-1:]) != ([0], [shape[1]]) or min(lengths, default=0) < 1:
                raise ValueError(
                    f"cu_seq_lens_q must ascend from 0 to the {shape[1]} tokens, without an empty "
                    f"sequence, got {starts}"
                )
            longest = max(lengths)
            max_length = longest if max_length is None else max_length
            if max_length < longest:
                raise ValueError(f"max_length_q={max_length}, but a sequence has {longest} tokens")
        if max_length is None:
            raise ValueError(
                "a packed batch needs max_length_q, the tokens of its longest sequence"
            )
        return cls(offsets.int(), int(max_length), None, shape)

    @property
    def tokens(self) -> int:
        """The number of tokens, T."""
        return self.shape[0] * self.shape[1] if self.rows is None else len(self.rows)

    @property
    def first(self) -> Tensor:
        """The first token of every sequence, (N,)."""
        return self.offsets[:-1].long()

    @property
    def segments(self) -> Tensor:
        """The index of the sequence of each token, (T,)."""
        if self._segments is None:
            tokens = torch.arange(self.tokens, device=self.offsets.device, dtype=torch.int32)
            # with the offsets from the second on, compiled code would search all of them on a GPU
            # (https://github.com/pytorch/pytorch/issues/182343)
            self._segments = torch.searchsorted(self.offsets, tokens, right=True) - 1
        return self._segments

    def positions(self) -> Tensor:
        """Return the position of each token in its sequence, (T,)."""
        segments = self.segments
        return torch.arange(len(segments), device=segments.device) - self.first[segments]

    def unpad_inputs(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """Take the real tokens of inputs, (B, L) -> (1, T); positions default to columns."""
        batch: list[Tensor | None] = []
        for given in inputs:
            # (1, L) holds for all rows
            real = None if given is None else given.expand(*self.shape, *given.shape[2:])
            batch.append(None if real is None else self.unpad(real).unsqueeze(0))
        if inputs[2] is None:
            columns = self.positions() if self.rows is None else self.rows % self.shape[1]
            batch[2] = columns.unsqueeze(0)
        return tuple(batch)

    def choose(self, read: Read, *, with_first: bool) -> tuple[Tensor | None, Tensor | None]:
        """Return the tokens that are read, ascending, (M,), None for all, and an order.

        `with_first` puts the first tokens before them. The order, (M,), gives each token its place
        among the requested ones; None if it is ascending.
        """
        if not isinstance(read, Tensor):
            return (self.first, None) if read == "first" else (None, None)
        if read.dtype == torch.bool:
            read = self.unpad(read).nonzero().squeeze(1)
            if not with_first:
                return read, None
        tokens = torch.cat([self.first, read]) if with_first else read
        select, order = tokens.sort()
        return select, order

    def unpad(self, values: Tensor) -> Tensor:
        """Remove the padding, (B, L, ...) -> (T, ...)."""
        flat = values.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def pad(self, values: Tensor) -> Tensor:
        """Restore the padding, as zeros, (T, ...) -> (B, L, ...)."""
        if self.rows is not None:
            cells = self.shape[0] * self.shape[1]
            values = values.new_zeros(cells, *values.shape[1:]).index_copy(0, self.rows, values)
        return values.unflatten(0, self.shape)

    def pool(self, values: Tensor, pooling: str) -> Tensor:
        """Return the first token, the mean or the maximum of every sequence, (T, D) -> (N, D)."""
        if pooling == "cls":
            return values.index_select(0, self.first)
        count = len(self.offsets) - 1
        if pooling == "max":
            # segment_reduce would count a negative gradient once for each of several maxima
            index = self.segments.unsqueeze(1).expand_as(values)
            least = values.new_full((count, values.shape[1]), -torch.inf)
            return least.scatter_reduce(0, index, values, "amax", include_self=False)
        # summed in float32: half precision would lose the last of many tokens
        dtype = torch.promote_types(values.dtype, torch.float32)
        if count == 1:
            return values.mean(dim=0, keepdim=True, dtype=dtype).to(values.dtype)
        sums = values.new_zeros(count, values.shape[1], dtype=dtype)
        sums = sums.index_add(0, self.segments, values.to(dtype))
        return (sums / self.offsets.diff().clamp(min=1).unsqueeze(1)).to(values.dtype)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        heads: int,
        *,
        select: Tensor | None = None,
        dropout: float = 0.0,
        window: int | None = None,
    ) -> Tensor:
        """Attend within each sequence, query (M, D), key and value (T, D) -> (M, D).

        With a `window`, for all tokens, those that are at most so far apart attend to each other.
        """
        if not len(query):
            # in the graph, as with queries: every rank of DDP needs a gradient, if only of zeros
            return query + 0 * (key.sum() + value.sum())
        if window is not None and self.max_length <= window + 1:
            window = None
        if query.device.type == "cpu":
            return attend_cpu(query, key, value, self, heads, select, dropout, window)
        offsets = query_offsets = self.offsets
        if select is not None:
            query_offsets = torch.searchsorted(select, offsets.long(), out_int32=True)
        # positions are distinct, but the first token may be selected twice
        lengths = (min(self.max_length + 1, len(query)), self.max_length)
        q, k, v = (states.unflatten(1, (heads, -1)) for states in (query, key, value))
        return attend_cuda(q, k, v, dropout, (query_offsets, offsets, *lengths), window).flatten(1)

    def ignore_beyond(self, positions: Tensor | None) -> Tensor | None:
        """Move positions beyond their sequence, (N,), to `max_length`, beyond all of them."""
        if positions is None:
            return None
        return positions.masked_fill(positions >= self.offsets.diff(), self.max_length)

    def to_rows(self, values: Tensor, padding: float) -> Tensor:
        """Pad every sequence to a separate row, (T, ...) -> (N, max_length, ...)."""
        count = len(self.offsets) - 1
        rows = values.new_full((count * self.max_length, *values.shape[1:]), padding)
        places = self.segments * self.max_length + self.positions()
        return rows.index_copy(0, places, values).unflatten(0, (count, self.max_length))


# Vectors


def pool(hidden: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """Pool states, (N, L, D) -> (N, D); `mask` is 0 for padding, (N, L); special tokens count."""
    # Source: Reimers and Gurevych 2019, section 3.
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(dim=1) if pooling == "mean" else hidden.amax(dim=1)
    real = mask.unsqueeze(-1).bool()
    if pooling == "max":
        most = hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)
        return most.masked_fill(~real.any(dim=1), 0)  # of padding alone, as the mean
    # in float32, as of packed sequences: the sum of a long text overflows in float16
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    total = hidden.masked_fill(~real, 0).sum(dim=1, dtype=dtype)
    return (total / real.sum(dim=1).clamp(min=1)).to(hidden.dtype)


def reads(pooling: str | None) -> Read:
    """Return which states a pooling needs."""
    return "tokens" if pooling in ("mean", "max") else "first"


def pool_outputs(outputs: Any, mask: Tensor | None, pooling: str | None) -> Tensor:
    """Pool the output of the encoder, packed or padded, to (N, D)."""
    if pooling is None or pooling == "pooler":
        return outputs.pooler_output
    if outputs.sequences is not None:
        return outputs.sequences.pool(outputs.last_hidden_state, pooling)
    return pool(outputs.last_hidden_state, mask, pooling)


# Encoder


def make_block_mask(config: PreTrainedConfig, hidden: Tensor, sequences: MinBertSequences) -> Any:
    """Make the mask that keeps sequences apart where `attend` cannot; hidden is (1, T, D)."""
    segments = sequences.segments.unsqueeze(0)
    if config._attn_implementation == "sdpa":  # plain, so that it can be compiled
        return (segments.unsqueeze(2) == segments.unsqueeze(1)).unsqueeze(1)
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=hidden,
        attention_mask=None,
        and_mask_function=packed_sequence_mask_function(segments),
    )


@dataclass
class MinBertModelOutput(BaseModelOutputWithPooling):
    """States of the encoder; with `sequences`, of the real tokens only, (T, D)."""

    sequences: MinBertSequences | None = None


@dataclass
class MinBertForPreTrainingOutput(BertForPreTrainingOutput):
    """Outputs of pre-training, with the two losses whose sum is `loss`."""

    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None


def check_length(length: int, longest: int) -> None:
    """Refuse a sequence that is longer than the positions of a model."""
    if length > longest:
        raise ValueError(
            f"a sequence of {length} tokens is longer than the {longest} that the model can read "
            "(see max_position_embeddings): truncate it when tokenizing"
        )


def check_restarts(positions: Tensor) -> None:
    """Refuse positions, (1, T), of a packed batch that comes without its offsets."""
    if positions.device.type != "cpu" or is_followed(positions):
        return
    restarts = (positions[0, 1:] == 0) & (positions[0, :-1] > 0)
    if restarts.any():
        place = int(restarts.nonzero()[0]) + 1
        raise ValueError(
            f"position_ids restart at token {place}, as in a packed batch, but there are no offsets"
            " of its sequences: pass cu_seq_lens_q and max_length_q, as "
            "DataCollatorWithFlattening(return_flash_attn_kwargs=True) does"
        )


class MinBertPackedMixin(nn.Module):
    """The path of `MinBertModel` for batches without padding."""

    config: Any
    embeddings: Any
    encoder: Any
    pooler: Any
    calls: MinBertCalls
    # In which predictions are computed on the CPU or by autocast; None for that of the weights.
    precision: str | None = None
    # Whether weights change only by operations that torch counts; see `set_precision`.
    fixed_weights: bool = False

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
        if mask is None and shape[0] == 1 and inputs[2] is not None:
            check_restarts(inputs[2])
        # the noise of NEFTune is scaled by the columns of a padded batch
        is_noisy = hasattr(self.embeddings.word_embeddings, "neftune_noise_alpha")
        is_padded = read_padded(read, mask, shape) or is_followed(given) or is_noisy
        if is_padded or kwargs.get("is_causal"):
            return None
        # a bias and a window go by columns, in which holes count
        by_columns = self.config.relative_attention_num_buckets or self.config.local_attention
        if mask is not None and by_columns:
            has_holes = is_followed(mask) or bool((mask.diff(dim=1) > 0).any())
            if has_holes:
                return None
        like = self.embeddings.LayerNorm.weight
        if not given.numel() or not self._uses_kernels(like, kwargs):
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
        read: Read,
        num_layers: int | None,
        kwargs: Options,
    ) -> MinBertModelOutput:
        """Encode the real tokens; of the last layer, only the states that are read."""
        if inputs[2] is None:
            check_length(sequences.max_length, self.config.longest_sequence)
        batch: Any = sequences.unpad_inputs(inputs)
        ids, types, places, vectors = batch
        is_packed = kwargs.get("cu_seq_lens_q") is not None
        # CODEPATH: roberta, xlm-roberta, camembert, mpnet; in all others positions are columns
        if self.config.position_offset and is_packed and ids is not None:
            first = sequences.first.index_select(0, sequences.segments)
            places = self.embeddings.count_positions(ids, places, first)
        hidden: Tensor = self.embeddings(ids, types, places, vectors)
        select, order = sequences.choose(read, with_first=self.pooler is not None)
        sequences.bias = self.encoder.make_bias(sequences.max_length)
        if self._uses_kernels(hidden, kwargs):
            positions = places[0]
            if needs_few_shapes(hidden):  # zeros round up the number of tokens
                sequences.extra = count_extra(hidden.shape[1])
                hidden = F.pad(hidden, (0, 0, 0, sequences.extra))
                positions = F.pad(positions, (0, sequences.extra))
            sequences.angles = self.encoder.make_angles(positions, hidden.dtype)
            states = self._encode_tokens(hidden[0], sequences, select, num_layers)
        else:
            mask = make_block_mask(self.config, hidden, sequences)
            if sequences.bias is not None:
                columns = sequences.positions()
                bias = sequences.bias[:, columns.unsqueeze(1), columns]
                mask = join_bias(bias.unsqueeze(0), mask)
            # the flash implementations use these instead of a mask
            for side in ("q", "k"):
                kwargs = {**kwargs, f"cu_seq_lens_{side}": sequences.offsets}
                kwargs[f"max_length_{side}"] = sequences.max_length
            with self.autocast(hidden):
                states = self.encoder(
                    hidden, mask, num_layers=num_layers, position_ids=places, **kwargs
                )[0]
            states = states if select is None else states.index_select(0, select)
        states = states.to(hidden.dtype)
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
        self,
        hidden: Tensor,
        sequences: MinBertSequences,
        select: Tensor | None,
        num_layers: int | None,
    ) -> Tensor:
        """Encode a packed batch by `attend`, (T, D) -> (T, D) or (M, D)."""
        prepares = hidden.device.type == "cpu" and not torch.is_grad_enabled()
        if prepares and not self.training and not torch.is_autocast_enabled("cpu"):
            call = find_predicting(self)
            precision = call.precision
            if self.is_int8:
                precision = precision or choose_precision("int8", hidden.device)
            elif precision == "float32" and hidden.dtype == torch.float32:
                precision = None  # what the modules of the layers compute
            if precision is not None:
                from .prepared import prepare

                # weights are compared once in a call that predicts many batches
                call.prepared = call.prepared or prepare(self, precision)
                if call.prepared is not None:
                    states: Tensor = call.prepared(hidden, sequences, select, num_layers)
                    return states
        with self.autocast(hidden):
            states = self.encoder(
                hidden, None, select=select, num_layers=num_layers, sequences=sequences
            )
        return states if select is not None else states[: len(hidden) - sequences.extra]

    @property
    def is_int8(self) -> bool:
        """Whether the weights are stored in int8."""
        return "weight_scale" in find_tree(self).names

    def autocast(self, hidden: Tensor) -> AbstractContextManager[object]:
        """Compute the modules of the layers in the precision, where no prepared layers can."""
        if torch.is_grad_enabled() or self.training or is_followed(hidden):
            return nullcontext()
        precision = find_predicting(self).precision
        if precision == "bfloat16":
            return torch.autocast(hidden.device.type, torch.bfloat16)
        is_lost = precision == "int8" and not self.is_int8
        if is_lost or (precision == "float32" and hidden.dtype != torch.float32):
            warn_once(
                f"{precision} is not computed, but the precision of the weights: that needs a CPU, "
                "sdpa as attn_implementation, no padding before a text, and an encoder without "
                "hooks or modules of others, such as adapters"
            )
        return nullcontext()
