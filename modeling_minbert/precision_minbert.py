# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Where bfloat16 is fast, and what makes it so on the CPU."""

import os
from collections.abc import Mapping
from typing import Any

import torch

# Batches are rounded up to a multiple of this many tokens, or of more if they are large.
LEAST_STEP = 32


def bfloat16_is_fast(device: torch.device) -> bool:
    """Return whether products in bfloat16 are clearly faster than in float32."""
    if device.type == "cuda":
        # emulated bfloat16 would be slower than float32
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    # not in all versions of torch that have bfloat16
    read: Any = getattr(torch.cpu, "get_capabilities", dict)
    features: Mapping[str, Any] = read()
    if features.get("bf16"):  # ARM
        return True
    # a user may keep oneDNN from instructions
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    if features.get("amx_bf16") and (allowed in ("ALL", "DEFAULT") or "AMX" in allowed):
        return True
    # Processors with AVX512-FP16 have AMX. Where that is hidden, their AVX512-BF16 takes longer
    # than float32; that of others takes half the time.
    return bool(features.get("avx512_bf16")) and not features.get("avx512_fp16")


def count_extra(tokens: int) -> int:
    """Return how many tokens to add to a batch, so that few numbers of tokens occur.

    oneDNN compiles a product for each shape, which takes longer than the product. There are at
    most 16 numbers between two powers of two.
    """
    step = max(LEAST_STEP, 2 ** (tokens.bit_length() - 5))
    return -tokens % step


def needs_few_shapes(weight: torch.Tensor) -> bool:
    """Return whether a model trains in bfloat16 on the CPU, where oneDNN computes the products."""
    if weight.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else weight.dtype
    return dtype == torch.bfloat16
