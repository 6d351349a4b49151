"""Answers of questions: official metrics worked out by hand, batches of windows, files."""

import json

import datasets
import pytest
import torch

from modeling_minbert import MinBertConfig
from trainers import PROBLEMS, Answer, Answered, Evaluated, Example, TaskCollator, TaskDataset


def make_problem(**head):
    config = MinBertConfig(tasks={"qa": {"problem_type": "question_answering", **head}})
    return PROBLEMS["question_answering"]("qa", config.task("qa"))


def measure(predictions, answers, **head):
    predictions = [Answer("", text) if isinstance(text, str) else text for text in predictions]
    return make_problem(**head).compute_metrics(Answered(predictions, answers))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S. Army,  a force", "us army force"),
        ("an-other theory", "another theory"),
        ("\u00a0the\tend\n", "end"),
        ("A the an", ""),
        ("naïve “quote”", "naïve “quote”"),
        ("$5,000", "5000"),
    ],
)
def test_normalization_equals_the_official_script(text, expected):
    assert measure([text], [[expected]])["exact_match"] == 1
    assert measure([text], [[f"{expected} more"]])["exact_match"] == 0


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("the big red dog", "a red dog", 0.8),  # 2 of 3 words, 2 of 2
        ("dog dog", "dog", 2 / 3),
        ("cat", "dog", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1_counts_shared_words(prediction, answer, expected):
    assert measure([prediction], [[answer]])["f1"] == pytest.approx(expected)


def test_the_best_of_several_right_answers_counts():
    predictions = ["red dog", "Denver Broncos", "the"]
    answers = [["dog", "red dog"], ["Denver", "Broncos"], ["A", "class A"]]

    found = measure(predictions, answers)

    assert found == pytest.approx({"exact_match": 2 / 3, "f1": (1 + 2 / 3 + 0) / 3})


def test_questions_without_answers_are_scored_as_in_version_2():
    predictions = [
        Answer("a", "dog", 0.0, "dog", -2.0),
        Answer("b", "", 0.0, "cat", 1.0),
        Answer("c", "cat", 0.0, "cat", 0.5),
        Answer("d", "", 0.0, "x", 3.0),
        Answer("e", "the", 0.0, "the", 2.0),
    ]
    answers = [["dog"], ["cat"], [], [], ["A", "class A"]]

    found = measure(predictions, answers, null_score_diff_threshold=0.0)

    assert found == pytest.approx(
        {
            "exact_match": 2 / 5,
            "f1": 2 / 5,
            "has_answer_exact_match": 1 / 3,
            "has_answer_f1": 1 / 3,
            "no_answer_accuracy": 1 / 2,
            # without any answer 2 of 5 are right, with the first question's answer 3
            "best_exact_match": 3 / 5,
            "best_exact_match_threshold": -2.0,
            "best_f1": 3 / 5,
            "best_f1_threshold": -2.0,
        }
    )


def test_questions_without_answers_are_refused_where_none_may_be():
    with pytest.raises(ValueError, match="1 questions have no answer; give the task a null_score"):
        measure(["a", "b"], [["a"], []])


@pytest.fixture
def windows():
    lengths = [5, 3, 7, 4]
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "input_ids": datasets.List(datasets.Value("int32")),
            "token_type_ids": datasets.List(datasets.Value("int8")),
            "labels": datasets.List(datasets.Value("int32"), length=2),
        }
    )
    columns = {
        "id": ["a", "a", "b", "c"],
        "input_ids": [list(range(2, 2 + length)) for length in lengths],
        "token_type_ids": [[0, *[1] * (length - 1)] for length in lengths],
        "labels": [[1, 2], [0, 0], [3, 5], [2, 2]],
    }
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_kept_of_a_batch_does_not_depend_on_padding(windows, packed):
    batch = TaskCollator(0, packed=packed)(TaskDataset({"qa": windows}).__getitems__([0, 1, 2, 3]))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 7, generator=generator)

    outputs = {"start_logits": logits[0], "end_logits": logits[1]}
    kept, _ = PROBLEMS["question_answering"]("qa").gather(batch, outputs)

    for number, length in enumerate([5, 3, 7, 4]):
        row = TaskDataset({"qa": windows}).__getitems__([number])
        alone = {name: values[number : number + 1, :length] for name, values in outputs.items()}
        single, _ = PROBLEMS["question_answering"]("qa").gather(TaskCollator(0)(row), alone)
        assert torch.equal(kept[number], single[0])


def test_questions_are_chosen_with_all_their_windows(windows):
    chosen = PROBLEMS["question_answering"]("qa").choose_rows(windows, 3)

    assert chosen["id"][:] in (["a", "a", "b"], ["a", "a", "c"])
    assert PROBLEMS["question_answering"]("qa").choose_rows(windows, 4) is windows


def test_answers_are_written_in_the_official_format(tmp_path):
    problem = make_problem(null_score_diff_threshold=0.0)
    found = [Answer("q1", "", 0.75, "ß 🏡", 1.5), Answer("q2", "ß", 1.0, "ß", -1.0)]

    problem.write(tmp_path, "qa-dev", Answered(found, None), None)

    def read(name):
        return json.loads((tmp_path / f"qa-dev-{name}.json").read_text(encoding="utf-8"))

    assert read("predictions") == {"q1": "", "q2": "ß"}
    assert read("null_odds") == {"q1": 1.5, "q2": -1.0}


# The report


def analyse(answers, right, examples, **head):
    outputs = Answered(answers, [right[one.id] for one in answers])
    problem = make_problem(**head)
    evaluated = Evaluated(outputs, None, None, examples)
    return {block.title: block for block in problem.describe(evaluated)}


def test_the_surest_errors_come_first():
    answers = [
        Answer("a", "the Red fox!", 0.9),
        Answer("b", "red", 0.8),
        Answer("c", "cow", 0.3),
        Answer("d", "hen", 0.6),
        Answer("e", "", 0.5),
    ]
    right = {"a": ["red fox"], "b": ["red fox", "a fox"], "c": [], "d": ["fox", "fox", "ox"]}
    right["e"] = ["hen"]

    analysis = analyse(answers, right, examples=3, null_score_diff_threshold=0.0)

    assert analysis["Worst errors"].rows == [
        Example("d", [], "fox / ox", "hen", 0.6),
        Example("e", [], "hen", "no answer", 0.5),
        Example("c", [], "no answer", "cow", 0.3),
    ]
    assert "mean confidence 0.620, accuracy 0.200" in analysis["Reliability"].note
