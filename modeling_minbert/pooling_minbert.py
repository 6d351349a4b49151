# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""From the states of a sequence to one vector.

Shapes: N sequences, L tokens of a sequence, D hidden size.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from .packing_minbert import Read

Pooling = Literal["cls", "pooler", "mean", "max"]


def pool(hidden: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """Pool the states of every sequence.

    Args:
        hidden: Encoder output, (N, L, D).
        mask: 1 for real tokens, 0 for padding, (N, L); None if all are real.
        pooling: `cls`, `mean` or `max`; special tokens count as tokens.

    Returns:
        (N, D), in the dtype of `hidden`. A sequence without a real token gives zeros under `mean`,
        and the lowest number of the dtype under `max`.

    Source: Reimers and Gurevych 2019, section 3.
    """
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


__all__ = ["Pooling", "pool", "pool_outputs", "reads"]
