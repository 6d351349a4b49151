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
NAMES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
GIB = 2**30


def count_parameters(config: Any) -> int:
    """Return the number of weights of `MinBertModel`, pooler included."""
    width, inner = config.hidden_size, config.intermediate_size
    square, norm = width * width + width, 2 * width  # a dense layer D -> D, a layer norm
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    feed_forward = width * inner + inner + inner * width + width
    layer = 4 * square + norm + feed_forward + norm
    return rows * width + norm + config.num_hidden_layers * layer + square


def machine_memory() -> int | None:
    """Return the memory of this machine in bytes; None if it is unknown."""
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(config: Any) -> None:
    """Refuse sizes whose weights alone exceed the memory of this machine.

    Raises:
        ValueError: If they do, in torch's default precision, or there are too many layers.
    """
    if config.num_hidden_layers > MAX_LAYERS:
        raise ValueError(
            f"num_hidden_layers={config.num_hidden_layers} must be at most {MAX_LAYERS:,}"
        )
    count, dtype, memory = count_parameters(config), torch.get_default_dtype(), machine_memory()
    needed = count * dtype.itemsize
    if memory is not None and needed > memory:
        sizes = ", ".join(f"{name}={getattr(config, name)}" for name in NAMES)
        raise ValueError(
            f"a model of these sizes has {count:,} weights, {needed // GIB:,} GiB as {dtype}, but "
            f"this machine has {memory // GIB:,} GiB of memory; reduce the sizes: {sizes}"
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


class Buffers:
    """Memory that one weight, (V, D), reuses at every step."""

    def __init__(self, weight: Tensor) -> None:
        self.gradient = torch.zeros_like(weight)
        self.scores: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Do not pickle the buffers: loading makes them anew."""
        return {"gradient": torch.empty(0), "scores": None}

    def take_scores(self, rows: int, columns: int) -> Tensor:
        """Take memory for (rows, columns); the caller returns it after use."""
        scores, self.scores = self.scores, None
        if scores is None or len(scores) < rows:
            scores = self.gradient.new_empty(rows, columns)
        return scores


def reuse_gradient(weight: nn.Parameter) -> None:
    """Let backward passes write the gradient of the word embedding, (V, D), into one buffer.

    It is in `weight.grad` only, overwritten at every step: not in `torch.autograd.grad` or hooks.
    """
    weight.buffers = Buffers(weight)  # type: ignore[attr-defined]


def _buffers(weight: Tensor) -> Buffers | None:
    buffers: Buffers | None = getattr(weight, "buffers", None)
    if buffers is None or not weight.requires_grad:
        return None
    if weight._backward_hooks or weight._post_accumulate_grad_hooks:  # they would not run
        return None
    like = (weight.shape, weight.dtype, weight.device)
    own = buffers.gradient
    return buffers if (own.shape, own.dtype, own.device) == like else None


def _own_gradient(weight: Tensor, buffers: Buffers) -> Tensor:
    """Return the gradient to add to; after `zero_grad` it is the zeroed buffer."""
    if weight.grad is None:
        weight.grad = buffers.gradient.zero_()
    return weight.grad


class _Lookup(torch.autograd.Function):
    """Rows of the weight, whose gradients are added to its buffer."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, padding: int | None, own: Buffers) -> Tensor:
        ctx.save_for_backward(ids)
        # not saved: hooks on saved tensors may return a copy, whose gradient is not read
        ctx.weight, ctx.padding, ctx.own = weight, padding, own
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        (ids,) = ctx.saved_tensors
        grad, ids = grads[0].flatten(0, -2), ids.flatten()
        if ctx.padding is not None:
            grad = grad * (ids != ctx.padding).unsqueeze(1)
        _own_gradient(ctx.weight, ctx.own).index_add_(0, ids, grad)
        return None, None, None, None


def look_up(ids: Tensor, embedding: nn.Embedding) -> Tensor:
    """Look up word pieces, (...) -> (..., D)."""
    plain = type(embedding) is nn.Embedding and not runs_other_code(embedding)
    buffers = _buffers(embedding.weight) if plain else None
    if buffers is None or not torch.is_grad_enabled() or is_followed(ids):
        return embedding(ids)
    return _Lookup.apply(ids, embedding.weight, embedding.padding_idx, buffers)


class _VocabularyLoss(torch.autograd.Function):
    """Summed cross-entropy over the vocabulary; one (M, V) matrix of scores, then probabilities."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, own: Buffers | None
    ) -> Tensor:
        memory = own.take_scores(len(hidden), len(weight)) if own else None
        out = None if memory is None else memory[: len(hidden)]
        scores = torch.addmm(bias, hidden, weight.t(), out=out)
        best = scores.amax(dim=1)
        chosen = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
        probs = torch.softmax(scores, dim=1, out=scores)
        # log of the sum of exponents, from the largest probability: it cannot underflow
        total = (best - probs.amax(dim=1).log() - chosen).sum()
        ctx.save_for_backward(hidden, weight, bias, labels, probs)
        ctx.weight, ctx.own, ctx.memory = weight, own, memory
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, probs = ctx.saved_tensors
        own: Buffers | None = ctx.own
        # without a label the mean loss is 0 / 0; its gradient is 0
        scale = grads[0] if len(labels) else torch.zeros_like(grads[0])
        rows = torch.arange(len(labels))
        d_weight, scaled = None, hidden * scale
        # changes are undone: the graph may be kept for another pass
        with _unsafe_preserve_version_counter(probs):
            chosen = probs[rows, labels]
            probs[rows, labels] = chosen - 1
            d_hidden = (probs @ weight).mul_(scale)
            d_bias = probs.sum(dim=0).mul_(scale) if bias.requires_grad else None
            if own is not None:
                _own_gradient(ctx.weight, own).addmm_(probs.t(), scaled)
            elif weight.requires_grad:
                d_weight = probs.t() @ scaled
            probs[rows, labels] = chosen
        if own is not None:
            own.scores = ctx.memory
        return d_hidden, d_weight, d_bias, None, None


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
    own = _buffers(decoder.weight) if torch.is_grad_enabled() else None
    return _VocabularyLoss.apply(hidden, decoder.weight, decoder.bias, labels, own)
