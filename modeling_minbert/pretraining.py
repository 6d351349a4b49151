# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Pre-training (Devlin et al. 2019, 3.1): B rows, L tokens, M read, D hidden size, V vocabulary."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn import functional as F
from transformers import PreTrainedConfig, initialization as init
from transformers.activations import ACT2FN

from .cpu import is_followed, run_other_code
from .heads import MEANING, MinBertTask, TaskBatch, Types, check_token_labels
from .packing import MinBertForPreTrainingOutput, Options, Read, any_at_padding


class _VocabularyLoss(torch.autograd.Function):
    """Summed cross-entropy over the vocabulary; one (M, V) matrix of scores, then probabilities."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
        scores = torch.addmm(bias, hidden, weight.t())
        best = scores.amax(dim=1)
        chosen = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
        probs = torch.softmax(scores, dim=1, out=scores)
        # log of the sum of exponents, from the largest probability: it cannot underflow
        total = (best - probs.amax(dim=1).log() - chosen).sum()
        ctx.save_for_backward(hidden, weight, bias, labels, probs)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, probs = ctx.saved_tensors
        # without a label the mean loss is 0 / 0; its gradient is 0
        scale = grads[0] if len(labels) else torch.zeros_like(grads[0])
        rows = torch.arange(len(labels))
        # changes are undone: the graph may be kept for another pass
        with _unsafe_preserve_version_counter(probs):
            chosen = probs[rows, labels]
            probs[rows, labels] = chosen - 1
            d_hidden = (probs @ weight).mul_(scale)
            d_bias = probs.sum(dim=0).mul_(scale) if bias.requires_grad else None
            d_weight = probs.t() @ (hidden * scale) if weight.requires_grad else None
            probs[rows, labels] = chosen
        return d_hidden, d_weight, d_bias, None


def summed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum the cross-entropy of scores (M, K) in float32 or wider; labels (M,), -100 for none."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return F.cross_entropy(scores, labels, reduction="sum")


def vocabulary_loss(hidden: Tensor, decoder: nn.Linear, labels: Tensor) -> Tensor:
    """Sum the cross-entropy of word pieces, hidden (M, D); `decoder` scores the vocabulary."""
    single = hidden.dtype in (torch.float32, torch.float64) and hidden.device.type == "cpu"
    plain = type(decoder) is nn.Linear and not run_other_code([vars(decoder)])
    plain = plain and getattr(decoder, "bias", None) is not None and single
    if not plain or is_followed(hidden) or torch.is_autocast_enabled("cpu"):
        return summed_loss(decoder(hidden), labels)
    real = labels != -100
    if not real.all():
        hidden, labels = hidden[real], labels[real]
    return _VocabularyLoss.apply(hidden, decoder.weight, decoder.bias, labels)


# Types whose MLM head has gelu, whatever their layers have.
GELU_HEADS = ("roberta", "xlm-roberta", "camembert", "mpnet")


class MinBertPredictionTransform(nn.Module):
    """Dense layer, activation and norm before the vocabulary, (..., D) -> (..., D)."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        # ModernBERT has no biases here
        bias = config.layer_bias
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)
        # CODEPATH: roberta, xlm-roberta, camembert, mpnet; all others as in their layers
        activation = "gelu" if config.encoder_type in GELU_HEADS else config.hidden_act
        self.activation = ACT2FN[activation]
        self.LayerNorm = nn.LayerNorm(
            config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias
        )

    def forward(self, hidden: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden)))


class MinBertLMHead(nn.Module):
    """Scores of the vocabulary, (..., D) -> (..., V); the weight is tied to the word embedding."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.transform = MinBertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=True)
        # BERT's checkpoints store the bias here; the decoder's is tied to it.
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def fill(self) -> None:
        """Set the bias of a new head."""
        init.zeros_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden))

    def predict(
        self,
        hidden: Tensor,
        read: Read,
        labels: Tensor | None,
        num_items: Tensor | int | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return scores, (B, L, V) or (M, V), and the summed loss divided by `num_items`."""
        chosen = isinstance(read, Tensor)
        scores = None if chosen and self.training else self(hidden)
        if labels is None:
            return scores, None
        if isinstance(read, Tensor) and read.dtype == torch.bool:
            labels = labels[read]
        else:
            labels = labels.flatten()[read] if isinstance(read, Tensor) else labels.flatten()
        if scores is None:
            total = vocabulary_loss(self.transform(hidden), self.decoder, labels)
        else:
            total = summed_loss(scores.flatten(0, -2), labels)
        return scores, total / ((labels != -100).sum() if num_items is None else num_items)


def read_labeled(model: Any, labels: Tensor | None, mask: Tensor | None, kwargs: Options) -> Read:
    """Return the labeled tokens, (B, L) or (M,); None or `padded` for all if others are scored."""
    positions: Tensor | None = kwargs.pop("label_positions", None)
    packed = kwargs.get("cu_seq_lens_q") is not None
    if positions is not None and not packed:
        raise ValueError("label_positions are for a packed batch, with cu_seq_lens_q")
    if labels is None:
        return None
    sparse = packed or (model.training and not is_followed(labels))
    if not sparse or not model.config.sparse_prediction:
        return "padded" if any_at_padding(labels != -100, mask) else None
    return labels != -100 if positions is None else positions


