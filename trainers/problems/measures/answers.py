"""The best answers to a question: spans, by their logits (Devlin et al. 2019, 4.2 and 4.3)."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.files import write_text

# Number of windows whose pairs of start and end are compared at once.
WINDOWS_IN_MEMORY = 1024
# The answer if no span is allowed, as in google-research/bert.
NOTHING = "empty"
# Starts and ends of a window that are kept beside [CLS], and answers to a question.
PLACES = 20
# Window, first and last token, and their logits.
Span: TypeAlias = tuple[int, int, int, float, float]


@dataclass(frozen=True)
class AnswerSearch:
    """How answers are chosen."""

    max_answer_length: int = 30  # tokens
    # How much better, in logits, no answer must score than the best one to be chosen; None if every
    # question has an answer in its passage (SQuAD 1.1).
    null_score_diff_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.max_answer_length < 1:
            raise ValueError(f"max_answer_length={self.max_answer_length} must be at least 1")


class Answer(NamedTuple):
    """An answer."""

    text: str  # empty for none
    probability: float  # among the n best answers
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both logits."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class QuestionAnswers:
    """The answers to one question."""

    id: str  # of the question
    text: str  # the chosen answer; empty for none
    n_best: list[Answer]  # the highest score first
    null_odds: float | None  # score of no answer minus the best one; None if all have answers

    @property
    def best_text(self) -> str:
        """The best answer that is not empty."""
        return next(answer.text for answer in self.n_best if answer.text)


def keep_places(start_logits: Tensor, end_logits: Tensor, lengths: Tensor) -> Tensor:
    """Return position and logit of [CLS] and of the 20 best starts and ends, (W, 2, 21, 2).

    The logits are (W, L); all of an evaluation would take much more memory. Missing ones are -inf.
    """
    logits = torch.stack([start_logits, end_logits], dim=1).float()  # (W, 2, L)
    beyond = torch.arange(logits.shape[-1], device=logits.device) >= lengths[:, None]
    logits = logits.masked_fill(beyond[:, None], -math.inf)
    missing = max(0, PLACES - logits.shape[-1])
    logits = torch.nn.functional.pad(logits, (0, missing), value=-math.inf)
    values, places = logits.sort(dim=-1, descending=True, stable=True)
    values = torch.cat([logits[..., :1], values[..., :PLACES]], dim=-1)
    places = torch.cat([torch.zeros_like(places[..., :1]), places[..., :PLACES]], dim=-1)
    return torch.stack([places.float(), values], dim=-1)


def find_answers(
    windows: Mapping[str, Sequence[Any]], places: NDArray[np.float32], search: AnswerSearch
) -> list[QuestionAnswers]:
    """Find the best answers to every question, ranked by the sum of their logits over all windows.

    An answer is a span of one window, between its 20 best starts and ends; the start must have its
    maximum context there. The score of no answer is that of [CLS], the minimum over the windows.
    ``places`` is the output of `keep_places`.
    """
    ids: dict[str, int] = {}
    numbers = [ids.setdefault(name, len(ids)) for name in windows["id"]]
    question_of = np.asarray(numbers, dtype=np.int64)
    candidates = _join_spans(windows, places, search, question_of)
    nulls = _find_nulls(places, question_of)
    found = []
    for question, name in enumerate(ids):
        null = nulls[question] if search.null_score_diff_threshold is not None else None
        spans = _read_texts(windows, candidates[question])
        found.append(_choose(name, spans, null, search))
    return found


def _join_spans(
    windows: Mapping[str, Sequence[Any]],
    places: NDArray[np.float32],
    search: AnswerSearch,
    question_of: NDArray[np.int64],
) -> list[list[Span]]:
    """Join starts and ends to the allowed spans of each question, the best first."""
    first = np.asarray(windows["first_token"], dtype=np.int64)
    sizes = np.fromiter(map(len, windows["token_starts"]), np.int64, len(first))
    owned = np.asarray(windows["owned"], dtype=np.int64).reshape(-1, 2)
    parts = []
    for begin in range(0, len(first), WINDOWS_IN_MEMORY):
        part = slice(begin, begin + WINDOWS_IN_MEMORY)
        # positions within the passage: starts are (W, n, 1) and ends (W, 1, n)
        starts = places[part, 0, 1:, 0].astype(np.int64)[:, :, None] - first[part, None, None]
        ends = places[part, 1, 1:, 0].astype(np.int64)[:, None, :] - first[part, None, None]
        own, most = owned[part, :, None, None], sizes[part, None, None]
        fits = (starts >= own[:, 0]) & (starts < own[:, 1]) & (ends < most)
        fits &= (ends >= starts) & (ends - starts < search.max_answer_length)
        fits &= np.isfinite(places[part, 0, 1:, 1])[:, :, None]
        window, start, end = np.nonzero(fits)
        parts.append(
            (
                window + begin,
                starts[window, start, 0],
                ends[window, 0, end],
                places[part][window, 0, start + 1, 1],
                places[part][window, 1, end + 1, 1],
            )
        )
    window, start, end, start_logit, end_logit = map(np.concatenate, zip(*parts, strict=True))
    scores = start_logit.astype(np.float64) + end_logit
    order = np.lexsort((-scores, question_of[window]))
    columns = [values[order].tolist() for values in (window, start, end, start_logit, end_logit)]
    found: list[list[Span]] = [[] for _ in range(int(question_of.max(initial=-1)) + 1)]
    for span in zip(*columns, strict=True):
        found[question_of[span[0]]].append(span)
    return found


def _find_nulls(places: NDArray[np.float32], question_of: NDArray[np.int64]) -> list[Answer]:
    """Score no answer to each question: the minimum over its windows."""
    starts, ends = places[:, 0, 0, 1].tolist(), places[:, 1, 0, 1].tolist()
    nulls: dict[int, Answer] = {}
    for question, start, end in zip(question_of.tolist(), starts, ends, strict=True):
        null = Answer("", 0.0, start, end)
        if question not in nulls or null.score < nulls[question].score:
            nulls[question] = null
    return list(nulls.values())


def _read_texts(windows: Mapping[str, Sequence[Any]], spans: Sequence[Span]) -> Iterator[Answer]:
    for window, start, end, *logits in spans:
        first, last = windows["token_starts"][window][start], windows["token_ends"][window][end]
        yield Answer(windows["passage"][window][first:last], 0.0, *logits)


def _choose(
    name: str, spans: Iterator[Answer], null: Answer | None, search: AnswerSearch
) -> QuestionAnswers:
    """Keep the best answers to a question and choose one of them."""
    answers = _keep_best(spans)
    best = answers[0]
    odds, text = None, best.text
    if null is not None and search.null_score_diff_threshold is not None:
        # no answer is always kept, even in addition to the best ones
        rank = sum(answer.score >= null.score for answer in answers)
        answers = [*answers[:rank], null, *answers[rank:]]
        if rank < PLACES:
            answers = answers[:PLACES]
        odds = null.score - best.score
        text = "" if odds > search.null_score_diff_threshold else text
    scores = np.asarray([answer.score for answer in answers])
    weights = np.exp(scores - scores.max())
    shares = (weights / weights.sum()).tolist()
    n_best = [
        answer._replace(probability=share) for answer, share in zip(answers, shares, strict=True)
    ]
    return QuestionAnswers(name, text, n_best, odds)


def _keep_best(spans: Iterator[Answer]) -> list[Answer]:
    """Keep the best answer of each text, at most 20; a placeholder if there is none."""
    kept: dict[str, Answer] = {}
    for answer in spans:
        if len(kept) == PLACES:
            break
        if answer.text:
            kept.setdefault(answer.text, answer)
    return list(kept.values()) or [Answer(NOTHING, 0.0, 0.0, 0.0)]


def write_answers(
    folder: str | os.PathLike[str], found: Sequence[QuestionAnswers], prefix: str = ""
) -> None:
    """Write ``predictions.json`` and so on in the format of SQuAD's official evaluation."""
    n_best = {one.id: [answer._asdict() for answer in one.n_best] for one in found}
    contents: dict[str, dict[str, Any]] = {
        "predictions": {one.id: one.text for one in found},
        "nbest_predictions": n_best,
        "null_odds": {one.id: one.null_odds for one in found if one.null_odds is not None},
    }
    for name, content in contents.items():
        if content or name != "null_odds":
            text = json.dumps(content, indent=2, ensure_ascii=False)
            write_text(Path(folder) / f"{prefix}{name}.json", text + "\n")
