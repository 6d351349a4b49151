# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tasks with one vector, (D,), per sequence: B rows of S, N = B * S sequences, K logits a row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput

from .cpu_minbert import MinBertDropout
from .head_minbert import MinBertHead, TaskBatch, check_shapes, repeat, text_keys
from .inference_minbert import check_request, stream, tokenize
from .losses_minbert import (
    LOSSES,
    LossInputs,
    MinBertLoss,
    Output,
    Target,
    count_processes,
    gather_rows,
)
from .names_minbert import suggest, unknown
from .packing_minbert import Pooling, Read, pool_outputs, reads
from .sentence_transformers_minbert import POOLINGS, MinBertEmbedding
from .task_minbert import RECIPE, HeadTask, Pretrained, Suggestion

PairEncoding = Literal["joint", "separate"]
Truncation = Literal["head", "tail", "head_tail"]

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
            al. 2019, section 5.3.1).
    """

    pair_encoding: PairEncoding | None = field(default=None, metadata=RECIPE)
    pooling: Pooling | None = field(default=None, metadata=RECIPE)
    head: str | None = field(default=None, metadata=RECIPE)
    loss: str | None = field(default=None, metadata=RECIPE)
    truncation: Truncation = field(default="head", metadata=RECIPE)
    target: ClassVar[Target]
    default_loss: ClassVar[str]
    default_pair_encoding: ClassVar[PairEncoding | None] = "joint"
    normalizes_vectors: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.pair_encoding = self.pair_encoding or self.default_pair_encoding
        self.pooling = self.pooling or ("mean" if self.is_separate else "pooler")
        self.head = self.head or self.default_head
        self.loss = self.loss or next(iter(self.losses), None)
        if self.dropout is None:
            self.dropout = 0.0 if self.head == "cosine" else 0.3

    @property
    def default_head(self) -> str:
        """The head if none is given."""
        return HEADS[self.pair_encoding][0]

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses that fit the task and its head, the default first."""
        output: Output = "cosine" if self.head == "cosine" else "linear"
        names = [name for name, loss in LOSSES.items() if (self.target, output) in loss.fits]
        return tuple(sorted(names, key=lambda name: name != self.default_loss))

    @property
    def loss_function(self) -> MinBertLoss:
        return LOSSES[str(self.loss)]

    @property
    def num_classes(self) -> int:
        """Number of classes, where the loss has any."""
        return 1

    @property
    def num_logits(self) -> int:
        return self.loss_function.num_logits(self.num_classes)

    @property
    def is_separate(self) -> bool:
        """Whether every text is a separate sequence."""
        return self.pair_encoding == "separate"

    @property
    def keeps_projection(self) -> bool:
        """Whether vectors are also projected in evaluation."""
        return False

    @property
    def num_sequences(self) -> int | None:
        return 2 if self.is_separate else None

    @property
    def uses_pooler(self) -> bool:
        return self.pooling == "pooler"

    @property
    def num_texts(self) -> int:
        return 1 if self.pair_encoding is None else 2

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        pair_encoding = "joint" if facts["num_texts"] > 1 else None
        return super().complete({"pair_encoding": pair_encoding, **given}, facts)

    @classmethod
    def suggest(
        cls, given: Mapping[str, Any], start: Pretrained, rows: int
    ) -> dict[str, Suggestion]:
        del rows
        if "pooling" in given:
            return {}
        if start.sentence_pooling is not None:
            return {
                "pooling": Suggestion(
                    start.sentence_pooling, "as the checkpoint's sentence vectors"
                )
            }
        is_separate = given.get("pair_encoding", cls.default_pair_encoding) == "separate"
        if is_separate or start.has_trained_pooler:
            return {}
        return {"pooling": Suggestion("mean", "the checkpoint has no trained pooler")}

    def describe_embedding(self) -> MinBertEmbedding | None:
        is_plain = self.pooling in POOLINGS and self.pooling_layer == -1
        if not (self.is_separate and is_plain) or self.keeps_projection:
            return None
        pooling: Any = self.pooling
        return MinBertEmbedding(
            pooling=pooling, normalize=self.normalizes_vectors, max_length=self.max_length
        )

    def encoding_options(self, max_length: int) -> dict[str, Any]:
        names = ("pair_encoding", "truncation")
        own = {name: getattr(self, name) for name in names}
        return super().encoding_options(max_length) | own

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


