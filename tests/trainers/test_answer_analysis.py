"""The report on answers to questions."""

from modeling_minbert.tasks import parse_task
from trainers import PROBLEMS, Evaluated
from trainers.problems.blocks import Example
from trainers.problems.questions import Answer, Answered


def analyse(answers, right, examples, **head):
    outputs = Answered(answers, [right[one.id] for one in answers])
    spec = parse_task("qa", {"problem_type": "question_answering", **head})
    problem = PROBLEMS["question_answering"]("qa", spec)
    evaluated = Evaluated(outputs, None, None, examples)
    return {block.title: block for block in problem.describe(evaluated)}


def test_answers_are_counted_by_their_outcome_and_the_surest_errors_come_first():
    answers = [
        Answer("a", "the Red fox!", 0.9),
        Answer("b", "red", 0.8),
        Answer("c", "cow", 0.3),
        Answer("d", "hen", 0.6),
    ]
    right = {"a": ["red fox"], "b": ["red fox", "a fox"], "c": ["fox"], "d": ["fox", "fox", "ox"]}

    analysis = analyse(answers, right, examples=2)

    assert analysis["Outcomes"].rows == [
        ["other words", 2, 0.5],
        ["exact match", 1, 0.25],
        ["some of the words", 1, 0.25],
    ]
    assert analysis["Worst errors"].rows == [
        Example("d", [], "fox / ox", "hen", 0.6),
        Example("c", [], "fox", "cow", 0.3),
    ]
    assert "mean confidence 0.650, accuracy 0.250" in analysis["Reliability"].note


def test_no_answer_is_a_separate_outcome():
    answers = [
        Answer("a", "", 0.7, "fox", 1.0),
        Answer("b", "", 0.6, "fox", 0.5),
        Answer("c", "fox", 0.9, "fox", -2.0),
        Answer("d", "fox", 0.9, "fox", -2.0),
    ]
    right = {"a": [], "b": ["fox"], "c": [], "d": ["fox"]}

    analysis = analyse(answers, right, examples=9, null_score_diff_threshold=0.0)

    assert {row[0] for row in analysis["Outcomes"].rows} == {
        "rightly no answer",
        "no answer, though there is one",
        "an answer, though there is none",
        "exact match",
    }
    assert analysis["Worst errors"].rows == [
        Example("c", [], "no answer", "fox", 0.9),
        Example("b", [], "fox", "no answer", 0.6),
    ]
