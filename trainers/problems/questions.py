"""Extractive question answering: a span of a passage for each question, or none.

Answers are those of ``predict``, measured as in the evaluation of SQuAD (Rajpurkar et al. 2016,
2018).
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from transformers.utils.generic import ModelOutput

from modeling_minbert.pieces import QuestionWindow
from modeling_minbert.questions import QuestionAnsweringTask, keep_scores
from modeling_minbert.spans import rank_answers
from modeling_minbert.texts import Encoded
from trainers.data.rows import Batch, spread_numbers
from trainers.files import write_text

from .base import Decode, Evaluated, Problem, quote
from .blocks import Block, Example, Examples, calibrate, draw_reliability
from .metrics import Array, Metric


class Answer(NamedTuple):
    """The answer to a question."""

    id: str  # of the question
    text: str  # empty for none
    probability: float = 0.0  # among all spans of its windows
    best_text: str = ""  # the best answer that is not empty
    null_odds: float = 0.0  # score of no answer minus that of the best one


def find_answers(
    rows: Mapping[str, Sequence[Any]], scores: NDArray[np.float32], task: QuestionAnsweringTask
) -> list[Answer]:
    """Find the best answer to every question.

    ``rows`` are columns of the W windows, and ``scores`` the output of ``keep_scores``, (W, 84).
    """
    windows_of: dict[str, list[int]] = {}
    for number, name in enumerate(rows["id"]):
        windows_of.setdefault(name, []).append(number)
    answers = []
    for name, numbers in windows_of.items():
        windows = []
        for number in numbers:
            starts, ends = rows["token_starts"][number], rows["token_ends"][number]
            tokens, characters = (0, len(starts)), list(zip(starts, ends, strict=True))
            place, owned = rows["first_token"][number], rows["owned"][number]
            windows.append(QuestionWindow(0, Encoded([], []), place, tokens, owned, characters))
        texts = [rows["passage"][number] for number in numbers]
        kept = scores[numbers].tolist()
        best, null, total = rank_answers(texts, windows, kept, task.max_answer_length, 1)
        # a text without any span has no answer, with the score that google-research/bert gives it
        score, text, *_ = best[0] if best else (0.0, "")
        odds, threshold = null - score, task.null_score_diff_threshold
        chosen = "" if threshold is not None and odds > threshold else text
        probability = math.exp((score if chosen else null) - total) if best else 0.0
        answers.append(Answer(name, chosen, probability, text, odds))
    return answers


ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercase, and remove punctuation, articles and extra white space, in this order."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


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
        right = [text for text in given if normalize_answer(text)] if some_impossible else given
        exact[row] = normalize_answer(prediction) in map(normalize_answer, right or [""])
        f1[row] = max((token_f1(prediction, text) for text in right), default=exact[row])
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


NO_ANSWER = "no answer"
WINDOW_COLUMNS = ("id", "passage", "first_token", "token_starts", "token_ends", "owned")


class Answered(NamedTuple):
    """Answers to the Q questions."""

    predictions: list[Answer]
    labels: list[Sequence[str]] | None  # the right answers of each, if any; None if unknown


class QuestionAnswering(Problem[Answered]):
    """Spans of passages; rows are windows of these."""

    problem_type = "question_answering"
    spec: QuestionAnsweringTask | None
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
    evaluated = (*WINDOW_COLUMNS, "answers")
    teaching = "tokens"
    writes_texts = True
    hub_task = pipeline_tag = "question-answering"

    @property
    def is_v2(self) -> bool:
        """Whether questions can have no answer, as in SQuAD 2.0."""
        return self.spec is not None and self.spec.null_score_diff_threshold is not None

    def choose_rows(self, rows: Dataset, most: int) -> Dataset:
        """Choose all windows of evenly spread questions."""
        if len(rows) <= most:
            return rows
        ids = np.asarray(rows["id"][:])
        question_of = np.cumsum(np.append(True, ids[1:] != ids[:-1])) - 1
        count = int(question_of[-1]) + 1
        chosen = spread_numbers(count, max(1, most * count // len(rows)))
        return rows.select(np.flatnonzero(np.isin(question_of, chosen)))

    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        scores = keep_scores(dict(inputs), outputs["start_logits"], outputs["end_logits"])
        return scores, inputs.get("labels")

    def logits_of(self, outputs: ModelOutput) -> Tensor:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1)

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Answered:
        columns = {name: rows[name][:] for name in WINDOW_COLUMNS}
        answers = find_answers(columns, np.asarray(values), self.spec or QuestionAnsweringTask())
        if not self.is_labelled(rows):
            return Answered(answers, None)
        right = dict(zip(columns["id"], rows["answers"][:], strict=True))
        return Answered(answers, [right[answer.id] for answer in answers])

    def compute_metrics(self, outputs: Answered) -> dict[str, float]:
        """Compute the official metrics in [0, 1], except those of a group without questions."""
        predictions, answers = outputs.predictions, outputs.labels or []
        has_answer = np.fromiter(map(len, answers), np.int64) > 0
        if not self.is_v2 and not has_answer.all():
            raise ValueError(
                f"{int((~has_answer).sum())} questions have no answer; give the task a "
                "null_score_diff_threshold, as for SQuAD 2.0"
            )
        texts = [answer.text for answer in predictions]
        exact, f1 = score_answers(texts, answers, some_impossible=self.is_v2)
        values = {"exact_match": exact.mean(), "f1": f1.mean()}
        if self.is_v2:
            if has_answer.any():
                values["has_answer_exact_match"] = exact[has_answer].mean()
                values["has_answer_f1"] = f1[has_answer].mean()
            if not has_answer.all():
                values["no_answer_accuracy"] = f1[~has_answer].mean()
            odds = np.asarray([answer.null_odds for answer in predictions])
            texts = [answer.best_text for answer in predictions]
            best = score_answers(texts, answers, some_impossible=True)
            for name, scores in zip(("exact_match", "f1"), best, strict=True):
                found = find_threshold(scores, odds, has_answer)
                values[f"best_{name}"], values[f"best_{name}_threshold"] = found
        return {name: float(value) for name, value in values.items()}

    def standard_error(self, outputs: Answered, metrics: Mapping[str, float]) -> float:
        texts = [answer.text for answer in outputs.predictions]
        f1 = score_answers(texts, outputs.labels or [], some_impossible=self.is_v2)[1]
        return float(f1.std() / math.sqrt(len(f1)))

    def count(self, outputs: Answered) -> int:
        return len(outputs.predictions)

    def write(self, folder: Path, stem: str, outputs: Answered, rows: Dataset) -> None:
        """Write answers, and the odds of none, for SQuAD's official evaluation."""
        contents: dict[str, dict[str, Any]] = {
            "predictions": {answer.id: answer.text for answer in outputs.predictions}
        }
        if self.is_v2:
            contents["null_odds"] = {answer.id: answer.null_odds for answer in outputs.predictions}
        for name, content in contents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            write_text(folder / f"{stem}-{name}.json", text + "\n")

    def describe(self, evaluated: Evaluated[Answered]) -> list[Block]:
        """Describe answers; errors are those with the lowest F1, the most confident first."""
        answers, right = evaluated.outputs.predictions, list(evaluated.outputs.labels or ())
        texts = [answer.text for answer in answers]
        exact, f1 = score_answers(texts, right, some_impossible=self.is_v2)
        confidences = np.asarray([answer.probability for answer in answers])
        confidence = "the probability among all spans, and an exact match is correct"
        blocks = draw_reliability({"validation": calibrate(confidences, exact > 0)}, confidence)
        worst = [row for row in np.lexsort((-confidences, f1)).tolist() if not exact[row]]
        quoted = evaluated.texts
        known_ids = {} if quoted is None else {name: n for n, name in enumerate(quoted["id"][:])}
        errors = [
            Example(
                answers[row].id,
                quote(quoted, known_ids[answers[row].id]) if known_ids else [],
                " / ".join(dict.fromkeys(right[row])) or NO_ANSWER,
                texts[row] or NO_ANSWER,
                float(confidences[row]),
            )
            for row in worst[: evaluated.examples]
        ]
        if errors:
            note = (
                "The answers with the lowest F1, the most confident first, with the probability "
                "of the answer."
            )
            blocks.append(Examples("Worst errors", errors, "probability", ".1%", note))
        return blocks