@strict
@dataclass(kw_only=True)
class CosineTask(PooledTask):
    """A task that may compare the vectors of two texts by their cosine.

    Args:
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`;
            10, and 20 for losses that compare rows, for which it is 1 / temperature.
        symmetric: Whether `multiple_negatives_ranking` averages both directions: also from the
            second texts to the first ones.
        projection: A dense layer with tanh between vectors and cosine: `training` omits it in
            evaluation, as unsupervised SimCSE does, `always` keeps it, as the supervised one does
            (Gao et al. 2021, section 6.3); None for none.
    """

    cosine_scale: float | int | None = field(default=None, metadata=RECIPE)
    symmetric: bool = field(default=False, metadata=RECIPE)
    projection: Literal["training", "always"] | None = field(default=None, metadata=RECIPE)
    cosines: ClassVar[tuple[str, ...]] = ()  # fields that are cosines

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cosine_scale is None:
            self.cosine_scale = LOSSES[self.loss].scale if self.loss in LOSSES else 10.0

    @property
    def keeps_projection(self) -> bool:
        return self.projection == "always"

    @property
    def weight_among_tasks(self) -> float:
        # the gradient of such a loss is small, and there is no head to learn what others disturb
        return 3.0 if (self.head, self.loss) == ("cosine", "mse") else 1.0

    def validate_options(self) -> None:
        if self.projection is not None and self.head != "cosine":
            raise ValueError(
                f"projection={self.projection!r} is only for head cosine: leave it out"
            )
        for loss, function in LOSSES.items():
            for name in function.options:
                value = getattr(self, name, None)
                if value is not None and value is not False and loss != self.loss:
                    raise ValueError(f"{name}={value!r} is only for loss {loss}: leave it out")

    def validate_scale(self) -> None:
        if self.cosine_scale is not None and self.cosine_scale <= 0:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be above 0")

    def validate_cosines(self) -> None:
        for name in self.cosines:
            value = getattr(self, name)
            if value is not None and not -1 <= value <= 1:
                raise ValueError(f"{name}={value} is a cosine, it must be in [-1, 1]")


