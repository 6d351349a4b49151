# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Sequences without padding: where they begin and end, and how their tokens find each other.

Shapes: B rows and L columns of a padded batch, N sequences, T real tokens of all of them, H
attention heads, d size of a head.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from .tracing_minbert import is_followed

# Which states are read, as `MinBertModel.forward` explains.
Read = Tensor | Literal["first", "tokens", "padded"] | None


def read_padded(read: Read, mask: Any, shape: tuple[int, int]) -> bool:
    """Return whether states of paddings are read, or the mask is no padding mask.

    Args:
        read: What is read.
        mask: None, or what BERT takes as a mask.
        shape: (B, L) of the batch.

    Raises:
        ValueError: If a mask of paddings has another shape.
    """
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape != shape:
        raise ValueError(
            f"attention_mask is {tuple(mask.shape)} for tokens of {shape}; they must be alike"
        )
    if mask is not None and getattr(mask, "shape", None) != shape:
        return True
    return any_at_padding(read, mask) if isinstance(read, Tensor) else read == "padded"


def any_at_padding(chosen: Tensor, mask: Any) -> bool:
    """Return whether a padding is among the chosen tokens, (B, L), of a padding mask."""
    if getattr(mask, "shape", None) != chosen.shape:
        return False
    # a program cannot depend on the answer; what BERT does is always right
    return is_followed(chosen) or bool((chosen & (mask == 0)).any())


def read_labelled(
    model: Any, labels: Tensor | None, mask: Tensor | None, kwargs: dict[str, Any]
) -> Read:
    """Find the labelled tokens, if no others are to be scored.

    Args:
        model: In training it scores no others, unless its configuration forbids that.
        labels: (B, L), -100 where nothing is predicted; None if there are none.
        mask: 0 for padding, (B, L); None if there is none.
        kwargs: Of the model; a packed batch may name the tokens as `label_positions`, (M,), all
            different, some of them without a label, which is taken out.

    Raises:
        ValueError: If there are such positions for a padded batch.
    """
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
    """Take the labels of the tokens that are read, (M,)."""
    return labels[read] if read.dtype == torch.bool else labels.flatten()[read]


class MinBertSequences:
    """The sequences of a packed batch, one after the other in T tokens.

    Args:
        offsets: Where each sequence begins, and T, (N + 1,), int32.
        max_length: Tokens of the longest sequence, or more.
        rows: For each token its place in the padded batch, (T,); None if it came packed, or without
            padding.
        shape: (B, L) of the padded batch, (1, T) of one that came packed.
    """

    def __init__(
        self, offsets: Tensor, max_length: int, rows: Tensor | None, shape: tuple[int, int]
    ) -> None:
        self.offsets = offsets
        self.max_length = max_length
        self.rows = rows
        self.shape = shape
        # How the CPU computes attention, by number of heads; made once and used by every layer.
        self.plans: dict[int, Any] = {}
        self._segments: Tensor | None = None

    @classmethod
    def from_mask(
        cls, mask: Tensor | None, shape: tuple[int, int], device: torch.device
    ) -> "MinBertSequences | None":
        """Find the real tokens of a padded batch.

        Args:
            mask: Not 0 for real tokens, (B, L); None if all are real.
            shape: (B, L).
            device: Where the tokens are.

        Returns:
            The sequences; None if one does not begin with a real token, so that "the first token"
            would mean another one than in the padded batch.
        """
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
        """Take a packed batch as it came.

        Args:
            offsets: Where each sequence begins, and T, (N + 1,).
            max_length: Tokens of the longest sequence; may be None on the CPU.
            shape: (1, T).

        Raises:
            ValueError: If the offsets do not fit the tokens. Their values are looked at on the CPU
                only; elsewhere that would wait for the device.
        """
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
        """The number of the sequence that each token belongs to, (T,)."""
        if self._segments is None:
            total = self.shape[0] * self.shape[1] if self.rows is None else len(self.rows)
            tokens = torch.arange(total, device=self.offsets.device, dtype=torch.int32)
            self._segments = torch.searchsorted(self.offsets[1:].contiguous(), tokens, right=True)
        return self._segments

    def positions(self) -> Tensor:
        """The position of each token in its sequence, (T,)."""
        segments = self.segments
        return torch.arange(len(segments), device=segments.device) - self.first[segments]

    def unpad_inputs(
        self,
        input_ids: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        """Take the real tokens of what the embeddings read, each (B, L) -> (1, T).

        Without positions a token's is its column in the padded batch.
        """
        batch: list[Tensor | None] = []
        for given in (input_ids, token_type_ids, position_ids, inputs_embeds):
            # (1, L) is for all rows
            real = None if given is None else given.expand(*self.shape, *given.shape[2:])
            batch.append(None if real is None else self.unpad(real).unsqueeze(0))
        if position_ids is None:
            columns = self.positions() if self.rows is None else self.rows % self.shape[1]
            batch[2] = columns.unsqueeze(0)
        return tuple(batch)

    def choose(self, read: Read, *, with_first: bool) -> tuple[Tensor | None, Tensor | None]:
        """Find the tokens that are read.

        Args:
            read: As `MinBertModel.forward` explains.
            with_first: Whether the first tokens are read, too.

        Returns:
            The tokens in ascending order, (M,), None for all; and for each of them its place among
            those asked for (the first tokens come first), None if that order is ascending.
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
        """Take the real tokens, (B, L, ...) -> (T, ...)."""
        flat = values.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def pad(self, values: Tensor) -> Tensor:
        """Put the tokens back, (T, ...) -> (B, L, ...); paddings are zero."""
        if self.rows is not None:
            cells = self.shape[0] * self.shape[1]
            values = values.new_zeros(cells, *values.shape[1:]).index_copy(0, self.rows, values)
        return values.unflatten(0, self.shape)

    def pool(self, values: Tensor, pooling: str) -> Tensor:
        """Take the first token, the mean or the maximum of every sequence, (T, D) -> (N, D)."""
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
        return (sums / self.offsets.diff().unsqueeze(1)).to(values.dtype)

    def ignore_beyond(self, positions: Tensor | None) -> Tensor | None:
        """Put positions beyond their sequence, (N,), beyond all of them, at `max_length`."""
        if positions is None:
            return None
        return positions.masked_fill(positions >= self.offsets.diff(), self.max_length)

    def to_rows(self, values: Tensor, padding: float) -> Tensor:
        """Give every sequence a row, (T, ...) -> (N, max_length, ...)."""
        count = len(self.offsets) - 1
        rows = values.new_full((count * self.max_length, *values.shape[1:]), padding)
        places = self.segments * self.max_length + self.positions()
        return rows.index_copy(0, places, values).unflatten(0, (count, self.max_length))
