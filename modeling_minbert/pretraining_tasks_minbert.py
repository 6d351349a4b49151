# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tasks of pre-training, which share BERT's own heads (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .inputs_minbert import TaskBatch, check_token_labels
from .packing_minbert import Read
from .pretraining_minbert import MinBertForPreTrainingOutput, read_pretraining, score_pretraining
from .task_minbert import DATA, MinBertTask


@strict
@dataclass(kw_only=True)
class TextTask(MinBertTask):
    """A task of pre-training, which has nothing to choose.

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

    problem_type: Literal["masked_lm"] = field(default="masked_lm", metadata=DATA)

    predicts_masked_tokens: ClassVar[bool] = True
    auto_class: ClassVar[str] = "AutoModelForMaskedLM"


@strict
@dataclass(kw_only=True)
class NextSentenceTask(TextTask):
    """Whether a segment follows another."""

    problem_type: Literal["next_sentence"] = field(default="next_sentence", metadata=DATA)

    predicts_next_sentence: ClassVar[bool] = True
    auto_class: ClassVar[str] = "AutoModelForNextSentencePrediction"


@strict
@dataclass(kw_only=True)
class PreTrainingTask(TextTask):
    """Both on one pass of the encoder."""

    problem_type: Literal["pretraining"] = field(default="pretraining", metadata=DATA)

    predicts_masked_tokens: ClassVar[bool] = True
    predicts_next_sentence: ClassVar[bool] = True
    extra_targets: ClassVar[tuple[str, ...]] = ("next_sentence_label",)
    auto_class: ClassVar[str] = "AutoModelForPreTraining"


class SharedHead:
    """BERT's pre-training heads as the head of one task; see `MinBertHead`.

    No module: the weights are those of the model.

    Args:
        model: Has the heads as `cls`.
        task: A task of pre-training.
    """

    def __init__(self, model: Any, task: MinBertTask) -> None:
        self.model = model
        self.task = task

    def prepare(self, batch: TaskBatch) -> None:
        """Move the labels of segment pairs, and check that others are one a token."""
        if not self.task.predicts_masked_tokens:
            batch.targets["next_sentence_label"], batch.labels = batch.labels, None
        check_token_labels(batch)

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Return the batch as it is."""
        return batch

    def read(self, batch: TaskBatch) -> Read:
        """Read the labelled tokens, or the first ones."""
        masked_lm = self.task.predicts_masked_tokens
        mask = batch.inputs[1]
        return read_pretraining(self.model, batch.labels, mask, batch.options, masked_lm=masked_lm)

    def __call__(self, outputs: Any, batch: TaskBatch) -> MinBertForPreTrainingOutput:
        """Compute the heads of the task."""
        return score_pretraining(
            self.model.cls,
            outputs,
            batch.read,
            batch.labels if self.task.predicts_masked_tokens else None,
            batch.targets.get("next_sentence_label"),
            batch.options.get("num_items_in_batch"),
            masked_lm=self.task.predicts_masked_tokens,
            next_sentence=self.task.predicts_next_sentence,
        )


__all__ = ["MaskedLMTask", "NextSentenceTask", "PreTrainingTask", "SharedHead"]
