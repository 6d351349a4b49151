# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""What machines compute fast: precisions, and on CPUs operations with gradients of their own."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import is_, methodcaller
from threading import Lock, get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks_of_all
from transformers.utils.import_utils import is_tracing

from .names import unknown
from .rows import warn_once


def walk(root: nn.Module, but: nn.Module | None = None) -> Iterator[nn.Module]:
    """Yield a module and all in it, a shared one each time, but nothing of another one."""
    stack: list[nn.Module | None] = [root]
    while stack:
        module = stack.pop()
        if module is not None and module is not but:
            yield module
            stack.extend(module._modules.values())


class ModuleTree:
    """The modules of an encoder, listed once: to look at the list takes a tenth of a walk.

    Attributes:
        modules: The encoder and all its modules, a shared one each time.
        states: The attributes of the modules.
        parts: Their submodules and parameters.
        names: The names of the parameters in their modules.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules = list(walk(root))
        self.states = [vars(module) for module in self.modules]
        self._places = [place for x in self.modules for place in (x._parameters, x._modules)]
        self.parts = self.list_parts()
        self.names = {name for module in self.modules for name in module._parameters}

    def list_parts(self) -> list[object]:
        """List the submodules and parameters that the modules have now."""
        return list(chain.from_iterable(map(methodcaller("values"), self._places)))

    def is_of(self, root: nn.Module) -> bool:
        """Return whether this is the list of a module, which has the parts that it had."""
        if root is not self.modules[0]:
            return False
        parts = self.list_parts()
        return len(parts) == len(self.parts) and all(map(is_, parts, self.parts))


# Its hooks stay once states of layers were asked for, and do nothing in other calls.
CAPTURING = "transformers.utils.output_capturing"


def run_other_code(states: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether calls of modules with these attributes run more or else than `forward`."""
    return bool(
        hooks_of_all._global_forward_hooks
        or hooks_of_all._global_forward_pre_hooks
        # accelerate replaces the method of single modules
        or any(x["_forward_pre_hooks"] or "forward" in x for x in states)
        or any(
            getattr(hook, "__module__", None) != CAPTURING
            for x in states
            for hook in x["_forward_hooks"].values()
        )
    )


def is_followed(tensor: Any) -> bool:
    """Return whether torch traces or transforms the program, so that no value may be read."""
    return is_tracing(tensor) or torch._C._are_functorch_transforms_active()


# Lanes of 16 bits: four masks from one random number, and p exact to 1 / 65536.
LANES = 4
VALUES = 2**16


def draw(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Draw int16 dropout noise; values above the returned threshold are kept."""
    # Four numbers of each 64-bit integer: `torch.bernoulli` draws one by one on one core.
    count = shape.numel()
    words = torch.empty(-(-count // LANES), dtype=torch.int64)
    lanes = words.random_(-(2**63), None).view(torch.int16)[:count]
    return lanes.view(shape), round(p * VALUES) - VALUES // 2 - 0.5


class _Dropout(torch.autograd.Function):
    """Dropout that saves one byte per value for the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float) -> Tensor:
        lanes, threshold = draw(values.shape, p)
        # an integer: comparing with a float would convert the lanes
        keep = lanes >= min(math.ceil(threshold), VALUES // 2 - 1)
        ctx.save_for_backward(keep)
        ctx.scale = 1 / (1 - p)
        return _factors(keep, ctx.scale, values.dtype).mul_(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grads[0] * _factors(keep, ctx.scale, grads[0].dtype), None


def _factors(keep: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Convert a mask to factors; from bytes that is four times faster than from booleans."""
    return keep.view(torch.int8).to(dtype).mul_(scale)


class MinBertDropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), with cheap masks in training on the CPU."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, D102 - as in torch
        cheap = self.training and 0 < self.p < 1 and input.device.type == "cpu"
        if not cheap or is_followed(input):
            return F.dropout(input, self.p, self.training)
        return _Dropout.apply(input, self.p)


# Precisions

PRECISIONS = ("float32", "bfloat16", "int8", "auto")
# Batches of more than this many tokens are rounded up, to a multiple of `LEAST_STEP` or of more.
FEW_TOKENS, LEAST_STEP = 64, 32


def check_precision(precision: str | None) -> None:
    """Refuse a precision that does not exist."""
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
def _capabilities() -> Mapping[str, object]:
    """Return the instruction sets of the CPU by name; empty if torch does not list them."""
    return getattr(torch.cpu, "get_capabilities", dict)()


def count_extra(tokens: int) -> int:
    """Return how many tokens to add to a batch, so that few numbers of tokens occur.

    oneDNN compiles a product for each shape, which takes longer than the product. There are at
    most 16 numbers between two powers of two. A short text is computed as it is: compiling takes
    2 ms for each length that was not met before, and every call would compute the zeros.
    """
    if tokens <= FEW_TOKENS:
        return 0
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
        warn_once(f"int8 needs a CPU with VNNI or AMX: computed in {instead} instead")
        return instead
    if precision == "bfloat16" and reduced == "float32":
        warn_once(
            f"this {device.type} is not fast in bfloat16: float32 is not slower, and more exact"
        )
        return reduced if is_cuda else precision
    return precision


# Calls


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
        tree: The modules of the encoder, as they were listed last.
        prepared: Its layers, as they were prepared last.
        lock: For the modules.
    """

    tree: ModuleTree | None = None
    prepared: Any = None

    def __init__(self) -> None:
        self.running: dict[int, Predicting] = {}
        self.evaluated: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self.lock = Lock()

    def __reduce__(self) -> tuple[type["MinBertCalls"], tuple[()]]:
        """Copy and pickle an object without calls."""
        return type(self), ()


def find_tree(model: Any) -> ModuleTree:
    """Return the modules of the encoder of a model, in the same list until one is replaced."""
    tree: ModuleTree | None = model.calls.tree
    if tree is None or not tree.is_of(model.encoder):
        tree = model.calls.tree = ModuleTree(model.encoder)
    return tree


@contextmanager
def using_precision(model: Any, precision: str | None) -> Iterator[None]:
    """Compute the encoder of a model in a precision in this thread; None for that of the model."""
    encoder = model.base_model
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
