# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""What a head of `MinBertForMultiTask` predicts, from what, and with which loss."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from torch import nn

ProblemType = Literal[
    "classification",
    "paraphrase",
    "similarity",
    "contrastive",
    "token_classification",
    "question_answering",
    "masked_lm",
    "next_sentence",
    "pretraining",
]
PairEncoding = Literal["joint", "separate"]
Pooling = Literal["cls", "pooler", "mean", "max"]
Head = Literal["linear", "mlp", "cosine", "concat"]
Loss = Literal[
    "cross_entropy", "bce", "cosine_embedding", "mse", "multiple_negatives_ranking", "cosent"
]
Truncation = Literal["head", "tail", "head_tail"]

# problem types of pre-training -> the Auto class whose model has their heads
PRETRAINING: dict[str, str] = {
    "masked_lm": "AutoModelForMaskedLM",
    "next_sentence": "AutoModelForNextSentencePrediction",
    "pretraining": "AutoModelForPreTraining",
}

# problem types whose head reads every token, and pools nothing -> its dropout, which is that of
# BERT's own models
OF_TOKENS: dict[str, float] = {"token_classification": 0.1, "question_answering": 0.0}

# (problem type, is the head a cosine) -> losses that fit, the default first
LOSSES: dict[tuple[ProblemType, bool], tuple[Loss, ...]] = {
    ("classification", False): ("cross_entropy",),
    ("paraphrase", False): ("bce",),
    ("paraphrase", True): ("bce", "cosine_embedding", "mse", "multiple_negatives_ranking"),
    ("similarity", False): ("mse", "bce", "cross_entropy"),
    ("similarity", True): ("mse", "bce", "cosent", "multiple_negatives_ranking"),
    ("contrastive", True): ("multiple_negatives_ranking",),
    ("token_classification", False): ("cross_entropy",),
    ("question_answering", False): ("cross_entropy",),
}
# how a question and the windows of its text are cut, and how long an answer can be, in tokens: the
# numbers of google-research/bert
WINDOWS = {"max_question_length": 64, "doc_stride": 128, "max_answer_length": 30}
# losses that compare the rows of a batch with each other
IN_BATCH: tuple[Loss, ...] = ("multiple_negatives_ranking", "cosent")
# losses that say of no cosine that from there on two sentences mean the same
BORDERLESS: tuple[Loss, ...] = ("multiple_negatives_ranking", "cosine_embedding")

# pair encoding -> heads that fit, the default first
HEADS: dict[PairEncoding | None, tuple[Head, ...]] = {
    None: ("linear", "mlp"),
    "joint": ("linear", "mlp"),
    "separate": ("concat", "cosine"),
}


