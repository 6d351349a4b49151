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

The encoder is BERT's, weight for weight and key for key (Devlin et al. 2019), without the decoder
that it never is. Read bottom-up, or begin at the end:

    MinBertModel                  embeddings -> encoder -> pooler
    MinBertForMaskedLM            every token -> the vocabulary
    MinBertForNSP                 is B the sentence after A?
    MinBertForPreTraining         both of them
    MinBertForSequenceClassification, ...TokenClassification, ...QuestionAnswering

`MinBertForMultiTask`, with any number of named heads, is in `modeling_minbert_multitask.py`.

Shapes: B batch (rows), L tokens of a sequence, D hidden size, H attention heads, d size of a head,
V vocabulary, K labels.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils.generic import (
    ModelOutput,
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import capture_outputs

from .configuration_minbert import MinBertConfig

# Encoder


class MinBertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        # Not saved, but there: old checkpoints carry this key, and it is then known.
        self.position_ids = nn.Buffer(
            torch.arange(config.max_position_embeddings).expand((1, -1)), persistent=False
        )

    def forward(
        self,
        input_ids: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
    ) -> Tensor:
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)  # (B, L, D)
        length = inputs_embeds.shape[1]
        if position_ids is None:
            if length > self.position_ids.shape[1]:
                raise ValueError(
                    f"a sequence of {length} tokens is longer than max_position_embeddings="
                    f"{self.position_ids.shape[1]}: truncate it when tokenizing"
                )
            position_ids = self.position_ids[:, :length]
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(position_ids)
        segments = self.token_type_embeddings(token_type_ids)
        embeddings = inputs_embeds + segments + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attend by plain matrix products (Vaswani et al. 2017, section 3.2.1).

    Args:
        module: The attention layer; its training flag decides on dropout.
        query: (B, H, L, d).
        key: (B, H, L, d).
        value: (B, H, L, d).
        attention_mask: Added to the scores, broadcast to (B, H, L, L).
        scaling: Factor on the scores, d ** -0.5.
        dropout: Probability of dropping a weight.
        **_: What other implementations of the attention interface take.

    Returns:
        Context (B, L, H, d) and weights (B, H, L, L).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    probs = F.dropout(F.softmax(scores, dim=-1), p=dropout, training=module.training)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


class MinBertSelfAttention(nn.Module):
    """Multi-head self-attention; the attention interface decides how it is computed."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        # The sdpa interface takes a module without this flag for causal when there is no mask.
        self.is_causal = False

    def forward(
        self, hidden: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        split = (*hidden.shape[:-1], -1, self.head_size)
        query = self.query(hidden).view(split).transpose(1, 2)  # (B, H, L, d)
        key = self.key(hidden).view(split).transpose(1, 2)
        value = self.value(hidden).view(split).transpose(1, 2)
        attend: Callable[..., tuple[Tensor, Tensor | None]] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        scaling = self.head_size**-0.5
        context, probs = attend(
            self, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return context.reshape(hidden.shape).contiguous(), probs  # (B, L, D)


class MinBertAddNorm(nn.Module):
    """Dense layer, dropout, residual connection, layer norm: the end of both halves of a layer."""

    def __init__(self, input_size: int, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + residual)


class MinBertAttention(nn.Module):
    """Self-attention with its residual; the attribute `self` is BERT's key name."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.self = MinBertSelfAttention(config)
        self.output = MinBertAddNorm(config.hidden_size, config)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        context, _ = self.self(hidden, attention_mask, **kwargs)
        return self.output(context, hidden)


class MinBertIntermediate(nn.Module):
    """The first half of the feed-forward layer."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(hidden))


class MinBertLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward, each with residual and norm."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.attention = MinBertAttention(config)
        self.intermediate = MinBertIntermediate(config)
        self.output = MinBertAddNorm(config.intermediate_size, config)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        attended = self.attention(hidden, attention_mask, **kwargs)
        return self.output(self.intermediate(attended), attended)


class MinBertEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([MinBertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        for layer in self.layer:
            hidden = layer(hidden, attention_mask, **kwargs)
        return hidden


class MinBertPooler(nn.Module):
    """Dense layer and tanh on the state of the first token."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.dense(hidden[:, 0]))


# Heads