class MinBertPreTrainingHeads(nn.Module):
    """One or both heads of pre-training, under BERT's key names."""

    predictions: MinBertLMHead
    seq_relationship: nn.Linear

    def __init__(
        self, config: PreTrainedConfig, *, masked_lm: bool = True, next_sentence: bool = True
    ) -> None:
        super().__init__()
        if masked_lm:
            self.predictions = MinBertLMHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def compute(
        self,
        outputs: Any,
        read: Read,
        labels: Tensor | None,
        next_sentence_label: Tensor | None,
        number: Tensor | int | None,
        *,
        masked_lm: bool,
        next_sentence: bool,
    ) -> MinBertForPreTrainingOutput:
        """Compute one or both heads from the output of the encoder.

        Labels are (B, L) or (1, T), `number` divides their loss; next-sentence labels, (B,), are 0
        for a second segment that follows, 1 for a random one, -100 for rows that only fill the
        batch.
        """
        scores = relation = mlm_loss = nsp_loss = None
        if masked_lm:
            hidden = outputs.last_hidden_state
            scores, mlm_loss = self.predictions.predict(hidden, read, labels, number)
        if next_sentence:
            relation = self.seq_relationship(outputs.pooler_output)
            if next_sentence_label is not None:
                total = summed_loss(relation, next_sentence_label.flatten())
                nsp_loss = total / (next_sentence_label != -100).sum().clamp(min=1)
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        loss = sum(losses[1:], losses[0]) if losses else None
        states = (outputs.hidden_states, outputs.attentions)
        return MinBertForPreTrainingOutput(loss, scores, relation, *states, mlm_loss, nsp_loss)

    def pretrain(
        self,
        model: Any,
        inputs: tuple[Tensor | None, ...],
        labels: Tensor | None,
        next_sentence_label: Tensor | None,
        kwargs: Options,
    ) -> MinBertForPreTrainingOutput:
        """Encode a batch once and compute the heads that there are; see `compute`."""
        given: Any = inputs[4] if inputs[0] is None else inputs[0]
        if labels is not None and given is not None and labels.shape != given.shape[:2]:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)} for tokens of {tuple(given.shape[:2])}: "
                "there must be one for each token, -100 where nothing is predicted"
            )
        masked_lm, next_sentence = (hasattr(self, x) for x in ("predictions", "seq_relationship"))
        read = read_labeled(model, labels, inputs[1], kwargs) if masked_lm else "first"
        outputs = model.bert(*inputs, return_dict=True, read=read, **kwargs)
        targets = (labels, next_sentence_label, kwargs.get("num_items_in_batch"))
        return self.compute(
            outputs, read, *targets, masked_lm=masked_lm, next_sentence=next_sentence
        )


@strict
@dataclass(kw_only=True)
class TextTask(MinBertTask):
    """A task of pre-training, without further fields.

    Attributes:
        auto_class: The Auto class whose model has these heads alone.
    """

    is_pretraining: ClassVar[bool] = True
    is_unlabelled: ClassVar[bool] = True
    auto_class: ClassVar[str]


@strict
@dataclass(kw_only=True)
class MaskedLMTask(TextTask):
    """Which tokens are masked."""

    problem_type: Literal["masked_lm"] = field(default="masked_lm", metadata=MEANING)
    predicts_masked_tokens: ClassVar[bool] = True
    auto_class: ClassVar[str] = "AutoModelForMaskedLM"


@strict
@dataclass(kw_only=True)
class NextSentenceTask(TextTask):
    """Whether a segment follows another."""

    problem_type: Literal["next_sentence"] = field(default="next_sentence", metadata=MEANING)
    predicts_next_sentence: ClassVar[bool] = True
    auto_class: ClassVar[str] = "AutoModelForNextSentencePrediction"


@strict
@dataclass(kw_only=True)
class PreTrainingTask(TextTask):
    """Both in one pass of the encoder."""

    problem_type: Literal["pretraining"] = field(default="pretraining", metadata=MEANING)
    predicts_masked_tokens: ClassVar[bool] = True
    predicts_next_sentence: ClassVar[bool] = True
    extra_targets: ClassVar[tuple[str, ...]] = ("next_sentence_label",)
    auto_class: ClassVar[str] = "AutoModelForPreTraining"


class SharedHead:
    """BERT's pre-training heads, `model.cls`, as the head of one task; see `MinBertHead`."""

    def __init__(self, model: Any, task: MinBertTask) -> None:
        self.model = model
        self.task = task

    def prepare(self, batch: TaskBatch) -> None:
        if not self.task.predicts_masked_tokens:
            batch.targets["next_sentence_label"], batch.labels = batch.labels, None
        check_token_labels(batch)

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        return batch

    def read(self, batch: TaskBatch) -> Read:
        if not self.task.predicts_masked_tokens:
            return "first"
        return read_labeled(self.model, batch.labels, batch.inputs[1], batch.options)

    def count_terms(self, labels: Tensor) -> Tensor:
        return (labels != -100).sum()

    def __call__(self, outputs: Any, batch: TaskBatch) -> MinBertForPreTrainingOutput:
        number = batch.options.get("num_items_in_batch")
        if number is None and batch.labels is not None:
            number = self.count_terms(batch.labels).clamp(min=1)
        return self.model.cls.compute(
            outputs,
            batch.read,
            batch.labels,
            batch.targets.get("next_sentence_label"),
            number,
            masked_lm=self.task.predicts_masked_tokens,
            next_sentence=self.task.predicts_next_sentence,
        )


TYPES: Types = {
    "masked_lm": (MaskedLMTask, None),
    "next_sentence": (NextSentenceTask, None),
    "pretraining": (PreTrainingTask, None),
}