class PooledHead(MinBertHead):
    """A head on pooled vectors; subclasses convert labels and logits."""

    class_weights: Tensor | None  # (K,); None for equal ones

    def __init__(self, config: Any, task: PooledTask) -> None:
        super().__init__()
        self.task = task
        self.score_range: Sequence[float] = (0, 1)
        self.cosine_scale = float(getattr(task, "cosine_scale", None) or 1)
        width = 3 * config.hidden_size if task.head == "concat" else config.hidden_size
        self.dropout = MinBertDropout(task.dropout or 0.0)
        self.projection = nn.Linear(width, width) if getattr(task, "projection", None) else None
        self.dense = nn.Linear(width, config.hidden_size) if task.head == "mlp" else None
        self.out = nn.Linear(width, task.num_logits) if task.head != "cosine" else None
        given = getattr(task, "class_weights", None)
        weights = None if given is None else torch.tensor(given, dtype=torch.float32)
        self.register_buffer("class_weights", weights, persistent=False)

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None and self.task.loss_function.reads == "vectors":
            batch.keys = text_keys(batch)

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Flatten rows to sequences; in training a single sequence is encoded twice."""
        if batch.num_sequences is not None and batch.offsets is None:
            batch.inputs = tuple(None if x is None else x.flatten(0, 1) for x in batch.inputs)
        batch.is_repeated = batch.num_sequences == 1 and self.training
        if batch.is_repeated:
            batch.inputs, batch.options = repeat(batch.inputs, batch.options)
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
        if batch.is_repeated:
            return pooled.unflatten(0, (2, -1)).transpose(0, 1)
        count = batch.num_sequences
        return pooled if count is None else pooled.unflatten(0, (-1, count))

    def embed(self, pooled: Tensor) -> Tensor:
        """Map pooled vectors to those that are compared, of the same shape."""
        # equal u and v would differ after different dropout: `concat` drops from all three together
        vectors = pooled if self.task.head == "concat" else self.dropout(pooled)
        if self.projection is None or not (self.training or self.task.keeps_projection):
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
        return self.task.head == "cosine" and self.task.loss_function.reads == "logits"

    @property
    def threshold(self) -> float:
        """The cosine whose logit is 0."""
        return self.task.threshold

    def to_logits(self, scores: Tensor) -> Tensor:
        """Scale cosines to logits, unless cosines are the predictions."""
        return self.cosine_scale * (scores - self.threshold) if self.scales else scores

    def unscale(self, logits: Tensor) -> Tensor:
        """Undo the factor of `to_logits`."""
        return logits / self.cosine_scale if self.scales else logits

    def class_ids(self, labels: Tensor) -> Tensor:
        """Convert labels to class ids."""
        return labels.long()

    def unit_labels(self, labels: Tensor) -> Tensor:
        """Scale labels to [0, 1]."""
        low, high = self.score_range
        return (labels.float() - low) / (high - low)

    def is_positive(self, labels: Tensor) -> Tensor:
        """Return which rows are positive pairs, (B,), bool."""
        return labels != -100

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean loss over the labeled rows; see `LossInputs`."""
        if labels.shape != scores.shape[:1]:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected ({scores.shape[0]},): one a row"
            )
        loss_function: MinBertLoss = self.task.loss_function
        inputs = LossInputs(vectors, scores, labels, keys)
        is_shared = self.gathers and self.training and loss_function.compares_rows
        processes = count_processes() if is_shared else 1
        if processes == 1:
            return loss_function(self, inputs)
        gathered = LossInputs(*(None if x is None else gather_rows(x) for x in inputs))  # type: ignore[arg-type]
        loss = loss_function(self, gathered)
        # each process has the gradient of its own rows, and gradients are averaged
        return loss.detach() + processes * (loss - loss.detach())

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return self.task.loss_function.divergence(self, logits, other)

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        checked = check_request(rows, name, self.task.num_texts, top_k)
        longest = self.task.limit_length(model.config.max_position_embeddings)
        cut: dict[str, Any] = {"max_length": longest, "truncation": self.task.truncation}
        encode = partial(tokenize, model.tokenizer, separate=self.task.is_separate, **cut)
        compute = partial(self.predict_batch, model, name)
        windows = stream(model, checked, encode, compute, **options)
        return chain.from_iterable(self.describe(logits, top_k) for logits in windows)

    def predict_batch(self, model: Any, name: str, batch: dict[str, Any]) -> Tensor:
        """Compute the input of `describe`, (B, K)."""
        return model(**batch, task=name).logits

    def describe(self, logits: Tensor, top_k: int | None) -> list[Any]:
        """Describe logits (n, K): a dictionary per row, or with `top_k` a list of them."""
        probabilities = self.probabilities(logits)
        if top_k is None:
            best = self.decode(logits).unsqueeze(-1)
        else:
            best = probabilities.topk(min(top_k, probabilities.shape[-1])).indices
        names = self.task.labels
        described = [
            [{"label": names[index], "score": row[index]} for index in indices]
            for indices, row in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]
        return [row[0] for row in described] if top_k is None else described

    def probabilities(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to probabilities of the labels."""
        return logits.softmax(dim=-1)


def describe_scores(scores: Tensor, top_k: int | None) -> list[Any]:
    """Describe rows by their scores, (n,)."""
    rows = [{"score": score} for score in scores.tolist()]
    return rows if top_k is None else [[row] for row in rows]
