# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tasks with one vector, (D,), per sequence: B rows of S, N = B * S sequences, K logits a row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from .cpu import MinBertDropout, is_followed
from .heads import (
    READING,
    RECIPE,
    Fields,
    HeadTask,
    MinBertHead,
    Pretrained,
    Suggestion,
    TaskBatch,
    check_shapes,
    ids_of,
    repeat,
    sequence_keys,
)
from .inference import (
    PooledPredictor,
    Predictor,
    check_request,
    choose_tokens,
    compute_in_order,
    predicting,
    stream,
    windows_of,
)
from .int8 import check_precision
from .losses import (
    LOSSES,
    LossInputs,
    MinBertLoss,
    Output,
    Target,
    add_weights,
    count_processes,
    gather_rows,
)
from .names import suggest, unknown
from .packing import Pooling, Read, pool_outputs, reads
from .sharing import POOLINGS, MinBertEmbedding
from .texts import Encoded, Encoding, Row, check_overlap, tokenize

PairEncoding = Literal["joint", "separate"]
Truncation = Literal["head", "tail", "head_tail", "windows"]
OVERLAP, MOST_WINDOWS = 64, 16

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

    pair_encoding: PairEncoding | None = field(default=None, metadata=READING)
    pooling: Pooling | None = field(default=None, metadata=RECIPE)
    head: str | None = field(default=None, metadata=RECIPE)
    loss: str | None = field(default=None, metadata=RECIPE)
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
    def keeps_projection(self) -> bool:
        """Whether vectors are also projected in evaluation."""
        return False

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
            return {
                "pooling": Suggestion(
                    start.sentence_pooling, "as the checkpoint's sentence vectors"
                )
            }
        is_separate = given.get("pair_encoding", cls.default_pair_encoding) == "separate"
        if is_separate or start.has_trained_pooler:
            return {}
        return {"pooling": Suggestion("mean", "the checkpoint has no trained pooler")}

    @property
    def pipeline_problem(self) -> str | None:
        if self.has_windows:
            return "splits long texts into windows"
        # also those of multiple choice and of a contrastive task
        return None if self.num_sequences is None else "reads the texts of a row separately"

    def describe_embedding(self) -> MinBertEmbedding | None:
        is_plain = self.pooling in POOLINGS and self.pooling_layer == -1
        if not (self.is_separate and is_plain) or self.keeps_projection or self.has_windows:
            return None
        pooling: Any = self.pooling
        return MinBertEmbedding(
            pooling=pooling, normalize=self.normalizes_vectors, max_length=self.max_length
        )

    def encoding(self, max_length: int) -> Encoding:
        names = ("pair_encoding", "truncation", "window_overlap", "max_windows")
        own = {name: getattr(self, name) for name in names}
        return replace(super().encoding(max_length), **own)

    def plan_vectors(self, config: PreTrainedConfig) -> "VectorPlan":
        """Return how a model makes the vectors of texts in predictions."""
        positions = config.max_position_embeddings
        encoding = replace(self.encoding(positions), max_length=self.limit_length(positions))
        layers = self.count_layers(config.num_hidden_layers)
        return VectorPlan(encoding, self.pooling, layers)

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


