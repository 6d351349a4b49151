# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tasks with one vector, (D,), per sequence, and the types that score it alone.

Shapes: B rows of S, N = B * S sequences, K logits of a row.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from .cpu import MinBertDropout
from .heads import (
    DATA,
    LAYOUT,
    LOSS,
    MEANING,
    READING,
    HeadTask,
    HubType,
    MinBertEmbedding,
    MinBertHead,
    Outputs,
    Pretrained,
    Suggestion,
    TaskBatch,
    Types,
    ids_of,
)
from .inference import PooledPredictor, Windows, find_windows
from .losses import (
    LOSSES,
    CalibratedHead,
    CalibratedTask,
    LossInputs,
    MinBertLoss,
    Output,
    Target,
    WeightedTask,
    add_weights,
)
from .names import suggest, unknown
from .packing import Read, pool_outputs, reads
from .rows import Pooling, VectorPlan, describe_texts
from .texts import Encoding, Fields, check_overlap, default_overlap

PairEncoding = Literal["joint", "separate"]
Truncation = Literal["head", "tail", "head_tail", "windows"]
MOST_WINDOWS = 16

# pair encoding -> heads that fit, the default first; `PooledHead` computes them
HEADS: dict[PairEncoding | None, tuple[str, ...]] = {
    None: ("linear", "mlp"),
    "joint": ("linear", "mlp"),
    "separate": ("concat", "cosine"),
}


