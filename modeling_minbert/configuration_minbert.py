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
"""Configuration of minBERT: `MinBertConfig` for the encoder, `MinBertTask` for a head."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import BertConfig
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig

ProblemType = Literal[
    "classification", "paraphrase", "similarity", "masked_lm", "next_sentence", "pretraining"
]
PairEncoding = Literal["joint", "separate"]
Pooling = Literal["cls", "pooler", "mean", "max"]
Head = Literal["linear", "mlp", "cosine", "concat"]
Loss = Literal["cross_entropy", "bce", "cosine_embedding", "mse"]

# problem types of pre-training -> the Auto class whose model has their heads
PRETRAINING: dict[str, str] = {
    "masked_lm": "AutoModelForMaskedLM",
    "next_sentence": "AutoModelForNextSentencePrediction",
    "pretraining": "AutoModelForPreTraining",
}

# (problem type, is the head a cosine) -> losses that fit, the default first
LOSSES: dict[tuple[ProblemType, bool], tuple[Loss, ...]] = {
    ("classification", False): ("cross_entropy",),
    ("paraphrase", False): ("bce",),
    ("paraphrase", True): ("bce", "cosine_embedding", "mse"),
    ("similarity", False): ("mse", "bce"),
    ("similarity", True): ("mse", "bce"),
}

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
            same: one logit, yes above 0) or `similarity` (a score within `score_range`); or of
            pre-training `masked_lm` (which words are masked), `next_sentence` (does a segment
            follow the other) or `pretraining` (both in one pass).
        labels: Names of the classes in the order of their ids; for a paraphrase of no and yes.
        score_range: Lowest and highest similarity score, `[low, high]`, in the unit of the labels.
        pair_encoding: `joint` reads both sentences in one sequence (`[CLS] a [SEP] b [SEP]`),
            `separate` makes one vector for each, None is for single sentences.
        pooling: How the states of a sequence become one vector: `cls` (first token), `pooler`
            (BERT's dense layer with tanh on it), `mean` or `max` over the real tokens. Defaults to
            `mean` for separate pairs, else to `pooler`.
        head: On one vector `linear` or `mlp` (one hidden layer); on two vectors u and v `cosine` or
            `concat` (linear on `[u; v; |u - v|]`; Reimers and Gurevych 2019, section 3).
        loss: `cross_entropy`, `bce` (on the logit or the scaled cosine), `cosine_embedding` (with
            `margin`) or `mse` (on the logit or the cosine). Similarity labels are scaled to [0, 1].
        dropout: Probability in [0, 1] of dropping an element of the vectors that a head reads.
        margin: Cosine, in [-1, 1], under which a negative pair costs nothing (`cosine_embedding`).
        cosine_scale: Factor from cosine to logit: `logit = cosine_scale * (cosine - threshold)`.
        threshold: Cosine, in [-1, 1], above which a pair counts as a paraphrase.
    """

    problem_type: ProblemType
    labels: list[str] | None = None
    score_range: list[float | int] | None = None
    pair_encoding: PairEncoding | None = None
    pooling: Pooling | None = None
    head: Head | None = None
    loss: Loss | None = None
    dropout: float | int = 0.3
    margin: float | int = 0.0
    cosine_scale: float | int = 10.0
    threshold: float | int = 0.5

    def __post_init__(self) -> None:
        if self.is_pretraining:
            return
        if self.problem_type != "classification":
            self.pair_encoding = self.pair_encoding or "joint"
        if self.problem_type == "paraphrase":
            self.labels = self.labels or ["different", "paraphrase"]
        self.pooling = self.pooling or ("mean" if self.pair_encoding == "separate" else "pooler")
        if self.head is None:
            cosine = self.pair_encoding == "separate" and self.problem_type == "similarity"
            self.head = "cosine" if cosine else HEADS[self.pair_encoding][0]
        self.loss = self.loss or next(iter(self._losses()), None)

    def _losses(self) -> tuple[Loss, ...]:
        return LOSSES.get((self.problem_type, self.head == "cosine"), ())

    @property
    def is_pretraining(self) -> bool:
        """Whether this is a task of pre-training, which has no head of its own."""
        return self.problem_type in PRETRAINING

    @property
    def predicts_words(self) -> bool:
        """Whether masked words are predicted."""
        return self.problem_type in ("masked_lm", "pretraining")

    @property
    def compares_segments(self) -> bool:
        """Whether it is told if a segment follows the other."""
        return self.problem_type in ("next_sentence", "pretraining")

    @property
    def num_logits(self) -> int:
        """Number of logits of one row: the classes of a classification, else 1."""
        return len(self.labels or []) if self.problem_type == "classification" else 1

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
        if self.problem_type == "similarity":
            if self.labels is not None:
                raise ValueError(f"labels={self.labels}: a similarity has a score_range instead")
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

    def validate_head(self) -> None:
        """Check that head and loss fit the problem and the pair encoding."""
        if self.is_pretraining:
            return
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

    def validate_numbers(self) -> None:
        """Check probabilities and cosines."""
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1]")
        for name in ("margin", "threshold"):
            if not -1 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} is a cosine, it must be in [-1, 1]")
        if self.cosine_scale <= 0:
            raise ValueError(f"cosine_scale={self.cosine_scale} must be above 0")


SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


@strict
class MinBertConfig(PreTrainedConfig):
    """Sizes of a minBERT encoder, with BERT's field names, and the tasks of `MinBertForMultiTask`.

    A misspelt field is not refused: like every transformers configuration it keeps unknown keywords
    as attributes. The fields of a task are checked.

    Args:
        vocab_size: Number of word pieces.
        hidden_size: Width of the states; a multiple of `num_attention_heads`.
        num_hidden_layers: Number of transformer layers.
        num_attention_heads: Number of attention heads.
        intermediate_size: Width of the feed-forward layer.
        hidden_act: Name of the activation of the feed-forward layer.
        hidden_dropout_prob: Probability of dropping an element of a state.
        attention_probs_dropout_prob: Probability of dropping an attention weight.
        max_position_embeddings: Longest sequence, in tokens.
        type_vocab_size: Number of segment ids.
        initializer_range: Standard deviation of new weights.
        layer_norm_eps: Epsilon of the layer norms.
        pad_token_id: Id of the padding token.
        classifier_dropout: Dropout of the sequence and token classifiers; None for
            `hidden_dropout_prob`.
        tie_word_embeddings: Whether the MLM decoder is the word embedding.
        sparse_prediction: Whether the vocabulary is scored at the labelled tokens alone where
            labels are given in training, or with a packed batch.
        tasks: Task name to the fields of `MinBertTask`.
        default_task: Name of the task that `forward` computes when it is given none; None for the
            first of `tasks` that is none of pre-training, or the first if all are.
    """

    model_type = "minbert"
    _auto_class: ClassVar[str | None] = "AutoConfig"
    # parts of the loss, not predictions: transformers' Trainer would gather them as such
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["mlm_loss", "nsp_loss"]

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    sparse_prediction: bool = True
    tasks: dict[str, dict[str, Any]] | None = None
    # A field, because the file does not keep the order of `tasks`.
    default_task: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.complete_tasks()
        super().__post_init__(**kwargs)

    def complete_tasks(self) -> None:
        """Check `tasks` and fill in all defaults, as is done when the configuration is made.

        A checkpoint that stores every default keeps its meaning if a default changes.

        Raises:
            ValueError: If a task is not valid, or `default_task` is none of them, or one of
                pre-training though there are others.
        """
        if self.tasks:
            parsed = {name: _parse_task(name, values) for name, values in self.tasks.items()}
            self.tasks = {name: asdict(task) for name, task in parsed.items()}
            others = [name for name, task in parsed.items() if not task.is_pretraining]
            self.default_task = self.default_task or next(iter(others or parsed))
            default = self.task(self.default_task)
            if default.is_pretraining and others:
                raise ValueError(
                    f"default_task={self.default_task!r} is a {default.problem_type}, of which "
                    f"pipelines can make nothing: use one of {', '.join(others)}"
                )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a configuration; the keyword `tasks` replaces the tasks of the dictionary.

        Args:
            config_dict: Fields and their values.
            **kwargs: Further values, and what `PreTrainedConfig.from_dict` takes.

        Returns:
            The configuration, or with `return_unused_kwargs=True` the tuple of it and the rest.
        """
        if "tasks" in kwargs:
            # Other keywords are set on the finished configuration, but these have to be checked.
            new = {name: kwargs.pop(name, None) for name in ("tasks", "default_task")}
            config_dict = {**config_dict, **new}
        return super().from_dict(config_dict, **kwargs)

    def describe_default_task(self) -> None:
        """Give pipelines the label names and the kind of output of the default task.

        Raises:
            ValueError: If there are no tasks, or one is not valid.
        """
        self.complete_tasks()
        if self.default_task is None:
            raise ValueError(
                "config.tasks is empty: describe at least one task, "
                "as in tasks={'sst': {'problem_type': 'classification', 'labels': ['bad', 'good']}}"
            )
        task = self.task(self.default_task)
        labels = task.labels or ["score"]
        if task.problem_type == "classification":
            self.problem_type = "single_label_classification"
        elif task.problem_type == "similarity":
            self.problem_type = "regression"
        elif task.is_pretraining:  # as in a new configuration
            self.problem_type, labels = None, ["LABEL_0", "LABEL_1"]
        else:
            self.problem_type = "multi_label_classification"
            labels = labels[1:]  # one logit, for yes
        self.id2label = dict(enumerate(labels))
        self.label2id = {label: index for index, label in enumerate(labels)}

    def to_bert(self) -> BertConfig:
        """Return the configuration of a stock BERT of the same sizes and labels."""
        own = {"tasks", "default_task", "sparse_prediction"}
        own |= {"auto_map", "model_type", "architectures", "transformers_version"}
        return BertConfig(**{key: val for key, val in self.to_dict().items() if key not in own})

    def task(self, name: str) -> MinBertTask:
        """Return the description of one task.

        Args:
            name: A key of `tasks`.

        Raises:
            ValueError: If there is no such task.
        """
        tasks = self.tasks or {}
        if name not in tasks:
            raise ValueError(f"unknown task {name!r}; known tasks: {', '.join(tasks) or 'none'}")
        return MinBertTask(**tasks[name])

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a `minbert` or `bert` configuration; refuse what this encoder cannot compute.

        Args:
            pretrained_model_name_or_path: Folder, file or Hub id.
            **kwargs: As in `PreTrainedConfig.get_config_dict`.

        Returns:
            The fields, and the keywords that were not used.

        Raises:
            ValueError: If the checkpoint is of another architecture.
        """
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        # Configurations of the first BERT checkpoints name no type.
        model_type = config_dict.get("model_type", "bert")
        if model_type not in ("bert", cls.model_type):
            raise ValueError(
                f"{pretrained_model_name_or_path} is a {model_type!r} checkpoint; minBERT loads "
                "checkpoints of type 'minbert' and 'bert'"
            )
        return {**config_dict, "model_type": cls.model_type}, kwargs

    def validate_heads(self) -> None:
        """Check that sizes are sizes, and that the attention heads divide the width."""
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"hidden_act={self.hidden_act!r}; known: {', '.join(ACT2FN)}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by "
                f"num_attention_heads={self.num_attention_heads}"
            )

    def validate_encoder(self) -> None:
        """Refuse variants of BERT whose weights load but mean something else."""
        position_type = getattr(self, "position_embedding_type", "absolute")
        if position_type != "absolute":
            raise ValueError(
                f"position_embedding_type={position_type!r}: minBERT has 'absolute' positions only"
            )
        for name in ("is_decoder", "add_cross_attention"):
            if getattr(self, name, False):
                raise ValueError(f"{name}=true: minBERT is an encoder only")


def _parse_task(name: str, values: Mapping[str, Any]) -> MinBertTask:
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


__all__ = ["MinBertConfig", "MinBertTask"]
