# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Yes-or-no decisions: multi-label classification, paraphrases, and their thresholds."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor

from .heads import DATA, RECIPE, TRAINING, HubType, Outputs, Types
from .losses import CalibratedHead, CalibratedTask, LabelledTask, Target, WeightedTask
from .pairs import CosineTask
from .pooled import PooledHead, PooledTask

GOALS = ("precision", "recall")


@strict
@dataclass(kw_only=True)
class ThresholdTask(CalibratedTask):
    """A task with yes-or-no decisions, whose thresholds training can choose for a purpose.

    Args:
        threshold_for: What decision thresholds must reach on the validation rows:
            `{"precision": 0.9}` for the highest recall with a precision of at least 0.9,
            `{"recall": 0.9}` for the highest precision with such a recall; None for the default of
            the type. If no threshold reaches it, the one that comes nearest is taken.
        thresholds: Probability, in [0, 1], above which each decision is yes: one for every logit;
            None means 0.5 for all. Training chooses them on the validation rows, whose metrics are
            optimistic from then on: measure on a test set.
    """

    threshold_for: dict[str, float | int] | None = field(default=None, metadata=RECIPE)
    thresholds: list[float | int] | None = field(default=None, metadata=TRAINING)

    def validate_threshold_for(self) -> None:
        wanted = self.threshold_for
        if wanted is None:
            return
        fits = [name in GOALS and 0 < value <= 1 for name, value in wanted.items()]
        if fits != [True]:
            raise ValueError(
                f"threshold_for={wanted} must be one goal above 0 and at most 1, as in "
                "{precision: 0.9} or {recall: 0.9}"
            )
        self.check_likelihood(f"threshold_for={wanted}")

    def validate_thresholds(self) -> None:
        chosen, count = self.thresholds, self.num_logits
        if chosen is not None and (len(chosen) != count or not all(0 <= x <= 1 for x in chosen)):
            numbers = "one number" if count == 1 else f"{count} numbers"
            raise ValueError(f"thresholds={chosen} must be {numbers} in [0, 1]")


class ThresholdHead(CalibratedHead):
    """What heads with a yes-or-no decision for each logit share.

    Attributes:
        rare: Rows with a label, by its number, where they were too few for a threshold.
    """

    outputs: ClassVar[Outputs] = "outcomes"
    is_binary = True
    rare: dict[int, int]

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> Any:
        """Fit the thresholds; see `MinBertForMultiTask.fit_threshold`."""
        from .calibration import fit_thresholds

        return fit_thresholds(self, logits, labels)

    @property
    def has_threshold(self) -> bool:
        """Whether there are thresholds to fit."""
        return True

    @property
    def thresholds(self) -> list[float]:
        """Probability above which a decision is yes, (K,)."""
        return self.task.thresholds or [0.5] * self.task.num_logits

    def decide(self, logits: Tensor) -> Tensor:
        """Return 1 for yes, else 0, (n, K)."""
        if self.task.thresholds is None:
            return (logits > 0).long()
        from .calibration import rescale

        # float64, so that a threshold lies between two neighboring probabilities; compared without
        # the temperature, whose rounding could otherwise change a decision
        plain = [rescale(threshold, self.temperature) for threshold in self.thresholds]
        thresholds = torch.tensor(plain, dtype=torch.float64, device=logits.device)
        return (logits.float().sigmoid() > thresholds).long()


@strict
@dataclass(kw_only=True)
class MultiLabelClassificationTask(LabelledTask, ThresholdTask, PooledTask):
    """Any number of `labels` for a text or a pair of texts, one logit each.

    The loss is the binary cross-entropy, a mean over labels and rows. See also `LabelledTask`,
    `ThresholdTask` and `PooledTask`.

    Args:
        pos_weight: Factor on the loss of the rows that have a label, in the order of `labels`, as
            in `torch.nn.BCEWithLogitsLoss`. In a recipe also `balanced`: rows without the label /
            rows with it.
    """

    problem_type: Literal["multi_label_classification"] = field(
        default="multi_label_classification", metadata=DATA
    )
    pos_weight: list[float | int] | None = field(default=None, metadata=RECIPE)
    target: ClassVar[Target] = "binary"
    hub_type: ClassVar[HubType] = "multi_label_classification"
    default_pair_encoding: ClassVar[None] = None

    def validate_output(self) -> None:
        if self.head == "cosine":
            raise ValueError(
                f"head='cosine' has one output, but there are {self.num_logits} labels: use concat"
            )


