# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Token classification: B rows of L tokens, T of a packed batch; D hidden size, K logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers.modeling_outputs import TokenClassifierOutput

from .class_weights_minbert import WeightedTask, add_weights
from .distillation_minbert import check_teacher, match_classes, mean_taught
from .focal_minbert import sum_class_losses
from .head_minbert import TaskBatch, TokenHead, check_shapes, check_token_labels
from .losses_minbert import symmetric_kl
from .packing_minbert import Read, any_at_padding
from .tagging_minbert import TagPredictor
from .task_minbert import DATA, RECIPE, check_labels
from .temperature_minbert import CalibratedHead, CalibratedTask
from .words_minbert import WordRule, choose_rule


@strict
@dataclass(kw_only=True)
class TokenClassificationTask(WeightedTask, CalibratedTask):
    """One of `labels` for every token; long texts are split into windows, not truncated.

    See also `CalibratedTask` and `WeightedTask`: the labels that the loss is divided by are those
    of tokens.

    Args:
        labels: Names of the tags, in the order of their ids.
        loss: `cross_entropy` or `focal`.
        words: How predictions split a text into words. `pattern`: words and punctuation marks,
            with clitics such as `'s` apart and each Chinese character alone; `elision`: the same,
            but cut after an apostrophe, as in French; `compound`: not cut at apostrophes.
            `characters`: each character with its combining marks. `whitespace`: what white space
            separates. `given`: no rule finds the words of the training rows, and rows must be lists
            of words. By default what fits the words of the training rows.
    """

    problem_type: Literal["token_classification"] = field(
        default="token_classification", metadata=DATA
    )
    labels: list[str] | None = field(default=None, metadata=DATA)
    loss: Literal["cross_entropy", "focal"] = field(default="cross_entropy", metadata=RECIPE)
    dropout: float | int = field(default=0.1, metadata=RECIPE)
    words: WordRule = field(default="pattern", metadata=RECIPE)
    is_token_level: ClassVar[bool] = True
    single_task_model: ClassVar[str | None] = "MinBertForTokenClassification"

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        completed = super().complete(given, facts)
        if "words" not in given and (sentences := facts.get("sentences")):
            completed["words"] = choose_rule(sentences)
        return completed

    def describe_outputs(self) -> tuple[Any, list[str]]:
        return None, self.labels or []

    def make_head(self, config: Any) -> "TokenClassificationHead":
        return TokenClassificationHead(config, self, len(self.labels or []))

    @property
    def adoption_problem(self) -> str | None:
        if self.words == "pattern":
            return None
        return (
            f"has words: {self.words}, by which pipelines of transformers do not split, so "
            "that their tags would be of other words"
        )

    @property
    def adoption_warning(self) -> str | None:
        scores = "" if self.temperature is None else ", scores without the fitted temperature"
        return (
            "the pipeline token-classification of transformers gives other tags than predict for "
            "words with inner punctuation, such as U.S. or Lee-Low, and for unknown characters, "
            f"none beyond the positions of the model{scores}: where that matters, take predict of "
            'MinBertForMultiTask; for other words give aggregation_strategy="first"'
        )

    def validate_labels(self) -> None:
        check_labels(self.labels)


class TokenClassificationHead(CalibratedHead, TokenHead):
    """K logits of every token."""

    class_weights: Tensor | None  # (K,); None for equal ones

    def __init__(self, config: Any, task: TokenClassificationTask, num_logits: int) -> None:
        super().__init__(config, task, num_logits)
        add_weights(self, task, "class_weights")

    def prepare(self, batch: TaskBatch) -> None:
        check_token_labels(batch)
        batch.options.pop("label_positions", None)  # tokens without a label are also scored

    def read(self, batch: TaskBatch) -> Read:
        return read_tokens(batch.labels, batch.inputs[1])

    def forward(self, outputs: Any, batch: TaskBatch) -> TokenClassifierOutput:
        number = batch.options.get("num_items_in_batch")
        if number is None and batch.labels is not None:
            number = self.count_terms(batch.labels).clamp(min=1)
        options = {"weight": self.class_weights, "gamma": self.task.focal_gamma or 0.0}
        options |= {"smoothing": self.smoothing}
        return label_tokens(outputs, self.score, batch.labels, number, **options)

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        check_shapes(logits, other, "tokens")
        each = symmetric_kl(logits, other)
        if labels is None:
            return each.mean()
        counted = labels != -100
        return each.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        check_teacher(logits, teacher, 2)
        each = match_classes(logits, teacher.nan_to_num(), temperature)
        return mean_taught(each, teacher, None if labels is None else labels != -100)

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)

    def predictor(self, model: Any, name: str, top_k: int | None) -> TagPredictor:
        if top_k is not None:
            raise ValueError(
                f"task {name!r} is a token_classification task with one tag per word: leave top_k "
                "out"
            )
        return TagPredictor(model, name, self)


def read_tokens(labels: Tensor | None, mask: Tensor | None) -> Read:
    """Return which states are read: of paddings only if they have labels."""
    stray = labels is not None and any_at_padding(labels != -100, mask)
    return "padded" if stray else "tokens"


def label_tokens(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    labels: Tensor | None,
    number: Any = None,
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
