# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Sequences without padding: N, of T tokens in all, from B rows and L columns; D hidden size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

from .cpu import changes_output, is_followed

# Which states are read, as `MinBertModel.forward` explains.
Read = Tensor | Literal["first", "tokens", "padded"] | None


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


def read_labeled(model: Any, labels: Tensor | None, mask: Tensor | None, kwargs: Options) -> Read:
    """Return the labeled tokens, (B, L) or (M,); None or `padded` for all if others are scored."""
    positions: Tensor | None = kwargs.pop("label_positions", None)
    packed = kwargs.get("cu_seq_lens_q") is not None
    if positions is not None and not packed:
        raise ValueError("label_positions are for a packed batch, with cu_seq_lens_q")
    if labels is None:
        return None
    sparse = packed or (model.training and not is_followed(labels))
    if not sparse or not model.config.sparse_prediction:
        return "padded" if any_at_padding(labels != -100, mask) else None
    return labels != -100 if positions is None else positions


def labels_at(labels: Tensor, read: Tensor) -> Tensor:
    """Return the labels of the tokens that are read, (M,)."""
    return labels[read] if read.dtype == torch.bool else labels.flatten()[read]


@dataclass(eq=False)
class MinBertSequences:
    """The sequences of a packed batch, concatenated to T tokens."""

    offsets: Tensor  # where each sequence begins, and T, (N + 1,), int32
    max_length: int  # tokens of the longest sequence, or more
    rows: Tensor | None  # place of each token in the padded batch, (T,); None without padding
    shape: tuple[int, int]  # (B, L) of the padded batch, (1, T) of one that came packed
    # Plans of attention on the CPU, by number of heads; made once for all layers.
    plans: dict[int, Any] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] | None = None  # of equal lengths, if that is how they are read
    # Tokens after the last sequence that belong to none; their states are not read.
    extra: int = 0
    _segments: Tensor | None = None

    @classmethod
    def from_mask(
        cls, mask: Tensor | None, shape: tuple[int, int], device: torch.device
    ) -> "MinBertSequences | None":
        """Find real tokens by a mask, (B, L); None if all are, or a first token is padding."""
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
            lengths = offsets.diff()
            if offsets[0] != 0 or offsets[-1] != shape[1] or (lengths < 1).any():
                raise ValueError(
                    f"cu_seq_lens_q must ascend from 0 to the {shape[1]} tokens, without an empty "
                    f"sequence, got {offsets.tolist()}"
                )
            longest = int(lengths.max())
            max_length = longest if max_length is None else max_length
            if max_length < longest:
                raise ValueError(f"max_length_q={max_length}, but a sequence has {longest} tokens")
        if max_length is None:
            raise ValueError(
                "a packed batch needs max_length_q, the tokens of its longest sequence"
            )
        return cls(offsets.int(), int(max_length), None, shape)

    @property
    def first(self) -> Tensor:
        """The first token of every sequence, (N,)."""
        return self.offsets[:-1].long()

    @property
    def segments(self) -> Tensor:
        """The index of the sequence of each token, (T,)."""
        if self._segments is None:
            total = self.shape[0] * self.shape[1] if self.rows is None else len(self.rows)
            tokens = torch.arange(total, device=self.offsets.device, dtype=torch.int32)
            # with the offsets from the second on, compiled code would search all of them on a GPU
            # (https://github.com/pytorch/pytorch/issues/182343)
            self._segments = torch.searchsorted(self.offsets, tokens, right=True) - 1
        return self._segments

    def positions(self) -> Tensor:
        """Return the position of each token in its sequence, (T,)."""
        segments = self.segments
        return torch.arange(len(segments), device=segments.device) - self.first[segments]

    def unpad_inputs(
        self,
        input_ids: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        """Take the real tokens of inputs, (B, L) -> (1, T); positions default to columns."""
        batch: list[Tensor | None] = []
        for given in (input_ids, token_type_ids, position_ids, inputs_embeds):
            # (1, L) holds for all rows
            real = None if given is None else given.expand(*self.shape, *given.shape[2:])
            batch.append(None if real is None else self.unpad(real).unsqueeze(0))
        if position_ids is None:
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
        sums = values.new_zeros(count, values.shape[1], dtype=dtype)
        sums = sums.index_add(0, self.segments, values.to(dtype))
        return (sums / self.offsets.diff().clamp(min=1).unsqueeze(1)).to(values.dtype)

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


Pooling = Literal["cls", "pooler", "mean", "max"]


def pool(hidden: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """Pool states, (N, L, D) -> (N, D); `mask` is 0 for padding, (N, L); special tokens count."""
    # Source: Reimers and Gurevych 2019, section 3.
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(dim=1) if pooling == "mean" else hidden.amax(dim=1)
    real = mask.unsqueeze(-1).bool()
    if pooling == "max":
        return hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)
    total = hidden.masked_fill(~real, 0).sum(dim=1)
    return total / real.sum(dim=1).clamp(min=1).to(hidden.dtype)


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


class Reading(NamedTuple):
    """Which states to return, and after how many layers; see `MinBertModel.forward`."""

    read: Read = None
    num_layers: int | None = None


class Stop(NamedTuple):
    """Where states leave the stack of layers."""

    num_layers: int | None  # from the bottom; None for all
    select: Tensor | None  # tokens that are read, (M,); None for all


def run_layers(
    layers: Any,
    hidden: Tensor,
    stops: Sequence[Stop],
    run: Callable[[Any, Tensor, Tensor | None], Tensor],
) -> list[Tensor]:
    """Run the layers once, and return the states of each stop, (T, D) or (M, D).

    A layer from which only some tokens are read computes these alone. If other stops need more of
    it, it runs for these, too: so the states are the same, bit for bit, as those of a single stop.

    Args:
        layers: A sequence of all layers, from the bottom.
        hidden: Input of the first layer.
        stops: Where states are read.
        run: Maps a layer, its input, and the selected tokens to the states.
    """
    depths = [len(layers[: stop.num_layers]) for stop in stops]
    found: list[Tensor] = [hidden] * len(stops)
    for depth in range(max(depths) + 1):
        compute = partial(run, layers[depth - 1]) if depth else _select
        ending = [place for place, own in enumerate(depths) if own == depth]
        before = hidden
        if depth < max(depths) or any(stops[x].select is None for x in ending):
            hidden = compute(before, None)
        for place in ending:
            select = stops[place].select
            found[place] = hidden if select is None else compute(before, select)
    return found


def _select(hidden: Tensor, select: Tensor | None) -> Tensor:
    """Return the selected states, or all: what a layer does that computes nothing."""
    return hidden if select is None else hidden.index_select(0, select)


def strictest(readings: Sequence[Reading]) -> Read:
    """Return a reading that decides for all whether a batch stays padded."""
    reads = [reading.read for reading in readings]
    return next((read for read in reads if isinstance(read, str) and read == "padded"), reads[0])


def encode_readings(
    encoder: nn.Module, inputs: Sequence[Any], readings: Sequence[Reading], options: Options
) -> dict[Reading, Any]:
    """Run the encoder once, and return its output for each of several readings.

    A hook may change what the encoder returns, which is a single output. With such a hook, or if
    there is only one reading, the encoder runs once per reading.
    """
    inner: Any = encoder
    if len(readings) == 1 or changes_output(encoder) or changes_output(inner.encoder):
        return {
            each: encoder(*inputs, return_dict=True, **each._asdict(), **options)
            for each in readings
        }
    outputs = encoder(*inputs, return_dict=True, readings=readings, **options)
    return dict(zip(readings, outputs.readings, strict=True))


@dataclass
class MinBertForPreTrainingOutput(BertForPreTrainingOutput):
    """Outputs of pre-training, with the two losses whose sum is `loss`."""

    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None
