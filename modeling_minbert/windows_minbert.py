# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Questions and texts of any length, split into windows.

Source: Devlin et al. 2019, section 4.2 and 4.3, and `run_squad.py` of google-research/bert.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from .inference_minbert import Encoded, Row
from .question_answering_minbert import QuestionAnsweringTask

Span = tuple[int, int]

LONGEST_WINDOW = 384
# fields of a task that are options as they are
FROM_TASK = ("max_question_length", "doc_stride", "max_answer_length", "null_score_diff_threshold")
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
    """How texts are split and answers chosen; see `QuestionAnsweringTask`.

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
    def from_task(
        cls, task: QuestionAnsweringTask | None, positions: int, **given: Any
    ) -> "AnswerOptions":
        """Take the options of a task, and those that are given instead.

        Args:
            task: The task; None for BERT's numbers.
            positions: Tokens of a sequence that the model has positions for.
            **given: Fields; those that are None do not count.
        """
        given = {name: value for name, value in given.items() if value is not None}
        spec = task or QuestionAnsweringTask()
        longest = spec.max_length or min(positions, LONGEST_WINDOW)
        own = {name: getattr(spec, name) for name in FROM_TASK}
        if task is None:  # for models of few positions
            own["max_question_length"] = min(spec.max_question_length, max(1, longest // 2))
        return cls(**{"max_length": longest, **own, **given})


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
        ValueError: If the tokenizer has no character offsets.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} has no character offsets: use a fast tokenizer "
            "(tokenizer.json)"
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


__all__ = ["AnswerOptions", "Span", "Window", "make_windows"]
