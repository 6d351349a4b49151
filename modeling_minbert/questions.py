# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Question answering: B rows of L tokens, T in a packed batch of N sequences; D hidden size."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from .heads import DATA, RECIPE, Fields, HeadTask, Outputs, TaskBatch, TokenHead, Types
from .inference import Predictor, check_rows, check_top_k, put_in_order
from .packing import Read
from .pieces import QuestionWindow, split_questions
from .texts import Encoded, Encoding, Row

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


class QuestionAnsweringHead(TokenHead):
    """Scores of every token as the first and the last one of the answer."""

    outputs: ClassVar[Outputs] = "spans"

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

    def predictor(self, model: Any, name: str, top_k: int | None) -> "QuestionPredictor":
        return QuestionPredictor(model, name, self, top_k)


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
        starts = _choose_position(start_logits, start_positions)
        loss = (starts + _choose_position(end_logits, end_positions)) / 2
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


LONGEST_WINDOW = 384


# Number of best starts and ends of a window that are combined.
PLACES = 20
# Questions whose windows are computed together.
QUESTIONS = 256


def keep_scores(batch: dict[str, Any], start_logits: Tensor, end_logits: Tensor) -> Tensor:
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
    missing = max(0, PLACES - logits.shape[-1])
    logits = nn.functional.pad(logits, (0, missing), value=-math.inf)
    values, places = (x[..., :PLACES] for x in logits.sort(dim=-1, descending=True, stable=True))
    return torch.cat([total, logits[..., :1], places.float(), values], dim=-1).flatten(1)


class RankedAnswers(NamedTuple):
    """The best answers to a question, each of another text, and no answer.

    Scores are sums of two logits.
    """

    spans: list[tuple[float, str, int, int]]  # score, text, its first and last character
    null: float  # score of no answer: the lowest of [CLS] in a window
    total: float  # logarithm of the sum of the exponentials of all scores


def rank_answers(
    texts: Sequence[str],
    windows: Sequence[QuestionWindow],
    scores: Tensor,
    max_answer_length: int,
    top_k: int,
) -> RankedAnswers:
    """Rank the answers to one question, given the text and `keep_scores` of each window."""
    kept = scores.double().unflatten(1, (2, 2 + 2 * PLACES))  # (W, 2, 42)
    total = float(kept[:, :, 0].logsumexp(dim=0).sum())
    null = float(kept[:, :, 1].sum(dim=1).min())
    spans = []
    for number, (window, sides) in enumerate(zip(windows, kept[:, :, 2:].tolist(), strict=True)):
        shift = window.tokens[0] - window.first  # from places in the sequence to tokens of the text
        starts, ends = (
            [
                (int(place) + shift, logit)
                for place, logit in zip(side[:PLACES], side[PLACES:], strict=True)
                if logit > -math.inf
            ]
            for side in sides
        )
        for first, start_logit in starts:
            if not window.owned[0] <= first < window.owned[1]:
                continue
            for last, end_logit in ends:
                if first <= last < min(window.tokens[1], first + max_answer_length):
                    span = window.characters[first][0], window.characters[last][1]
                    spans.append((start_logit + end_logit, number, *span))
    ranked: dict[str, tuple[float, str, int, int]] = {}
    for score, number, start, end in sorted(spans, key=itemgetter(0), reverse=True):
        answer = texts[number][start:end]
        if answer:
            ranked.setdefault(answer, (score, answer, start, end))
        if len(ranked) == top_k:
            break
    return RankedAnswers(list(ranked.values()), null, total)


def find_best(
    text: str,
    windows: Sequence[QuestionWindow],
    scores: Tensor,
    task: QuestionAnsweringTask,
    top_k: int,
) -> list[dict[str, Any]]:
    """Return the best answers to one question, best first, given `keep_scores` of its windows.

    `start` and `end` are characters of the text, 0 for no answer; `score` is the probability among
    all spans of all windows (Clark and Gardner 2018, section 3.2), 0 if no span can be an answer.
    """
    limits = task.max_answer_length, top_k
    best, null, total = rank_answers([text] * len(windows), windows, scores, *limits)
    if task.null_score_diff_threshold is not None:
        rank = 0
        if best and null - best[0][0] <= task.null_score_diff_threshold:
            rank = max(1, sum(score >= null for score, *_ in best))
        best.insert(rank, (null, "", 0, 0))
    answers = [
        {"score": math.exp(score - total), "start": start, "end": end, "answer": answer}
        for score, answer, start, end in best[:top_k]
    ]
    return answers or [{"score": 0.0, "start": 0, "end": 0, "answer": ""}]


class QuestionPredictor(Predictor):
    """Answers pairs of a question and its text; see `find_best`."""

    size = QUESTIONS

    def __init__(self, model: Any, name: str, head: Any, top_k: int | None) -> None:
        check_top_k(top_k)
        self.name = self.group = name
        self.model, self.task, self.top_k = model, head.task, top_k
        positions: int = model.config.longest_sequence
        self.encoding: Encoding = head.task.encoding(min(positions, LONGEST_WINDOW))
        self.rows: list[Row] = []
        self.windows: list[QuestionWindow] = []
        self.results: list[tuple[list[int], Tensor]] = []

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        self.rows = list(check_rows(rows, self.name, 2, first))
        self.windows = split_questions(self.encoding, self.model.tokenizer, self.rows)
        return [window.encoded for window in self.windows]

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        self.results.append((indices, keep_scores(inputs, output.start_logits, output.end_logits)))

    def describe(self) -> list[Any]:
        scores, self.results = put_in_order(self.results).cpu(), []
        counts = Counter(window.question for window in self.windows)
        described, first = [], 0
        for number, (_, text) in enumerate(self.rows):
            end = first + counts[number]
            windows = self.windows[first:end]
            best = find_best(text, windows, scores[first:end], self.task, self.top_k or 1)
            described.append(best[0] if self.top_k is None else best)
            first = end
        return described


TYPES: Types = {"question_answering": (QuestionAnsweringTask, QuestionAnsweringHead)}
