# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""ModernBERT's embeddings and layers; heads, packing and programs are those of all encoders.

Rotary positions, norms before the halves of a layer, gated feed-forward layers, and attention
within a window in two layers of three. Source: Warner et al. 2024, arXiv:2412.13663.

Shapes: T tokens of a packed batch, or B rows of L; H heads of width d.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention import eager_attention_forward
from .cpu import MinBertDropout, is_followed
from .packing import MinBertSequences, check_length
from .prepared import PRODUCTS, PreparedNorm, round_up, weights_of


def make_norm(config: PreTrainedConfig) -> nn.LayerNorm:
    """Make a layer norm, by default without a bias."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)


class MinBertModernEmbeddings(nn.Module):
    """Normalized word embeddings; positions are part of the attention."""

    def __init__(self, config: PreTrainedConfig) -> None:
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
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        if position_ids is None:
            check_length(inputs_embeds.shape[1], self.longest)
        return self.dropout(self.LayerNorm(inputs_embeds))


def rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate states, (..., H, d), by the angles of their positions, (..., 1, d)."""
    # Source: Su et al. 2021, RoFormer, section 3.4.2; in float32 or wider, as in transformers.
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return torch.addcmul(wide * cosines, turned, sines).to(states.dtype)


class MinBertModernAttention(nn.Module):
    """Self-attention with rotary positions, of all tokens or of those within a window."""

    def __init__(self, config: PreTrainedConfig, number: int) -> None:
        super().__init__()
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.layer_bias)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.layer_bias)
        # The kernels apply dropout, as in BERT; the output has the same rate.
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.out_dropout = MinBertDropout(config.attention_probs_dropout_prob)
        is_local = number % config.global_attention_every
        # How far apart tokens may be that attend to each other; None for any.
        self.window: int | None = config.local_attention // 2 if is_local else None
        self.is_causal = False

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Any,
        angles: Any,
        sequences: MinBertSequences | None = None,
        select: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout.p if self.training else 0.0
        if sequences is not None:
            context = self.attend(self.Wqkv(hidden), sequences, select, dropout)
            return self.out_dropout(self.Wo(context)), None
        query, key, value = self.split(self.Wqkv(hidden), angles)
        interface: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        # flash attention takes the window itself, the first distance that is too far
        window = None if self.window is None else self.window + 1
        context, probs = interface(
            self,
            *(states.transpose(1, 2) for states in (query, key, value)),
            attention_mask,
            scaling=self.head_size**-0.5,
            dropout=dropout,
            sliding_window=window,
            **kwargs,
        )
        return self.out_dropout(self.Wo(context.reshape(hidden.shape).contiguous())), probs

    def split(self, joined: Tensor, angles: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys, and values: (..., 3 D) -> (..., H, d)."""
        chosen = angles[self.window is not None]
        split = joined.unflatten(-1, (3, self.config.num_attention_heads, self.head_size))
        query, key = rotate(split[..., :2, :, :], *(x.unsqueeze(-3) for x in chosen)).unbind(-3)
        return query, key, split[..., 2, :, :]

    def attend(
        self, joined: Tensor, sequences: MinBertSequences, select: Tensor | None, dropout: float
    ) -> Tensor:
        """Attend in a packed batch, (T, 3 D) -> (T, D) or (M, D) of the selected tokens."""
        query, key, value = (x.flatten(-2) for x in self.split(joined, sequences.angles))
        queries = select if self.window is None else None  # a window is for all tokens
        context = sequences.attend(
            query if queries is None else query.index_select(0, queries),
            key,
            value,
            self.config.num_attention_heads,
            select=queries,
            dropout=dropout,
            window=self.window,
        )
        return context if select is None or queries is select else context.index_select(0, select)


class MinBertModernMLP(nn.Module):
    """A gated feed-forward layer (Shazeer 2020, GeGLU)."""

    def __init__(self, config: PreTrainedConfig) -> None:
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

    def __init__(self, config: PreTrainedConfig, number: int) -> None:
        super().__init__()
        self.attn_norm = make_norm(config) if number else nn.Identity()
        self.attn = MinBertModernAttention(config, number)
        self.mlp_norm = make_norm(config)
        self.mlp = MinBertModernMLP(config)

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Any,
        select: Tensor | None = None,
        norm: nn.Module | None = None,
        **kwargs: Any,
    ) -> Tensor:
        attended, _ = self.attn(self.attn_norm(hidden), attention_mask, select=select, **kwargs)
        hidden = attended + (hidden if select is None else hidden.index_select(0, select))
        hidden = hidden + self.mlp(self.mlp_norm(hidden))
        return hidden if norm is None else norm(hidden)


class PreparedModernLayer:
    """A layer of ModernBERT that was prepared for a precision; see `PreparedEncoder`."""

    def __init__(self, layer: Any, precision: str) -> None:
        product = PRODUCTS[precision]
        self.attention, self.activation = layer.attn, layer.mlp.activation
        dense = (layer.attn.Wqkv, layer.attn.Wo, layer.mlp.Wi, layer.mlp.Wo)
        products = [product(weights_of(module), None) for module in dense]
        self.projection, self.attended, self.inner, self.outer = products
        norms = layer.attn_norm, layer.mlp_norm
        self.norms = [PreparedNorm(norm, product.dtype) for norm in norms]

    def __call__(
        self, hidden: Tensor, sequences: MinBertSequences, select: Tensor | None
    ) -> Tensor:
        """(T, D) -> (T, D), or (M, D) of the selected tokens."""
        # the rows after the tokens are padding
        joined = self.projection(self.norms[0](hidden))[: sequences.tokens]
        context = round_up(self.attention.attend(joined, sequences, select, 0.0))
        if select is not None:
            hidden = round_up(hidden.index_select(0, select))
        hidden = self.attended.add(context, hidden)
        values, gate = self.inner(self.norms[1](hidden)).chunk(2, dim=1)
        return self.outer.add(self.activation(values).mul_(gate), hidden)


class MinBertModernEncoder(nn.Module):
    """The stack of layers, and a last norm, with the interface of `MinBertEncoder`."""

    prepared_layer = PreparedModernLayer

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config
        numbers = range(config.num_hidden_layers)
        self.layer = nn.ModuleList([MinBertModernLayer(config, number) for number in numbers])
        self.final_norm = make_norm(config)

    def make_bias(self, length: int) -> Tensor | None:
        """Return what is added to the scores of all layers by distance: nothing."""
        return None

    def make_angles(self, positions: Tensor, dtype: torch.dtype) -> Any:
        """Return cosines and sines, (..., 1, d), of global and of local layers."""
        size = self.config.hidden_size // self.config.num_attention_heads
        steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
        angles = []
        for theta in (self.config.rope_theta, self.config.local_rope_theta):
            half = positions[..., None].float() * (1.0 / theta**steps)
            both = torch.cat([half, half], dim=-1).unsqueeze(-2)
            angles.append((both.cos().to(dtype), both.sin().to(dtype)))
        return angles

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
        angles, masks = None, [attention_mask, attention_mask]
        if sequences is None:
            if position_ids is None:
                position_ids = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
            angles = self.make_angles(position_ids, hidden.dtype)
            masks[1] = self.narrow(attention_mask, hidden)
        layers: list[Any] = list(self.layer)[:num_layers]
        for number, layer in enumerate(layers, start=1):
            hidden = layer(
                hidden,
                masks[layer.attn.window is not None],
                select=select if number == len(layers) else None,
                # part of the last layer, since the states of lower ones have no norm
                norm=self.final_norm if number == len(self.layer) else None,
                angles=angles,
                sequences=sequences,
                **kwargs,
            )
        return hidden if layers or select is None else hidden.index_select(0, select)

    def narrow(self, mask: Any, hidden: Tensor) -> Any:
        """Return the mask of local layers, of one of sdpa or eager attention, (B, 1, L, L) or None.

        Raises:
            ValueError: If the attention implementation has another kind of mask.
        """
        kind, length = self.config._attn_implementation, hidden.shape[1]
        if kind.startswith("flash_attention"):
            return mask  # the window is an argument
        if kind not in ("sdpa", "eager"):
            raise ValueError(
                f"attn_implementation={kind!r} has no local attention here: use sdpa, eager or "
                "flash_attention_2"
            )
        window = self.config.local_attention // 2
        if not is_followed(hidden) and length <= window + 1:
            return mask
        places = torch.arange(length, device=hidden.device)
        distances = (places - places.unsqueeze(1)).abs()[None, None]
        is_near = distances <= window
        if mask is None and kind == "sdpa":
            return is_near
        if mask is None:
            mask = hidden.new_zeros(1, 1, length, length)
        elif mask.dtype == torch.bool:
            # kernels may give NaN to a padding far from all tokens, which would see nothing
            return mask & is_near | (distances == 0)
        return mask.masked_fill(~is_near, torch.finfo(mask.dtype).min)
