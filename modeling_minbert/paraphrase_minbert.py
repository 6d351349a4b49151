# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Paraphrase: whether two texts mean the same."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .class_weights_minbert import WeightedTask
from .distillation_minbert import match_outcomes
from .losses_minbert import Target
from .pooled_minbert import CosineTask, PooledHead
from .task_minbert import DATA, RECIPE, TRAINING, check_labels
from .temperature_minbert import CalibratedHead, rescale
from .thresholds_minbert import ThresholdTask, choose_threshold


@strict
@dataclass(kw_only=True)
class ParaphraseTask(WeightedTask, ThresholdTask, CosineTask):
    """Whether two texts mean the same: one logit, yes above 0.

    See also `WeightedTask`, `ThresholdTask` and `CosineTask`.

    Args:
        labels: Names of no and yes.
        margin: Cosine, in [-1, 1], below which a negative pair has no `cosine_embedding` loss.
        threshold: Cosine, in [-1, 1], above which a pair counts as a paraphrase; 0.5. With losses
            that teach no threshold it is None, which means 0.5, until `fit_threshold` chooses it.
        threshold_fitted: Whether `fit_threshold` has chosen it, so that further training may change
            it.
        probability_threshold: Probability above which a pair counts as a paraphrase, in [0, 1];
            None means 0.5. Training chooses it on the validation rows if `threshold_for` is given.
    """

    problem_type: Literal["paraphrase"] = field(default="paraphrase", metadata=DATA)
    labels: list[str] | None = field(default=None, metadata=DATA)
    margin: float | int = field(default=0.0, metadata=RECIPE)
    threshold: float | int | None = field(default=None, metadata=RECIPE)
    threshold_fitted: bool = field(default=False, metadata=TRAINING)
    probability_threshold: float | int | None = field(default=None, metadata=TRAINING)
    cosines: ClassVar[tuple[str, ...]] = ("margin", "threshold")
    target: ClassVar[Target] = "binary"
    default_loss: ClassVar[str] = "bce"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.labels = self.labels or ["different", "paraphrase"]
        if self.threshold is None and not self.needs_threshold_fit:
            self.threshold = 0.5

    @property
    def has_threshold(self) -> bool:
        return self.head == "cosine" or self.threshold_for is not None

    @property
    def needs_threshold_fit(self) -> bool:
        """Whether the loss does not determine which cosine separates the classes."""
        return self.loss in self.losses and not self.loss_function.teaches_threshold

    @property
    def pipeline_problem(self) -> str | None:
        chosen = self.probability_threshold
        reason = f"decides by the probability {chosen:.3g}, not by the higher one" if chosen else ""
        return super().pipeline_problem or reason or None

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return "single_label_classification", self.labels or []  # see `pipeline_logits`

    def make_head(self, config: Any) -> "ParaphraseHead":
        return ParaphraseHead(config, self)

    def reorder(self, values: Tensor, order: list[int]) -> Tensor:
        return values if order == [0, 1] else -values  # a logit of the other label

    def validate_labels(self) -> None:
        check_labels(self.labels)
        if len(self.labels or []) != 2:
            raise ValueError(f"labels={self.labels}: a paraphrase has two labels, no and yes")

    def validate_probability_threshold(self) -> None:
        chosen = self.probability_threshold
        if chosen is not None and not 0 <= chosen <= 1:
            raise ValueError(f"probability_threshold={chosen} must be in [0, 1]")


class ParaphraseHead(CalibratedHead, PooledHead):
    """One logit, or the scaled distance of a cosine from the decision threshold."""

    is_binary = True

    @property
    def scales(self) -> bool:
        return self.task.head == "cosine"

    @property
    def threshold(self) -> float:
        """The threshold; in training, a fitted one stays: evaluation must not change a step."""
        chosen = self.task.threshold
        return (
            0.5 if chosen is None or (self.training and self.task.needs_threshold_fit) else chosen
        )

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> float:
        is_labelled = labels != -100
        if not is_labelled.any():
            raise ValueError("no labeled pairs to choose a threshold by")
        real = is_labelled & logits.squeeze(-1).isfinite()
        if self.task.threshold_for is not None:
            return self._fit_to_goal(logits[real], labels[real] > 0)
        if real.any():  # a model that has diverged has none, and keeps its threshold
            cosines = logits[real].squeeze(-1).double() / self.cosine_scale + self.threshold
            self.task.threshold = best_threshold(cosines, labels[real] > 0)
            self.task.threshold_fitted = self.task.needs_threshold_fit
        return self.threshold

    def is_positive(self, labels: Tensor) -> Tensor:
        return (labels != -100) & (labels >= 1.0)

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return match_outcomes(logits, teacher, temperature).squeeze(-1)

    def _fit_to_goal(self, logits: Tensor, is_above: Tensor) -> float:
        """Choose the probability that reaches `threshold_for`; without pairs to do so it stays."""
        values = self.likelihoods(logits.float())[:, 1]
        found = choose_threshold(values, is_above, self.task.threshold_for)
        if found is not None:
            self.task.probability_threshold = rescale(found, 1 / self.temperature)
        chosen = self.task.probability_threshold
        return 0.5 if chosen is None else chosen

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        if self.class_weights is None:
            return None
        weights = self.class_weights.float()
        return weights[0], weights[1]

    def decode(self, logits: Tensor) -> Tensor:
        chosen = self.task.probability_threshold
        if chosen is None:
            return (logits.squeeze(-1) > 0).long()
        # float64, so that a threshold lies between two neighboring probabilities; compared without
        # the temperature, whose rounding could otherwise change a decision
        values = self.likelihoods(logits.float())[:, 1].double()
        return (values > rescale(chosen, self.temperature)).long()

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        """Return logits of no and of yes, (n, 2)."""
        return torch.cat([torch.zeros_like(logits), logits / self.temperature], dim=-1)

    def likelihoods(self, logits: Tensor) -> Tensor:
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)

    def move_thresholds(self, factor: float) -> None:
        chosen = self.task.probability_threshold
        if chosen is not None:
            self.task.probability_threshold = rescale(chosen, factor)


def best_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the lowest of the midpoints that separate most cosines, (N,), correctly."""
    ordered, order = values.clamp(-1, 1).sort()
    above = is_above[order].long()
    # correct if the first n lie below: the ones of them that belong there, and the rest above
    right = F.pad((1 - above).cumsum(0), (1, 0)) + above.sum() - F.pad(above.cumsum(0), (1, 0))
    edges = F.pad(F.pad(ordered, (1, 0), value=-1.0), (0, 1), value=1.0)
    equal = edges[1:] == edges[:-1]  # no threshold lies between equal cosines
    equal[-1] = False  # a cosine of 1 is not above 1
    best = int(right.masked_fill(equal, -1).argmax())
    return float(edges[best : best + 2].mean())
