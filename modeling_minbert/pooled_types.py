# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The problem types with one vector per sequence: what they add to `pooled.py`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .calibration import (
    CalibratedHead,
    CalibratedTask,
    ThresholdHead,
    ThresholdTask,
)
from .heads import (
    DATA,
    RECIPE,
    TRAINING,
    Fields,
    HubType,
    LabelledTask,
    Pretrained,
    Suggestion,
    TaskBatch,
    check_shapes,
    mark_rows,
)
from .losses import (
    BalancedTask,
    Target,
    WeightedTask,
    conditional_log_probabilities,
    symmetric_kl,
)
from .pooled import HEADS, CosineTask, PairEncoding, PooledHead, PooledTask, describe_scores


@strict
@dataclass(kw_only=True)
class ClassificationTask(WeightedTask, CalibratedTask, PooledTask):
    """One of `labels` for a text or a pair of texts.

    See also `WeightedTask`, `CalibratedTask` and `PooledTask`.
    """

    problem_type: Literal["classification"] = field(default="classification", metadata=DATA)
    target: ClassVar[Target] = "class"
    has_classes: ClassVar[bool] = True
    hub_type: ClassVar[HubType] = "single_label_classification"
    default_pair_encoding: ClassVar[None] = None


class ClassificationHead(CalibratedHead, PooledHead):
    """A logit per class."""

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)


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
    hub_type: ClassVar[HubType] = "single_label_classification"  # see `pipeline_logits`
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

    @property
    def pipeline_problem(self) -> str | None:
        if self.thresholds is None:
            return super().pipeline_problem
        reason = f"decides by the probability {self.thresholds[0]:.3g}, not by the higher one"
        return super().pipeline_problem or reason

    def reorder(self, values: Tensor, order: list[int]) -> Tensor:
        return values if order == [0, 1] else -values  # a logit of the other label

    def validate_labels(self) -> None:
        super().validate_labels()
        if len(self.labels or []) != 2:
            raise ValueError(f"labels={self.labels}: a paraphrase has two labels, no and yes")


class ParaphraseHead(ThresholdHead, PooledHead):
    """One logit, or the scaled distance of a cosine from the decision threshold."""

    @property
    def has_threshold(self) -> bool:
        return self.task.head == "cosine" or self.task.threshold_for is not None

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

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> Any:
        if self.task.threshold_for is not None:
            return super().fit_threshold(logits, labels.unsqueeze(-1))[0]
        is_labelled = labels != -100
        if not is_labelled.any():
            raise ValueError("no labeled pairs to choose a threshold by")
        real = is_labelled & logits.squeeze(-1).isfinite()
        if real.any():  # a model that has diverged has none, and keeps its threshold
            cosines = logits[real].squeeze(-1).double() / self.cosine_scale + self.threshold
            self.task.threshold = best_threshold(cosines, labels[real] > 0)
            self.task.threshold_fitted = self.task.needs_threshold_fit
        return self.threshold

    def is_positive(self, labels: Tensor) -> Tensor:
        return (labels != -100) & (labels >= 1.0)

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        from .distillation import match_outcomes

        return match_outcomes(logits, teacher, temperature).squeeze(-1)

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        if self.class_weights is None:
            return None
        weights = self.class_weights.float()
        return weights[0], weights[1]

    def decode(self, logits: Tensor) -> Tensor:
        return self.decide(logits).squeeze(-1)

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        """Return logits of no and of yes, (n, 2)."""
        return torch.cat([torch.zeros_like(logits), logits / self.temperature], dim=-1)

    def likelihoods(self, logits: Tensor) -> Tensor:
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)


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


# With so many training rows, cosines of separate texts are better than joint pairs: they compare
# words from the start (benchmarks/DEFAULTS.md).
FEW_ROWS = 1_000