class MinBertPredictionTransform(nn.Module):
    """Dense layer, activation and norm before the vocabulary."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden)))


class MinBertLMHead(nn.Module):
    """From states to scores of the vocabulary; the weight is tied to the word embedding."""

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__()
        self.transform = MinBertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=True)
        # BERT's checkpoints store the bias here; the decoder's is tied to it.
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden))


class MinBertPreTrainingHeads(nn.Module):
    """One or both heads of pre-training, under BERT's key names."""

    predictions: MinBertLMHead
    seq_relationship: nn.Linear

    def __init__(
        self, config: MinBertConfig, *, masked_lm: bool = True, next_sentence: bool = True
    ) -> None:
        super().__init__()
        if masked_lm:
            self.predictions = MinBertLMHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


def _classifier(config: MinBertConfig) -> tuple[nn.Dropout, nn.Linear]:
    own = config.classifier_dropout
    dropout = nn.Dropout(config.hidden_dropout_prob if own is None else own)
    return dropout, nn.Linear(config.hidden_size, len(config.id2label or {}))


# Models


class MinBertPreTrainedModel(PreTrainedModel):
    """What all minBERT models share: loading, saving and initialising.

    Any `bert` checkpoint loads as any of them. New weights are normal with `initializer_range`,
    biases and paddings zero, norms one.
    """

    config: MinBertConfig
    _auto_class: str
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _input_embed_layer = "word_embeddings"
    _no_split_modules = ["MinBertEmbeddings", "MinBertLayer"]
    _can_record_outputs = {"hidden_states": MinBertLayer, "attentions": MinBertSelfAttention}
    # One encoder serves all heads: the parts that a class does not have are no surprise.
    _keys_to_ignore_on_load_unexpected = [r"^(bert\.)?(cls|heads|classifier|qa_outputs|pooler)\."]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MinBertLMHead):
            init.zeros_(module.bias)
        elif isinstance(module, MinBertEmbeddings):
            init.copy_(
                module.position_ids, torch.arange(module.position_ids.shape[-1]).expand((1, -1))
            )

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any
    ) -> None:
        """Save weights, configuration and code; every Auto class finds its model in the folder.

        Args:
            save_directory: The folder; made if it is not there.
            *args: As in `PreTrainedModel.save_pretrained`.
            **kwargs: As in `PreTrainedModel.save_pretrained`.
        """
        self.config.auto_map = {
            "AutoConfig": "configuration_minbert.MinBertConfig",
            **{model._auto_class: f"modeling_minbert.{model.__name__}" for model in AUTO_MODELS},
        }
        # With the names of old checkpoints (gamma, beta) the Trainer would not find the norms on
        # resume: it reads the file without renaming.
        kwargs.setdefault("save_original_format", False)
        super().save_pretrained(save_directory, *args, **kwargs)

    def save_as_bert(self, save_directory: str | os.PathLike[str]) -> None:
        """Save a folder that transformers loads as a plain `bert`, with equal outputs.

        Args:
            save_directory: The folder; made if it is not there. The tokenizer is not written.
        """
        auto_class = getattr(transformers, self._auto_class)
        bert = auto_class.from_config(self.config.to_bert(), dtype=self.dtype)
        if isinstance(self, MinBertModel) and self.pooler is None:
            bert.pooler = None
        bert.load_state_dict(self.state_dict())
        bert.save_pretrained(save_directory)


