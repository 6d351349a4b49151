"""From scores of tokens to answers: the best spans of a question over the windows of its passage.

Source: Devlin et al. 2019, section 4.2 and 4.3, and its code, ``run_squad.py`` of
google-research/bert.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.data.task_dataset import spread_numbers
from trainers.files import write_text

from .squad_metrics import score_answers, squad_metrics

# Windows whose pairs of start and end are compared together.
WINDOWS_IN_MEMORY = 1024
# What a question is answered with if no span can be one, as in google-research/bert.
NOTHING = "empty"
QUESTION_ANSWERING = "question_answering"
# The first one stands for the task; those after the second need questions without an answer.
ANSWER_METRICS = (
    "f1",
    "exact_match",
    "has_answer_f1",
    "has_answer_exact_match",
    "no_answer_accuracy",
    "best_f1",
    "best_f1_threshold",
    "best_exact_match",
    "best_exact_match_threshold",
)
WINDOW_COLUMNS = ("id", "passage", "first_token", "token_starts", "token_ends", "owned")
# What `keep_places` keeps: [CLS], and so many starts and ends.
PLACES = 20


@dataclass(frozen=True)
class AnswerSearch:
    """How answers are chosen.

    Args:
        max_answer_length: Tokens of an answer at most.
        n_best_size: Answers of a question that are kept at most.
        null_score_diff_threshold: How much better, in logits, no answer must score than the best
            one to be given; None if every question has an answer in its passage (SQuAD 1.1).
    """

    max_answer_length: int = 30
    n_best_size: int = PLACES
    null_score_diff_threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_answer_length", "n_best_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


class Answer(NamedTuple):
    """An answer that was found.

    Args:
        text: Its text; empty for none.
        probability: Among the answers that were kept.
        start_logit: Of its first token.
        end_logit: Of its last token.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both logits."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class FoundAnswers:
    """The answers to one question.

    Args:
        id: That of the question.
        text: The answer; empty if it is that there is none.
        n_best: The best ones, the highest score first.
        null_odds: How much better no answer scored than the best one that is not empty; None if
            every question has an answer.
    """

    id: str
    text: str
    n_best: list[Answer]
    null_odds: float | None

    @property
    def best_text(self) -> str:
        """The best answer that is not empty."""
        return next(answer.text for answer in self.n_best if answer.text)


