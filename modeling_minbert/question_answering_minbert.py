# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Question answering: B rows of L tokens, T in a packed batch of N sequences; D hidden size."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from .distillation_minbert import check_teacher, match_positions
from .head_minbert import TaskBatch, TokenHead
from .inference_minbert import check_request
from .packing_minbert import Read
from .task_minbert import DATA, RECIPE, HeadTask

# Sizes of BERT for SQuAD, in tokens.
LONGEST_QUESTION, LONGEST_STRIDE = 64, 128


@strict
@dataclass(kw_only=True)
class QuestionAnsweringTask(HeadTask):
    """First and last token of the answer to a question; long texts are split into windows.

    Args:
        max_length: Maximum tokens of a window, with question and special tokens; None for 384, or
            fewer if the model has fewer positions.
        max_question_length: Maximum tokens of a question; 64, or half of windows below 128.
        doc_stride: Tokens from the start of a window to the start of the next one; 128, or fewer so
            that windows overlap by an answer of `max_answer_length`, or by half if they are shorter
            than two of these.
        max_answer_length: Maximum tokens of an answer.
        null_score_diff_threshold: How much higher, in logits, no answer must score than the best
            one to be predicted; None if every question has an answer (SQuAD 1.1).

    Source of the defaults: `run_squad.py` of google-research/bert.
    """

    problem_type: Literal["question_answering"] = field(default="question_answering", metadata=DATA)
    dropout: float | int = field(default=0.0, metadata=RECIPE)
    max_question_length: int | None = field(default=None, metadata=RECIPE)
    doc_stride: int | None = field(default=None, metadata=RECIPE)
    max_answer_length: int = field(default=30, metadata=RECIPE)
    null_score_diff_threshold: float | int | None = field(default=None, metadata=RECIPE)
    is_token_level: ClassVar[bool] = True
    num_texts: ClassVar[int] = 2
    example_row: ClassVar[str] = '("A question?", "A text.")'
    answers_questions: ClassVar[bool] = True
    extra_targets: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")
    single_task_model: ClassVar[str | None] = "MinBertForQuestionAnswering"

    def __post_init__(self) -> None:
        if self.max_length is not None:
            for name, size in self.window_sizes(self.max_length).items():
                setattr(self, name, size)

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        defaults = {"null_score_diff_threshold": 0.0} if facts["has_unanswerable"] else {}
        return super().complete({**defaults, **given}, facts)

    def encoding_options(self, max_length: int) -> dict[str, Any]:
        options = super().encoding_options(max_length)
        return options | self.window_sizes(options["max_length"])

    def window_sizes(self, max_length: int) -> dict[str, int]:
        """Return `max_question_length` and `doc_stride` for windows of `max_length` tokens."""
        question, stride = self.max_question_length, self.doc_stride
        if question is None:
            question = min(LONGEST_QUESTION, max_length // 2)
        if stride is None:
            room = max_length - question - 3  # special tokens
            # an answer must be whole in one of the windows
            stride = max(1, min(LONGEST_STRIDE, max(room - self.max_answer_length, room // 2)))
        return {"max_question_length": question, "doc_stride": stride}

    def make_head(self, config: Any) -> "QuestionAnsweringHead":
        return QuestionAnsweringHead(config, self, 2)

    def validate_lengths(self) -> None:
        for name in ("max_question_length", "doc_stride", "max_answer_length"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


class QuestionAnsweringHead(TokenHead):
    """Scores of every token as the first and the last one of the answer."""

    def prepare(self, batch: TaskBatch) -> None:
        if batch.labels is None:
            return
        if batch.labels.dim() != 2 or batch.labels.shape[-1] != 2:
            raise ValueError(
                f"labels of shape {tuple(batch.labels.shape)}, but task {batch.name!r} takes "
                "(batch, 2): the first and the last token of each answer"
            )
        names = self.task.extra_targets
        batch.targets |= dict(zip(names, batch.labels.unbind(dim=-1), strict=True))

    def read(self, batch: TaskBatch) -> Read:
        return read_columns(batch.options)

    def forward(self, outputs: Any, batch: TaskBatch) -> QuestionAnsweringModelOutput:
        start, end = (batch.targets.get(name) for name in self.task.extra_targets)
        return find_answers(outputs, self.score, start, end)

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        raise ValueError(
            "there is no divergence for a question_answering task, whose scores are of positions: "
            "train it without r_drop and smart"
        )

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        check_teacher(logits, teacher, 2)
        is_taught = teacher.isfinite().flatten(2).all(dim=-1).any(dim=-1)
        each = match_positions(logits, teacher, temperature).masked_fill(~is_taught, 0)
        return each.sum() / is_taught.sum().clamp(min=1)

    def decode(self, logits: Tensor) -> Tensor:
        raise ValueError(
            "start and end of an answer are decoded together, with the text: use predict"
        )

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        checked = check_request(rows, name, 2, top_k)
        search = model.answer_options(self.task, top_k=top_k)
        answers = model.answer_rows(checked, name, search, **options)
        return (best[0] if top_k is None else best for best in answers)


def read_columns(options: dict[str, Any]) -> Read:
    """Return which states are read: as in BERT, paddings are also scored."""
    return "padded" if options.get("cu_seq_lens_q") is None else "tokens"


def find_answers(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    start_positions: Tensor | None,
    end_positions: Tensor | None,
) -> QuestionAnsweringModelOutput:
    """Score every token as the first and the last one of an answer, and compute the mean loss.

    Logits are (B, L), padded with the lowest number if packed. Positions, (B,), beyond the sequence
    and at -100 are ignored; as in BERT, other negative ones mean the first token.
    """
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        sequences = outputs.sequences
        logits = sequences.to_rows(logits, torch.finfo(logits.dtype).min)
        start_positions = sequences.ignore_beyond(start_positions)
        end_positions = sequences.ignore_beyond(end_positions)
    start_logits, end_logits = logits.unbind(dim=-1)
    loss = None
    if start_positions is not None and end_positions is not None:
        losses = (
            _choose_position(start_logits, start_positions),
            _choose_position(end_logits, end_positions),
        )
        loss = (losses[0] + losses[1]) / 2
    return QuestionAnsweringModelOutput(
        loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
    )


def _choose_position(logits: Tensor, positions: Tensor) -> Tensor:
    """Compute the mean cross-entropy of positions, (B,), in logits, (B, L); 0 without any."""
    beyond = logits.shape[1]
    positions = positions.squeeze(-1) if positions.dim() > 1 else positions  # as in transformers
    labels = positions.masked_fill(positions == -100, beyond).clamp(0, beyond)
    total = F.cross_entropy(logits, labels, ignore_index=beyond, reduction="sum")
    return total / (labels < beyond).sum().clamp(min=1)
