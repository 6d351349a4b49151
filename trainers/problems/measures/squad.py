"""Exact match and F1 of answers, as in the evaluation of SQuAD (Rajpurkar et al. 2016, 2018)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