@strict
@dataclass(kw_only=True)
class SimilarityTask(CosineTask):
    """A score within a range for a pair of texts; see also `CosineTask`.

    Labels are scaled to [0, 1].

    Args:
        score_range: Lowest and highest score, `[low, high]`, in the unit of the labels.
        threshold: Cosine, in [-1, 1], that `bce` scores at the middle of the range; 0.5.
    """

    problem_type: Literal["similarity"] = field(default="similarity", metadata=DATA)
    score_range: list[float | int] | None = field(default=None, metadata=DATA)
    threshold: float | int = field(default=0.5, metadata=RECIPE)
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
        return "cosine" if self.pair_encoding == "separate" else HEADS[self.pair_encoding][0]

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
    """A linear output or a cosine that is a score, or a logit per integer."""

    def __init__(self, config: PreTrainedConfig, task: SimilarityTask) -> None:
        super().__init__(config, task)
        self.score_range = task.score_range or (0, 1)

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits to scores, (B, 1), in units of the range, with a gradient."""
        return self.task.loss_function.to_unit(logits.float())

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        from .distillation import check_teacher, match_probabilities, match_scores, mean_taught

        scores, known = self.to_targets(logits), teacher.nan_to_num()
        check_teacher(scores, teacher, 1)
        if self.task.loss == "bce":
            return mean_taught(match_probabilities(logits, known), teacher)
        return mean_taught(match_scores(scores, known), teacher)

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        return self.decode(logits).unsqueeze(-1)

    def decode(self, logits: Tensor) -> Tensor:
        low, high = self.score_range
        unit = self.task.loss_function.to_unit(logits.squeeze(-1)).clamp(0, 1)
        return low + unit * (high - low)

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        return describe_scores(self.decode(logits), top_k)


@strict
@dataclass(kw_only=True)
class RegressionTask(PooledTask):
    """K numbers in their own units for a text or a pair of texts; see also `PooledTask`.

    The head is trained on `(target - mean) / std`, so that its first predictions are near the mean
    and losses of all targets have the same scale. Labels, logits and predictions are in the units
    of the data. A label of -100 is missing and does not count.

    Args:
        targets: Names of the targets, in the order of the logits; None for a single one.
        mean: Mean of each target over the training rows; 0 by default.
        std: Standard deviation of each target over the training rows; 1 by default.
    """

    problem_type: Literal["regression"] = field(default="regression", metadata=DATA)
    targets: list[str] | None = field(default=None, metadata=DATA)
    mean: list[float | int] | None = field(default=None, metadata=DATA)
    std: list[float | int] | None = field(default=None, metadata=DATA)
    target: ClassVar[Target] = "number"
    hub_type: ClassVar[HubType] = "regression"
    default_pair_encoding: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mean = [0.0] * self.num_logits if self.mean is None else self.mean
        self.std = [1.0] * self.num_logits if self.std is None else self.std

    @property
    def num_logits(self) -> int:
        return 1 if self.targets is None else len(self.targets)

    @property
    def pipeline_problem(self) -> str | None:
        several = "predicts several numbers" if self.num_logits > 1 else None
        return super().pipeline_problem or several

    def validate_scaling(self) -> None:
        names = self.targets
        if names is not None and (not all(names) or not 0 < len(set(names)) == len(names)):
            raise ValueError(f"targets={names} must be different names, at least one")
        for name, values in (("mean", self.mean), ("std", self.std)):
            numbers, count = values or [], self.num_logits
            if len(numbers) != count or not all(map(math.isfinite, numbers)):
                raise ValueError(f"{name}={values} must have a finite number for each target")
        if not all(number > 0 for number in self.std or []):
            raise ValueError(f"std={self.std} must be above 0")


class RegressionHead(PooledHead):
    """A linear output for each target, whose logits are in the units of the data."""

    row_label = "a number for each target of a row, -100 for none"

    def to_logits(self, scores: Tensor) -> Tensor:
        columns = self._columns(scores)
        return torch.stack([column * std + mean for column, mean, std in columns], dim=-1)

    def unit_labels(self, labels: Tensor) -> Tensor:
        """Standardize labels, (B,) or (B, K); missing ones become 0."""
        columns = self._columns(labels if labels.dim() == 2 else labels.unsqueeze(-1))
        standardized = torch.stack([(column - mean) / std for column, mean, std in columns], dim=-1)
        return standardized.view_as(labels).masked_fill(labels == -100, 0)

    def _columns(self, values: Tensor) -> Iterator[tuple[Tensor, float, float]]:
        """Yield values, (B, K), of each target in at least float32, with its mean and deviation."""
        # Numbers instead of buffers: a model that is cast to bfloat16, which has no digits for
        # values that are far from 0, would round these.
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        return zip(wide.unbind(dim=-1), self.task.mean, self.task.std, strict=True)

    def prepare(self, batch: TaskBatch) -> None:
        labels = batch.labels
        if labels is not None and labels.dim() == 2 and self.task.num_logits == 1:
            batch.labels = labels.squeeze(-1)

    def label_shape(self, scores: Tensor) -> torch.Size:
        return scores.shape[:1] if self.task.num_logits == 1 else scores.shape

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return self._squares(logits - other).mean()

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return self._squares(logits - teacher.mean(dim=-2)).mean(dim=0)

    def _squares(self, differences: Tensor) -> Tensor:
        """Square differences, (B, K), in standard deviations, (K, B)."""
        columns = self._columns(differences)
        return torch.stack([column / std for column, _, std in columns]).square()

    def decode(self, logits: Tensor) -> Tensor:
        """Return predictions in the units of the data, (B, K), or (B,) for K = 1."""
        return logits.squeeze(-1) if self.task.num_logits == 1 else logits

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): a dictionary a row with `score`, or `scores` by target."""
        if self.task.num_logits == 1:
            return describe_scores(self.decode(logits), top_k)
        rows = [
            {"scores": dict(zip(self.task.targets, row, strict=True))} for row in logits.tolist()
        ]
        return rows if top_k is None else [[row] for row in rows]


