"""The report on answers to questions."""

import pytest

from trainers import PROBLEMS
from trainers.problems.questions import Answer, Answered, QuestionAnswers


def found(name, *answers, text=None, odds=None):
    """Make the answers to a question out of texts and probabilities."""
    kept = [Answer(words, share, 0.0, 0.0) for words, share in answers]
    return QuestionAnswers(name, kept[0].text if text is None else text, kept, odds)


def analyse(answers, right, examples, **head):
    outputs = Answered(answers, [right[one.id] for one in answers])
    return PROBLEMS["question_answering"]("qa", head).analyse(outputs, None, None, examples)


def test_answers_are_counted_by_their_outcome_and_the_surest_errors_come_first():
    answers = [
        found("a", ("the Red fox!", 0.9), ("cow", 0.1)),
        found("b", ("red", 0.8)),
        found("c", ("cow", 0.3)),
        found("d", ("hen", 0.6)),
    ]
    right = {"a": ["red fox"], "b": ["red fox", "a fox"], "c": ["fox"], "d": ["fox", "fox", "ox"]}

    analysis = analyse(answers, right, examples=2)

    assert analysis["rows"] == 4
    assert {one["name"]: one["rows"] for one in analysis["outcomes"]} == {
        "other words": 2,
        "exact match": 1,
        "some of the words": 1,
    }
    assert analysis["errors"] == [
        {"id": "d", "label": "fox / ox", "prediction": "hen", "size": 0.6, "texts": []},
        {"id": "c", "label": "fox", "prediction": "cow", "size": 0.3, "texts": []},
    ]
    assert analysis["calibration"]["accuracy"] == 0.25
    assert analysis["calibration"]["confidence"] == pytest.approx((0.9 + 0.8 + 0.3 + 0.6) / 4)


def test_no_answer_is_a_separate_outcome():
    answers = [
        found("a", ("", 0.7), ("fox", 0.3), odds=1.0),
        found("b", ("fox", 0.4), ("", 0.6), text="", odds=0.5),
        found("c", ("fox", 0.9), ("", 0.1), odds=-2.0),
        found("d", ("fox", 0.9), ("", 0.1), odds=-2.0),
    ]
    right = {"a": [], "b": ["fox"], "c": [], "d": ["fox"]}

    analysis = analyse(answers, right, examples=9, null_score_diff_threshold=0.0)

    assert {one["name"] for one in analysis["outcomes"]} == {
        "rightly no answer",
        "no answer, though there is one",
        "an answer, though there is none",
        "exact match",
    }
    assert analysis["errors"] == [
        {"id": "c", "label": "no answer", "prediction": "fox", "size": 0.9, "texts": []},
        {"id": "b", "label": "fox", "prediction": "no answer", "size": 0.6, "texts": []},
    ]
