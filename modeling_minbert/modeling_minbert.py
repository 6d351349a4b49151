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
"""minBERT: BERT's encoder and its heads.

The encoder is BERT's, weight for weight and key for key (Devlin et al. 2019), without the decoder.
Read bottom-up, or begin at the end:

    MinBertModel                  embeddings -> encoder -> pooler
    MinBertForMaskedLM            every token -> the vocabulary
    MinBertForNSP                 does sentence B follow sentence A?
    MinBertForPreTraining         both
    MinBertForSequenceClassification, ...TokenClassification, ...QuestionAnswering

Packed batches are computed in `packing.py` by the attention of `attention.py`, pre-training heads
are in `pretraining.py`, token heads in `tokens.py` and `questions.py`, `MinBertForMultiTask`, with
any number of named heads, in `multitask.py`.

All of them take a padded batch (B, L), as BERT does, or a packed one: all sequences concatenated to
(1, T), `position_ids` that restart in each, and their offsets as `cu_seq_lens_q`, (N + 1,), with
the longest as `max_length_q`. These are the names of `DataCollatorWithFlattening`. Either way the
encoder computes real tokens only, unless the attention implementation is not `sdpa`, or the states
of every layer are requested.

Shapes: B batch (rows), L tokens of a sequence, N sequences, T real tokens of all of them, M tokens
whose state is read, D hidden size, H attention heads, d size of a head, V vocabulary, K labels.
"""

import os
import re
import tempfile
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    MaskedLMOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils import logging
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import capture_outputs

from .attention import can_attend, eager_attention_forward, find_distance_buckets, join_bias
from .configuration_minbert import MinBertConfig
from .cpu import MinBertCalls, MinBertDropout
from .embedding import MinBertEmbeddingMixin
from .inference import HUB_KEYS, MinBertPrecision
from .packing import (
    MinBertForPreTrainingOutput,
    MinBertModelOutput,
    MinBertPackedMixin,
    MinBertSequences,
    Read,
    check_length,
)

logger = logging.get_logger(__name__)

# Encoder


class MinBertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalized."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.config: Any = config
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        # CODEPATH: roberta, xlm-roberta, camembert, mpnet: a padding has no position; else bert
        padding = config.pad_token_id if config.position_offset else None
        self.position_embeddings = nn.Embedding(
            config.max_position_embeddings, config.hidden_size, padding_idx=padding
        )
        self.token_type_embeddings = None
        # CODEPATH: bert, roberta, xlm-roberta, camembert; not mpnet and distilbert
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = MinBertDropout(config.hidden_dropout_prob)
        # Added to positions, which count from 0.
        self.offset = config.position_offset
        # Not saved; old checkpoints have this key, which is not unexpected then.
        positions = torch.arange(config.longest_sequence).expand((1, -1))
        self.position_ids = nn.Buffer(positions, persistent=False)

    def forward(
        self,
        input_ids: Any,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)  # (B, L, D)
        if position_ids is None:
            length = inputs_embeds.shape[1]
            check_length(length, self.position_ids.shape[1])
            position_ids = self.position_ids[:, :length]
        if self.offset:
            position_ids = position_ids + self.offset
        embeddings = inputs_embeds
        if self.token_type_embeddings is not None:
            # a model with one segment has it for all tokens
            if token_type_ids is None or self.token_type_embeddings.num_embeddings == 1:
                token_type_ids = torch.zeros_like(position_ids)
            embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))

    def count_positions(
        self, input_ids: Tensor, columns: Tensor, first: Tensor | None = None
    ) -> Tensor:
        """Leave paddings out of positions that count all tokens, (B, L) or (1, T); they have -1.

        `first`, (T,), is the first token of the sequence of each token of a packed batch.
        """
        is_padding = (input_ids == self.config.pad_token_id).long()
        before = is_padding.cumsum(dim=1)
        if first is not None:
            before = before - (before - is_padding).index_select(1, first)
        return (columns - before).masked_fill(is_padding == 1, -1)

    def fill(self) -> None:
        """Compute the buffers, which are not loaded."""
        positions = torch.arange(self.position_ids.shape[-1]).expand((1, -1))
        init.copy_(self.position_ids, positions)


