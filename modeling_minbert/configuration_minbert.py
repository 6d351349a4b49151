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
"""Configuration of minBERT: the sizes of the encoder, and the tasks."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

from .heads import MinBertEmbedding, MinBertTask, parse_embedding
from .inference import find_file
from .names import unknown
from .tasks import TASKS, parse_tasks
from .texts import Fields

logger = logging.get_logger(__name__)

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


# What no model exceeds: a damaged file is refused before anything is built.
MAX_LABELS, MAX_VOCABULARY, MAX_SIZE = 1_000_000, 100_000_000, 100_000
# What is not said of a model with the layers of BERT.
BEYOND_BERT = {
    "encoder_type": "bert",
    "position_offset": 0,
    "relative_attention_num_buckets": 0,
    "pooler_act": "tanh",
    "norm_bias": True,
    "layer_bias": True,
    "local_attention": 0,
    "global_attention_every": 0,
    "rope_theta": 0,
    "local_rope_theta": 0,
}
# Keys of a file that describe the outputs of the default task.
LABEL_KEYS = ("id2label", "label2id", "num_labels", "problem_type")
# Layers of BERT that adapters change, and those of ModernBERT.
MODERN_NAMES = {"query": "Wqkv", "key": "Wqkv", "value": "Wqkv", "output.dense": "Wo"}


@strict
class MinBertConfig(PreTrainedConfig):
    """Sizes of a minBERT encoder, with BERT's field names, and the tasks of `MinBertForMultiTask`.

    Like every transformers configuration it accepts unknown keywords as attributes, misspelled ones
    included. The fields of a task are checked.

    Args:
        vocab_size: Number of word pieces.
        hidden_size: Width of the states; a multiple of `num_attention_heads`.
        num_hidden_layers: Number of transformer layers.
        num_attention_heads: Number of attention heads.
        intermediate_size: Width of the feed-forward layer.
        hidden_act: Name of the activation of the feed-forward layer.
        hidden_dropout_prob: Probability of dropping an element of a state.
        attention_probs_dropout_prob: Probability of dropping an attention weight.
        max_position_embeddings: Number of positions, `position_offset` ones included.
        position_offset: First position of a sequence, the padding id + 1 for models such as
            RoBERTa, in which paddings have no position; 0 for BERT.
        type_vocab_size: Number of segment ids; 0 for a model without segments.
        relative_attention_num_buckets: Rows of the bias of attention by distance: 32 for MPNet, 0
            for none.
        pooler_act: Name of the activation of the pooler; `relu` for DistilBERT, whose classifiers
            have a layer like it.
        encoder_type: The model type of the weights, a key of `FAMILIES`: `save_as_transformers`
            saves them as that. `modernbert` has layers of its own, all others those of BERT.
        norm_bias: Whether norms have a bias; only without for `modernbert`, None for its default.
        layer_bias: The same of the dense layers of the encoder and of the MLM head.
        local_attention: Tokens in reach of a token in local layers, to both sides together; for
            `modernbert` 0 becomes 128, others have 0.
        global_attention_every: Layer 0 and every so many have global attention, others local; for
            `modernbert` 0 becomes 3, others have 0.
        rope_theta: Base of the rotary positions of global layers; for `modernbert` 0 becomes
            160000, others have 0.
        local_rope_theta: The same of local layers; 0 becomes 10000.
        initializer_range: Standard deviation of new weights.
        layer_norm_eps: Epsilon of the layer norms.
        pad_token_id: Id of the padding token.
        classifier_dropout: Dropout of the sequence and token classifiers; None for
            `hidden_dropout_prob`.
        tie_word_embeddings: Whether the MLM decoder is the word embedding.
        sparse_prediction: Whether the vocabulary is scored at the labeled tokens alone where labels
            are given in training, or with a packed batch.
        tasks: Task name to `problem_type` and the fields of its class in `TASKS`.
        default_task: Name of the task that `forward` computes by default; None for the first of
            `tasks` that has labels, preferably one of whole texts, else the first that is not
            pre-training, or the first if all are.
        embedding_task: Name of the task whose vectors `encode` makes by default; None for the first
            of separate texts, the default task before others.
        sentence_embedding: How `encode` makes the vector of a sentence by default, the fields of
            `MinBertEmbedding`; read from a folder of sentence-transformers. None for the vectors of
            `embedding_task`, or if there is none for the mean.
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
    position_offset: int = 0
    type_vocab_size: int = 2
    relative_attention_num_buckets: int = 0
    pooler_act: str = "tanh"
    encoder_type: str = "bert"
    norm_bias: bool | None = None
    layer_bias: bool | None = None
    local_attention: int = 0
    global_attention_every: int = 0
    rope_theta: float | int = 0
    local_rope_theta: float | int = 0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    sparse_prediction: bool = True
    tasks: dict[str, dict[str, Any]] | None = None
    # Fields, because files sort `tasks`.
    default_task: str | None = None
    embedding_task: str | None = None
    sentence_embedding: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        labels = kwargs.get("num_labels")
        if isinstance(labels, int) and labels > MAX_LABELS:
            raise ValueError(f"num_labels={labels} must be at most {MAX_LABELS:,}")
        self.complete_tasks()
        is_modern = self.encoder_type == "modernbert"
        for name in ("norm_bias", "layer_bias"):
            if getattr(self, name) is None:
                setattr(self, name, not is_modern)
        if is_modern:
            from .families import MODERN_DEFAULTS

            self.type_vocab_size = 0
            for name, default in MODERN_DEFAULTS.items():
                setattr(self, name, getattr(self, name) or default)
        super().__post_init__(**kwargs)
        if self.architectures is None:
            # an Auto class with two models looks here for the one to build
            self.architectures = ["MinBertForMultiTask"] if self.tasks else []

    def complete_tasks(self) -> None:
        """Check `tasks` and fill in all defaults.

        A checkpoint that stores every default keeps its meaning if a default changes.
        """
        if not self.tasks:
            return
        parsed = parse_tasks(self.tasks)
        self.tasks = {name: asdict(task) for name, task in parsed.items()}
        # a task that fits pipelines
        best = min(
            parsed,
            key=lambda name: (
                parsed[name].is_pretraining,
                parsed[name].is_unlabelled,
                parsed[name].is_token_level,
            ),
        )
        self.default_task = self.default_task or best
        known = [name for name, task in parsed.items() if task.is_separate]
        chosen = self.embedding_task
        if chosen is None:
            preferred = sorted(known, key=lambda name: name != self.default_task)
            self.embedding_task = next(iter(preferred), None)
        elif chosen not in known:
            raise ValueError(
                f"embedding_task={chosen!r} has no vectors of single texts: "
                + (f"use one of {', '.join(known)}" if known else "leave it out")
            )
        default = self.task(self.default_task)
        labelled = [name for name, task in parsed.items() if not task.is_unlabelled]
        if default.is_unlabelled and labelled:
            raise ValueError(
                f"default_task={self.default_task!r} is {default.kind}, which no "
                f"pipeline can use: use one of {', '.join(labelled)}"
            )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a configuration; the keyword `tasks` replaces the tasks of the dictionary.

        Of a task that is there already, what is left out and changes how it reads or decides stays.
        If they train other vectors than before, `encode` makes those by default.
        """
        stored, has_new_tasks = config_dict, "tasks" in kwargs
        if has_new_tasks:
            # other keywords are set on the finished configuration
            keys = ("tasks", "default_task", "embedding_task")
            new = {key: kwargs.pop(key, None) for key in keys}
            if new["tasks"] and config_dict.get("tasks"):
                from .families import keep_meaning

                new = keep_meaning(config_dict, new)
            config_dict = {**config_dict, **new}
            # the labels of the checkpoint are those of its own tasks
            if new["tasks"] or stored.get("tasks"):
                config_dict = {k: v for k, v in config_dict.items() if k not in LABEL_KEYS}
        if "quantization_config" in config_dict:
            from .int8 import register_int8

            register_int8()
        loaded: Any = super().from_dict(config_dict, **kwargs)
        config = loaded[0] if isinstance(loaded, tuple) else loaded
        # keywords have been set on the finished configuration
        config.complete_tasks()
        if has_new_tasks and config.sentence_embedding and "sentence_embedding" not in kwargs:
            from .families import follow_task

            follow_task(config, stored)
        config.validate()
        if kwargs.get("num_labels") is not None and config.tasks:
            # refused by the model that has tasks, not by one with a classifier of its own
            config.asked_num_labels = kwargs["num_labels"]
        if {config.encoder_type, config_dict.get("encoder_type", "bert")} != {"bert"}:
            from .families import check_keywords

            check_keywords(config, config_dict, kwargs)
        return loaded

    def check_labels(self) -> None:
        """Refuse a problem type and names in `id2label` that are not those of the tasks.

        Raises:
            ValueError: If a caller or a file has given others; it tells where to change them.
        """
        outputs = {name: self.task(name).describe_outputs() for name in self.tasks or {}}
        if self.problem_type not in (None, *(kind for kind, _ in outputs.values())):
            raise ValueError(
                f"problem_type={self.problem_type!r} has no effect, since every task has its own: "
                "leave it out, or set it for a task, as in tasks={name: {..., 'problem_type': ...}}"
            )
        names = [label for _, label in sorted((self.id2label or {}).items())]
        described = {name: labels for name, (_, labels) in outputs.items()}
        asked = getattr(self, "asked_num_labels", None)
        of_default = described.get(self.default_task or "", [])
        if asked == self.num_labels and asked not in (None, len(of_default)):
            raise ValueError(
                f"num_labels={asked}, but the outputs of task {self.default_task!r} are "
                f"{', '.join(of_default)}: leave num_labels out; for other labels give a task, as "
                "in tasks={name: {'problem_type': 'classification', 'labels': [...]}}"
            )
        # names that transformers makes up, two by default, are no choice of anyone
        made_up = [f"LABEL_{number}" for number in range(len(names))]
        counts = {2, *map(len, described.values())}
        if names in described.values() or (names == made_up and len(names) in counts):
            return
        labels = "; ".join(f"{name}: {', '.join(labels)}" for name, labels in described.items())
        raise ValueError(
            f"id2label names the labels {', '.join(names)}, but the outputs of the tasks are "
            f"{labels}. Leave id2label and num_labels out; to change names, give others in the "
            "labels of the task, as in tasks={**config.tasks, name: {**fields, 'labels': [...]}}"
        )

    def check_unchanged(self, tasks: dict[str, object]) -> None:
        """Refuse tasks that were changed beside their heads, whose own ones are given.

        A model that is saved would answer otherwise once it is loaded.
        """
        for name, task in tasks.items():
            if self.task(name) != task:
                raise ValueError(
                    f"config.tasks[{name!r}] was changed, but the model predicts by {task}: to "
                    "change a task, load the model with tasks={...}"
                )

    def describe_default_task(self) -> None:
        """Set problem type and labels, which pipelines use, from the default task."""
        self.complete_tasks()
        for name in self.tasks or {}:
            try:
                self.task(name).count_layers(self.num_hidden_layers)
            except ValueError as error:
                raise ValueError(f"task {name!r}: {error}") from None
        if self.default_task is None:
            raise ValueError(
                "config.tasks is empty: describe at least one task, "
                "as in tasks={'sst': {'problem_type': 'classification', 'labels': ['bad', 'good']}}"
            )
        self.check_labels()
        self.problem_type, labels = self.task(self.default_task).describe_outputs()
        self.id2label = dict(enumerate(labels))
        self.label2id = {label: index for index, label in enumerate(labels)}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields; those that BERT does not have only if they differ from it.

        Where peft is in use, it asks for them before it looks up which layers to adapt: those of
        minBERT that it adapts of BERT, whose names they have, or their like in ModernBERT.
        """
        # CODEPATH: modernbert; all others have the names of bert
        names = MODERN_NAMES if self.encoder_type == "modernbert" else {}
        # peft has no registry but these dictionaries, one for each method; it need not be installed
        for mapping in list(vars(sys.modules.get("peft.utils.constants", object)).values()):
            if isinstance(mapping, dict) and "bert" in mapping:
                found = [names.get(name, name) for name in mapping["bert"]]
                mapping[self.model_type] = list(dict.fromkeys(found))
        values = super().to_dict()
        values.pop("asked_num_labels", None)
        # CODEPATH: modernbert has other defaults; all others have those of bert
        beyond = {} if self.encoder_type == "modernbert" else BEYOND_BERT
        return {name: value for name, value in values.items() if beyond.get(name, ...) != value}

    def to_transformers(self, num_layers: int | None = None) -> PreTrainedConfig:
        """Return the configuration of a stock model of `encoder_type`, of these sizes and labels.

        Args:
            num_layers: Number of layers, from the bottom; None for all.

        Raises:
            ValueError: If models of that type differ from this one.
        """
        from .families import make_config

        return make_config(self, num_layers)

    @property
    def longest_sequence(self) -> int:
        """The most tokens of a sequence, special ones included."""
        return self.max_position_embeddings - self.position_offset

    def task(self, name: str) -> MinBertTask:
        """Return the description of one task.

        Raises:
            ValueError: If there is no such task.
        """
        tasks = self.tasks or {}
        if name not in tasks:
            raise ValueError(unknown("task", name, tasks))
        return TASKS[tasks[name]["problem_type"]](**tasks[name])

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration of type `minbert` or of `FAMILIES`; others are a ValueError.

        For a folder of sentence-transformers, also read how it makes its vectors; if
        `sentence_embedding` differs, its files win, because it may have saved this checkpoint.
        """
        given = kwargs
        try:
            config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
            config_dict = {**config_dict}
        except (AttributeError, TypeError) as error:  # of a list, a number or null
            raise ValueError(
                f"{pretrained_model_name_or_path}: config.json must hold an object of names and "
                "values"
            ) from error
        model_type = config_dict.get("model_type")
        if model_type not in (cls.model_type, "bert"):
            from .families import convert_config

            config_dict = convert_config(pretrained_model_name_or_path, config_dict)
        config_dict = {**config_dict, "model_type": cls.model_type}
        for key in ("attn_implementation", "_attn_implementation"):
            config_dict.pop(key, None)  # could name a kernel, which is code, on the Hub
        if find_file(pretrained_model_name_or_path, "modules.json", **given) is not None:
            from .folders import read_modules

            modules = read_modules(pretrained_model_name_or_path, given)
            own = asdict(_choose_embedding(config_dict))
            # what follows from the tasks of a minBERT checkpoint is not frozen
            if modules is not None and (model_type != cls.model_type or modules != own):
                config_dict["sentence_embedding"] = modules
        else:
            path = Path(pretrained_model_name_or_path, given.get("subfolder") or "")
            if (path / "sentence_bert_config.json").is_file():
                logger.warning(
                    "%s: a part of a folder of sentence-transformers, whose modules.json says how "
                    "vectors are made: set config.sentence_embedding if it is not the mean",
                    path,
                )
        return config_dict, kwargs

    @property
    def embedding(self) -> MinBertEmbedding:
        """How `encode` and sentence-transformers make vectors by default."""
        return _choose_embedding(vars(self))

    @property
    def vectors_task(self) -> str | None:
        """Name of the task whose vectors `encode` makes by default; None if none makes them."""
        has_own = (self.sentence_embedding or {"pooling": None}).get("pooling", "mean") is not None
        return None if has_own else self.embedding_task

    def validate_heads(self) -> None:
        """Check that sizes are positive, and that the attention heads divide the width."""
        for name in SIZES:
            most = MAX_VOCABULARY if name == "vocab_size" else MAX_SIZE
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} must be from 1 to {most:,}")
        if not 0 <= self.type_vocab_size <= MAX_SIZE:
            raise ValueError(
                f"type_vocab_size={self.type_vocab_size} must be from 0 to {MAX_SIZE:,}"
            )
        if not 0 <= self.position_offset < self.max_position_embeddings:
            raise ValueError(
                f"position_offset={self.position_offset} must be at least 0 and below "
                f"max_position_embeddings={self.max_position_embeddings}"
            )
        if self.position_offset and self.pad_token_id is None:
            raise ValueError(
                "pad_token_id=null: positions are counted from it, so it must be a number"
            )
        if not 0 <= self.layer_norm_eps < float("inf"):
            raise ValueError(f"layer_norm_eps={self.layer_norm_eps} must be a finite number >= 0")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be in [0, 1]")
        for name in ("hidden_act", "pooler_act"):
            if getattr(self, name) not in ACT2FN:
                raise ValueError(unknown(name, getattr(self, name), ACT2FN))
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by "
                f"num_attention_heads={self.num_attention_heads}"
            )

    def validate_sentence_embedding(self) -> None:
        """Check how `encode` makes a vector."""
        parse_embedding(self.sentence_embedding)

    def validate_encoder(self) -> None:
        """Reject variants of BERT whose weights load but mean something else."""
        position_type = getattr(self, "position_embedding_type", "absolute")
        if position_type != "absolute":
            raise ValueError(
                f"position_embedding_type={position_type!r}: minBERT has 'absolute' positions only"
            )
        buckets = self.relative_attention_num_buckets
        if buckets not in (0, 32):
            raise ValueError(f"relative_attention_num_buckets={buckets} must be 0 or 32")
        if any(getattr(self, name) != value for name, value in BEYOND_BERT.items()):
            from .families import check_encoder

            check_encoder(self)
        for name in ("is_decoder", "add_cross_attention"):
            if getattr(self, name, False):
                raise ValueError(f"{name}=true: minBERT is an encoder only")


def _choose_embedding(values: Fields) -> MinBertEmbedding:
    """Choose the default vectors of a configuration; see `sentence_embedding`."""
    stored = values.get("sentence_embedding")
    chosen = parse_embedding(stored)
    if stored is not None and chosen.pooling is not None:
        return chosen
    tasks = parse_tasks(values.get("tasks"))
    wanted, default = values.get("embedding_task"), values.get("default_task")
    # files from before this field existed have none
    for name in sorted(tasks, key=lambda name: (name != wanted, name != default)):
        if tasks[name].is_separate:
            made = tasks[name].describe_embedding() or MinBertEmbedding()
            made.normalize |= chosen.normalize
            made.similarity, made.prompts = chosen.similarity, chosen.prompts
            made.pools_prompt = chosen.pools_prompt
            return made
    return MinBertEmbedding()


__all__ = ["MinBertConfig"]
