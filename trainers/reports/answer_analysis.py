"""What the answers to questions say beside their metrics: outcomes, calibration, errors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.metrics.answers import FoundAnswers
from trainers.metrics.squad_metrics import score_answers

from .analysis import calibrate

NO_ANSWER = "no answer"


def analyse_answers(
    found: Sequence[FoundAnswers], right: Mapping[str, Sequence[str]], examples: int
) -> dict[str, Any]:
    """Sum up the answers of a task for a report.

    Args:
        found: The answers to the questions.
        right: By id of a question, its right answers; none if its passage has none.
        examples: Number of the worst answers that are listed.

    Returns:
        ``rows``, the number of questions; ``outcomes``, how many of them were answered how;
        ``calibration``, of the probability of an answer among those that were kept, and whether it
        matches exactly; and ``errors``: those with the lowest F1, of these the surest first, each
        with the ``id``, ``label``, ``prediction`` and its probability as ``size``.
    """
    # without odds of no answer every question has one: SQuAD 1.1
    is_v2 = any(one.null_odds is not None for one in found)
    answers = [list(right[one.id]) for one in found]
    exact, f1 = score_answers([one.text for one in found], answers, some_impossible=is_v2)
    sure = np.asarray([_confidence(one) for one in found])
    outcomes = Counter(
        _outcome(one.text, given, value, share)
        for one, given, value, share in zip(found, answers, exact, f1, strict=True)
    )
    worst = [row for row in np.lexsort((-sure, f1)).tolist() if not exact[row]]
    return {
        "rows": len(found),
        "outcomes": [{"name": name, "rows": count} for name, count in outcomes.most_common()],
        "calibration": calibrate(sure, exact > 0),
        "errors": [
            {
                "id": found[row].id,
                "label": " / ".join(dict.fromkeys(answers[row])) or NO_ANSWER,
                "prediction": found[row].text or NO_ANSWER,
                "size": float(sure[row]),
            }
            for row in worst[:examples]
        ],
    }


def _confidence(found: FoundAnswers) -> float:
    """Find the probability of the answer that was given."""
    return next(answer.probability for answer in found.n_best if answer.text == found.text)


def _outcome(text: str, answers: Sequence[str], exact: float, f1: float) -> str:
    if not answers:
        return "rightly no answer" if exact else "an answer, though there is none"
    if not text:
        return "no answer, though there is one"
    return "exact match" if exact else "some of the words" if f1 else "other words"
