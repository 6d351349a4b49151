# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""What runs on CPUs: memory of an encoder's batches, and operations with gradients of their own."""

import math
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import functional as F
from torch.nn.modules import module as hooks_of_all
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils.import_utils import is_tracing


def walk(root: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all in it, a shared one each time.

    `modules()` also builds their names and compares them: for one sentence that takes a tenth of
    the time of the model.
    """
    stack: list[nn.Module | None] = [root]
    while stack:
        module = stack.pop()
        if module is not None:
            yield module
            stack.extend(module._modules.values())


def walk_parameters(root: nn.Module) -> Iterator[nn.Parameter]:
    """Yield all parameters of a module, a shared one each time."""
    for module in walk(root):
        for parameter in module._parameters.values():
            if parameter is not None:
                yield parameter


def runs_other_code(module: nn.Module) -> bool:
    """Return whether a call of a module runs more or something else than its class's `forward`."""
    own = module._forward_hooks or module._forward_pre_hooks
    of_all = hooks_of_all._global_forward_hooks or hooks_of_all._global_forward_pre_hooks
    # accelerate replaces the method of single modules
    return bool(own or of_all) or "forward" in vars(module)


def changes_output(module: nn.Module) -> bool:
    """Return whether a hook may change what a module returns."""
    return bool(module._forward_hooks or hooks_of_all._global_forward_hooks)


# Every layer is some dozen objects of Python: their number is limited, however narrow they are.
MAX_LAYERS = 10_000
MAX_LABELS = 1_000_000
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
GIB = 2**30


def check_memory(config: PreTrainedConfig) -> None:
    """Refuse sizes whose weights alone exceed the memory of this machine.

    Raises:
        ValueError: If they do, in torch's default precision, or there are too many layers.
    """
    sizes = {name: getattr(config, name) for name in SIZES}
    pieces, width, layers, inner, positions, types = sizes.values()
    if layers > MAX_LAYERS:
        raise ValueError(f"num_hidden_layers={layers} must be at most {MAX_LAYERS:,}")
    # without the biases and norms, which hardly count
    count = width * (pieces + positions + types + layers * (4 * width + 2 * inner))
    dtype, settings = torch.get_default_dtype(), getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(settings):  # Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if count * dtype.itemsize > memory:
        raise ValueError(
            f"a model of these sizes has {count:,} weights, {count * dtype.itemsize // GIB:,} GiB "
            f"as {dtype}, but this machine has {memory // GIB:,} GiB of memory; reduce the sizes: "
            f"{', '.join(f'{name}={size}' for name, size in sizes.items())}"
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


class _VocabularyLoss(torch.autograd.Function):
    """Summed cross-entropy over the vocabulary; one (M, V) matrix of scores, then probabilities."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
        scores = torch.addmm(bias, hidden, weight.t())
        best = scores.amax(dim=1)
        chosen = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
        probs = torch.softmax(scores, dim=1, out=scores)
        # log of the sum of exponents, from the largest probability: it cannot underflow
        total = (best - probs.amax(dim=1).log() - chosen).sum()
        ctx.save_for_backward(hidden, weight, bias, labels, probs)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, probs = ctx.saved_tensors
        # without a label the mean loss is 0 / 0; its gradient is 0
        scale = grads[0] if len(labels) else torch.zeros_like(grads[0])
        rows = torch.arange(len(labels))
        # changes are undone: the graph may be kept for another pass
        with _unsafe_preserve_version_counter(probs):
            chosen = probs[rows, labels]
            probs[rows, labels] = chosen - 1
            d_hidden = (probs @ weight).mul_(scale)
            d_bias = probs.sum(dim=0).mul_(scale) if bias.requires_grad else None
            d_weight = probs.t() @ (hidden * scale) if weight.requires_grad else None
            probs[rows, labels] = chosen
        return d_hidden, d_weight, d_bias, None


def summed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum the cross-entropy of scores (M, K) in float32 or wider; labels (M,), -100 for none."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return F.cross_entropy(scores, labels, reduction="sum")


def vocabulary_loss(hidden: Tensor, decoder: nn.Linear, labels: Tensor) -> Tensor:
    """Sum the cross-entropy of word pieces, hidden (M, D); `decoder` scores the vocabulary."""
    single = hidden.dtype in (torch.float32, torch.float64) and hidden.device.type == "cpu"
    bias: Tensor | None = decoder.bias
    plain = type(decoder) is nn.Linear and not runs_other_code(decoder)
    plain = plain and bias is not None and single
    if not plain or is_followed(hidden) or torch.is_autocast_enabled("cpu"):
        return summed_loss(decoder(hidden), labels)
    real = labels != -100
    if not real.all():
        hidden, labels = hidden[real], labels[real]
    return _VocabularyLoss.apply(hidden, decoder.weight, decoder.bias, labels)