class MinBertSelfAttention(nn.Module):
    """Multi-head self-attention: `attend` for packed states (T, D), else an attention function."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        # The kernels apply dropout; code that disables dropout in all modules finds the rate here.
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        # Without this flag the sdpa interface is causal when there is no mask.
        self.is_causal = False

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None,
        queries: Tensor | None = None,
        sequences: MinBertSequences | None = None,
        select: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout.p if self.training else 0.0
        query = self.query(hidden if queries is None else queries)
        key, value = self.key(hidden), self.value(hidden)
        if sequences is not None:
            heads = self.config.num_attention_heads
            context = sequences.attend(query, key, value, heads, select=select, dropout=dropout)
            return context, None
        split = (*hidden.shape[:-1], -1, self.head_size)
        query, key, value = (states.view(split).transpose(1, 2) for states in (query, key, value))
        interface: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        scaling = self.head_size**-0.5
        context, probs = interface(
            self, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return context.reshape(hidden.shape).contiguous(), probs  # (B, L, D)


class MinBertAddNorm(nn.Module):
    """Dense layer, dropout, residual connection, layer norm: the end of both halves of a layer."""

    def __init__(self, input_size: int, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = MinBertDropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + residual)


class MinBertAttention(nn.Module):
    """Self-attention with its residual; the attribute `self` is BERT's key name."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.self = MinBertSelfAttention(config)
        self.output = MinBertAddNorm(config.hidden_size, config)

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None,
        select: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        queries = hidden if select is None else hidden.index_select(0, select)
        context, _ = self.self(hidden, attention_mask, queries, select=select, **kwargs)
        return self.output(context, queries)


class MinBertIntermediate(nn.Module):
    """The first half of the feed-forward layer."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(hidden))


class MinBertLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward, each with residual and norm; `select` as in `attend`."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.attention = MinBertAttention(config)
        self.intermediate = MinBertIntermediate(config)
        self.output = MinBertAddNorm(config.intermediate_size, config)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        attended = self.attention(hidden, attention_mask, **kwargs)
        return self.output(self.intermediate(attended), attended)


class MinBertEncoder(nn.Module):
    """The stack of layers; with `num_layers` only the lowest ones.

    Of the last one only the states that are read are computed, those of `select`.
    """

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([MinBertLayer(config) for _ in range(config.num_hidden_layers)])
        buckets, heads = config.relative_attention_num_buckets, config.num_attention_heads
        self.relative_attention_bias = nn.Embedding(buckets, heads) if buckets else None

    def make_bias(self, length: int) -> Tensor | None:
        """Return what is added to scores by distance, (H, L, L); None for an encoder without."""
        if self.relative_attention_bias is None:
            return None
        device = self.relative_attention_bias.weight.device
        places = torch.arange(length, device=device)
        buckets = find_distance_buckets(places - places.unsqueeze(1))
        return self.relative_attention_bias(buckets).permute(2, 0, 1)

    def make_angles(self, positions: Tensor, dtype: torch.dtype) -> None:
        """Return by what positions rotate states: none does."""

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None,
        select: Tensor | None = None,
        num_layers: int | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        del position_ids  # the embeddings have them
        layers = list(self.layer)[:num_layers]
        for number, layer in enumerate(layers, start=1):
            chosen = select if number == len(layers) else None
            hidden = layer(hidden, attention_mask, select=chosen, **kwargs)
        return hidden if layers or select is None else hidden.index_select(0, select)


class MinBertPooler(nn.Module):
    """Dense layer and activation, of BERT tanh, on the state of the first token."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.pooler_act]

    def forward(self, hidden: Tensor) -> Tensor:
        pooled: Tensor = self.activation(self.dense(hidden[:, 0]))
        return pooled


