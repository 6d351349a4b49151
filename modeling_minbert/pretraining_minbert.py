# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The heads of pre-training and their losses (Devlin et al. 2019, section 3.1).

Every model that has one of them computes it by `pretrain`.

Shapes: B rows, L tokens of a row, M tokens whose state is read, D hidden size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.utils.generic import ModelOutput

from .packing_minbert import Read, labels_at, read_labelled
from .vocabulary_minbert import summed_loss, vocabulary_loss


class MinBertPredictionTransform(nn.Module):
    """Dense layer, activation and norm before the vocabulary."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform states, (..., D) -> (..., D)."""
        return self.LayerNorm(self.activation(self.dense(hidden)))


class MinBertLMHead(nn.Module):
    """From states to scores of the vocabulary; the weight is tied to the word embedding."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.transform = MinBertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=True)
        # BERT's checkpoints store the bias here; the decoder's is tied to it.
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Score the vocabulary, (..., D) -> (..., V)."""
        return self.decoder(self.transform(hidden))

    def predict(
        self, hidden: Tensor, read: Read, labels: Tensor | None, num_items: Any = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Score the vocabulary and compute the loss of the labelled tokens.

        Args:
            hidden: States of all tokens, (B, L, D), or of those that were read, (M, D).
            read: What was read, as `read_labelled` says.
            labels: Word-piece ids, (B, L), -100 for none; None if there are no labels at all.
            num_items: What the summed loss is divided by; None for the number of labels.

        Returns:
            The scores, (B, L, V) or (M, V), None in training if labelled tokens alone were read;
            and the loss, None without labels.
        """
        chosen = isinstance(read, Tensor)
        scores = None if chosen and self.training else self(hidden)
        if labels is None:
            return scores, None
        labels = labels_at(labels, read) if isinstance(read, Tensor) else labels.flatten()
        if scores is None:
            total = vocabulary_loss(self.transform(hidden), self.decoder, labels)
        else:
            total = summed_loss(scores.flatten(0, -2), labels)
        return scores, total / (_count(labels) if num_items is None else num_items)


class MinBertPreTrainingHeads(nn.Module):
    """One or both heads of pre-training, under BERT's key names."""

    predictions: MinBertLMHead
    seq_relationship: nn.Linear

    def __init__(self, config: Any, *, masked_lm: bool = True, next_sentence: bool = True) -> None:
        super().__init__()
        if masked_lm:
            self.predictions = MinBertLMHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def compare(self, pooled: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Score whether the second segment follows the first, and compute the mean loss.

        Args:
            pooled: Pooled states, (B, D).
            labels: 0 where it follows, 1 where it is random, (B,), -100 for a row that only fills
                the batch up; None if there are none.

        Returns:
            The scores, (B, 2), and the loss, None without labels.
        """
        scores = self.seq_relationship(pooled)
        if labels is None:
            return scores, None
        return scores, summed_loss(scores, labels.flatten()) / _count(labels)


def _count(labels: Tensor) -> Tensor:
    return (labels != -100).sum()


@dataclass
class MinBertForPreTrainingOutput(ModelOutput):
    """Outputs of pre-training, named as BERT's; `loss` is the sum of the two others."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None


def read_pretraining(
    model: Any,
    labels: Tensor | None,
    mask: Tensor | None,
    kwargs: dict[str, Any],
    *,
    masked_lm: bool,
) -> Read:
    """Return which states the heads need; takes `label_positions` out of `kwargs`."""
    return read_labelled(model, labels, mask, kwargs) if masked_lm else "first"


def score_pretraining(
    heads: Any,
    outputs: Any,
    read: Read,
    labels: Tensor | None,
    next_sentence_label: Tensor | None,
    number: Any,
    *,
    masked_lm: bool,
    next_sentence: bool,
) -> MinBertForPreTrainingOutput:
    """Compute one or both heads of pre-training.

    Args:
        heads: The `MinBertPreTrainingHeads`.
        outputs: Of the encoder.
        read: Which states were read.
        labels: Word-piece ids, (B, L), (1, T) of a packed batch, -100 where nothing is predicted.
        next_sentence_label: 0 where the second segment follows, 1 where it is random, (B,), -100
            for none.
        number: What the summed loss of the tokens is divided by; None for their number.
        masked_lm: Whether masked tokens are predicted.
        next_sentence: Whether segments are compared.
    """
    scores = relation = mlm_loss = nsp_loss = None
    if masked_lm:
        hidden = outputs.last_hidden_state
        scores, mlm_loss = heads.predictions.predict(hidden, read, labels, number)
    if next_sentence:
        relation, nsp_loss = heads.compare(outputs.pooler_output, next_sentence_label)
    losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
    loss = sum(losses[1:], losses[0]) if losses else None
    states = (outputs.hidden_states, outputs.attentions)
    return MinBertForPreTrainingOutput(loss, scores, relation, *states, mlm_loss, nsp_loss)


def pretrain(
    model: Any,
    inputs: tuple[Tensor | None, ...],
    labels: Tensor | None,
    next_sentence_label: Tensor | None,
    kwargs: dict[str, Any],
    *,
    masked_lm: bool = True,
    next_sentence: bool = True,
) -> MinBertForPreTrainingOutput:
    """Encode a batch once and compute one or both heads of a model; see `score_pretraining`."""
    read = read_pretraining(model, labels, inputs[1], kwargs, masked_lm=masked_lm)
    outputs = model.bert(*inputs, return_dict=True, read=read, **kwargs)
    return score_pretraining(
        model.cls,
        outputs,
        read,
        labels,
        next_sentence_label,
        kwargs.get("num_items_in_batch"),
        masked_lm=masked_lm,
        next_sentence=next_sentence,
    )
