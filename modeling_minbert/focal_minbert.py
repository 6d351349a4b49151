# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Cross-entropies with weights, smoothed labels and the focal factor, and the fields for them.

The focal loss multiplies the cross-entropy of a class of probability p by `(1 - p)^gamma`, so that
examples that are already right count less (Lin et al. 2017, equations 4 and 5; their alpha is the
weight of a class). With smoothed labels every class has a share t of the label (Szegedy et al.
2016, section 7), and the loss of an example is `-weight * sum t * (1 - p)^gamma * log p`, with the
weight of its label. With gamma = 0 it is the cross-entropy.

torch's cross-entropy gives each share the weight of the class that receives it. Then the rare class
may get more of the loss by the shares of all other rows than by its own rows, and is predicted
everywhere: a weight says how much a row counts, not how probable a class is.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .task_minbert import RECIPE, HeadTask

DEFAULT_GAMMA = 2.0  # the best one of Lin et al. 2017, table 1b


@strict
@dataclass(kw_only=True)
class FocalTask(HeadTask):
    """A task that may have the loss `focal`.

    Args:
        focal_gamma: How much the loss `focal` favors examples that are still wrong, at least 0,
            which is the plain loss; 2.
    """

    focal_gamma: float | int | None = field(default=None, metadata=RECIPE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_focal and self.focal_gamma is None:
            self.focal_gamma = DEFAULT_GAMMA

    @property
    def is_focal(self) -> bool:
        """Whether the loss is `focal`."""
        return getattr(self, "loss", None) == "focal"

    def validate_focal_gamma(self) -> None:
        gamma = self.focal_gamma
        if gamma is None:
            return
        if not self.is_focal:
            raise ValueError(f"focal_gamma={gamma!r} is only for loss focal: leave it out")
        if not 0 <= gamma <= 100:
            raise ValueError(f"focal_gamma={gamma!r} must be in [0, 100]; 2 is usual")


def sum_class_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    smoothing: float = 0.0,
    gamma: float = 0.0,
) -> Tensor:
    """Sum the losses of N examples.

    For gamma = 0 that is `torch.nn.functional.cross_entropy`, unless labels are smoothed and
    classes weighted.

    Args:
        logits: (N, K).
        labels: Class ids, (N,); -100 for examples that do not count.
        weight: Factor on the loss of the examples of each class, (K,).
        smoothing: Share of a label that is spread over all classes.
        gamma: Exponent of the focal factor.
    """
    # casting the whole model to half precision also casts the weights
    weight = None if weight is None else weight.to(logits.dtype)
    if not gamma and (weight is None or not smoothing):
        options: Any = {"weight": weight, "reduction": "sum"}
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, **options)
    scores = logits.log_softmax(dim=-1)
    if gamma:
        scores = _focus(scores, gamma)
    of_labels = F.nll_loss(scores, labels, weight=weight, reduction="sum")
    if not smoothing:
        return of_labels
    of_all = -scores.sum(dim=-1)
    if weight is not None:
        of_all = of_all * weight[labels.clamp(min=0)]
    spread = of_all.masked_fill(labels == -100, 0).sum() / logits.shape[-1]
    return (1 - smoothing) * of_labels + smoothing * spread


def _focus(logs: Tensor, gamma: float) -> Tensor:
    """Multiply logarithms of probabilities by the focal factor."""
    # expm1 keeps the digits of 1 - p near p = 1; at 0 the slope of a root would be infinite
    rest = (-logs.expm1()).clamp(min=torch.finfo(logs.dtype).tiny)
    return rest**gamma * logs


def binary_losses(
    logits: Tensor,
    targets: Tensor,
    *,
    weights: tuple[Tensor, Tensor] | None = None,
    smoothing: float = 0.0,
    gamma: float = 0.0,
) -> Tensor:
    """Compute the loss of every logit, for targets in [0, 1] of the same shape.

    Args:
        logits: Any shape.
        targets: Probability of yes.
        weights: Factors on the losses of the targets no and yes; they broadcast.
        smoothing: Share of a target that is spread over no and yes.
        gamma: Exponent of the focal factor.
    """
    if weights is None:
        targets = targets * (1 - smoothing) + smoothing / 2
    if weights is None and not gamma:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    minus_log_yes, minus_log_no = F.softplus(-logits), F.softplus(logits)
    # the probability of no is 1 - p of yes, and the other way around
    of_yes = minus_log_yes * (-gamma * minus_log_no).exp()
    of_no = minus_log_no * (-gamma * minus_log_yes).exp()
    if weights is None:
        return (1 - targets) * of_no + targets * of_yes
    own, other = 1 - smoothing / 2, smoothing / 2
    if smoothing:
        of_no, of_yes = own * of_no + other * of_yes, own * of_yes + other * of_no
    return weights[0] * (1 - targets) * of_no + weights[1] * targets * of_yes