# Heads


def _classifier(config: MinBertConfig) -> tuple[MinBertDropout, nn.Linear]:
    own = config.classifier_dropout
    dropout = MinBertDropout(config.hidden_dropout_prob if own is None else own)
    return dropout, nn.Linear(config.hidden_size, len(config.id2label or {}))


# Models


def check_loaded(model: Any, info: Any, path: Any) -> None:
    """Refuse a model of which parts that the checkpoint should have are random.

    These are all of the encoder, and the heads of the tasks of its configuration. Other heads are
    new, and so may be those of `tasks` that the caller passes; a warning names heads that are lost.
    """
    missing, unexpected = sorted(info["missing_keys"]), info["unexpected_keys"]
    lost = [name for name in missing if re.match(r"(bert\.)?(embeddings|encoder)\.", name)]
    if lost:
        from .families import LOADS

        advice = (
            "its config.json must name the type and the sizes of its weights; for a model without "
            f"trained weights, pass a configuration to the class; {LOADS}"
        )
        if any("lora_" in name for name in unexpected):
            advice = (
                "these are weights of a run with LoRA: load the folder of the finished run, into "
                "whose weights LoRA is merged, or resume the run"
            )
        raise ValueError(
            f"{str(path)!r} has no weights for {len(lost)} tensors of the encoder, such as "
            f"{lost[0]}: {advice}"
        )
    config: Any = model.config
    is_new = any(name.startswith(("classifier.", "qa_outputs.")) for name in missing)
    # labels of the default task, not of a caller
    labels = config.default_task and config.task(config.default_task).describe_outputs()[1]
    if is_new and config.tasks and labels == list((config.id2label or {}).values()):
        raise ValueError(
            f"{str(path)!r} has heads of the tasks {', '.join(config.tasks)}, and none of a "
            f"{type(model).__name__}: load it as MinBertForMultiTask, which is the model of "
            "AutoModelForSequenceClassification, too, or pass tasks=None to train a new head"
        )
    model.new_parts = {name.removeprefix("bert.").split(".")[0] for name in missing}
    if not getattr(model, "uses_pooler", model.base_model is not model):
        model.new_parts.discard("pooler")


def check_classifier(model: Any, missing: Container[str], path: Any) -> None:
    """Refuse the heads of ModernBERT, which are behind another layer."""
    stock = (model.config.architectures or [""])[0]
    is_behind = "bert.pooler.dense.weight" in missing or stock == "ModernBertForTokenClassification"
    is_lost = hasattr(model, "classifier") and "classifier.weight" not in missing and is_behind
    if is_lost or (hasattr(model, "qa_outputs") and stock == "ModernBertForQuestionAnswering"):
        raise ValueError(
            f"{str(path)!r} has a classifier behind a layer that is not BERT's pooler, which "
            "minBERT does not have: load the encoder with MinBertModel, or pass tasks to "
            "MinBertForMultiTask, to train a new head"
        )


def check_heads(model: Any, info: Any, path: Any, options: Any, stored: Any) -> None:
    """Refuse random heads where the checkpoint, by its `stored` configuration, has trained ones."""
    config = model.config
    # the configuration of an encoder that was saved alone lists tasks, too
    has_heads = type(model).__name__ in (stored.get("architectures") or ())
    described = stored.get("tasks") or {}
    if has_heads and (lost := [name for name in described if name not in config.tasks]):
        logger.warning(
            "%s: the heads of its tasks %s are not loaded, because other tasks were given. To keep "
            "them, pass the tasks of its configuration, too: "
            "tasks={**config.tasks, name: fields}.",
            path,
            ", ".join(lost),
        )
    missing = info["missing_keys"]
    heads = sorted({name.split(".")[1] for name in missing if name.startswith("heads.")})
    lost = [name for name in heads if described.get(name) == config.tasks[name]]
    if lost and "tasks" not in options:
        raise ValueError(
            f"{str(path)!r} has no weights for the heads of its tasks {', '.join(lost)}: give the "
            "checkpoint of the whole model, load the encoder alone with MinBertModel, or pass "
            "tasks to train new heads"
        )


