# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Question answering: B rows of L tokens, T in a packed batch of N sequences; D hidden size."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from .cpu import is_followed
from .heads import (
    DECISION,
    MEANING,
    READING,
    RECIPE,
    HeadTask,
    Outputs,
    TaskBatch,
    TokenHead,
    Types,
)
from .inference import Batch, Predictor, put_in_order
from .packing import Options, Read
from .rows import check_count
from .spans import LONGEST_WINDOW, PLACES, QuestionReader
from .texts import Encoding, Fields

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

    problem_type: Literal["question_answering"] = field(
        default="question_answering", metadata=MEANING
    )
    dropout: float | int = field(default=0.0, metadata=RECIPE)
    max_question_length: int | None = field(default=None, metadata=READING)
    doc_stride: int | None = field(default=None, metadata=READING)
    max_answer_length: int = field(default=30, metadata=DECISION)
    null_score_diff_threshold: float | int | None = field(default=None, metadata=DECISION)
    is_token_level: ClassVar[bool] = True
    num_texts: ClassVar[int] = 2
    num_logits: ClassVar[int] = 2
    example_row: ClassVar[tuple[str, ...]] = ("A question?", "A text.")
    answers_questions: ClassVar[bool] = True
    extra_targets: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def __post_init__(self) -> None:
        if self.max_length is not None:
            for name, size in self.window_sizes(self.max_length).items():
                setattr(self, name, size)

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        defaults = {"null_score_diff_threshold": 0.0} if facts["has_unanswerable"] else {}
        return super().complete({**defaults, **given}, facts)

    def encoding(self, max_length: int) -> Encoding:
        length = self.max_length or max_length
        return Encoding(length, **self.window_sizes(length))

    def reading(self, config: PreTrainedConfig) -> Encoding:
        positions = config.longest_sequence
        if (self.max_length or 0) > positions:  # and the other sizes are of longer windows
            own = replace(self, max_length=positions, max_question_length=None, doc_stride=None)
            sizes = own.window_sizes(positions)
            asked, stride = sizes["max_question_length"], sizes["doc_stride"]
            own.max_question_length = min(self.max_question_length or asked, asked)
            own.doc_stride = min(self.doc_stride or stride, stride)
            return own.encoding(positions)
        return self.encoding(min(positions, LONGEST_WINDOW))

    def window_sizes(self, max_length: int) -> dict[str, Any]:
        """Return `max_question_length` and `doc_stride` for windows of `max_length` tokens."""
        question, stride = self.max_question_length, self.doc_stride
        if question is None:
            question = min(LONGEST_QUESTION, max_length // 2)
        if stride is None:
            room = max_length - question - 3  # special tokens
            # an answer must be whole in one of the windows
            stride = max(1, min(LONGEST_STRIDE, max(room - self.max_answer_length, room // 2)))
        return {"max_question_length": question, "doc_stride": stride}

    def validate_lengths(self) -> None:
        for name in ("max_question_length", "doc_stride", "max_answer_length"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


class QuestionPredictor(QuestionReader, Predictor):
    """Answers pairs of a question and its text."""

    def __init__(self, model: Any, name: str, top_k: int | None) -> None:
        check_count("top_k", top_k)
        task = model._head(name).task
        super().__init__(model, name, task, task.reading(model.config))
        self.group, self.top_k = name, top_k
        self.results: list[tuple[list[int], Tensor]] = []

    def keep(self, indices: list[int], inputs: Batch, output: Any) -> None:
        self.results.append((indices, keep_scores(inputs, output.start_logits, output.end_logits)))

    def describe(self) -> list[Any]:
        scores, self.results = put_in_order(self.results), []
        return self.describe_answers(scores.tolist(), self.top_k)


class QuestionAnsweringHead(TokenHead):
    """Scores of every token as the first and the last one of the answer."""

    outputs: ClassVar[Outputs] = "spans"
    predictor = QuestionPredictor

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


def read_columns(options: Options) -> Read:
    """Return which states are read: as in BERT, paddings are also scored."""
    return "padded" if options.get("cu_seq_lens_q") is None else "tokens"


def find_answers(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    start_positions: Tensor | None,
    end_positions: Tensor | None,
) -> QuestionAnsweringModelOutput:
    """Score every token as the first and the last one of an answer, and compute the mean loss.

    Logits are (B, L), padded with the lowest number if packed. Positions, (B,) or (B, 1), beyond
    the sequence and at -100 are ignored; as in BERT, other negative ones mean the first token.
    """
    logits = score(outputs.last_hidden_state)
    start_positions, end_positions = (
        given if given is None else given.flatten() for given in (start_positions, end_positions)
    )
    if outputs.sequences is not None:
        sequences = outputs.sequences
        logits = sequences.to_rows(logits, torch.finfo(logits.dtype).min)
        start_positions = sequences.ignore_beyond(start_positions)
        end_positions = sequences.ignore_beyond(end_positions)
    start_logits, end_logits = logits.unbind(dim=-1)
    loss = None
    if start_positions is not None and end_positions is not None:
        starts = _choose_position(start_logits, start_positions)
        loss = (starts + _choose_position(end_logits, end_positions)) / 2
    return QuestionAnsweringModelOutput(
        loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
    )


def _choose_position(logits: Tensor, positions: Tensor) -> Tensor:
    """Compute the mean cross-entropy of positions, (B,), in logits, (B, L); 0 without any."""
    beyond = logits.shape[1]
    labels = positions.masked_fill(positions == -100, beyond).clamp(0, beyond)
    total = F.cross_entropy(logits, labels, ignore_index=beyond, reduction="sum")
    return total / (labels < beyond).sum().clamp(min=1)


def keep_scores(batch: Batch, start_logits: Tensor, end_logits: Tensor) -> Tensor:
    """Reduce the logits of windows, (W, L), to what can become an answer, (W, 2 * 42).

    For starts, then for ends: logsumexp over [CLS] and the tokens of the text, the logit of [CLS],
    the places of the 20 best tokens, and their logits, -inf where a window has fewer tokens.
    """
    types, offsets = batch["token_type_ids"], batch.get("cu_seq_lens_q")
    if offsets is None:
        lengths = batch["attention_mask"].sum(dim=-1, keepdim=True)  # (W, 1)
    else:
        lengths = offsets.diff().long().unsqueeze(1)
        rows = types[0].split(lengths.flatten().tolist())
        types = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    logits = torch.stack([start_logits, end_logits], dim=1).float()  # (W, 2, L)
    places = torch.arange(logits.shape[-1], device=logits.device)
    of_text = (types == 1) & (places < lengths - 1)  # the last one is [SEP]
    of_text[:, 0] = True
    logits = logits.masked_fill((places >= lengths)[:, None], -math.inf)
    total = logits.masked_fill(~of_text[:, None], -math.inf).logsumexp(dim=-1, keepdim=True)
    logits = F.pad(logits, (0, PLACES), value=-math.inf)
    if is_followed(logits):  # of equal ones, ONNX takes the first, and has no other sort
        values, places = logits.topk(PLACES, dim=-1)
    else:
        values, places = (x[..., :PLACES] for x in logits.sort(descending=True, stable=True))
    return torch.cat([total, logits[..., :1], places.float(), values], dim=-1).flatten(1)


TYPES: Types = {"question_answering": (QuestionAnsweringTask, QuestionAnsweringHead)}