class MultiLabelHead(ThresholdHead, PooledHead):
    """A logit per label, each with a threshold."""

    row_label = "0 or 1 for each label of a row"

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        if self.pos_weight is None:
            return None
        weights = self.pos_weight.float()
        return torch.ones_like(weights), weights

    def label_shape(self, scores: Tensor) -> torch.Size:
        return scores.shape

    def decode(self, logits: Tensor) -> Tensor:
        return self.decide(logits)


@strict
@dataclass(kw_only=True)
class ParaphraseTask(WeightedTask, ThresholdTask, CosineTask):
    """Whether two texts mean the same: one logit, yes above 0.

    See also `WeightedTask`, `ThresholdTask` and `CosineTask`.

    Args:
        labels: Names of no and yes; `different` and `paraphrase` by default.
        margin: Cosine, in [-1, 1], below which a negative pair has no `cosine_embedding` loss.
        threshold: Cosine, in [-1, 1], above which a pair counts as a paraphrase; 0.5. With losses
            that teach no threshold it is None, which means 0.5, until `fit_threshold` chooses it.
        threshold_fitted: Whether `fit_threshold` has chosen it, so that further training may change
            it.
    """

    problem_type: Literal["paraphrase"] = field(default="paraphrase", metadata=DATA)
    margin: float | int = field(default=0.0, metadata=RECIPE)
    threshold: float | int | None = field(default=None, metadata=RECIPE)
    threshold_fitted: bool = field(default=False, metadata=TRAINING)
    target: ClassVar[Target] = "binary"
    has_classes: ClassVar[bool] = True
    hub_type: ClassVar[HubType] = "single_label_classification"
    num_logits: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.labels = self.labels or ["different", "paraphrase"]
        if self.threshold is None and not self.needs_threshold_fit:
            self.threshold = 0.5

    @property
    def needs_threshold_fit(self) -> bool:
        """Whether the loss does not determine which cosine separates the classes."""
        return self.loss in self.losses and not self.loss_function.teaches_threshold

    def validate_labels(self) -> None:
        super().validate_labels()
        if len(self.labels or []) != 2:
            raise ValueError(f"labels={self.labels}: a paraphrase has two labels, no and yes")


class ParaphraseHead(ThresholdHead, PooledHead):
    """One logit, or the scaled distance of a cosine from the decision threshold."""

    @property
    def has_threshold(self) -> bool:
        return self.task.head == "cosine" or self.task.threshold_for is not None

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> Any:
        from .calibration import fit_cosine_threshold

        if self.task.threshold_for is not None:
            return super().fit_threshold(logits, labels.unsqueeze(-1))[0]
        return fit_cosine_threshold(self, logits, labels)

    @property
    def scales(self) -> bool:
        return self.task.head == "cosine"

    @property
    def threshold(self) -> float:
        """The threshold; in training, a fitted one stays: evaluation must not change a step."""
        is_open = self.training and self.task.needs_threshold_fit
        return 0.5 if is_open or self.task.threshold is None else self.task.threshold

    def is_positive(self, labels: Tensor) -> Tensor:
        return (labels != -100) & (labels >= 1.0)

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        if self.class_weights is None:
            return None
        weights = self.class_weights.float()
        return weights[0], weights[1]

    def decode(self, logits: Tensor) -> Tensor:
        return self.decide(logits).squeeze(-1)

    def likelihoods(self, logits: Tensor) -> Tensor:
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)


TYPES: Types = {
    "multi_label_classification": (MultiLabelClassificationTask, MultiLabelHead),
    "paraphrase": (ParaphraseTask, ParaphraseHead),
}