class MinBertPreTrainedModel(MinBertPrecision, PreTrainedModel):
    """Base class of all minBERT models: loading, saving and initializing.

    Any checkpoint of a type in `FAMILIES` loads as any of them. New weights are normal with
    `initializer_range`, biases and paddings zero, norms one.
    """

    config: MinBertConfig
    _auto_class: str
    # Names of the parts that the checkpoint did not have.
    new_parts: set[str] | frozenset[str] = frozenset()
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _input_embed_layer = "word_embeddings"
    _no_split_modules = []  # those of `MinBertModel`
    # of the layers and attentions of all encoders
    _can_record_outputs = {
        "hidden_states": GradientCheckpointingLayer,
        "attentions": [MinBertSelfAttention, ".attn"],
    }
    # One encoder serves all heads: a checkpoint may have parts that a class does not have.
    _keys_to_ignore_on_load_unexpected = [r"^(bert\.)?(cls|heads|classifier|qa_outputs|pooler)\."]

    @property
    def _supports_flash_attn(self) -> bool:  # type: ignore[override]
        return not self.config.relative_attention_num_buckets  # its kernels take no bias

    _supports_flex_attn = _supports_flash_attn

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a checkpoint; see `PreTrainedModel.from_pretrained`.

        With `output_loading_info`, the caller checks which weights are missing.

        Raises:
            ValueError: If weights of the encoder are missing, or heads that the checkpoint names.
        """
        path = pretrained_model_name_or_path
        load: Any = super().from_pretrained
        stored: Any = {}
        where = {name: kwargs[name] for name in HUB_KEYS if name in kwargs}
        with suppress(OSError, ValueError, AttributeError, TypeError):  # is said better below
            stored = PreTrainedConfig.get_config_dict(path, **where)[0]
        if stored.get("model_type") not in ("bert", MinBertConfig.model_type):
            from .families import list_renames

            kwargs["key_mapping"] = {**(kwargs.get("key_mapping") or {}), **list_renames()}
        if path is None:
            return load(path, *args, **kwargs)
        loaded: Any = load(path, *args, **{**kwargs, "output_loading_info": True})
        check_classifier(loaded[0], loaded[1]["missing_keys"], path)
        if any(name.endswith("pooler.dense.weight") for name in loaded[1]["missing_keys"]):
            weight = loaded[0].base_model.pooler.dense.weight
            loaded[0].base_model.new_pooler = weight.detach().flatten()[:64].clone()
        before = stored.get("tasks") or {}
        if hasattr(loaded[0], "heads") and before not in ({}, loaded[0].config.tasks):
            from .families import check_meanings

            check_meanings(loaded[0], loaded[1], path, before)
        if kwargs.get("output_loading_info"):
            return loaded
        check_loaded(loaded[0], loaded[1], path)
        if hasattr(loaded[0], "heads"):
            check_heads(loaded[0], loaded[1], path, kwargs, stored)
        return loaded[0]

    def train(self, mode: bool = True) -> Self:
        """Set the mode; warn once of new parts that an adapter of peft leaves random."""
        if mode and self.new_parts and hasattr(self, "peft_config"):
            trained = [
                name.split(".")
                for name, value in self.named_parameters()
                if value.requires_grad and "lora_" not in name
            ]
            lost = sorted(self.new_parts.difference(*trained))
            if lost:
                logger.warning(
                    "the checkpoint of this %s has no %s: these parts are random, and the adapter "
                    "neither trains nor saves them. Pass modules_to_save=%s to its configuration.",
                    type(self).__name__,
                    " and no ".join(lost),
                    lost,
                )
                self.new_parts = set()
        return super().train(mode)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        fill: Any = getattr(module, "fill", None)  # of modules with more than torch's weights
        if fill is not None:
            fill()

    def get_output_embeddings(self) -> nn.Linear | None:
        """Return the layer that scores the vocabulary; None if there is none."""
        heads: Any = getattr(self, "cls", None)
        return heads.predictions.decoder if hasattr(heads, "predictions") else None

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the layer that scores the vocabulary, and the bias that is tied to it."""
        heads: Any = self.cls
        bias = new_embeddings.bias
        if not self.config.tie_word_embeddings:
            # a file stores a shared tensor once, and would load as if the decoder had no bias
            bias = nn.Parameter(bias.detach().clone())
        heads.predictions.decoder, heads.predictions.bias = new_embeddings, bias

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Save weights, configuration and code, so that every Auto class can load its model."""
        if kwargs.get("push_to_hub"):
            raise ValueError("push_to_hub=True leaves the tokenizer out: call model.push_to_hub")
        heads: Any = getattr(self, "heads", None)
        if heads is not None:
            self.config.describe_default_task()
            self.config.check_unchanged({name: head.task for name, head in heads.items()})
        self.config.auto_map = {
            "AutoConfig": "configuration_minbert.MinBertConfig",
            **{model._auto_class: f"modeling_minbert.{model.__name__}" for model in AUTO_MODELS},
        }
        head: Any = None if heads is None else heads.get(self.config.default_task)
        if getattr(head, "outputs", "") == "tags":  # its pipeline loads the model, too
            model = "multitask.MinBertForMultiTask"
            self.config.auto_map["AutoModelForTokenClassification"] = model
        # on resume the Trainer loads the file without renaming norms of old checkpoints
        kwargs.setdefault("save_original_format", False)
        from .folders import finish_folder, save_modules

        is_saved = getattr(self, "should_save_on_this_rank", bool)(is_main_process)
        if is_saved:
            save_modules(Path(save_directory), self)
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        if is_saved:
            finish_folder(Path(save_directory), kwargs.get("variant"))

    def supports_packed_input(self, device: torch.device | None = None) -> bool:
        """Return whether packed batches run on padding-free kernels, on `device` or where it is."""
        return can_attend(self.config, self.dtype, device or self.device)

    def push_to_hub(  # type: ignore[override]  # of a method that transformers has wrapped
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: bool | str | None = None,
        max_shard_size: int | str | None = "50GB",
        revision: str | None = None,
        tags: list[str] | None = None,
        commit_message: str | None = None,
        commit_description: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Upload weights, configuration, code and the tokenizer of `predict`.

        A card is that of the weights beside it: none is written but for `tags`, and one on the Hub
        stays, with a warning. The folder of a run has one: `hf upload owner/name folder`.

        Args:
            repo_id: `owner/name`, or `name` for the owner of the token.
            private: Whether a new repository is private.
            token: Token of the Hub; None for the token of the login.
            max_shard_size: Maximum size of a file of weights.
            revision: The branch, which is created if necessary; None for `main`.
            tags: Added to the metadata of the card.
            commit_message: `Upload` and the class by default.
            commit_description: Further text of the commit.
            create_pr: Whether to open a pull request instead.

        Returns:
            The address of the commit.

        Raises:
            OSError: If the Hub refuses or cannot be reached; nothing on this machine changes.
        """
        from .folders import upload

        commit = {
            "revision": revision,
            "commit_message": commit_message or f"Upload {type(self).__name__}",
            "commit_description": commit_description,
            "create_pr": create_pr,
        }
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, max_shard_size=max_shard_size)
            return upload(Path(folder), repo_id, private, token, tags, commit)

    def save_as_transformers(
        self, save_directory: str | os.PathLike[str], *, num_layers: int | None = None
    ) -> None:
        """Save a folder that transformers loads as its class of the type that the weights had.

        That is `config.encoder_type`, such as `bert` or `roberta`; outputs are equal. A pooler is
        left out where the type has none (`distilbert`, `modernbert`).

        Args:
            save_directory: The folder, created if necessary; not that of a minBERT checkpoint. The
                tokenizer is not saved.
            num_layers: Number of layers to save, from the bottom, 1 or more; None for all.

        Of a `MinBertForMultiTask` the encoder is saved; to keep its pre-training heads, load its
        folder as `MinBertForPreTraining` or `MinBertForMaskedLM`, and save that.

        Raises:
            ValueError: If the type has no such model, there are not so many layers, or a minBERT
                checkpoint would be overwritten. Nothing is written then.
        """
        from .families import save_stock

        # transformers has no class for heads of tasks
        model = self.base_model if hasattr(self, "heads") else self
        save_stock(model, Path(save_directory), num_layers)