def keep_places(start_logits: Tensor, end_logits: Tensor, lengths: Tensor) -> Tensor:
    """Keep of the logits of windows only what can become an answer.

    Logits of a whole evaluation, padded to the longest window, would take much more memory.

    Args:
        start_logits: (W, L).
        end_logits: (W, L).
        lengths: Tokens of each window, (W,).

    Returns:
        Place and logit of [CLS], and of the 20 best starts and ends among all tokens of the window,
        the best first, (W, 2, 21, 2), float32. Where a window has fewer tokens, the logit is -inf.
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
) -> list[FoundAnswers]:
    """Find the best answers to every question.

    An answer is a span of passage tokens of one window, whose start is among the best 20 starts of
    the window and has more context there than in any other window, and whose end is among the best
    20 ends. Spans of all windows of a question are compared by the sum of their logits, and of
    equal texts only the best one counts. No answer scores as much as [CLS] does, and as little as
    in the window where that is least.

    Args:
        windows: Columns id, passage, first_token, token_starts, token_ends and owned of the windows
            of questions, those of a question together; each (W,).
        places: What `keep_places` kept of each window, (W, 2, 21, 2).
        search: How answers are chosen.

    Returns:
        The answers to each question, in the order of the questions.
    """
    ids, question_of = _number_questions(windows["id"])
    candidates = _join_spans(windows, places, search, question_of)
    nulls = _find_nulls(places, question_of)
    found = []
    for question, name in enumerate(ids):
        null = nulls[question] if search.null_score_diff_threshold is not None else None
        spans = _read_texts(windows, candidates[question])
        found.append(_choose(name, spans, null, search))
    return found


def answer_questions(
    windows: datasets.Dataset, places: NDArray[np.float32], search: AnswerSearch
) -> list[FoundAnswers]:
    """Find the best answers to the questions of encoded windows; see `find_answers`."""
    return find_answers({name: windows[name][:] for name in WINDOW_COLUMNS}, places, search)


def measure_answers(
    windows: datasets.Dataset, found: Sequence[FoundAnswers], search: AnswerSearch
) -> tuple[dict[str, float], float]:
    """Score answers.

    Args:
        windows: The windows of the questions, with ``answers``, the right ones.
        found: The answers to the questions, in their order.
        search: How they were chosen; without a threshold the metrics are those of SQuAD 1.1.

    Returns:
        ``ANSWER_METRICS``, as far as they are defined, and the standard error of the F1 over the
        choice of the questions.
    """
    right = dict(zip(windows["id"][:], windows["answers"][:], strict=True))
    answers = [right[one.id] for one in found]
    is_v2 = search.null_score_diff_threshold is not None
    texts = [one.text for one in found]
    values = squad_metrics(
        texts,
        answers,
        some_impossible=is_v2,
        found=[one.best_text for one in found] if is_v2 else None,
        null_odds=[float(one.null_odds or 0) for one in found] if is_v2 else None,
    )
    _, f1 = score_answers(texts, answers, some_impossible=is_v2)
    return values, float(f1.std() / math.sqrt(len(f1)))


def spread_questions(windows: datasets.Dataset, most: int) -> datasets.Dataset:
    """Take all windows of questions from everywhere in a task, about ``most`` windows in all."""
    if len(windows) <= most:
        return windows
    ids = np.asarray(windows["id"][:])
    question_of = np.cumsum(np.append(True, ids[1:] != ids[:-1])) - 1
    count = int(question_of[-1]) + 1
    chosen = spread_numbers(count, max(1, most * count // len(windows)))
    return windows.select(np.flatnonzero(np.isin(question_of, chosen)))


def score_windows(inputs: Mapping[str, Any], outputs: Any) -> Tensor:
    """Keep what can become an answer of a batch of windows; see `keep_places`.

    Args:
        inputs: The batch, padded or packed.
        outputs: What the model gave for it: start_logits and end_logits.
    """
    offsets = inputs.get("cu_seq_lens_q")
    lengths = inputs["attention_mask"].sum(dim=-1) if offsets is None else offsets.diff()
    return keep_places(outputs["start_logits"], outputs["end_logits"], lengths)


def _number_questions(ids: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """List the questions, and find that of every window, (W,)."""
    numbers: dict[str, int] = {}
    question_of = [numbers.setdefault(name, len(numbers)) for name in ids]
    return list(numbers), np.asarray(question_of, dtype=np.int64)


class _Span(NamedTuple):
    """A span of tokens of a window, with the logits of its ends."""

    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float


def _join_spans(
    windows: Mapping[str, Sequence[Any]],
    places: NDArray[np.float32],
    search: AnswerSearch,
    question_of: NDArray[np.int64],
) -> list[list[_Span]]:
    """Join starts and ends to spans that can be answers; those of each question, best first."""
    first = np.asarray(windows["first_token"], dtype=np.int64)
    sizes = np.fromiter(map(len, windows["token_starts"]), np.int64, len(first))
    owned = np.asarray(windows["owned"], dtype=np.int64).reshape(-1, 2)
    parts = []
    for begin in range(0, len(first), WINDOWS_IN_MEMORY):
        part = slice(begin, begin + WINDOWS_IN_MEMORY)
        # places within the passage: starts are (W, n, 1) and ends (W, 1, n)
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
    found: list[list[_Span]] = [[] for _ in range(int(question_of.max(initial=-1)) + 1)]
    for span in map(_Span._make, zip(*columns, strict=True)):
        found[question_of[span.window]].append(span)
    return found


def _find_nulls(places: NDArray[np.float32], question_of: NDArray[np.int64]) -> list[Answer]:
    """Find for each question what no answer scores: the least of all its windows."""
    starts, ends = places[:, 0, 0, 1].tolist(), places[:, 1, 0, 1].tolist()
    nulls: dict[int, Answer] = {}
    for question, start, end in zip(question_of.tolist(), starts, ends, strict=True):
        null = Answer("", 0.0, start, end)
        if question not in nulls or null.score < nulls[question].score:
            nulls[question] = null
    return list(nulls.values())


def _read_texts(windows: Mapping[str, Sequence[Any]], spans: Sequence[_Span]) -> Iterator[Answer]:
    for span in spans:
        start = windows["token_starts"][span.window][span.start]
        end = windows["token_ends"][span.window][span.end]
        text = windows["passage"][span.window][start:end]
        yield Answer(text, 0.0, span.start_logit, span.end_logit)


def _choose(
    name: str, spans: Iterator[Answer], null: Answer | None, search: AnswerSearch
) -> FoundAnswers:
    """Keep the best answers to a question and decide for one of them."""
    kept: dict[str, Answer] = {}
    for answer in spans:
        if len(kept) == search.n_best_size:
            break
        if answer.text:
            kept.setdefault(answer.text, answer)
    if not kept:
        kept[NOTHING] = Answer(NOTHING, 0.0, 0.0, 0.0)
    best = next(iter(kept.values()))
    answers, odds, text = list(kept.values()), None, best.text
    if null is not None and search.null_score_diff_threshold is not None:
        # no answer is always among those that are kept, if need be as one more
        rank = sum(answer.score >= null.score for answer in answers)
        answers = [*answers[:rank], null, *answers[rank:]]
        if rank < search.n_best_size:
            answers = answers[: search.n_best_size]
        odds = null.score - best.score
        text = "" if odds > search.null_score_diff_threshold else text
    scores = np.asarray([answer.score for answer in answers])
    weights = np.exp(scores - scores.max())
    shares = (weights / weights.sum()).tolist()
    n_best = [
        answer._replace(probability=share) for answer, share in zip(answers, shares, strict=True)
    ]
    return FoundAnswers(name, text, n_best, odds)


def write_answers(
    folder: str | os.PathLike[str], found: Sequence[FoundAnswers], prefix: str = ""
) -> None:
    """Write answers in the format of the official evaluation.

    Args:
        folder: Gets ``predictions.json``, the answer to each id; ``nbest_predictions.json``, for
            each id a list of text, probability, start_logit and end_logit; and ``null_odds.json``
            if there are questions without an answer.
        found: The answers.
        prefix: Begins the names of the files.
    """
    contents: dict[str, dict[str, Any]] = {
        "predictions": {answers.id: answers.text for answers in found},
        "nbest_predictions": {
            answers.id: [answer._asdict() for answer in answers.n_best] for answers in found
        },
        "null_odds": {
            answers.id: answers.null_odds for answers in found if answers.null_odds is not None
        },
    }
    for name, content in contents.items():
        if content or name != "null_odds":
            text = json.dumps(content, indent=2, ensure_ascii=False)
            write_text(Path(folder) / f"{prefix}{name}.json", text + "\n")
