# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Multiple choice: contexts with any number of choices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import MultipleChoiceModelOutput

from .heads import DATA, MEANING, Outputs, TaskBatch, Types, find_padding
from .inference import PooledPredictor
from .losses import CalibratedHead, CalibratedTask, Target
from .pooled import PairEncoding, PooledHead, PooledTask
from .rows import RowKind
from .spans import ChoiceReader
from .texts import Encoding, Fields


class ChoicePredictor(ChoiceReader, PooledPredictor):
    """Predicts the right choice of each row."""

    def __init__(self, model: Any, name: str, top_k: int | None) -> None:
        super().__init__(model, name, top_k)
        self.group = name  # choices are described by the task that read their row

    def describe(self) -> list[Any]:
        return self.describe_logits(self.collect().tolist(), self.head.task.temperature, self.top_k)

    def teach(self) -> Tensor:
        """Return the logits of the choices, the lowest number where a row has none, (n, S).

        S is that of the task, or of the longest row.
        """
        logits = self.collect()
        sizes = torch.tensor(list(map(len, self.choices)))
        places = torch.arange(max(int(sizes.max()), self.head.task.num_choices))
        table = torch.full((len(sizes), len(places)), lowest(logits))
        table[places < sizes.unsqueeze(1)] = logits
        return table


@strict
@dataclass(kw_only=True)
class MultipleChoiceTask(CalibratedTask, PooledTask):
    """The right one of `num_choices` choices for a context.

    See also `CalibratedTask` and `PooledTask`.

    Every choice is a sequence with its context, `[CLS] context [SEP] choice [SEP]`, with one logit;
    the loss is the cross-entropy of the choices of a row (Devlin et al. 2019, section 4.4). A row
    with fewer choices is filled up with sequences of padding, whose probability is 0.

    Args:
        num_choices: Sequences of a row in training and evaluation. `predict` takes any number.
        has_question: Whether rows have a second text, a question or the start of a sentence, that
            is put before every choice, as in SWAG.
    """

    problem_type: Literal["multiple_choice"] = field(default="multiple_choice", metadata=MEANING)
    num_choices: int | None = field(default=None, metadata=DATA)
    has_question: bool = field(default=False, metadata=DATA)
    target: ClassVar[Target] = "class"
    default_pair_encoding: ClassVar[PairEncoding] = "joint"
    allows_windows: ClassVar[bool] = False
    offers_choices: ClassVar[bool] = True
    row_kind: ClassVar[RowKind] = "contexts with choices"

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        head = super().complete({"pair_encoding": "joint", **given}, {**facts, "num_choices": None})
        return {**head, "num_choices": facts["num_choices"], "has_question": facts["num_texts"] > 1}

    @property
    def num_classes(self) -> int | None:
        return self.num_choices

    @property
    def num_sequences(self) -> int | None:
        return self.num_choices

    @property
    def example_row(self) -> Any:
        question = ("A question?",) if self.has_question else ()
        return ("A context.", *question, ["A choice.", "Another choice."])

    def make_row(self, columns: Sequence[str]) -> Any:
        least = 4 if self.has_question else 3
        if len(columns) < least or not all(map(str.strip, columns)):
            texts = "a context, a question" if self.has_question else "a context"
            raise ValueError(
                f"{len(columns)} text(s), but the task takes {texts} and at least two choices: "
                "columns separated by tabs, or texts on the command line"
            )
        return (*columns[: least - 2], list(columns[least - 2 :]))

    def encoding(self, max_length: int) -> Encoding:
        return replace(super().encoding(max_length), num_choices=self.num_choices)

    def validate_num_choices(self) -> None:
        if self.num_choices is None or self.num_choices < 2:
            raise ValueError(f"num_choices={self.num_choices} must be 2 or more")

    def validate_pair_encoding(self) -> None:
        if self.pair_encoding != "joint":
            raise ValueError(
                f"pair_encoding={self.pair_encoding!r}: every choice of a multiple_choice task is "
                "a sequence with its context, leave it out"
            )


class MultipleChoiceHead(CalibratedHead, PooledHead):
    """A logit per choice, the lowest number where a row has none."""

    outputs: ClassVar[Outputs] = "choices"
    predictor = ChoicePredictor

    @property
    def smoothing(self) -> float:
        return 0.0  # `loss` smooths labels, over the choices that a row has

    def forward(self, outputs: Any, batch: TaskBatch) -> Any:
        """Score the choices: (B, S), or (N,) where sequences are not grouped to rows."""
        vectors = self.embed(self.pool(outputs, batch))
        logits = self.score(vectors).squeeze(-1)
        if batch.num_sequences is not None:
            is_padding = find_padding(batch, self.config.pad_token_id).view_as(logits)
            logits = logits.masked_fill(is_padding, lowest(logits))
        loss = None if batch.labels is None else self.loss(vectors, logits, batch.labels)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean cross-entropy of logits (B, S); see `PooledHead.loss`."""
        plain = super().loss(vectors, scores, labels, keys)
        share = super().smoothing
        if not share:
            return plain
        is_real = scores > lowest(scores)
        uniform = is_real / is_real.sum(dim=-1, keepdim=True).clamp(min=1)
        spread = F.cross_entropy(scores.float(), uniform, reduction="none")
        is_labelled = labels != -100
        mean = spread.masked_fill(~is_labelled, 0).sum() / is_labelled.sum().clamp(min=1)
        return (1 - share) * plain + share * mean


def lowest(logits: Tensor) -> float:
    """Return the logit of a choice that a row does not have, also finite in float32."""
    # divergences subtract such logits, and a difference of infinite ones is not a number
    return max(torch.finfo(logits.dtype).min, torch.finfo(torch.float32).min)


TYPES: Types = {"multiple_choice": (MultipleChoiceTask, MultipleChoiceHead)}