@strict
@dataclass(kw_only=True)
class CosineTask(PooledTask):
    """A task that may compare the vectors of two texts by their cosine.

    Args:
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`;
            10, and 20 for losses that compare rows, for which it is 1 / temperature.
        projection: A dense layer with tanh between vectors and cosine: `training` omits it in
            evaluation, as unsupervised SimCSE does, `always` keeps it, as the supervised one does
            (Gao et al. 2021, section 6.3); None for none.
    """

    cosine_scale: float | int | None = field(default=None, metadata=RECIPE)
    projection: Literal["training", "always"] | None = field(default=None, metadata=RECIPE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cosine_scale is None:
            self.cosine_scale = LOSSES[self.loss].scale if self.loss in LOSSES else 10.0

    @property
    def keeps_projection(self) -> bool:
        return self.projection == "always"

    def validate_cosine(self) -> None:
        if self.projection is not None and self.head != "cosine":
            raise ValueError(
                f"projection={self.projection!r} is only for head cosine: leave it out"
            )
        if self.cosine_scale is not None and self.cosine_scale <= 0:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be above 0")
        for name in ("margin", "threshold"):
            value = getattr(self, name, None)
            if value is not None and not -1 <= value <= 1:
                raise ValueError(f"{name}={value} is a cosine, it must be in [-1, 1]")


def default_overlap(max_length: int | None) -> int:
    """Return the `window_overlap` of a task that leaves it out."""
    return OVERLAP if max_length is None else min(OVERLAP, max_length // 4)


# Windows of long texts


class Windows(NamedTuple):
    """The windows of a batch; what belongs to no text has the text P."""

    texts: Tensor  # the text of each window, ascending but for windows of padding, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor) -> Tensor:
        """Average the vectors of windows, weighted by their tokens, (N, D) -> (P, D).

        The vector of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts + 1).index_add(0, self.texts, weights)
        weights = (weights / sums[self.texts]).unsqueeze(1)
        pooled = vectors.new_zeros(self.num_texts + 1, vectors.shape[1], dtype=dtype)
        pooled = pooled.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled[: self.num_texts].to(vectors.dtype)


def find_windows(batch: TaskBatch) -> Windows:
    """Find the text of each window of a batch whose rows are windows, before it is arranged.

    Raises:
        ValueError: If `num_windows` does not fit the batch.
    """
    if batch.offsets is None:
        ids: Any = ids_of(batch.inputs)
        mask, shape = batch.inputs[1], ids.shape[:-1]
        tokens = torch.full(shape, ids.shape[-1], device=ids.device)
        tokens = (tokens if mask is None else mask.ne(0).sum(dim=-1)).flatten()
        most = shape[-1] if batch.has_window_axis else 1
        texts = torch.arange(len(tokens), device=ids.device) // most
        if batch.has_window_axis:
            texts = texts.masked_fill(tokens == 0, len(tokens) // most)
        return Windows(texts, len(tokens) // most, tokens.clamp(min=1))
    tokens = batch.offsets.diff()
    total, device = len(tokens), tokens.device
    if batch.num_windows is None:  # each text is one window
        return Windows(torch.arange(total, device=device), total, tokens)
    counts = batch.num_windows.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {batch.name!r}: num_windows adds up to {int(counts.sum())} windows, but the "
            f"batch has {total} sequences"
        )
    texts = torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=total)
    return Windows(texts, len(counts), tokens)


def flatten_windows(batch: TaskBatch) -> TaskBatch:
    """Make every window of a padded batch a sequence, (N, L)."""
    if batch.offsets is not None:
        return batch
    ids, mask, *others = (
        None if x is None else x.flatten(0, -3 if place == 4 else -2)
        for place, x in enumerate(batch.inputs)
    )
    if mask is not None:
        # attention of a window of padding would be 0 / 0
        first = mask[:, :1] + (mask.ne(0).sum(dim=-1, keepdim=True) == 0).to(mask.dtype)
        mask = torch.cat([first, mask[:, 1:]], dim=1)
    batch.inputs = (ids, mask, *others)
    return batch


def text_keys(batch: TaskBatch, windows: Windows | None) -> Tensor | None:
    """Hash the texts of a batch, (B, S), by the sums over their windows; None without ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    keys = sequence_keys(ids, mask, batch.offsets)
    if windows is not None:
        sums = keys.new_zeros(windows.num_texts + 1).index_add(0, windows.texts, keys)
        keys = sums[:-1]
    return keys.unflatten(0, (-1, batch.num_sequences or 1))


# Rows that are tokenized together; each may have many windows.
ROWS = 512


class VectorPlan(NamedTuple):
    """How texts become sequences, and these vectors."""

    encoding: Encoding
    pooling: str | None  # of the states of a sequence
    num_layers: int

    def encode(self, encoder: Any, batch: dict[str, Any]) -> Tensor:
        """Encode a batch of sequences, (n, D)."""
        outputs = encoder(
            **batch, return_dict=True, read=reads(self.pooling), num_layers=self.num_layers
        )
        return pool_outputs(outputs, batch.get("attention_mask"), self.pooling)


def stream_documents(
    model: Any,
    rows: Iterable[Row],
    plan: VectorPlan,
    finish: Callable[[Tensor], Tensor],
    *,
    max_tokens_per_batch: int | None = None,
    show_progress: bool | None = None,
    precision: str | None = None,
) -> Iterator[Tensor]:
    """Yield (n, K) in float32 on the CPU for some hundred rows; `finish` maps (P, D) to (n, K)."""
    tokens = choose_tokens(model, max_tokens_per_batch)
    check_precision(precision)

    def run() -> Iterator[Tensor]:
        for some, bar in windows_of(rows, show_progress, ROWS):
            flat = [text for row in some for text in row]
            texts = plan.encoding.split_documents(model.tokenizer, flat)
            encoded = [window for windows in texts for window in windows]
            with predicting(model, precision):
                vectors = compute_in_order(
                    model, encoded, tokens, lambda batch: plan.encode(model.base_model, batch)
                )
                values = finish(list_windows(texts, vectors.device).pool(vectors))
            bar.update(len(some))
            yield values.float().cpu()

    return run()


def list_windows(texts: Sequence[Sequence[Encoded]], device: torch.device) -> Windows:
    """Describe the windows of texts, text by text."""
    places = [place for place, windows in enumerate(texts) for _ in windows]
    tokens = [window.tokens for windows in texts for window in windows]
    return Windows(
        torch.tensor(places, device=device), len(texts), torch.tensor(tokens, device=device)
    )


# The head


class PooledHead(MinBertHead):
    """A head on pooled vectors; subclasses convert labels and logits."""

    class_weights: Tensor | None  # (K,); None for equal ones
    pos_weight: Tensor | None  # likewise
    row_label: ClassVar[str] = "one a row"  # what labels are, for messages

    def __init__(self, config: PreTrainedConfig, task: PooledTask) -> None:
        super().__init__()
        self.task = task
        self.score_range: Sequence[float] = (0, 1)
        self.cosine_scale = float(getattr(task, "cosine_scale", None) or 1)
        width = 3 * config.hidden_size if task.head == "concat" else config.hidden_size
        self.dropout = MinBertDropout(task.dropout or 0.0)
        self.projection = nn.Linear(width, width) if getattr(task, "projection", None) else None
        self.dense = nn.Linear(width, config.hidden_size) if task.head == "mlp" else None
        self.out = nn.Linear(width, task.num_logits) if task.head != "cosine" else None
        add_weights(self, task)

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is not None and self.task.loss_function.reads_vectors:
            windows = find_windows(batch) if self.task.has_windows else None
            batch.keys = text_keys(batch, windows)

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Flatten rows to sequences; in training a single sequence is encoded twice."""
        if self.task.has_windows:
            batch.windows = find_windows(batch)
            return flatten_windows(batch)
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
        is_shared = self.gathers and self.training and loss_function.compares_rows
        processes = count_processes() if is_shared else 1
        if processes == 1:
            return loss_function(self, inputs)
        gathered = LossInputs(*(None if x is None else gather_rows(x) for x in inputs))  # type: ignore[arg-type]
        loss = loss_function(self, gathered)
        # each process has the gradient of its own rows, and gradients are averaged
        return loss.detach() + processes * (loss - loss.detach())

    def label_shape(self, scores: Tensor) -> torch.Size:
        """Return the shape that labels must have."""
        return scores.shape[:1]

    def count_terms(self, labels: Tensor) -> Tensor:
        terms: Tensor = self.task.loss_function.count_terms(self, labels)
        return terms

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "rows")
        return self.task.loss_function.divergence(self, logits, other)

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        from .distillation import check_teacher, mean_taught

        check_teacher(logits, teacher, 1)
        return mean_taught(self.match(logits, teacher.nan_to_num(), temperature), teacher)

    def match(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Compare logits (B, K) with those of M teachers, (B, M, K): a loss for each row, (B,)."""
        from .distillation import match_classes

        return match_classes(logits, teacher, temperature)

    def predict(
        self, model: Any, name: str, rows: Iterable[object], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        if not self.task.has_windows:
            return super().predict(model, name, rows, top_k=top_k, **options)
        checked = check_request(rows, name, self.task.num_texts, top_k)
        logits = stream_documents(
            model, checked, self.task.plan_vectors(model.config), self._score, **options
        )
        return chain.from_iterable(self.describe(each, top_k) for each in logits)

    def teach(
        self, model: Any, name: str, rows: Iterable[object], **options: Any
    ) -> Iterator[Tensor]:
        """Compute the targets of students for rows of texts, (n, K), with options of `stream`."""

        def compute(batch: dict[str, Any]) -> Tensor:
            return self.to_targets(model(**batch, task=name).logits)

        def finish(pooled: Tensor) -> Tensor:
            return self.to_targets(self._score(pooled))

        checked = check_request(rows, name, self.task.num_texts)
        plan = self.task.plan_vectors(model.config)
        if self.task.has_windows:
            return stream_documents(model, checked, plan, finish, **options)
        encode = partial(tokenize, model.tokenizer, encoding=plan.encoding)
        return stream(model, checked, encode, compute, **options)

    def predictor(self, model: Any, name: str, top_k: int | None) -> Predictor | None:
        if self.task.has_windows:  # the windows of a text are sequences of this task alone
            return None
        return PooledPredictor(model, name, self, top_k)

    def _score(self, pooled: Tensor) -> Tensor:
        """Compute the input of `describe` from the vectors of texts, (P, D) -> (B, K)."""
        count = self.task.num_sequences
        pooled = pooled if count is None else pooled.unflatten(0, (-1, count))
        return self.to_logits(self.score(self.embed(pooled)))

    def pipeline_logits(self, logits: Tensor) -> Tensor:
        """Convert logits (n, K) to those of which transformers' pipeline makes the predictions."""
        return logits

    def summarize(self, logits: Tensor) -> Tensor:
        """Return the input of `describe`, (B, K)."""
        return logits

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
        raise NotImplementedError


def describe_scores(scores: Tensor, top_k: int | None) -> list[Any]:
    """Describe rows by their scores, (n,)."""
    rows = [{"score": score} for score in scores.tolist()]
    return rows if top_k is None else [[row] for row in rows]