@strict
@dataclass(kw_only=True)
class MinBertTask:
    """What one head of `MinBertForMultiTask` predicts, from what, and with which loss.

    Tasks of pre-training share BERT's own heads, whose pooling and losses are fixed: they have
    none of the fields from `labels` to `loss`, and nothing reads the others.

    Args:
        problem_type: `classification` (one of `labels`), `paraphrase` (do two sentences mean the
            same: one logit, yes above 0), `similarity` (a score within `score_range`),
            `contrastive` (vectors of sentences that belong together, without labels),
            `token_classification` (one of `labels` for every token) or `question_answering` (which
            tokens of a text answer a question); or of pre-training `masked_lm` (which words are
            masked), `next_sentence` (does a segment follow the other) or `pretraining` (both in one
            pass).
        labels: Names of the classes, or of the tags of tokens, in the order of their ids; for a
            paraphrase of no and yes.
        score_range: Lowest and highest similarity score, `[low, high]`, in the unit of the labels.
        pair_encoding: `joint` reads both sentences in one sequence (`[CLS] a [SEP] b [SEP]`),
            `separate` makes one vector for each, None is for single sentences. Question and text
            are always `joint`, and so may be the sentences whose tokens are classified.
        pooling: How the states of a sequence become one vector: `cls` (first token), `pooler`
            (BERT's dense layer with tanh on it), `mean` or `max` over the real tokens. Defaults to
            `mean` for separate pairs, else to `pooler`; None where every token counts.
        head: On one vector `linear` or `mlp` (one hidden layer); on two vectors u and v `cosine` or
            `concat` (linear on `[u; v; |u - v|]`; Reimers and Gurevych 2019, section 3); on tokens
            `linear`.
        loss: `cross_entropy`, `bce` (on the logit or the scaled cosine), `cosine_embedding` (with
            `margin`) or `mse` (on the logit or the cosine). Similarity labels are scaled to [0, 1];
            for `cross_entropy` every whole number of the range is a class, and a score belongs to
            the nearest one. With the cosine head also `multiple_negatives_ranking` (every other
            second sentence of the batch is a negative; Henderson et al. 2017) and
            `cosent` (pairs with a higher score get a higher cosine; Su 2022).
        dropout: Probability in [0, 1] of dropping an element of the vectors that a head reads (of
            `concat`, of all three together); 0.3, 0.1 for token_classification, 0 for
            question_answering and for a cosine.
        margin: Cosine, in [-1, 1], under which a negative pair costs nothing (`cosine_embedding`).
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`;
            10, and 20 for losses that compare rows, for which it is 1 / temperature.
        threshold: Cosine, in [-1, 1], above which a pair counts as a paraphrase; 0.5. Losses that
            teach no border (`multiple_negatives_ranking`, `cosine_embedding`) leave it None, which
            is 0.5 until `fit_threshold` chooses it.
        threshold_fitted: Whether `fit_threshold` has chosen it for such a loss, so that training on
            chooses it anew.
        symmetric: Whether `multiple_negatives_ranking` is the mean of two directions: also the
            first sentence of a pair is to be found among all first sentences.
        positive_score: Lowest score, in the unit of the labels, of a pair that belongs together for
            `multiple_negatives_ranking` of a similarity; four fifths up the range.
        projection: A dense layer with tanh between vectors and cosine: `training` leaves it out of
            evaluation, as unsupervised SimCSE does, `always` keeps it, as the supervised one does
            (Gao et al. 2021, section 6.3); None for none.
        num_sentences: Sentences of a row of a contrastive task: 1, which is read twice with other
            dropout (unsupervised SimCSE), 2 that belong together, or 3, the last of which does not
            belong to the first (a hard negative).
        class_weights: Factor on the loss of the rows of every class (cross_entropy of a
            classification), in the order of `labels`; the loss is the sum divided by the rows.
        pooling_layer: The hidden state that is pooled, as in `hidden_states`: 0 is that of the
            embeddings, -1 that of the last layer, -2 the one before. No layer above is computed.
        truncation: What stays of a text that is too long: its `head`, its `tail`, or `head_tail`, a
            quarter of the tokens from the start (128 of 510) and the others from the end (Sun et
            al. 2019, section 5.3.1). Where every token counts long texts are not cut, but read in
            windows.
        max_length: Tokens of a window at most, with those of the question and special ones
            (question_answering); None for 384, or fewer if the model has fewer positions.
        max_question_length: Tokens of a question at most; 64.
        doc_stride: Tokens from the start of a window of a text to that of the next one; 128.
        max_answer_length: Tokens of an answer at most; 30.
        null_score_diff_threshold: How much better, in logits, no answer must score than the best
            one to be given; None if every question has an answer in its text (SQuAD 1.1).
    """

    problem_type: ProblemType
    labels: list[str] | None = None
    score_range: list[float | int] | None = None
    pair_encoding: PairEncoding | None = None
    pooling: Pooling | None = None
    head: Head | None = None
    loss: Loss | None = None
    dropout: float | int | None = None
    margin: float | int = 0.0
    cosine_scale: float | int | None = None
    threshold: float | int | None = None
    threshold_fitted: bool = False
    symmetric: bool = False
    positive_score: float | int | None = None
    projection: Literal["training", "always"] | None = None
    num_sentences: int | None = None
    class_weights: list[float | int] | None = None
    pooling_layer: int = -1
    truncation: Truncation = "head"
    max_length: int | None = None
    max_question_length: int | None = None
    doc_stride: int | None = None
    max_answer_length: int | None = None
    null_score_diff_threshold: float | int | None = None

    def __post_init__(self) -> None:
        if not self.is_pretraining:
            self._complete()
        if self.dropout is None:
            # a cosine of vectors with holes is not theirs
            self.dropout = OF_TOKENS.get(self.problem_type, 0.0 if self.head == "cosine" else 0.3)
        if self.problem_type == "question_answering":
            for name, value in WINDOWS.items():
                if getattr(self, name) is None:
                    setattr(self, name, value)
        if self.threshold is None and not self.lacks_border:
            self.threshold = 0.5
        if self.cosine_scale is None:
            self.cosine_scale = 20.0 if self.loss in IN_BATCH else 10.0

    def _complete(self) -> None:
        """Fill in what follows from the problem and the fields that are given."""
        cosine = self.pair_encoding == "separate" and self.problem_type == "similarity"
        if self.problem_type == "contrastive":
            self.pair_encoding, cosine = self.pair_encoding or "separate", True
            self.num_sentences = 2 if self.num_sentences is None else self.num_sentences
        elif self.problem_type not in ("classification", "token_classification"):
            self.pair_encoding = self.pair_encoding or "joint"
        if self.problem_type == "paraphrase":
            self.labels = self.labels or ["different", "paraphrase"]
        if not self.reads_tokens:
            default: Pooling = "mean" if self.pair_encoding == "separate" else "pooler"
            self.pooling = self.pooling or default
        self.head = self.head or ("cosine" if cosine else HEADS[self.pair_encoding][0])
        self.loss = self.loss or next(iter(self._losses()), None)
        if self.positive_score is None and self._ranks_scores and len(self.score_range or []) == 2:
            low, high = self.score_range or (0, 1)
            self.positive_score = low + 0.8 * (high - low)

    def _losses(self) -> tuple[Loss, ...]:
        return LOSSES.get((self.problem_type, self.head == "cosine"), ())

    @property
    def _ranks_scores(self) -> bool:
        return self.problem_type == "similarity" and self.loss == "multiple_negatives_ranking"

    @property
    def is_pretraining(self) -> bool:
        """Whether this is a task of pre-training, which has no head of its own."""
        return self.problem_type in PRETRAINING

    @property
    def reads_tokens(self) -> bool:
        """Whether the head reads the state of every token, and pools nothing."""
        return self.problem_type in OF_TOKENS

    @property
    def is_unlabelled(self) -> bool:
        """Whether it learns without labels, and pipelines can make nothing of its logits."""
        return self.is_pretraining or self.problem_type == "contrastive"

    @property
    def predicts_words(self) -> bool:
        """Whether masked words are predicted."""
        return self.problem_type in ("masked_lm", "pretraining")

    @property
    def compares_segments(self) -> bool:
        """Whether it is told if a segment follows the other."""
        return self.problem_type in ("next_sentence", "pretraining")

    @property
    def lacks_border(self) -> bool:
        """Whether its loss leaves open above which cosine two sentences mean the same."""
        return self.problem_type == "paraphrase" and self.loss in BORDERLESS

    @property
    def num_sequences(self) -> int | None:
        """Sequences of a row, which come as (B, S, L); None for one, which comes as (B, L)."""
        if self.problem_type == "contrastive":
            return self.num_sentences
        return 2 if self.pair_encoding == "separate" else None

    @property
    def num_logits(self) -> int:
        """Number of logits of a row, or a token: the classes, start and end of an answer, or 1."""
        if self.problem_type == "question_answering":
            return 2
        if self.loss != "cross_entropy":
            return 1
        low, high = self.score_range or (1, len(self.labels or []))
        return int(high - low) + 1

    def validate_pretraining(self) -> None:
        """Check that a task of pre-training chooses nothing: its heads are BERT's."""
        if not self.is_pretraining:
            return
        for name in ("labels", "score_range", "pair_encoding", "pooling", "head", "loss"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: a {self.problem_type} task has BERT's own "
                    f"head and loss, leave {name} out"
                )

    def validate_labels(self) -> None:
        """Check the names of the classes."""
        if self.is_pretraining:
            return
        unnamed = {
            "similarity": "has a score_range instead",
            "contrastive": "task learns without labels, leave them out",
            "question_answering": "task has positions for labels, leave their names out",
        }
        if self.problem_type in unnamed:
            if self.labels is not None:
                what = unnamed[self.problem_type]
                raise ValueError(f"labels={self.labels}: a {self.problem_type} {what}")
            return
        names = self.labels or []
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"labels={self.labels} must be at least two different names")
        if self.problem_type == "paraphrase" and len(names) != 2:
            raise ValueError(f"labels={self.labels}: a paraphrase has two labels, no and yes")

    def validate_score_range(self) -> None:
        """Check the range of a similarity; other problems have none."""
        if self.problem_type != "similarity":
            if self.score_range is not None:
                raise ValueError(
                    f"score_range={self.score_range}: only a similarity has one, "
                    f"this is a {self.problem_type}"
                )
            return
        low_high = self.score_range or []
        if len(low_high) != 2 or not -math.inf < low_high[0] < low_high[1] < math.inf:
            raise ValueError(f"score_range={self.score_range} must be [low, high] with low < high")
        if low_high[0] <= -100 <= low_high[1]:
            raise ValueError(
                f"score_range={self.score_range} holds -100, which says that a row has no label: "
                "rescale the scores"
            )

    def validate_head(self) -> None:
        """Check that head and loss fit the problem and the pair encoding."""
        if self.is_pretraining:
            return
        if self.reads_tokens:
            self._check_tokens()
        heads = HEADS[self.pair_encoding]
        if self.head not in heads:
            how = self.pair_encoding or "single sentences"
            other = "separate" if self.head in HEADS["separate"] else "joint"
            raise ValueError(
                f"head={self.head!r} does not fit pair_encoding {how!r}: use one of "
                f"{', '.join(heads)}, or pair_encoding {other!r}"
            )
        losses = self._losses()
        if self.loss not in losses:
            allowed = ", ".join(losses) or "none, choose another head"
            raise ValueError(
                f"loss={self.loss!r} does not fit problem_type {self.problem_type!r} with head "
                f"{self.head!r}: allowed are {allowed}"
            )

    def _check_tokens(self) -> None:
        """Check that a task of tokens chooses nothing that is about whole texts."""
        refused = {
            "pair_encoding": (self.pair_encoding == "separate", "all texts are in one sequence"),
            "pooling": (self.pooling is not None, "its head reads every token"),
            "head": (self.head != "linear", "its head is a linear layer on every token"),
            "truncation": (self.truncation != "head", "long texts are read in windows, uncut"),
        }
        for name, (is_refused, reason) in refused.items():
            if is_refused:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: this is a {self.problem_type}: {reason}; "
                    f"leave {name} out"
                )

    def validate_owners(self) -> None:
        """Check that no field is given which nothing would read."""
        ranks = self.loss == "multiple_negatives_ranking"
        weighs = self.problem_type == "classification"
        owners = {
            "symmetric": (ranks, "loss multiple_negatives_ranking"),
            "positive_score": (self._ranks_scores, "a similarity with multiple_negatives_ranking"),
            "projection": (self.head == "cosine", "head cosine"),
            "num_sentences": (self.problem_type == "contrastive", "a contrastive task"),
            "class_weights": (weighs, "a classification"),
            **dict.fromkeys(
                ("max_length", *WINDOWS, "null_score_diff_threshold"),
                (self.problem_type == "question_answering", "a question_answering"),
            ),
        }
        for name, (has_it, owner) in owners.items():
            value = getattr(self, name)
            if value is not None and value is not False and not has_it:
                raise ValueError(f"{name}={value!r} is only for {owner}: leave it out")
        if self.num_sentences is not None and not 1 <= self.num_sentences <= 3:
            raise ValueError(f"num_sentences={self.num_sentences} must be 1, 2 or 3")
        for name in ("max_length", *WINDOWS):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")

    def validate_scores(self) -> None:
        """Check what is derived from the range of a similarity."""
        if self.problem_type != "similarity" or len(self.score_range or []) != 2:
            return
        low, high = self.score_range or (0, 1)
        if self.positive_score is not None and not low < self.positive_score <= high:
            raise ValueError(
                f"positive_score={self.positive_score} must be above {low} and at most {high}, the "
                "highest score"
            )
        if self.loss == "cross_entropy" and (low != int(low) or high != int(high)):
            raise ValueError(
                f"score_range={self.score_range}: for loss 'cross_entropy' the whole numbers from "
                "low to high are the classes, so both must be whole numbers"
            )

    def validate_class_weights(self) -> None:
        """Check that there is a weight above 0 for every class."""
        weights = self.class_weights
        if weights is None:
            return
        if len(weights) != len(self.labels or []):
            raise ValueError(
                f"class_weights={weights} must be {len(self.labels or [])} numbers, one for each "
                f"of the labels {self.labels}"
            )
        if not all(0 < weight < math.inf for weight in weights):
            raise ValueError(f"class_weights={weights} must all be numbers above 0")

    def validate_numbers(self) -> None:
        """Check probabilities and cosines."""
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1]")
        for name in ("margin", "threshold"):
            value = getattr(self, name)
            if value is not None and not -1 <= value <= 1:
                raise ValueError(f"{name}={value} is a cosine, it must be in [-1, 1]")
        if self.cosine_scale is not None and self.cosine_scale <= 0:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be above 0")


def parse_task(name: str, values: Mapping[str, Any]) -> MinBertTask:
    """Check one task; errors name it."""
    # nn.ModuleDict, which holds the heads, refuses the names of its attributes ("keys", "train").
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) or hasattr(nn.ModuleDict(), name):
        raise ValueError(
            f"task name {name!r} must be letters, digits, '_' and '-', begin with a letter, and be "
            "no attribute of a torch module: choose another name"
        )
    known = [field.name for field in fields(MinBertTask)]
    unknown = [repr(key) for key in values if key not in known]
    if unknown:
        raise ValueError(
            f"task {name!r}: unknown key {', '.join(unknown)}; known keys: {', '.join(known)}"
        )
    try:
        return MinBertTask(**values)
    except StrictDataclassError as error:
        raise ValueError(f"task {name!r}: {error.__cause__ or error}") from error
    except TypeError as error:
        raise ValueError(f"task {name!r}: problem_type is missing") from error


__all__ = ["MinBertTask", "parse_task"]
