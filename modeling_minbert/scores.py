# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Scores of texts and pairs: cosines, similarities, and decisions by thresholds."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .heads import (
    DATA,
    DECISION,
    LOSS,
    MEANING,
    RECIPE,
    TRAINING,
    HubType,
    Outputs,
    Pretrained,
    Suggestion,
    TaskBatch,
    Types,
    find_padding,
)
from .losses import (
    LOSSES,
    CalibratedHead,
    CalibratedTask,
    LabelledTask,
    Target,
    WeightedTask,
)
from .pooled import PairEncoding, PooledHead, PooledTask
from .texts import Fields

# With so many training rows, cosines of separate texts are better than joint pairs: they compare
# words from the start (benchmarks/DEFAULTS.md).
FEW_ROWS = 1_000


@strict
@dataclass(kw_only=True)
class CosineTask(PooledTask):
    """A task that may compare the vectors of two texts by their cosine.

    Args:
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`;
            10, and 20 for losses that compare rows, for which it is 1 / temperature.
        projection: `training` puts a dense layer with tanh between vectors and cosine, which is
            left out in evaluation, as in unsupervised SimCSE (Gao et al. 2021, section 6.3); None
            for none.
    """

    cosine_scale: float | int | None = field(default=None, metadata=LOSS)
    projection: Literal["training"] | None = field(default=None, metadata=RECIPE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cosine_scale is None:
            self.cosine_scale = LOSSES[self.loss].scale if self.loss in LOSSES else 10.0

    def validate_cosine(self) -> None:
        if self.projection is not None and self.head != "cosine":
            raise ValueError(
                f"projection={self.projection!r} is only for head cosine: leave it out"
            )
        if self.cosine_scale is not None and not 0 < self.cosine_scale < math.inf:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be a number above 0")
        for name in ("margin", "threshold"):
            value = getattr(self, name, None)
            if value is not None and not -1 <= value <= 1:
                raise ValueError(f"{name}={value} is a cosine, it must be in [-1, 1]")


@strict
@dataclass(kw_only=True)
class SimilarityTask(CosineTask):
    """A score within a range for a pair of texts; see also `CosineTask`.

    Labels are scaled to [0, 1].

    Args:
        score_range: Lowest and highest score, `[low, high]`, in the unit of the labels.
        threshold: Cosine, in [-1, 1], that `bce` scores at the middle of the range; 0.5.
    """

    problem_type: Literal["similarity"] = field(default="similarity", metadata=MEANING)
    score_range: list[float | int] | None = field(default=None, metadata=MEANING)
    threshold: float | int = field(default=0.5, metadata=DECISION)
    target: ClassVar[Target] = "score"
    hub_type: ClassVar[HubType] = "regression"

    @classmethod
    def suggest(cls, given: Fields, start: Pretrained, rows: int) -> dict[str, Suggestion]:
        suggested = super().suggest(given, start, rows)
        is_free = given.keys().isdisjoint(("pair_encoding", "head", "loss"))
        if is_free and start.sentence_pooling is not None:
            reason = "the checkpoint is a sentence encoder, whose cosines are similarities"
            suggested["pair_encoding"] = Suggestion("separate", reason)
        elif is_free and rows <= FEW_ROWS:
            reason = f"{rows:,} training rows are few to learn comparisons from joint pairs"
            suggested["pair_encoding"] = Suggestion("separate", reason)
        return suggested

    @property
    def default_head(self) -> str:
        return "cosine" if self.pair_encoding == "separate" else super().default_head

    @property
    def default_loss(self) -> str | None:
        # for a cosine that of Reimers and Gurevych 2019, section 3
        return "mse" if self.head == "cosine" else "bce"

    def validate_score_range(self) -> None:
        low_high = self.score_range or []
        if len(low_high) != 2 or not -math.inf < low_high[0] < low_high[1] < math.inf:
            raise ValueError(f"score_range={self.score_range} must be [low, high] with low < high")
        if low_high[0] <= -100 <= low_high[1]:
            raise ValueError(
                f"score_range={self.score_range} contains -100, which marks rows without a label: "
                "rescale the scores"
            )


class SimilarityHead(PooledHead):
    """A linear output or a cosine that is a score."""

    outputs: ClassVar[Outputs] = "scores"

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits to scores, (B, 1), in units of the range, with a gradient."""
        return self.task.loss_function.to_unit(logits.float())

    def decode(self, logits: Tensor) -> Tensor:
        low, high = self.score_range
        unit = self.task.loss_function.to_unit(logits.squeeze(-1)).clamp(0, 1)
        return low + unit * (high - low)


@strict
@dataclass(kw_only=True)
class ContrastiveTask(CosineTask):
    """Vectors of related texts, learned without labels; see also `CosineTask`.

    Args:
        num_sentences: Texts of a row: 1, which is encoded twice with different dropout
            (unsupervised SimCSE), 2 related ones, or 3, the last of which is a hard negative of the
            first.
    """

    problem_type: Literal["contrastive"] = field(default="contrastive", metadata=MEANING)
    num_sentences: int = field(default=2, metadata=DATA)
    is_unlabelled: ClassVar[bool] = True
    target: ClassVar[Target] = "unlabelled"
    default_pair_encoding: ClassVar[PairEncoding] = "separate"
    default_head: ClassVar[str] = "cosine"
    normalizes_vectors: ClassVar[bool] = True
    allows_windows: ClassVar[bool] = False

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        head = super().complete({"pair_encoding": "separate", **given}, facts)
        return {**head, "num_sentences": facts["num_texts"]}

    @property
    def num_sequences(self) -> int | None:
        return self.num_sentences

    def validate_num_sentences(self) -> None:
        if not 1 <= self.num_sentences <= 3:
            raise ValueError(f"num_sentences={self.num_sentences} must be 1, 2 or 3")


class ContrastiveHead(PooledHead):
    """Vectors of length 1, (B, S, D), instead of logits."""

    outputs: ClassVar[Outputs] = "vectors"

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None:
            raise ValueError(
                f"task {batch.name!r} is contrastive and learns without labels: leave them out"
            )
        # 1, and -100 for rows that only fill the batch
        is_filler = find_padding(batch, self.config.pad_token_id)[:: batch.num_sequences]
        labels = torch.ones_like(is_filler, dtype=torch.long)
        batch.labels = labels.masked_fill(is_filler, -100)
        super().prepare(batch)

    def score(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors.float(), dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        pair = logits[:, :2]
        return (pair[:, 0] * pair[:, -1]).sum(dim=-1)

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the cosines of pairs, (B, 1)."""
        return self.decode(logits).unsqueeze(-1)


@strict
@dataclass(kw_only=True)
class ThresholdTask(CalibratedTask):
    """A task with yes-or-no decisions by probabilities.

    Args:
        thresholds: Probability, in [0, 1], above which each decision is yes: one for every logit;
            None means 0.5 for all.
    """

    thresholds: list[float | int] | None = field(default=None, metadata=TRAINING)

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
        default="multi_label_classification", metadata=MEANING
    )
    pos_weight: list[float | int] | None = field(default=None, metadata=RECIPE)
    target: ClassVar[Target] = "binary"
    hub_type: ClassVar[HubType] = "multi_label_classification"
    default_pair_encoding: ClassVar[None] = None
    num_classes: ClassVar[int] = 2

    def validate_output(self) -> None:
        if self.head == "cosine":
            raise ValueError(
                f"head='cosine' has one output, but there are {self.num_logits} labels: use concat"
            )


class MultiLabelHead(ThresholdHead, PooledHead):
    """A logit per label, each with a threshold."""

    row_label = "0 or 1 for each label of a row"
    has_threshold = True

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

    problem_type: Literal["paraphrase"] = field(default="paraphrase", metadata=MEANING)
    margin: float | int = field(default=0.0, metadata=LOSS)
    threshold: float | int | None = field(default=None, metadata=DECISION)
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
        """Whether there is a threshold to fit."""
        return self.task.head == "cosine"

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> Any:
        from .calibration import fit_cosine_threshold

        return fit_cosine_threshold(self, logits, labels)

    @property
    def scales(self) -> bool:
        return self.task.head == "cosine"

    @property
    def threshold(self) -> float:
        """The threshold; in training 0.5 for a fitted one: evaluation must not change a step."""
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
    "similarity": (SimilarityTask, SimilarityHead),
    "contrastive": (ContrastiveTask, ContrastiveHead),
    "multi_label_classification": (MultiLabelClassificationTask, MultiLabelHead),
    "paraphrase": (ParaphraseTask, ParaphraseHead),
}