@strict
@dataclass(kw_only=True)
class OrdinalTask(LabelledTask, PooledTask):
    """One of ordered `labels`, the lowest first, for a text or a pair of texts.

    See also `LabelledTask` and `PooledTask`. The logits are log probabilities, so that the softmax
    of a pipeline gives the probabilities.
    """

    problem_type: Literal["ordinal"] = field(default="ordinal", metadata=DATA)
    target: ClassVar[Target] = "ordinal"
    hub_type: ClassVar[HubType] = "single_label_classification"
    default_pair_encoding: ClassVar[None] = None
    has_classes: ClassVar[bool] = True
    is_likelihood: ClassVar[bool] = True

    @property
    def num_logits(self) -> int:
        return len(self.labels or []) - 1  # a question whether it is higher, for each but the last

    @property
    def pipeline_problem(self) -> str | None:
        has_median = self.num_logits > 1  # of two classes it is the most probable one
        reason = "predicts the median, which need not be the most probable label"
        return super().pipeline_problem or (reason if has_median else None)


class OrdinalHead(PooledHead):
    """Log probabilities of the classes, from conditional logits."""

    def to_logits(self, scores: Tensor) -> Tensor:
        """Convert the outputs of the linear layer to log probabilities of the classes, (B, K)."""
        return conditional_log_probabilities(scores)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        """Return the median class: the number of classes k with P(y > k) > 0.5, (B,).

        This is the rule of CORN (Shi, Cao and Raschka 2021). It minimizes the expected absolute
        error.
        """
        above = self.probabilities(logits.float()).flip(-1).cumsum(dim=-1).flip(-1)[..., 1:]
        return (above > 0.5).sum(dim=-1)


@strict
@dataclass(kw_only=True)
class MultiLabelClassificationTask(BalancedTask, ThresholdTask, PooledTask):
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

    @property
    def pipeline_problem(self) -> str | None:
        reason = "has thresholds, above which a row has any number of labels"
        return super().pipeline_problem or (None if self.thresholds is None else reason)

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

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return symmetric_kl(logits.unsqueeze(-1), other.unsqueeze(-1)).mean()

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        from .distillation import match_outcomes

        return match_outcomes(logits, teacher, temperature).mean(dim=-1)

    def decode(self, logits: Tensor) -> Tensor:
        return self.decide(logits)

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): a list a row, of its labels or the `top_k` most probable ones."""
        probabilities = self.probabilities(logits)
        ranks = probabilities.argsort(dim=-1, descending=True, stable=True)
        is_shown = self.decode(logits) > 0 if top_k is None else torch.ones_like(ranks) > 0
        rows = zip(probabilities.tolist(), ranks.tolist(), is_shown.tolist(), strict=True)
        names = self.task.labels
        return [
            [{"label": names[index], "score": row[index]} for index in order if shown[index]][
                :top_k
            ]
            for row, order, shown in rows
        ]


@strict
@dataclass(kw_only=True)
class ContrastiveTask(CosineTask):
    """Vectors of related texts, learned without labels; see also `CosineTask`.

    Args:
        num_sentences: Texts of a row: 1, which is encoded twice with different dropout
            (unsupervised SimCSE), 2 related ones, or 3, the last of which is a hard negative of the
            first.
    """

    problem_type: Literal["contrastive"] = field(default="contrastive", metadata=DATA)
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

    def __init__(self, config: PreTrainedConfig, task: ContrastiveTask) -> None:
        super().__init__(config, task)
        self.padding = config.pad_token_id

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None:
            raise ValueError(
                f"task {batch.name!r} is contrastive and learns without labels: leave them out"
            )
        batch.labels = mark_rows(batch, self.padding)
        super().prepare(batch)

    def score(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors.float(), dim=-1)

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        if self.task.num_sentences == 1:  # encoded twice in training
            teacher = teacher.expand(-1, -1, logits.shape[1], -1)
        return super().distillation(logits, teacher, temperature)

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        from .distillation import match_vectors

        return match_vectors(logits, teacher)

    def decode(self, logits: Tensor) -> Tensor:
        pair = logits[:, :2]
        return (pair[:, 0] * pair[:, -1]).sum(dim=-1)

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the cosines of pairs, (B, 1)."""
        return self.decode(logits).unsqueeze(-1)

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        return describe_scores(logits.squeeze(-1), top_k)