class MinBertModel(MinBertPreTrainedModel):
    """The encoder: states of all tokens, and the pooled state of the first."""

    _auto_class = "AutoModel"

    def __init__(self, config: MinBertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = MinBertEmbeddings(config)
        self.encoder = MinBertEncoder(config)
        self.pooler = MinBertPooler(config) if add_pooling_layer else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode a batch of sequences.

        Args:
            input_ids: Word-piece ids, (B, L).
            attention_mask: 1 for real tokens, 0 for padding, (B, L); None if all are real.
            token_type_ids: Segment ids, (B, L); None for all zero.
            position_ids: Positions, (B, L) or (1, L); None for 0 to L - 1.
            inputs_embeds: Word embeddings in place of `input_ids`, (B, L, D).
            **kwargs: For the attention and for what to record (`output_hidden_states`, ...).

        Returns:
            `last_hidden_state` (B, L, D) and `pooler_output` (B, D).

        Raises:
            ValueError: If not exactly one of `input_ids` and `inputs_embeds` is given, or a
                sequence is longer than `max_position_embeddings`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        hidden = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden, attention_mask=attention_mask
        )
        hidden = self.encoder(hidden, mask, position_ids=position_ids, **kwargs)
        pooled = self.pooler(hidden) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled)


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
        self.cls = MinBertPreTrainingHeads(config, next_sentence=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """Return the layer that scores the vocabulary."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the layer that scores the vocabulary, and the bias that is tied to it."""
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

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
        """Score the vocabulary at every token.

        `labels` (B, L) are ids, -100 where nothing is predicted.

        Returns:
            `logits` (B, L, V) and, with labels, the mean `loss` over the labelled tokens.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.cls.predictions(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MinBertForNSP(MinBertPreTrainedModel):
    """BERT with the next-sentence head (Devlin et al. 2019, section 3.1, task 2)."""

    _auto_class = "AutoModelForNextSentencePrediction"
    # The loss is a mean over rows: the Trainer divides it by the accumulation steps.
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config)
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
            `logits` (B, 2) and, with labels, the mean `loss` over the rows.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else F.cross_entropy(logits.view(-1, 2), labels.view(-1))
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)


MinBertForNextSentencePrediction = MinBertForNSP


@dataclass
class MinBertForPreTrainingOutput(ModelOutput):
    """Outputs of `MinBertForPreTraining`, named as BERT's."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class MinBertForPreTraining(MinBertPreTrainedModel):
    """BERT with both heads of pre-training (Devlin et al. 2019, section 3.1)."""

    _auto_class = "AutoModelForPreTraining"
    accepts_loss_kwargs = False
    _tied_weights_keys = MinBertForMaskedLM._tied_weights_keys

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        self.bert = MinBertModel(config)
        self.cls = MinBertPreTrainingHeads(config)
        self.post_init()

    get_output_embeddings = MinBertForMaskedLM.get_output_embeddings
    set_output_embeddings = MinBertForMaskedLM.set_output_embeddings

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
        """Do what `MinBertForMaskedLM` and `MinBertForNSP` do, on one pass of the encoder.

        `labels` (B, L) are the first's labels and `next_sentence_label` (B,) the second's; either
        may be absent.

        Returns:
            `prediction_logits` (B, L, V), `seq_relationship_logits` (B, 2) and the sum of the mean
            losses whose labels were given.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        scores = self.cls.predictions(outputs.last_hidden_state)
        relation = self.cls.seq_relationship(outputs.pooler_output)
        losses = []
        if labels is not None:
            losses.append(F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten()))
        if next_sentence_label is not None:
            losses.append(F.cross_entropy(relation.view(-1, 2), next_sentence_label.view(-1)))
        loss = torch.stack(losses).sum() if losses else None
        return MinBertForPreTrainingOutput(
            loss, scores, relation, outputs.hidden_states, outputs.attentions
        )


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

        The loss follows `config.problem_type`; where that is None it is mean squared error for one
        label, cross entropy for integer labels (B,), binary cross entropy for float labels (B, K).

        Returns:
            `logits` (B, K) and, with labels, the mean `loss` over the rows.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else self._loss(logits, labels)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind == "regression" or (kind is None and logits.shape[-1] == 1):
            return F.mse_loss(logits.view(labels.shape), labels)
        integers = not labels.dtype.is_floating_point
        if kind == "single_label_classification" or (kind is None and integers):
            return F.cross_entropy(logits, labels.view(-1))
        return F.binary_cross_entropy_with_logits(logits, labels)


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
            `logits` (B, L, K) and, with labels, the mean `loss` over the labelled tokens.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


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

        `start_positions` and `end_positions` (B,) are the indices of these tokens; an answer beyond
        the sequence is ignored.

        Returns:
            `start_logits` and `end_logits` (B, L) and, with positions, their mean cross entropy.
        """
        outputs = self.bert(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringModelOutput(
            loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
        )


# What `auto_map` names in every saved folder.
AUTO_MODELS = (
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
    "MinBertForNextSentencePrediction",
    "MinBertForPreTraining",
    "MinBertForPreTrainingOutput",
    "MinBertForQuestionAnswering",
    "MinBertForSequenceClassification",
    "MinBertForTokenClassification",
    "MinBertModel",
    "MinBertPreTrainedModel",
]
