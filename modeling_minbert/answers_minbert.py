# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Answers to questions about texts of any length: windows of a text, and the best spans in them.

Source: Devlin et al. 2019, section 4.2 and 4.3, and its code, `run_squad.py` of
google-research/bert.

Shapes: W windows, L tokens of a window.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .inference_minbert import Encoded, MinBertTokenizing, Row, check_rows, stream
from .task_minbert import WINDOWS, MinBertTask

Span = tuple[int, int]

# The best starts and ends of a window that are joined.
PLACES = 20
# Questions whose windows are computed together.
QUESTIONS = 256
LONGEST_WINDOW = 384
# length of a window as a part of the score of a token in it, by google-research/bert
LENGTH_WEIGHT = 0.01


class Window(NamedTuple):
    """A question with a window of its text.

    Args:
        question: Number of the question.
        encoded: Its tokens.
        first: Place of the first token of the text among them.
        offsets: Characters of each token of the text, start and end.
        owned: The first token of the text that has most context in this window, and the one after
            the last.
    """

    question: int
    encoded: Encoded
    first: int
    offsets: list[Span]
    owned: Span


@dataclass(frozen=True)
class AnswerOptions:
    """How questions and texts are cut, and answers chosen; see `MinBertTask`.

    Args:
        max_length: Tokens of a window at most.
        max_question_length: Tokens of a question at most.
        doc_stride: Tokens from the start of a window to that of the next one.
        max_answer_length: Tokens of an answer at most.
        null_score_diff_threshold: How much better no answer must score to be given; None if there
            always is one.
        top_k: Answers of a question at most.
    """

    max_length: int
    max_question_length: int
    doc_stride: int
    max_answer_length: int
    null_score_diff_threshold: float | int | None = None
    top_k: int = 1

    def __post_init__(self) -> None:
        for name in ("max_question_length", "doc_stride", "max_answer_length", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_length < self.max_question_length + 4:
            raise ValueError(
                f"windows of {self.max_length} tokens leave no room for a text beside a question "
                f"of max_question_length={self.max_question_length} tokens: lower that"
            )

    @classmethod
    def from_task(cls, task: MinBertTask | None, positions: int, **given: Any) -> "AnswerOptions":
        """Take what a task says, and what is given in its place.

        Args:
            task: The task; None for BERT's numbers.
            positions: Tokens of a sequence that the model has positions for.
            **given: Fields; those that are None do not count.
        """
        longest = min(positions, LONGEST_WINDOW)
        values: dict[str, Any] = {"max_length": longest, **WINDOWS}
        if task is not None:
            names = [*values, "null_score_diff_threshold"]
            values |= {n: x for n in names if (x := getattr(task, n)) is not None}
        values |= {name: value for name, value in given.items() if value is not None}
        if task is None and given.get("max_question_length") is None:
            # a model of few positions
            room = max(1, values["max_length"] // 2)
            values["max_question_length"] = min(values["max_question_length"], room)
        return cls(**values)


def cut_windows(length: int, room: int, doc_stride: int) -> list[Span]:
    """Cut a text of `length` tokens into windows of at most `room`; an empty one has one window."""
    step = min(room, doc_stride)
    starts = range(0, max(1, length - room + step), step)
    return [(first, min(first + room, length)) for first in starts]


def share_tokens(windows: Sequence[Span]) -> list[Span]:
    """Give every token of a text to the window in which it has most context, the first of equals.

    The context is `min(left, right) + 0.01 * length of the window`. As both numbers change by steps
    of one, neighbours decide where the tokens of a window end.
    """
    cuts = [0]
    for left, right in pairwise(windows):
        better = (t for t in range(right[0], left[1]) if _context(t, right) > _context(t, left))
        cuts.append(max(cuts[-1], next(better, left[1])))
    return list(pairwise([*cuts, windows[-1][1]]))


def _context(token: int, window: Span) -> float:
    first, end = window
    return min(token - first, end - 1 - token) + LENGTH_WEIGHT * (end - first)


def make_windows(tokenizer: Any, rows: Sequence[Row], options: AnswerOptions) -> list[Window]:
    """Tokenize questions, each with its text, as `[CLS] question [SEP] window [SEP]`.

    Raises:
        ValueError: If the tokenizer cannot tell which characters a token is made of.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not say which characters a token is made of: use a "
            "fast tokenizer (tokenizer.json)"
        )
    questions, texts = (_tokenize(tokenizer, [row[place] for row in rows]) for place in (0, 1))
    windows = []
    for number, (question, text) in enumerate(rows):
        kept = questions[question][0][: options.max_question_length]
        head = [tokenizer.cls_token_id, *kept, tokenizer.sep_token_id]
        ids, offsets = texts[text]
        spans = cut_windows(len(ids), options.max_length - len(head) - 1, options.doc_stride)
        for (first, end), owned in zip(spans, share_tokens(spans), strict=True):
            tokens = [*head, *ids[first:end], tokenizer.sep_token_id]
            types = [0] * len(head) + [1] * (len(tokens) - len(head))
            encoded = Encoded([tokens], [types])
            own = (owned[0] - first, owned[1] - first)
            windows.append(Window(number, encoded, len(head), offsets[first:end], own))
    return windows


def _tokenize(tokenizer: Any, texts: list[str]) -> dict[str, tuple[list[int], list[Span]]]:
    unique = list(dict.fromkeys(texts))
    # Padding and truncation are said aloud: a tokenizer.json can carry its own.
    encoded = tokenizer(
        unique,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warning of texts that are too long: they are cut into windows
    )
    tokens = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    return dict(zip(unique, tokens, strict=True))


def answer(
    model: nn.Module,
    tokenizer: Any,
    rows: Iterable[Row],
    compute: Callable[[dict[str, Any]], tuple[Tensor, Tensor]],
    options: AnswerOptions,
    *,
    max_tokens: int | None = None,
    show_progress: bool | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Answer questions, some hundred at a time.

    Args:
        model: What computes.
        tokenizer: A fast tokenizer.
        rows: Questions, each with its text.
        compute: Makes start and end logits (W, L) of a batch.
        options: How texts are cut and answers chosen.
        max_tokens: Tokens of a batch at most; None for what suits the device.
        show_progress: Whether to show a progress bar for every few hundred questions.

    Yields:
        For each question its best answers, as `find_best` gives them.
    """

    def score(batch: dict[str, Any]) -> Tensor:
        return keep_scores(batch, *compute(batch))

    source = iter(rows)
    while some := list(islice(source, QUESTIONS)):
        windows = make_windows(tokenizer, some, options)
        scores = torch.cat(
            list(
                stream(
                    model,
                    windows,  # type: ignore[arg-type]  # rows that are tokenized
                    lambda found: [window.encoded for window in found],  # type: ignore[attr-defined]
                    score,
                    max_tokens=max_tokens,
                    show_progress=bool(show_progress),
                )
            )
        )
        first = 0
        for number, (_, text) in enumerate(some):
            end = first
            while end < len(windows) and windows[end].question == number:
                end += 1
            yield find_best(text, windows[first:end], scores[first:end], options)
            first = end


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
        answer is empty and has 0 as `start` and `end`; it comes first if the threshold says so.
        Without any answer in the text there is none, or an empty one that scores 0.
    """
    kept = scores.double().unflatten(1, (2, 2 + 2 * PLACES))  # (W, 2, 42)
    total = float(kept[:, :, 0].logsumexp(dim=0).sum())
    null = float(kept[:, :, 1].sum(dim=1).min())
    found: dict[str, tuple[float, int, int]] = {}
    for score, start, end in sorted(
        _list_spans(windows, kept, options), key=lambda span: span[0], reverse=True
    ):
        if start < end:
            found.setdefault(text[start:end], (score, start, end))
        if len(found) == options.top_k:
            break
    ranked = [(score, start, end, string) for string, (score, start, end) in found.items()]
    threshold = options.null_score_diff_threshold
    if threshold is not None:
        best = ranked[0][0] if ranked else -math.inf
        rank = sum(score >= null for score, *_ in ranked)
        if null - best > threshold:
            rank = 0
        elif not rank:
            rank = 1
        ranked.insert(rank, (null, 0, 0, ""))
    answers = [
        {"score": math.exp(score - total), "start": start, "end": end, "answer": string}
        for score, start, end, string in ranked[: options.top_k]
    ]
    return answers or [{"score": 0.0, "start": 0, "end": 0, "answer": ""}]


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
            raise ValueError(f"{len(questions)} questions but {len(texts)} contexts: give as many")
        rows = list(check_rows(zip(questions, texts, strict=True), "answer", 2))
        name, spec = self._answering_task(task)
        threshold = None if spec is None else spec.null_score_diff_threshold
        if handle_impossible_answer is not None:
            threshold = (threshold or 0.0) if handle_impossible_answer else None
        options = replace(
            AnswerOptions.from_task(
                spec,
                self.config.max_position_embeddings,
                top_k=top_k,
                max_answer_length=max_answer_length,
                max_question_length=max_question_length,
                doc_stride=doc_stride,
            ),
            null_score_diff_threshold=threshold,
        )
        found = [
            answers[0] if top_k == 1 else answers
            for answers in self._answer_rows(
                rows,
                name,
                options,
                max_tokens=max_tokens_per_batch,
                show_progress=show_progress,
            )
        ]
        return found[0] if is_one else found

    def _answering_task(self, task: str | None) -> tuple[str | None, MinBertTask | None]:
        """Find the task that answers questions: for a model with one head that of the head."""
        if task is not None:
            raise ValueError(f"task={task!r}: this model has one head and no tasks, leave it out")
        config: Any = self.config
        spec = None if config.default_task is None else config.task(config.default_task)
        answers = spec is not None and spec.problem_type == "question_answering"
        return None, spec if answers else None

    def _answer_rows(
        self,
        rows: Iterable[Row],
        task: str | None,
        options: AnswerOptions,
        *,
        max_tokens: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[list[dict[str, Any]]]:
        model: Any = self
        named = {} if task is None else {"task": task}

        def compute(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
            outputs = model(**batch, **named)
            return outputs.start_logits, outputs.end_logits

        return answer(
            model,
            self.tokenizer,
            rows,
            compute,
            options,
            max_tokens=max_tokens,
            show_progress=show_progress,
        )


__all__ = ["AnswerOptions", "MinBertAnswering", "Window", "answer", "find_best", "make_windows"]
