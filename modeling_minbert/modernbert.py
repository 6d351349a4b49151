# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""ModernBERT's embeddings and layers; heads, packing and programs are those of all encoders.

Rotary positions, norms before the halves of a layer, gated feed-forward layers, and attention
within a window in two layers of three. Source: Warner et al. 2024, arXiv:2412.13663.

Shapes: T tokens of a packed batch, or B rows of L; H heads of width d.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import eager_attention_forward
from .cpu import MinBertDropout
from .packing import MinBertSequences


def make_norm(config: Any) -> nn.LayerNorm:
    """Make a layer norm, by default without a bias."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)


class MinBertModernEmbeddings(nn.Module):
    """Normalized word embeddings; positions are part of the attention."""

    token_type_embeddings = None

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.LayerNorm = make_norm(config)
        self.dropout = MinBertDropout(config.hidden_dropout_prob)
        self.longest: int = config.longest_sequence

    def forward(
        self,
        input_ids: Any,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> Tensor:
        del token_type_ids
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        if position_ids is None:
            self.check_length(inputs_embeds.shape[1])
        return self.dropout(self.LayerNorm(inputs_embeds))

    def check_length(self, length: int) -> None:
        """Refuse a sequence that is longer than those of pre-training."""
        if length > self.longest:
            raise ValueError(
                f"a sequence of {length} tokens is longer than max_position_embeddings="
                f"{self.longest}: truncate it when tokenizing"
            )


def rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate states, (..., H, d), by the angles of their positions, (..., 1, d), in float32."""
    # Source: Su et al. 2021, RoFormer, section 3.4.2.
    wide = states.float()
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (wide * cosines + turned * sines).to(states.dtype)


class MinBertModernAttention(nn.Module):
    """Self-attention with rotary positions, of all tokens or of those within a window."""

    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.layer_bias)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.layer_bias)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.is_local = bool(number % config.global_attention_every)
        self.is_causal = False

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Any,
        angles: tuple[Tensor, Tensor],
        sequences: MinBertSequences | None = None,
        select: Tensor | None = None,
        bias: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout.p if self.training else 0.0
        heads = self.config.num_attention_heads
        split = self.Wqkv(hidden).unflatten(-1, (3, heads, self.head_size))
        query, key, value = split.unbind(dim=-3)  # (..., H, d)
        query, key = rotate(query, *angles), rotate(key, *angles)
        if sequences is not None:
            query, key, value = (states.flatten(-2) for states in (query, key, value))
            if select is not None:
                query = query.index_select(0, select)
            options: dict[str, Any] = {"select": select, "dropout": dropout, "bias": bias}
            return self.Wo(sequences.attend(query, key, value, heads, **options)), None
        interface: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        states = (x.transpose(1, 2) for x in (query, key, value))
        scaling = self.head_size**-0.5
        window = self.config.local_attention // 2 + 1 if self.is_local else None
        context, probs = interface(
            self,
            *states,
            attention_mask,
            scaling=scaling,
            dropout=dropout,
            sliding_window=window,
            **kwargs,
        )
        return self.Wo(context.reshape(hidden.shape).contiguous()), probs


class MinBertModernMLP(nn.Module):
    """A gated feed-forward layer (Shazeer 2020, GeGLU)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        size = config.intermediate_size
        self.Wi = nn.Linear(config.hidden_size, 2 * size, bias=config.layer_bias)
        self.activation = ACT2FN[config.hidden_act]
        self.Wo = nn.Linear(size, config.hidden_size, bias=config.layer_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        values, gate = self.Wi(hidden).chunk(2, dim=-1)
        return self.Wo(self.activation(values) * gate)


class MinBertModernLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward, each after a norm and with a residual."""

    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        self.attn_norm = make_norm(config) if number else nn.Identity()
        self.attn = MinBertModernAttention(config, number)
        self.mlp_norm = make_norm(config)
        self.mlp = MinBertModernMLP(config)

    def forward(
        self, hidden: Tensor, attention_mask: Any, select: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        attended, _ = self.attn(self.attn_norm(hidden), attention_mask, select=select, **kwargs)
        hidden = attended + (hidden if select is None else hidden.index_select(0, select))
        return hidden + self.mlp(self.mlp_norm(hidden))


class MinBertModernEncoder(nn.Module):
    """The stack of layers, and a last norm, with the interface of `MinBertEncoder`."""

    relative_attention_bias = None

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        numbers = range(config.num_hidden_layers)
        self.layer = nn.ModuleList([MinBertModernLayer(config, number) for number in numbers])
        self.final_norm = make_norm(config)

    def make_bias(self, length: int) -> Tensor | None:
        """Return what is added to the scores of all layers by distance: nothing."""
        del length
        return None

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Any,
        select: Tensor | None = None,
        num_layers: int | None = None,
        sequences: MinBertSequences | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if sequences is not None:
            positions, length = sequences.positions(), sequences.max_length
            if sequences.extra:
                positions = nn.functional.pad(positions, (0, sequences.extra))
        else:
            length = hidden.shape[1]
            positions = torch.arange(length, device=hidden.device).unsqueeze(0)
            positions = positions if position_ids is None else position_ids
        places = torch.arange(length, device=hidden.device)
        is_far = (places - places.unsqueeze(1)).abs() > self.config.local_attention // 2
        band = None
        if length > self.config.local_attention // 2 + 1:
            band = hidden.new_zeros(1, length, length)
            # finite, so that a padding with no token in reach has no NaN
            band = band.masked_fill(is_far, torch.finfo(hidden.dtype).min)
        masks: list[Any] = [attention_mask, attention_mask]
        if sequences is None and band is not None:
            masks[1] = self._narrow(attention_mask, band, positions)
        thetas = (self.config.rope_theta, self.config.local_rope_theta)
        angles = [self._angles(positions, theta, hidden) for theta in thetas]
        layers: list[Any] = list(self.layer)[:num_layers]
        for number, layer in enumerate(layers, start=1):
            is_local = layer.attn.is_local
            options: dict[str, Any] = {"sequences": sequences, "angles": angles[is_local]}
            options |= {"bias": band if is_local else None} if sequences is not None else {}
            chosen = select if number == len(layers) else None
            hidden = layer(hidden, masks[is_local], select=chosen, **options, **kwargs)
        if not layers and select is not None:
            hidden = hidden.index_select(0, select)
        # the state of a lower layer has no norm, as in hidden_states of transformers
        return self.final_norm(hidden) if len(layers) == len(self.layer) else hidden

    def _angles(self, positions: Tensor, theta: float, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, (..., 1, d)."""
        size = self.config.hidden_size // self.config.num_attention_heads
        steps = torch.arange(0, size, 2, dtype=torch.float32, device=like.device) / size
        angles = positions[..., None].float() * (1.0 / theta**steps)
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(-2)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def _narrow(self, mask: Any, band: Tensor, positions: Tensor) -> Any:
        """Add the band to a mask of padded rows, (B, 1, L, L) or None."""
        del positions
        if mask is None:
            return band.unsqueeze(0)
        if not isinstance(mask, Tensor):
            raise TypeError("ModernBERT's window is for the attention sdpa or eager")
        least = torch.finfo(band.dtype).min
        if mask.dtype == torch.bool:
            mask = band.new_zeros(mask.shape).masked_fill(~mask, least)
        return (mask + band.unsqueeze(0)).clamp(min=least)
