# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Answers to questions about texts of any length: the best spans of its windows.

Source: Devlin et al. 2019, section 4.2 and 4.3, and `run_squad.py` of google-research/bert.

Shapes: W windows, L tokens of a window.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from .inference_minbert import Encoded, MinBertTokenizing, Row, check_rows, stream
from .question_answering_minbert import QuestionAnsweringTask
from .windows_minbert import AnswerOptions, Window, make_windows

# The best starts and ends of a window that are combined.
PLACES = 20
# Questions whose windows are computed together.
QUESTIONS = 256


def answer(
    model: Any,
    rows: Iterable[Row],
    compute: Callable[[dict[str, Any]], tuple[Tensor, Tensor]],
    options: AnswerOptions,
    *,
    max_tokens: int | None = None,
    show_progress: bool | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Answer questions, some hundred at a time.

    Args:
        model: The model, with a fast tokenizer.
        rows: Questions, each with its text.
        compute: Makes start and end logits (W, L) of a batch.
        options: How texts are split and answers chosen.
        max_tokens: Tokens of a batch at most; None for what suits the device.
        show_progress: Whether to show a progress bar for every few hundred questions.

    Yields:
        For each question its best answers, as `find_best` returns them.
    """

    def score(batch: dict[str, Any]) -> Tensor:
        return keep_scores(batch, *compute(batch))

    source, shown = iter(rows), bool(show_progress)
    while some := list(islice(source, QUESTIONS)):
        windows: Any = make_windows(model.tokenizer, some, options)
        parts = stream(model, windows, _encode, score, max_tokens=max_tokens, show_progress=shown)
        scores = torch.cat(list(parts))
        counts = Counter(window.question for window in windows)
        first = 0
        for number, (_, text) in enumerate(some):
            end = first + counts[number]
            yield find_best(text, windows[first:end], scores[first:end], options)
            first = end


def _encode(windows: Sequence[Any]) -> list[Encoded]:
    return [window.encoded for window in windows]


def keep_scores(batch: dict[str, Any], start_logits: Tensor, end_logits: Tensor) -> Tensor:
    """Keep of the logits of windows only what can become an answer.

    Args:
        batch: The windows, padded or packed.
        start_logits: (W, L).
        end_logits: (W, L).

    Returns:
        (W, 2 * (2 + 2 * 20)): for starts, then for ends, the logarithm of the sum of exp(logit)
        over [CLS] and the tokens of the text, the logit of [CLS], and of the 20 best the places and
        the logits, which are -inf where a window has fewer tokens.
    """
    lengths, of_text = _find_texts(batch, start_logits.shape[-1])
    logits = torch.stack([start_logits, end_logits], dim=1).float()  # (W, 2, L)
    beyond = torch.arange(logits.shape[-1], device=logits.device) >= lengths[:, None]
    logits = logits.masked_fill(beyond[:, None], -math.inf)
    total = logits.masked_fill(~of_text[:, None], -math.inf).logsumexp(dim=-1, keepdim=True)
    missing = max(0, PLACES - logits.shape[-1])
    logits = nn.functional.pad(logits, (0, missing), value=-math.inf)
    values, places = (x[..., :PLACES] for x in logits.sort(dim=-1, descending=True, stable=True))
    return torch.cat([total, logits[..., :1], places.float(), values], dim=-1).flatten(1)


def _find_texts(batch: dict[str, Any], longest: int) -> tuple[Tensor, Tensor]:
    """Count the tokens of each window, (W,), and find [CLS] and those of the text, (W, L)."""
    types, offsets = batch["token_type_ids"], batch.get("cu_seq_lens_q")
    if offsets is None:
        lengths = batch["attention_mask"].sum(dim=-1)
    else:
        lengths = offsets.diff().long()
        rows = types[0].split(lengths.tolist())
        types = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    places = torch.arange(longest, device=types.device)
    of_text = (types == 1) & (places < lengths[:, None] - 1)  # the last one is [SEP]
    of_text[:, 0] = True
    return lengths, of_text


def find_best(
    text: str, windows: Sequence[Window], scores: Tensor, options: AnswerOptions
) -> list[dict[str, Any]]:
    """Find the best answers to one question in the windows of its text.

    Args:
        text: The text.
        windows: Its windows.
        scores: What `keep_scores` kept of each.
        options: How answers are chosen.

    Returns:
        At most `top_k` dictionaries, the best first: `answer`, `start` and `end`, its place in the
        text in characters, and `score`, its probability: exp of the sum of its logits, over the sum
        of that of all starts and ends in all windows (Clark and Gardner 2018, section 3.2). No
        answer is empty, with 0 as `start` and `end`, and first if the threshold decides so.
        Without any answer in the text there is none, or an empty one that scores 0.
    """
    kept = scores.double().unflatten(1, (2, 2 + 2 * PLACES))  # (W, 2, 42)
    total = float(kept[:, :, 0].logsumexp(dim=0).sum())
    null = float(kept[:, :, 1].sum(dim=1).min())
    ranked: dict[str, tuple[float, int, int]] = {}
    spans = sorted(_list_spans(windows, kept, options), key=lambda span: span[0], reverse=True)
    for score, start, end in spans:
        if start < end:
            ranked.setdefault(text[start:end], (score, start, end))
        if len(ranked) == options.top_k:
            break
    best = list(ranked.values())
    if options.null_score_diff_threshold is not None:
        rank = _rank_null([score for score, *_ in best], null, options.null_score_diff_threshold)
        best.insert(rank, (null, 0, 0))
    answers = [
        {"score": math.exp(score - total), "start": start, "end": end, "answer": text[start:end]}
        for score, start, end in best[: options.top_k]
    ]
    return answers or [{"score": 0.0, "start": 0, "end": 0, "answer": ""}]


def _rank_null(scores: list[float], null: float, threshold: float) -> int:
    """Return the rank of no answer, whose score is `null`, among the best answers."""
    if null - (scores[0] if scores else -math.inf) > threshold:
        return 0
    return max(1, sum(score >= null for score in scores))


def _list_spans(
    windows: Sequence[Window], kept: Tensor, options: AnswerOptions
) -> Iterator[tuple[float, int, int]]:
    """Join starts and ends to spans that can be answers: score, first and last character."""
    for window, (starts, ends) in zip(windows, _read(kept), strict=True):
        for start, start_logit in starts:
            first = start - window.first
            if not window.owned[0] <= first < window.owned[1]:
                continue
            for end, end_logit in ends:
                last = end - window.first
                if first <= last < min(len(window.offsets), first + options.max_answer_length):
                    span = window.offsets[first][0], window.offsets[last][1]
                    yield start_logit + end_logit, *span


def _read(kept: Tensor) -> Iterator[list[list[Any]]]:
    """Read the places and logits of the best starts and ends of each window."""
    for window in kept.tolist():
        yield [
            [
                (int(place), logit)
                for place, logit in zip(side[2 : 2 + PLACES], side[2 + PLACES :], strict=True)
                if logit > -math.inf
            ]
            for side in window
        ]


class MinBertAnswering(MinBertTokenizing):
    """What models have that answer questions: `answer`."""

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        task: str | None = None,
        top_k: int = 1,
        max_answer_length: int | None = None,
        handle_impossible_answer: bool | None = None,
        max_question_length: int | None = None,
        doc_stride: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Any:
        """Answer questions about texts of any length, as transformers' pipeline did up to 4.57.

        Args:
            question: A question, or several.
            context: The text with the answer; several, one for each question, or one for all.
            task: Name of the task of a multi-task model; None for its first one of this type.
            top_k: Answers of a question at most; fewer if there are no more.
            max_answer_length: Tokens of an answer at most; None for what the task says, or 30.
            handle_impossible_answer: Whether no answer is one of the answers; None if the task
                learnt from questions without an answer.
            max_question_length: Tokens of a question at most; None for what the task says, or 64.
            doc_stride: Tokens from one window of a text to the next one; None for what the task
                says, or 128.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar.

        Returns:
            For one question with a `top_k` of 1 a dictionary: `score`, the probability; `start` and
            `end`, the place in the text in characters; `answer`, the text between them, empty for
            none. With more a list of them, the best first. For several questions a list with that
            of each.

        Raises:
            ValueError: If there are not as many texts as questions, an input is no text, or there
                is no such task.
        """
        is_one = isinstance(question, str)
        questions: list[Any] = [question] if isinstance(question, str) else list(question)
        texts = [context] * len(questions) if isinstance(context, str) else list(context)
        if len(texts) != len(questions):
            raise ValueError(
                f"{len(questions)} questions but {len(texts)} contexts: give one context for each "
                "question, or one for all"
            )
        rows = list(check_rows(zip(questions, texts, strict=True), "answer", 2))
        name, spec = self._answering_task(task)
        options = AnswerOptions.from_task(
            spec,
            self.config.max_position_embeddings,
            top_k=top_k,
            max_answer_length=max_answer_length,
            max_question_length=max_question_length,
            doc_stride=doc_stride,
        )
        if handle_impossible_answer is not None:
            threshold = options.null_score_diff_threshold or 0.0
            options = replace(
                options, null_score_diff_threshold=threshold if handle_impossible_answer else None
            )
        progress = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        answers = list(self.answer_rows(rows, name, options, **progress))
        predictions = [found[0] if top_k == 1 else found for found in answers]
        return predictions[0] if is_one else predictions

    def _answering_task(self, task: str | None) -> tuple[str | None, Any]:
        """Return the task of the head of a model with one head; None for BERT's numbers."""
        if task is not None:
            raise ValueError(f"task={task!r}: this model has one head and no tasks, leave it out")
        config: Any = self.config
        spec = None if config.default_task is None else config.task(config.default_task)
        return None, spec if spec is not None and spec.answers_questions else None

    def answer_options(self, task: QuestionAnsweringTask, top_k: int | None) -> AnswerOptions:
        """Return how the texts of a task are split and its answers chosen."""
        return AnswerOptions.from_task(task, self.config.max_position_embeddings, top_k=top_k)

    def answer_rows(
        self, rows: Iterable[Row], task: str | None, options: AnswerOptions, **progress: Any
    ) -> Iterator[list[dict[str, Any]]]:
        """Answer the questions of a task; see `answer`.

        Args:
            rows: Questions, each with its text.
            task: Name of the task; None for a model with one head.
            options: How texts are split and answers chosen.
            **progress: `max_tokens` and `show_progress`.

        Returns:
            For each question its best answers.
        """
        model: Any = self
        named = {} if task is None else {"task": task}

        def compute(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
            outputs = model(**batch, **named)
            return outputs.start_logits, outputs.end_logits

        return answer(model, rows, compute, options, **progress)


__all__ = ["MinBertAnswering", "answer", "find_best"]