class MinBertModel(MinBertEmbeddingMixin, MinBertPackedMixin, MinBertPreTrainedModel):
    """The encoder: states of all tokens, the pooled state of the first; `encode` for sentences."""

    _auto_class = "AutoModel"

    def __init__(self, config: MinBertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.calls = MinBertCalls()
        self.embeddings: Any
        self.encoder: Any
        # CODEPATH: modernbert; all others have the layers of bert
        if config.encoder_type == "modernbert":
            from .modernbert import MinBertModernEmbeddings, MinBertModernEncoder

            self.embeddings = MinBertModernEmbeddings(config)
            self.encoder = MinBertModernEncoder(config)
        else:
            self.embeddings = MinBertEmbeddings(config)
            self.encoder = MinBertEncoder(config)
        layers = {type(layer).__name__ for layer in self.encoder.layer}
        self._no_split_modules = [type(self.embeddings).__name__, *layers]
        self.pooler = MinBertPooler(config) if add_pooling_layer else None
        self.post_init()

    @merge_with_config_defaults
    # the last state of the encoder is not the output if `read` is given
    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        read: Read = None,
        num_layers: int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MinBertModelOutput:
        """Encode a batch of sequences.

        Args:
            input_ids: Word-piece ids, (B, L); (1, T) of a packed batch.
            attention_mask: 1 for real tokens, 0 for padding, (B, L); None if all are real.
            token_type_ids: Segment ids, (B, L); None for all zero.
            position_ids: Positions, from 0 in every type, (B, L) or (1, L); None for 0 to L - 1.
                They do not separate the sequences of a packed batch, which needs its offsets.
            inputs_embeds: Word embeddings instead of `input_ids`, (B, L, D).
            read: Which states to return; others are not computed. None for all, zero at paddings;
                `first` for the first tokens, (N, 1, D); a mask of the ids' shape, or
                positions in a packed batch, for these, (M, D); `tokens` for the real ones, (T, D),
                if the output has `sequences`; `padded` for all that BERT computes.
            num_layers: Number of layers to compute, from the bottom; None for all.
            **kwargs: Options of the attention, outputs to record (`output_hidden_states`, ...), and
                the offsets `cu_seq_lens_q` (N + 1,) and `max_length_q` of a packed batch.

        Returns:
            `last_hidden_state` (B, L, D), or the states of `read`, and `pooler_output` (N, D).

        Raises:
            ValueError: If not exactly one of `input_ids` and `inputs_embeds` is given, a sequence
                is longer than `max_position_embeddings`, offsets do not fit the tokens, or there
                are `past_key_values`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        if kwargs.get("past_key_values") is not None:
            raise ValueError(
                "past_key_values: minBERT has no states of tokens before a sequence, which prefix "
                "tuning needs: use another method of peft, such as LoRA"
            )
        counts = self.config.position_offset and kwargs.get("cu_seq_lens_q") is None
        if counts and position_ids is None and input_ids is not None:
            check_length(input_ids.shape[1], self.config.longest_sequence)
            columns = torch.arange(input_ids.shape[1], device=input_ids.device)
            position_ids = self.embeddings.count_positions(input_ids, columns)
        inputs = (input_ids, token_type_ids, position_ids, inputs_embeds)
        sequences = self._find_sequences(inputs, attention_mask, read, kwargs)
        if sequences is not None:
            return self._forward_packed(inputs, sequences, read, num_layers, kwargs)
        # all tokens, with any attention implementation
        hidden = self.embeddings(*inputs)
        mask: Any = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden, attention_mask=attention_mask
        )
        bias = self.encoder.make_bias(hidden.shape[1])
        mask = mask if bias is None else join_bias(bias.unsqueeze(0), mask)
        with self.autocast(hidden):
            states = self.encoder(
                hidden, mask, num_layers=num_layers, position_ids=position_ids, **kwargs
            )
        hidden = states.to(hidden.dtype)
        pooled = None if self.pooler is None else self.pooler(hidden)
        if isinstance(read, Tensor):
            hidden = hidden[read]
        elif read == "first":
            hidden = hidden[:, :1]
        elif read is None and attention_mask is not None and attention_mask.dim() == 2:
            hidden = hidden.masked_fill(attention_mask[..., None] == 0, 0.0)
        return MinBertModelOutput(hidden, pooled)


class MinBertForMaskedLM(MinBertPreTrainedModel):
    """BERT with the masked-language-model head (Devlin et al. 2019, section 3.1, task 1)."""

    _auto_class = "AutoModelForMaskedLM"
    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config, add_pooling_layer=False)
        from .pretraining import MinBertPreTrainingHeads

        self.cls = MinBertPreTrainingHeads(config, next_sentence=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """Score the vocabulary.

        `labels` (B, L) are ids, -100 where nothing is predicted. With labels, in training or for a
        packed batch, the vocabulary is scored at labeled tokens only, unless
        `config.sparse_prediction` is false. `label_positions` (M,) names these tokens of a packed
        batch, so that a GPU need not be synchronized to find them; they are distinct, and those
        without a label are ignored.

        Returns:
            `logits` (B, L, V), and with labels the mean `loss` over the labeled tokens, or their
            sum divided by `num_items_in_batch`. Where only labeled tokens are scored, `logits` are
            (M, V), in the order of the positions, and None in training.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.cls.pretrain(self, inputs, labels, None, kwargs)
        return MaskedLMOutput(
            outputs.loss, outputs.prediction_logits, outputs.hidden_states, outputs.attentions
        )


class MinBertForNSP(MinBertPreTrainedModel):
    """BERT with the next-sentence head (Devlin et al. 2019, section 3.1, task 2)."""

    _auto_class = "AutoModelForNextSentencePrediction"
    # The loss is a mean over rows: the Trainer divides it by the accumulation steps.
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config)
        from .pretraining import MinBertPreTrainingHeads

        self.cls = MinBertPreTrainingHeads(config, masked_lm=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> NextSentencePredictorOutput:
        """Classify pairs; `labels` (B,) are 0 where B follows A, 1 where it is a random sentence.

        Returns:
            `logits` (B, 2) and, with labels, the mean `loss` over the rows whose label is not -100.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.cls.pretrain(self, inputs, None, labels, kwargs)
        return NextSentencePredictorOutput(
            outputs.loss, outputs.seq_relationship_logits, outputs.hidden_states, outputs.attentions
        )


class MinBertForPreTraining(MinBertPreTrainedModel):
    """BERT with both heads of pre-training (Devlin et al. 2019, section 3.1)."""

    _auto_class = "AutoModelForPreTraining"
    accepts_loss_kwargs = False
    _tied_weights_keys = MinBertForMaskedLM._tied_weights_keys

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config)
        from .pretraining import MinBertPreTrainingHeads

        self.cls = MinBertPreTrainingHeads(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MinBertForPreTrainingOutput:
        """Compute `MinBertForMaskedLM` and `MinBertForNSP` in one pass of the encoder.

        `labels` (B, L) are for the first, `next_sentence_label` (B,) for the second, if any.

        Returns:
            `prediction_logits` as the first's, `seq_relationship_logits` (B, 2), the losses with
            labels as `mlm_loss` and `nsp_loss`, and their sum as `loss`.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        return self.cls.pretrain(self, inputs, labels, next_sentence_label, kwargs)


class MinBertForSequenceClassification(MinBertPreTrainedModel):
    """BERT with a linear classifier or regressor on the pooled state."""

    _auto_class = "AutoModelForSequenceClassification"
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config)
        self.dropout, self.classifier = _classifier(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Classify sequences or pairs.

        The loss follows `config.problem_type`. If it is None, the first labels set it, as in BERT:
        regression for one label, else single-label for integers (B,), multi-label for floats.

        Returns:
            `logits` (B, K) and, with labels, the mean `loss` over the rows.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*inputs, return_dict=True, read="first", **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            if self.config.problem_type is None:  # pipelines read it
                kind: Any = "single" if labels.dtype in (torch.long, torch.int) else "multi"
                kind = "regression" if logits.shape[-1] == 1 else f"{kind}_label_classification"
                self.config.problem_type = kind
            if self.config.problem_type == "regression":
                loss = F.mse_loss(logits.view(labels.shape), labels)
            elif self.config.problem_type == "single_label_classification":
                loss = F.cross_entropy(logits, labels.view(-1))
            else:
                loss = F.binary_cross_entropy_with_logits(logits, labels)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MinBertForTokenClassification(MinBertPreTrainedModel):
    """BERT with a linear classifier on every token."""

    _auto_class = "AutoModelForTokenClassification"

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config, add_pooling_layer=False)
        self.dropout, self.classifier = _classifier(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Classify every token; `labels` (B, L) are class ids, -100 where nothing is predicted.

        Returns:
            `logits` (B, L, K) and, with labels, the mean `loss` over the labeled tokens.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        from .tokens import label_tokens, read_tokens

        read = read_tokens(labels, attention_mask)
        outputs = self.bert(*inputs, return_dict=True, read=read, **kwargs)
        return label_tokens(outputs, self._score, labels, kwargs.get("num_items_in_batch"))

    def _score(self, hidden: Tensor) -> Tensor:
        return self.classifier(self.dropout(hidden))


class MinBertForQuestionAnswering(MinBertPreTrainedModel):
    """BERT with the start and end scores of an answer span (Devlin et al. 2019, section 4.2)."""

    _auto_class = "AutoModelForQuestionAnswering"
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        """Score every token as the first and the last of the answer.

        `start_positions` and `end_positions` (B,) are the indices of these tokens; an answer at
        -100 or beyond the sequence is ignored. The loss is over all columns of a padded batch, as
        in BERT, and over the real tokens of a packed one.

        Returns:
            `start_logits` and `end_logits` (B, L), L being `max_length_q` for a packed batch, and,
            with positions, their mean cross-entropy.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        from .questions import find_answers, read_columns

        outputs = self.bert(*inputs, return_dict=True, read=read_columns(kwargs), **kwargs)
        return find_answers(outputs, self.qa_outputs, start_positions, end_positions)


AUTO_MODELS = (  # in `auto_map` of every saved folder
    MinBertModel,
    MinBertForMaskedLM,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    MinBertForQuestionAnswering,
)

__all__ = [
    "MinBertForMaskedLM",
    "MinBertForNSP",
    "MinBertForPreTraining",
    "MinBertForPreTrainingOutput",
    "MinBertForQuestionAnswering",
    "MinBertForSequenceClassification",
    "MinBertForTokenClassification",
    "MinBertModel",
    "MinBertPreTrainedModel",
]
