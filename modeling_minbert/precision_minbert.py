# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""In which precision predictions are computed, and what this machine can do.

Shapes: T tokens, K inputs and N outputs of a product.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock, get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers.utils import logging

from .names_minbert import unknown

logger = logging.get_logger(__name__)

PRECISIONS = ("float32", "bfloat16", "int8", "auto")
# Batches are rounded up to a multiple of this many tokens, or of more if they are large.
LEAST_STEP = 32


def check_precision(precision: str | None) -> None:
    """Refuse a precision that does not exist.

    Raises:
        ValueError: If it is not None, and not one of `PRECISIONS`.
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"{unknown('precision', precision, PRECISIONS)} (the precision of the computation; "
            "results are float32)"
        )


def bfloat16_is_fast(device: torch.device) -> bool:
    """Return whether products in bfloat16 are clearly faster than in float32."""
    if device.type == "cuda":
        # emulated bfloat16 would be slower than float32
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    features = _capabilities()
    if features.get("bf16"):  # ARM
        return True
    # a user may keep oneDNN from instructions
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    if features.get("amx_bf16") and (allowed in ("ALL", "DEFAULT") or "AMX" in allowed):
        return True
    # Processors with AVX512-FP16 have AMX. Where that is hidden, their AVX512-BF16 takes longer
    # than float32; that of others takes half the time.
    return bool(features.get("avx512_bf16")) and not features.get("avx512_fp16")


@cache
def _capabilities() -> Mapping[str, Any]:
    """Return the instruction sets of the CPU by name; empty if torch does not list them."""
    listed: Any = getattr(torch.cpu, "get_capabilities", dict)
    found: Mapping[str, Any] = listed()
    return found


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


@cache
def int8_is_exact() -> bool:
    """Return whether this CPU multiplies bytes fast and without overflow.

    Processors without instructions for it add two products of bytes in 16 bits, which overflow
    (Intel's VNNI, AMX and later ones do not).
    """
    found = _capabilities()
    if not any(found.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    # the largest products there are: two of them exceed 16 bits
    inputs = torch.full((2, 64), 255, dtype=torch.uint8)
    weight = torch.full((16, 64), 127, dtype=torch.int8)
    ones, zeros = torch.ones(16), torch.zeros(16, dtype=torch.int64)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        product = torch.ops.onednn.qlinear_pointwise(
            inputs, 1.0, 0, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    except (AttributeError, RuntimeError):  # another version of torch
        return False
    return bool((product == 64 * 255 * 127).all())


def choose_precision(precision: str, device: torch.device) -> str:
    """Return the precision that a device computes for a requested one.

    `auto` is bfloat16 where the device is fast in it, else float32. It is never int8, which
    changes predictions more. What the device cannot do becomes float32, with a warning; on a GPU
    int8 becomes bfloat16 or float32.

    Raises:
        ValueError: If there is no such precision.
    """
    check_precision(precision)
    reduced = "bfloat16" if bfloat16_is_fast(device) else "float32"
    if precision == "auto":
        return reduced
    is_cuda = device.type == "cuda"
    if precision == "int8" and (device.type != "cpu" or not int8_is_exact()):
        instead = reduced if is_cuda else "float32"
        _warn_once(f"int8 needs a CPU with VNNI or AMX: computed in {instead} instead")
        return instead
    if precision == "bfloat16" and reduced == "float32":
        _warn_once(
            f"this {device.type} is not fast in bfloat16: float32 is not slower, and more exact"
        )
        return reduced if is_cuda else precision
    return precision


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def precision_for(encoder: Any, precision: str | None) -> str | None:
    """Return the precision that an encoder computes; None for that of its weights."""
    if precision is None or (precision == "auto" and encoder.is_int8):
        return None
    return choose_precision(precision, encoder.device)


@dataclass
class Predicting:
    """What one call that predicts knows of an encoder."""

    precision: str | None  # None for that of the weights
    prepared: Any = None  # the `PreparedEncoder` of this call


class MinBertCalls:
    """The calls that predict with an encoder now, of all threads; a copy of the encoder has none.

    An attribute of the encoder, since a checkpoint that brings its code has several copies of it.

    Attributes:
        running: By thread, what its call knows.
        evaluated: The modules in training mode that are in evaluation mode for now, and how many
            calls need them so.
        lock: For these.
    """

    def __init__(self) -> None:
        self.running: dict[int, Predicting] = {}
        self.evaluated: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.lock = Lock()

    def __reduce__(self) -> Any:
        """Copy and pickle an object without calls."""
        return type(self), ()


@contextmanager
def using_precision(model: Any, precision: str | None) -> Iterator[None]:
    """Compute the encoder of a model in a precision in this thread; None for that of the model."""
    encoder: Any = model.base_model
    chosen = encoder.precision if precision is None else precision_for(encoder, precision)
    running, thread = encoder.calls.running, get_ident()
    before = running.get(thread)
    running[thread] = Predicting(chosen)
    try:
        yield
    finally:
        if before is None:
            del running[thread]
        else:
            running[thread] = before


def find_predicting(encoder: Any) -> Predicting:
    """Return what the call knows in which an encoder computes, or what holds for a single batch."""
    return encoder.calls.running.get(get_ident()) or Predicting(encoder.precision)