@strict
@dataclass(kw_only=True)
class PooledTask(HeadTask):
    """A task whose head scores one vector per sequence.

    Args:
        pair_encoding: `joint` encodes both texts in one sequence (`[CLS] a [SEP] b [SEP]`),
            `separate` makes one vector of each, None is for single texts.
        pooling: How the states of a sequence become one vector: `cls` (first token), `pooler`
            (BERT's dense layer with tanh on it), `mean` or `max` over the real tokens. Defaults to
            `mean` for separate pairs, else to `pooler`.
        head: On one vector `linear` or `mlp` (one hidden layer); on two vectors u and v `cosine` or
            `concat` (linear on `[u; v; |u - v|]`; Reimers and Gurevych 2019, section 3).
        loss: A key of `LOSSES` that fits the task and its head.
        dropout: Probability of dropping an element of the head's input vectors (of `concat`, of all
            three together); 0.3, and 0 for a cosine, which dropout would distort.
        truncation: What remains of a text that is too long: its `head`, its `tail`, or `head_tail`,
            a quarter of the tokens from the start (128 of 510) and the rest from the end (Sun et
            al. 2019, section 5.3.1). With `windows` all of it remains: the text is split into
            sequences of `max_length`, and the vector is the mean of theirs, weighted by tokens.
        window_overlap: Tokens that a window shares with the one before; 64, or a quarter of a
            window that is shorter than 256.
        max_windows: Most windows of a text, evenly spread over a longer one; 16.
    """

    pair_encoding: PairEncoding | None = field(default=None, metadata=LAYOUT)
    pooling: Pooling | None = field(default=None, metadata=LAYOUT)
    head: str | None = field(default=None, metadata=LAYOUT)
    loss: str | None = field(default=None, metadata=LOSS)
    truncation: Truncation = field(default="head", metadata=READING)
    window_overlap: int | None = field(default=None, metadata=READING)
    max_windows: int | None = field(default=None, metadata=READING)
    target: ClassVar[Target]
    default_pair_encoding: ClassVar[PairEncoding | None] = "joint"
    normalizes_vectors: ClassVar[bool] = False
    allows_windows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.pair_encoding = self.pair_encoding or self.default_pair_encoding
        self.pooling = self.pooling or ("mean" if self.is_separate else "pooler")
        self.head = self.head or self.default_head
        self.loss = self.loss or self.default_loss
        if self.dropout is None:
            self.dropout = 0.0 if self.head == "cosine" else 0.3
        if self.has_windows:
            if self.window_overlap is None:
                self.window_overlap = default_overlap(self.max_length)
            if self.max_windows is None:
                self.max_windows = MOST_WINDOWS

    @property
    def default_head(self) -> str:
        """The head if none is given."""
        return HEADS[self.pair_encoding][0]

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses that fit the task and its head."""
        output: Output = "cosine" if self.head == "cosine" else "linear"
        return tuple(name for name, loss in LOSSES.items() if (self.target, output) in loss.fits)

    @property
    def default_loss(self) -> str | None:
        """The loss if none is given."""
        return next(iter(self.losses), None)

    @property
    def loss_function(self) -> MinBertLoss:
        """The loss, one of `LOSSES`."""
        return LOSSES[str(self.loss)]

    @property
    def is_likelihood(self) -> bool:
        return self.loss in LOSSES and self.loss_function.is_likelihood

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        defaults = {"pair_encoding": "joint" if facts["num_texts"] > 1 else None}
        return super().complete({**defaults, **given}, facts)

    @classmethod
    def suggest(cls, given: Fields, start: Pretrained, rows: int) -> dict[str, Suggestion]:
        del rows
        if "pooling" in given:
            return {}
        if start.sentence_pooling is not None:
            reason = "as the checkpoint's sentence vectors"
            return {"pooling": Suggestion(start.sentence_pooling, reason)}
        is_separate = given.get("pair_encoding", cls.default_pair_encoding) == "separate"
        if is_separate or start.has_trained_pooler:
            return {}
        return {"pooling": Suggestion("mean", "the checkpoint has no trained pooler")}

    def describe_embedding(self) -> MinBertEmbedding | None:
        is_plain = self.pooling in ("cls", "max", "mean") and self.pooling_layer == -1
        if not (self.is_separate and is_plain) or self.has_windows:
            return None
        return MinBertEmbedding(
            pooling=self.pooling, normalize=self.normalizes_vectors, max_length=self.max_length
        )

    def encoding(self, max_length: int) -> Encoding:
        names = ("pair_encoding", "truncation", "window_overlap", "max_windows")
        own = {name: getattr(self, name) for name in names}
        return replace(super().encoding(max_length), **own)

    def plan_vectors(self, config: PreTrainedConfig) -> VectorPlan:
        """Return how a model makes the vectors of texts in predictions."""
        layers = self.count_layers(config.num_hidden_layers)
        return VectorPlan(self.reading(config), self.pooling, layers)

    def validate_windows(self) -> None:
        if not self.has_windows:
            for name in ("window_overlap", "max_windows"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} is only for truncation 'windows', not "
                        f"{self.truncation!r}: leave it out"
                    )
            return
        if self.pair_encoding == "joint" or not self.allows_windows:
            what = "pair_encoding 'joint'" if self.allows_windows else self.problem_type
            raise ValueError(
                f"truncation='windows' does not fit {what}: it is for single texts and, with "
                "pair_encoding 'separate', for labeled pairs; use head, tail or head_tail"
            )
        if (self.max_windows or 0) < 1:
            raise ValueError(f"max_windows={self.max_windows} must be at least 1")
        if self.max_length is not None:
            check_overlap(int(self.window_overlap or 0), self.max_length)

    def validate_head(self) -> None:
        heads = HEADS[self.pair_encoding]
        if self.head not in heads:
            how = self.pair_encoding or "single texts"
            if not any(self.head in each for each in HEADS.values()):
                raise ValueError(unknown("head", self.head, heads))
            others = [f", or pair_encoding {x!r}" for x in HEADS if x and self.head in HEADS[x]]
            raise ValueError(
                f"head={self.head!r} does not fit pair_encoding {how!r}: use one of "
                f"{', '.join(heads)}{''.join(others)}"
            )
        if self.loss not in self.losses:
            hint = suggest(self.loss, self.losses) if self.losses else ": choose another head"
            raise ValueError(
                f"loss={self.loss!r} does not fit problem_type {self.problem_type!r} with head "
                f"{self.head!r}{hint}"
            )


class PooledHead(MinBertHead):
    """A head on pooled vectors; subclasses convert labels and logits."""

    class_weights: Tensor | None  # (K,); None for equal ones
    pos_weight: Tensor | None  # likewise
    row_label: ClassVar[str] = "one a row"  # what labels are, for messages
    predictor: ClassVar[type[PooledPredictor]] = PooledPredictor

    def __init__(self, config: PreTrainedConfig, task: PooledTask) -> None:
        super().__init__()
        self.task = task
        self.config = config  # whose padding id may change
        self.score_range: Sequence[float] = getattr(task, "score_range", None) or (0, 1)
        self.cosine_scale = float(getattr(task, "cosine_scale", None) or 1)
        width = 3 * config.hidden_size if task.head == "concat" else config.hidden_size
        self.dropout = MinBertDropout(task.dropout or 0.0)
        self.projection = nn.Linear(width, width) if getattr(task, "projection", None) else None
        self.dense = nn.Linear(width, config.hidden_size) if task.head == "mlp" else None
        self.out = nn.Linear(width, task.num_logits) if task.head != "cosine" else None
        add_weights(self, task)

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None and self.task.loss_function.reads_vectors:
            from .ranking import text_keys

            batch.keys = text_keys(batch, self._find_windows(batch))

    def _find_windows(self, batch: TaskBatch) -> Windows | None:
        if not self.task.has_windows:
            return None
        if batch.offsets is not None:
            return find_windows(batch.num_windows, batch.offsets.diff(), batch.name)
        ids: Any = ids_of(batch.inputs)
        mask = batch.inputs[1]
        real = torch.ones_like(ids) if mask is None else mask.ne(0)
        return find_windows(batch.num_windows, real.sum(dim=-1).flatten(), batch.name)

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Flatten rows to sequences; in training a single sequence is encoded twice."""
        batch.windows = self._find_windows(batch)
        is_flat = batch.num_sequences is None or batch.num_windows is not None
        if not is_flat and batch.offsets is None:
            batch.inputs = tuple(None if x is None else x.flatten(0, 1) for x in batch.inputs)
        batch.is_repeated = batch.num_sequences == 1 and self.training
        if batch.is_repeated:
            offsets, dim = batch.offsets, 0 if batch.offsets is None else 1
            batch.inputs = tuple(
                None if x is None else torch.cat([x, x], dim) for x in batch.inputs
            )
            if offsets is not None:
                offsets = torch.cat([offsets, offsets[1:] + offsets[-1]])
                batch.options = batch.options | {"cu_seq_lens_q": offsets}
        return batch

    def read(self, batch: TaskBatch) -> Read:
        return reads(self.task.pooling)

    def forward(self, outputs: Any, batch: TaskBatch) -> SequenceClassifierOutput:
        vectors = self.embed(self.pool(outputs, batch))
        scores = self.score(vectors)
        loss = None
        if batch.labels is not None:
            loss = self.loss(vectors, scores, batch.labels, batch.keys)
        return SequenceClassifierOutput(
            loss, self.to_logits(scores), outputs.hidden_states, outputs.attentions
        )

    def pool(self, outputs: Any, batch: TaskBatch) -> Tensor:
        """Pool the sequences: (B, D), or (B, S, D); (B, 2, D) if they were encoded twice."""
        pooled = pool_outputs(outputs, batch.inputs[1], self.task.pooling)
        if batch.windows is not None:
            pooled = batch.windows.pool(pooled)
        if batch.is_repeated:
            return pooled.unflatten(0, (2, -1)).transpose(0, 1)
        count = batch.num_sequences
        return pooled if count is None else pooled.unflatten(0, (-1, count))

    def embed(self, pooled: Tensor) -> Tensor:
        """Map pooled vectors to those that are compared, of the same shape."""
        # equal u and v would differ after different dropout: `concat` drops from all three together
        vectors = pooled if self.task.head == "concat" else self.dropout(pooled)
        if self.projection is None or not self.training:
            return vectors
        return torch.tanh(self.projection(vectors))

    def score(self, vectors: Tensor) -> Tensor:
        """Score the vectors of `embed`: logits, or cosines in [-1, 1], (B, K)."""
        if self.task.is_separate:
            u, v = vectors.unbind(dim=1)
            if self.task.head == "cosine":
                # near 1, where good pairs are, half precision has few different cosines
                return F.cosine_similarity(u.float(), v.float(), dim=-1).unsqueeze(-1)
            vectors = self.dropout(torch.cat([u, v, (u - v).abs()], dim=-1))
        if self.dense is not None:
            vectors = self.dropout(torch.tanh(self.dense(vectors)))
        return vectors if self.out is None else self.out(vectors)

    @property
    def scales(self) -> bool:
        """Whether a cosine is scaled to a logit."""
        return self.task.head == "cosine" and self.task.loss_function.scales_cosines

    @property
    def threshold(self) -> float:
        """The cosine whose logit is 0."""
        return self.task.threshold

    @property
    def binary_weights(self) -> tuple[Tensor, Tensor] | None:
        """Factors on the losses of no and of yes, for binary targets; None for equal ones."""
        return None

    def to_logits(self, scores: Tensor) -> Tensor:
        """Scale cosines to logits, unless cosines are the predictions."""
        return self.cosine_scale * (scores - self.threshold) if self.scales else scores

    def unit_labels(self, labels: Tensor) -> Tensor:
        """Scale labels to [0, 1]."""
        low, high = self.score_range
        return (labels.float() - low) / (high - low)

    def list_classes(self, scores: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the logits, (B, K), and the labels, (B,), of each set of classes."""
        return [(scores, labels)]

    def is_positive(self, labels: Tensor) -> Tensor:
        """Return which rows are positive pairs, (B,), bool."""
        return labels != -100

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean loss over the labeled rows; see `LossInputs`."""
        expected = tuple(self.label_shape(scores))
        if labels.shape != expected:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected {expected}: {self.row_label}"
            )
        loss_function: MinBertLoss = self.task.loss_function
        inputs = LossInputs(vectors, scores, labels, keys)
        if not (self.gathers and self.training and loss_function.compares_rows):
            return loss_function(self, inputs)
        from .ranking import compute_together

        return compute_together(loss_function, self, inputs)

    def label_shape(self, scores: Tensor) -> torch.Size:
        """Return the shape that labels must have."""
        return scores.shape[:1]

    def count_terms(self, labels: Tensor) -> Tensor:
        terms: Tensor = self.task.loss_function.count_terms(self, labels)
        return terms

    def score_texts(self, pooled: Tensor) -> Tensor:
        """Compute the input of `describe` from pooled vectors, (B, D) or (B, S, D) -> (B, K)."""
        return self.summarize(self.to_logits(self.score(self.embed(pooled)))).float()

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the input of `describe`, (B, K)."""
        return logits

    def decide_texts(self, logits: Tensor) -> dict[str, Tensor]:
        """Return what predictions are made of: `scores`, or `probabilities` and `decisions`."""
        if self.outputs == "scores":
            return {"scores": self.decode(logits).unsqueeze(-1)}
        if self.outputs in ("numbers", "vectors"):
            return {"scores": logits}
        return {"probabilities": self.probabilities(logits), "decisions": self.decode(logits)}

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): the prediction of each row, or with `top_k` a list of them."""
        found = {kind: values.tolist() for kind, values in self.decide_texts(logits).items()}
        return describe_texts(self.task, found, top_k)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities of the labels."""
        raise NotImplementedError


@strict
@dataclass(kw_only=True)
class ClassificationTask(WeightedTask, CalibratedTask, PooledTask):
    """One of `labels` for a text or a pair of texts.

    See also `WeightedTask`, `CalibratedTask` and `PooledTask`.
    """

    problem_type: Literal["classification"] = field(default="classification", metadata=MEANING)
    target: ClassVar[Target] = "class"
    has_classes: ClassVar[bool] = True
    hub_type: ClassVar[HubType] = "single_label_classification"
    default_pair_encoding: ClassVar[None] = None


class ClassificationHead(CalibratedHead, PooledHead):
    """A logit per class."""


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

    problem_type: Literal["regression"] = field(default="regression", metadata=MEANING)
    targets: list[str] | None = field(default=None, metadata=MEANING)
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

    outputs: ClassVar[Outputs] = "numbers"
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

    def standardize(self, differences: Tensor) -> Tensor:
        """Divide differences of numbers, (B, K), by the standard deviations: (K, B)."""
        columns = self._columns(differences)
        return torch.stack([column / std for column, _, std in columns])

    def decode(self, logits: Tensor) -> Tensor:
        """Return predictions in the units of the data, (B, K), or (B,) for K = 1."""
        return logits.squeeze(-1) if self.task.num_logits == 1 else logits


TYPES: Types = {
    "classification": (ClassificationTask, ClassificationHead),
    "regression": (RegressionTask, RegressionHead),
}
