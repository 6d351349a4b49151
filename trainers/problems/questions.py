"""Extractive question answering: a span of a passage for each question, or none.

The best answers are found by their logits (Devlin et al. 2019, 4.2 and 4.3) and measured as in the
evaluation of SQuAD (Rajpurkar et al. 2016, 2018).
"""

import json
import math
import os
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from modeling_minbert import MinBertTask
from modeling_minbert.questions import QuestionAnsweringTask
from trainers.data.dataset import spread_numbers
from trainers.files import write_text

from .analysis import calibrate, draw_reliability
from .base import Decode, Evaluated, Problem, quote
from .blocks import Block, Cell, Example, Examples, Table
from .metrics import Metric

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


ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercase, and remove punctuation, articles and extra white space, in this order."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """Return 1 if both are equal after normalization, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def token_f1(prediction: str, answer: str) -> float:
    """Compute the F1 of the words of two texts; 0 if they share none."""
    predicted, right = (normalize_answer(text).split() for text in (prediction, answer))
    shared = sum((Counter(predicted) & Counter(right)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    predictions: Sequence[str], answers: Sequence[Sequence[str]], *, some_impossible: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute exact match and F1 of each question, both (N,), by its best matching right answer.

    With ``some_impossible`` (SQuAD 2.0) the F1 of two texts that normalize to nothing is 1,
    and such a right answer counts only if all are.
    """
    exact, f1 = np.zeros(len(predictions)), np.zeros(len(predictions))
    for row, (prediction, given) in enumerate(zip(predictions, answers, strict=True)):
        right = given
        if some_impossible:
            right = [text for text in given if normalize_answer(text)] or [""]
        exact[row] = max(exact_match(prediction, text) for text in right)
        f1[row] = max(token_f1(prediction, text) for text in right)
        if some_impossible and not any(map(normalize_answer, right)):
            f1[row] = exact[row]
    return exact, f1


def find_threshold(
    scores: NDArray[np.float64], null_odds: NDArray[np.float64], has_answer: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the best mean score and the lowest threshold for giving no answer that reaches it.

    It is among the odds of no answer, (N,), or 0 if no question gets its answer.
    """
    order = np.argsort(null_odds, kind="stable")
    # answering a question without an answer loses the point for giving none
    gains = np.where(has_answer, scores, -1.0)[order]
    totals = np.sum(~has_answer) + np.concatenate([[0.0], np.cumsum(gains)])
    best = int(totals.argmax())
    return float(totals[best] / len(scores)), float(null_odds[order[best - 1]]) if best else 0.0


def squad_metrics(
    predictions: Sequence[str],
    answers: Sequence[Sequence[str]],
    *,
    some_impossible: bool,
    best_texts: Sequence[str] | None = None,
    null_odds: Sequence[float] | None = None,
) -> dict[str, float]:
    """Compute the official metrics in [0, 1], except those of a group without questions.

    ``best_texts`` are the best non-empty answers; ``null_odds`` how much better no answer scored.
    """
    if not len(predictions):
        raise ValueError("no questions to score; give at least one")
    has_answer = np.fromiter(map(len, answers), np.int64) > 0
    if not some_impossible and not has_answer.all():
        raise ValueError(
            f"{int((~has_answer).sum())} questions have no answer; give some_impossible=True, as "
            "for SQuAD 2.0"
        )
    exact, f1 = score_answers(predictions, answers, some_impossible=some_impossible)
    values = {"exact_match": exact.mean(), "f1": f1.mean()}
    if some_impossible:
        if has_answer.any():
            values["has_answer_exact_match"] = exact[has_answer].mean()
            values["has_answer_f1"] = f1[has_answer].mean()
        if not has_answer.all():
            values["no_answer_accuracy"] = f1[~has_answer].mean()
    if best_texts is not None:
        odds = np.asarray(null_odds, dtype=np.float64)
        best = score_answers(best_texts, answers, some_impossible=True)
        for name, scores in zip(("exact_match", "f1"), best, strict=True):
            found = find_threshold(scores, odds, has_answer)
            values[f"best_{name}"], values[f"best_{name}_threshold"] = found
    return {name: float(value) for name, value in values.items()}


NO_ANSWER = "no answer"
WINDOW_COLUMNS = ("id", "passage", "first_token", "token_starts", "token_ends", "owned")


class Answered(NamedTuple):
    """Answers to the Q questions."""

    predictions: list[QuestionAnswers]
    labels: list[Sequence[str]] | None  # the right answers of each, if any; None if unknown


class QuestionAnswering(Problem[Answered]):
    """Spans of passages; rows are windows of these."""

    problem_type = "question_answering"
    metrics = (
        Metric("f1"),
        Metric("exact_match"),
        # these need questions without an answer
        Metric("has_answer_f1"),
        Metric("has_answer_exact_match"),
        Metric("no_answer_accuracy"),
        Metric("best_f1"),
        Metric("best_f1_threshold", is_plotted=False),
        Metric("best_exact_match"),
        Metric("best_exact_match_threshold", is_plotted=False),
    )
    joins_rows = True
    label_type = "positions"
    teaching = "tokens"
    hub_task = pipeline_tag = "question-answering"
    card_example = '[("A question?", "A text with the answer.")]'

    def __init__(
        self, task: str, spec: MinBertTask | None = None, metrics: Sequence[str] = ()
    ) -> None:
        super().__init__(task, spec, metrics)
        self.search = AnswerSearch()
        if isinstance(spec, QuestionAnsweringTask):
            self.search = AnswerSearch(
                max_answer_length=spec.max_answer_length,
                null_score_diff_threshold=spec.null_score_diff_threshold,
            )

    @property
    def is_v2(self) -> bool:
        """Whether questions can have no answer, as in SQuAD 2.0."""
        return self.search.null_score_diff_threshold is not None

    def choose_rows(self, rows: Any, most: int) -> Any:
        """Choose all windows of evenly spread questions."""
        if len(rows) <= most:
            return rows
        ids = np.asarray(rows["id"][:])
        question_of = np.cumsum(np.append(True, ids[1:] != ids[:-1])) - 1
        count = int(question_of[-1]) + 1
        chosen = spread_numbers(count, max(1, most * count // len(rows)))
        return rows.select(np.flatnonzero(np.isin(question_of, chosen)))

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        offsets = inputs.get("cu_seq_lens_q")
        lengths = inputs["attention_mask"].sum(dim=-1) if offsets is None else offsets.diff()
        places = keep_places(outputs["start_logits"], outputs["end_logits"], lengths)
        return places, inputs.get("labels")

    def logits_of(self, outputs: Any) -> Tensor:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1)

    def collect(
        self, values: NDArray[Any], rows: Any, labels: Any = None, decode: Decode | None = None
    ) -> Answered:
        columns = {name: rows[name][:] for name in WINDOW_COLUMNS}
        answers = find_answers(columns, np.asarray(values), self.search)
        if not self.is_labelled(rows):
            return Answered(answers, None)
        right = dict(zip(columns["id"], rows["answers"][:], strict=True))
        return Answered(answers, [right[one.id] for one in answers])

    def compute_metrics(self, outputs: Answered) -> dict[str, float]:
        found, is_v2 = outputs.predictions, self.is_v2
        return squad_metrics(
            [one.text for one in found],
            outputs.labels or [],
            some_impossible=is_v2,
            best_texts=[one.best_text for one in found] if is_v2 else None,
            null_odds=[float(one.null_odds or 0) for one in found] if is_v2 else None,
        )

    def standard_error(self, outputs: Answered, metrics: Mapping[str, float]) -> float:
        f1 = self.sample(outputs)[0]
        return float(f1.std() / math.sqrt(len(f1)))

    def count(self, outputs: Answered) -> int:
        return len(outputs.predictions)

    def sample(self, outputs: Answered) -> tuple[NDArray[Any], NDArray[Any]]:
        texts = [one.text for one in outputs.predictions]
        f1 = score_answers(texts, outputs.labels or [], some_impossible=self.is_v2)[1]
        return f1, np.zeros(len(f1))

    def score(self, values: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(values.mean())

    def identify(self, outputs: Answered, rows: Any) -> list[str]:
        """Return the id and the right answers of each question."""
        pairs = zip(outputs.predictions, outputs.labels or [], strict=True)
        return [f"{answer.id}: {' / '.join(right)}" for answer, right in pairs]

    def write(self, folder: Path, stem: str, outputs: Answered, rows: Any) -> None:
        write_answers(folder, outputs.predictions, f"{stem}-")

    def describe(self, evaluated: Evaluated[Answered]) -> list[Block]:
        """Describe answers; errors are those with the lowest F1, the most confident first."""
        answers, right = evaluated.outputs.predictions, list(evaluated.outputs.labels or ())
        texts = [answer.text for answer in answers]
        exact, f1 = score_answers(texts, right, some_impossible=self.is_v2)
        confidences = np.asarray(list(map(_confidence, answers)))
        scored = zip(texts, right, exact, f1, strict=True)
        outcomes = Counter(_outcome(*values) for values in scored)
        worst = [row for row in np.lexsort((-confidences, f1)).tolist() if not exact[row]]
        worst = worst[: evaluated.examples]
        quotes = _quote_questions([answers[row].id for row in worst], evaluated.texts)
        errors = [
            Example(
                answers[row].id,
                quoted,
                " / ".join(dict.fromkeys(right[row])) or NO_ANSWER,
                texts[row] or NO_ANSWER,
                float(confidences[row]),
            )
            for row, quoted in zip(worst, quotes, strict=True)
        ]
        note = "By the text comparison of the official evaluation."
        columns = [("answer", ""), ("questions", ","), ("share", ".1%")]
        rows: list[list[Cell]] = [
            [name, count, count / len(answers)] for name, count in outcomes.most_common()
        ]
        confidence = "the probability of the answer among the n best, and an exact match is correct"
        blocks: list[Block] = [
            Table("Outcomes", columns, rows, note),
            *draw_reliability(calibrate(confidences, exact > 0), confidence),
        ]
        if errors:
            note = (
                "The answers with the lowest F1, the most confident first, with the probability "
                "of the answer."
            )
            blocks.append(Examples("Worst errors", errors, "probability", ".1%", note))
        return blocks


def _confidence(answers: QuestionAnswers) -> float:
    """Return the probability of the chosen answer."""
    return next(answer.probability for answer in answers.n_best if answer.text == answers.text)


def _quote_questions(ids: Sequence[str], texts: datasets.Dataset | None) -> list[list[str]]:
    """Return the texts of some questions; none if nothing may be quoted."""
    if texts is None:
        return [[] for _ in ids]
    known = texts["id"][:]
    return [quote(texts[known.index(name)]) for name in ids]


def _outcome(text: str, answers: Sequence[str], exact: float, f1: float) -> str:
    if not answers:
        return "rightly no answer" if exact else "an answer, though there is none"
    if not text:
        return "no answer, though there is one"
    return "exact match" if exact else "some of the words" if f1 else "other words"
