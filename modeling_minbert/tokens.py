# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tags of the words of any text, and the entities that they mark.

A text that is too long is split into windows, as in training: they overlap by about half, and a
word is tagged where its shorter context is longest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_outputs import TokenClassifierOutput

from .heads import (
    DATA,
    MEANING,
    READING,
    RECIPE,
    Outputs,
    TaskBatch,
    TokenHead,
    Types,
    check_token_labels,
)
from .inference import Batch, Predictor
from .losses import CalibratedHead, CalibratedTask, WeightedTask, add_weights, sum_class_losses
from .packing import Read, any_at_padding
from .pieces import WordRule, choose_rule
from .spans import TagReader
from .texts import Fields


class TagPredictor(TagReader, Predictor):
    """Predicts `words`, `tags`, `scores` and, for spans, `entities` of texts or lists of words."""

    def __init__(self, model: Any, name: str, top_k: int | None) -> None:
        self.head = model._head(name)
        task = self.head.task
        super().__init__(model, name, task, task.reading(model.config), top_k)
        self.group = name  # the words of a row are described by the task that split it

    def keep(self, indices: list[int], inputs: Batch, output: Any) -> None:
        """Keep the tag of every word, and its probability."""
        mask = inputs.get("attention_mask")
        logits = output.logits[0] if mask is None else output.logits[mask.bool()]
        starts = accumulate((self.parts[index].encoded.tokens for index in indices), initial=0)
        places = [
            start + place
            for index, start in zip(indices, starts, strict=False)
            for place in self.parts[index].places
        ]
        scores, tags = self.head.probabilities(logits[places].float()).max(dim=-1)
        values = iter(zip(tags.tolist(), scores.tolist(), strict=True))
        for index in indices:
            self.results[index] = list(islice(values, len(self.parts[index].places)))


@strict
@dataclass(kw_only=True)
class TokenClassificationTask(WeightedTask, CalibratedTask):
    """One of `labels` for every token; long texts are split into windows, not truncated.

    See also `CalibratedTask` and `WeightedTask`: the labels that the loss is divided by are those
    of tokens.

    Args:
        words: How predictions split a text into words. `pattern`: words and punctuation marks,
            with clitics such as `'s` apart and each Chinese character alone; `elision`: the same,
            but cut after an apostrophe, as in French; `compound`: not cut at apostrophes.
            `characters`: each character with its combining marks. `whitespace`: what white space
            separates. `given`: no rule finds the words of the training rows, and rows must be lists
            of words. By default what fits the words of the training rows.
        scheme: Whether tags mark `spans` or single words, `plain`; None if their names tell.
    """

    problem_type: Literal["token_classification"] = field(
        default="token_classification", metadata=MEANING
    )
    dropout: float | int = field(default=0.1, metadata=RECIPE)
    words: WordRule = field(default="pattern", metadata=READING)
    scheme: Literal["spans", "plain"] | None = field(
        default=None, metadata=DATA | {"role": "decision"}
    )
    is_token_level: ClassVar[bool] = True
    is_likelihood: ClassVar[bool] = True

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        if "words" not in given and (sentences := facts.get("sentences")):
            given = {**given, "words": choose_rule(sentences)}
        return super().complete(given, facts)


class TokenClassificationHead(CalibratedHead, TokenHead):
    """K logits of every token."""

    outputs: ClassVar[Outputs] = "tags"
    predictor = TagPredictor
    class_weights: Tensor | None  # (K,); None for equal ones

    def __init__(self, config: PreTrainedConfig, task: TokenClassificationTask) -> None:
        super().__init__(config, task)
        add_weights(self, task)

    def prepare(self, batch: TaskBatch) -> None:
        check_token_labels(batch)
        batch.options.pop("label_positions", None)  # tokens without a label are also scored

    def read(self, batch: TaskBatch) -> Read:
        return read_tokens(batch.labels, batch.inputs[1])

    def forward(self, outputs: Any, batch: TaskBatch) -> TokenClassifierOutput:
        number = batch.options.get("num_items_in_batch")
        if number is None and batch.labels is not None:
            number = self.count_terms(batch.labels).clamp(min=1)
        options = {"weight": self.class_weights, "smoothing": self.smoothing}
        return label_tokens(outputs, self.score, batch.labels, number, **options)


def read_tokens(labels: Tensor | None, mask: Tensor | None) -> Read:
    """Return which states are read: of paddings only if they have labels."""
    stray = labels is not None and any_at_padding(labels != -100, mask)
    return "padded" if stray else "tokens"


def label_tokens(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    labels: Tensor | None,
    number: Tensor | int | None = None,
    **options: Any,
) -> TokenClassifierOutput:
    """Score tokens, (B, L, K) or (1, T, K); the mean loss is over `number` or all labels.

    The `options` are those of `sum_class_losses`.
    """
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        logits = outputs.sequences.pad(logits)
    loss = None
    if labels is not None:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = sum_class_losses(logits.flatten(0, -2).to(dtype), labels.flatten(), **options)
        loss = loss / ((labels != -100).sum() if number is None else number)
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


TYPES: Types = {"token_classification": (TokenClassificationTask, TokenClassificationHead)}
