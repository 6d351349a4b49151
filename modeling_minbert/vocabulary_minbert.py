# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The two ends of the vocabulary: looking its rows up, and choosing among them.

The gradient of the word embedding is as large as the matrix, though a batch touches few rows; on
the CPU a fresh one at every step costs more than what is written into it, and so do scores of the
vocabulary. `reuse_gradient` lets both live in buffers that stay.

Shapes: T tokens, M labelled tokens, V vocabulary, D hidden size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import functional as F

from .tracing_minbert import is_followed


class Buffers:
    """Memory of one weight that is used again at every step.

    Args:
        weight: (V, D).
    """

    def __init__(self, weight: Tensor) -> None:
        self.gradient = torch.zeros_like(weight)
        self.scores: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no buffer: it is made anew after loading."""
        return {"gradient": torch.empty(0), "scores": None}

    def take_scores(self, rows: int, columns: int) -> Tensor:
        """Take memory for (rows, columns); the caller returns it after use."""
        scores, self.scores = self.scores, None
        if scores is None or len(scores) < rows:
            scores = self.gradient.new_empty(rows, columns)
        return scores


def reuse_gradient(weight: nn.Parameter) -> None:
    """Let backward passes write the gradient of `weight` into one buffer.

    The gradient then appears in `weight.grad` and nowhere else: `torch.autograd.grad` finds none,
    hooks on it do not run, and a gradient of the step before is overwritten. It is for a training
    loop of one process that reads `weight.grad` alone.

    Args:
        weight: The word embedding, (V, D), on the CPU.
    """
    weight.buffers = Buffers(weight)  # type: ignore[attr-defined]


def _buffers(weight: Tensor) -> Buffers | None:
    buffers: Buffers | None = getattr(weight, "buffers", None)
    if buffers is None or not weight.requires_grad:
        return None
    if weight._backward_hooks or weight._post_accumulate_grad_hooks:  # they would not run
        return None
    gradient = buffers.gradient
    fits = gradient.shape == weight.shape and gradient.dtype == weight.dtype
    return buffers if fits and gradient.device == weight.device else None


def _own_gradient(weight: Tensor, buffers: Buffers) -> Tensor:
    """Return the gradient to add to; after `zero_grad` it is the buffer, emptied."""
    if weight.grad is None:
        weight.grad = buffers.gradient.zero_()
    return weight.grad


class _Lookup(torch.autograd.Function):
    """Rows of the weight; their gradients are added where the gradient lives."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, padding: int | None, own: Buffers) -> Tensor:
        ctx.save_for_backward(ids)
        # itself: hooks on saved tensors may give a copy back, whose gradient is not read
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
    """Look word pieces up.

    Args:
        ids: Of any shape.
        embedding: The word embedding.

    Returns:
        (*ids.shape, D).
    """
    buffers = _buffers(embedding.weight) if _is_plain(embedding, nn.Embedding) else None
    if buffers is None or not torch.is_grad_enabled() or is_followed(ids):
        return embedding(ids)
    found: Any = _Lookup.apply(ids, embedding.weight, embedding.padding_idx, buffers)
    return found


def _is_plain(module: nn.Module, kind: type) -> bool:
    """Return whether calling the module runs no hooks and no overridden forward."""
    return type(module) is kind and not module._forward_hooks and not module._forward_pre_hooks


class _VocabularyLoss(torch.autograd.Function):
    """Summed cross entropy of a softmax over the vocabulary, with one (M, V) matrix in all.

    It holds scores, then probabilities; the gradient of the scores is p - 1 at the label, p
    elsewhere, so that p is all that the way back needs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        own: Buffers | None,
    ) -> Tensor:
        memory = own.take_scores(len(hidden), len(weight)) if own else None
        if memory is None:
            scores = torch.addmm(bias, hidden, weight.t())
        else:
            scores = torch.addmm(bias, hidden, weight.t(), out=memory[: len(hidden)])
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
        # without a label the mean loss is 0 / 0; its gradient is none
        scale = grads[0] if len(labels) else torch.zeros_like(grads[0])
        rows = torch.arange(len(labels))
        d_weight, scaled = None, hidden * scale
        # what is changed is put back: the graph may be kept for another pass
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
    """Compute the summed cross entropy of scores that are there anyway.

    Args:
        scores: Of K classes, (M, K).
        labels: Class ids, (M,); -100 counts for nothing.

    Returns:
        A scalar, in float32 or the dtype of the scores if that is wider.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return F.cross_entropy(scores, labels, reduction="sum")


def vocabulary_loss(hidden: Tensor, decoder: nn.Linear, labels: Tensor) -> Tensor:
    """Compute the summed cross entropy of predicting word pieces.

    Args:
        hidden: Transformed states of the labelled tokens, (M, D).
        decoder: Scores the vocabulary, with a bias.
        labels: Word-piece ids, (M,); -100 counts for nothing.

    Returns:
        A scalar, in float32 or the dtype of the states if that is wider.
    """
    single = hidden.dtype in (torch.float32, torch.float64) and hidden.device.type == "cpu"
    bias: Tensor | None = decoder.bias
    plain = _is_plain(decoder, nn.Linear) and bias is not None and single
    if not plain or is_followed(hidden) or torch.is_autocast_enabled("cpu"):
        return summed_loss(decoder(hidden), labels)
    real = labels != -100
    if not real.all():
        hidden, labels = hidden[real], labels[real]
    own = _buffers(decoder.weight) if torch.is_grad_enabled() else None
    loss: Any = _VocabularyLoss.apply(hidden, decoder.weight, decoder.bias, labels, own)
    return loss
