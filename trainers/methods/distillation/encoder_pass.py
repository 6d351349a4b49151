"""What a forward pass of an encoder computed, recorded by hooks.

Shapes: N sequences of L tokens, T tokens in all without padding, D hidden size.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .relations import Span, Vectors

# Arguments of the encoder in their order, and those about a batch without padding.
ARGUMENTS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "inputs_embeds",
)
OF_PACKED = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


@dataclass
class EncoderPass:
    """What a forward pass of the student computed."""

    inputs: dict[str, Any] = field(default_factory=dict)  # of its encoder
    attention: Any = None  # the self-attention of the highest layer that was computed
    hidden: Tensor | None = None  # its input, (T, D) or padded, (N, L, D)

    def take_tokens(self, states: Tensor) -> Tensor:
        """Remove paddings of states, (N, L, D), if the encoder has not, (T, D)."""
        mask = self.inputs.get("attention_mask")
        flat = states.flatten(0, -2)
        return flat if states.dim() == 2 or mask is None else flat[mask.flatten() != 0]

    def find_sequences(self, padding: int | None) -> list[Span]:
        """Return where each sequence begins and ends; those of padding alone do not count."""
        ids, offsets = self.inputs["input_ids"], self.inputs.get("cu_seq_lens_q")
        is_text = ids != (-1 if padding is None else padding)
        if offsets is not None:
            lengths, counts = offsets.diff(), is_text[0, offsets[:-1].long()]
        else:
            mask = self.inputs.get("attention_mask")
            real = torch.ones_like(is_text) if mask is None else mask != 0
            lengths, counts = real.sum(dim=1), (real & is_text).any(dim=1)
        ends = lengths.cumsum(dim=0)
        found = torch.stack([ends - lengths, ends, counts.to(ends.dtype)], dim=1)
        return [(start, end) for start, end, is_counted in found.tolist() if is_counted]


def project(attention: Any, hidden: Tensor) -> Vectors:
    """Compute the queries, keys and values of a self-attention from its input, (T, D) each."""
    return attention.query(hidden), attention.key(hidden), attention.value(hidden)


@contextmanager
def watch(encoder: Any) -> Iterator[EncoderPass]:
    """Record the inputs of an encoder, and the input of the highest layer that it computes."""
    seen = EncoderPass()

    def record_inputs(_: Any, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        given = {**dict(zip(ARGUMENTS, inputs, strict=False)), **options}
        seen.inputs = {name: given[name] for name in (*ARGUMENTS, *OF_PACKED) if name in given}

    def record_layer(attention: Any, inputs: tuple[Any, ...]) -> None:
        seen.attention, seen.hidden = attention, inputs[0]

    handles = [encoder.register_forward_pre_hook(record_inputs, with_kwargs=True)]
    attentions = [layer.attention.self for layer in encoder.encoder.layer]
    handles += [attention.register_forward_pre_hook(record_layer) for attention in attentions]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
