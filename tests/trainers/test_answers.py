"""Answers of questions: official metrics worked out by hand, batches of windows, files."""

import json

import datasets
import numpy as np
import pytest
import torch

from trainers import PROBLEMS, TaskCollator, TaskDataset
from trainers.problems.questions import (
    Answer,
    AnswerSearch,
    QuestionAnswers,
    find_threshold,
    keep_places,
    normalize_answer,
    squad_metrics,
    token_f1,
    write_answers,
)


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
    assert normalize_answer(text) == expected


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
    assert token_f1(prediction, answer) == pytest.approx(expected)


def test_the_best_of_several_right_answers_counts():
    predictions = ["red dog", "Denver Broncos", "the"]
    answers = [["dog", "red dog"], ["Denver", "Broncos"], ["A", "class A"]]

    found = squad_metrics(predictions, answers, some_impossible=False)

    assert found == pytest.approx({"exact_match": 2 / 3, "f1": (1 + 2 / 3 + 0) / 3})


def test_questions_without_answers_are_scored_as_in_version_2():
    predictions, answers = (
        ["dog", "", "cat", "", "the"],
        [["dog"], ["cat"], [], [], ["A", "class A"]],
    )

    found = squad_metrics(
        predictions,
        answers,
        some_impossible=True,
        best_texts=["dog", "cat", "cat", "x", "the"],
        null_odds=[-2.0, 1.0, 0.5, 3.0, 2.0],
    )

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


def test_the_threshold_is_0_if_no_answer_is_best():
    found = find_threshold(np.zeros(2), np.array([-1.0, 1.0]), np.array([False, True]))

    assert found == (0.5, 0.0)


def test_questions_without_answers_are_refused_where_none_may_be():
    with pytest.raises(ValueError, match="1 questions have no answer; give some_impossible=True"):
        squad_metrics(["a", "b"], [["a"], []], some_impossible=False)
    with pytest.raises(ValueError, match="no questions to score"):
        squad_metrics([], [], some_impossible=False)


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
def test_a_batch_has_the_places_of_its_answers(windows, packed):
    rows = TaskDataset({"qa": windows.select([3, 1, 2])}).__getitems__([0, 2, 1])

    batch = TaskCollator(0, packed=packed)(rows)
    slowly = TaskCollator(0, packed=packed)(list(rows))

    assert batch["labels"].tolist() == [[2, 2], [3, 5], [0, 0]]
    assert batch["labels"].dtype == torch.int64
    assert {name: str(value) for name, value in batch.items()} == {
        name: str(value) for name, value in slowly.items()
    }


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_kept_of_a_batch_does_not_depend_on_padding(windows, packed):
    batch = TaskCollator(0, packed=packed)(TaskDataset({"qa": windows}).__getitems__([0, 1, 2, 3]))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 7, generator=generator)

    outputs = {"start_logits": logits[0], "end_logits": logits[1]}
    kept, _ = PROBLEMS["question_answering"]("qa").gather(batch, outputs)

    assert kept.shape == (4, 2, 21, 2)
    for number, length in enumerate([5, 3, 7, 4]):
        alone = keep_places(
            logits[0, number : number + 1, :length],
            logits[1, number : number + 1, :length],
            torch.tensor([length]),
        )
        assert torch.equal(kept[number, :, : length + 1], alone[0, :, : length + 1])
        assert torch.isinf(kept[number, :, length + 1 :, 1]).all()


def test_questions_are_chosen_with_all_their_windows(windows):
    chosen = PROBLEMS["question_answering"]("qa").choose_rows(windows, 3)

    assert chosen["id"][:] in (["a", "a", "b"], ["a", "a", "c"])
    assert PROBLEMS["question_answering"]("qa").choose_rows(windows, 4) is windows


def test_answers_are_written_in_the_official_format(tmp_path):
    none = [Answer("", 0.75, 2.0, 1.0), Answer("ß 🏡", 0.25, 1.0, 0.5)]
    found = [
        QuestionAnswers("q1", "", none, 1.5),
        QuestionAnswers("q2", "x", [Answer("x", 1.0, 0, 0)], -1.0),
    ]

    write_answers(tmp_path, found, "qa-dev-")

    def read(name):
        return json.loads((tmp_path / f"qa-dev-{name}.json").read_text(encoding="utf-8"))

    assert read("predictions") == {"q1": "", "q2": "x"}
    assert read("null_odds") == {"q1": 1.5, "q2": -1.0}
    assert read("nbest_predictions")["q1"][1] == {
        "text": "ß 🏡",
        "probability": 0.25,
        "start_logit": 1.0,
        "end_logit": 0.5,
    }
    assert found[0].best_text == "ß 🏡"


def test_a_search_for_nothing_is_refused():
    with pytest.raises(ValueError, match="max_answer_length=0 must be at least 1"):
        AnswerSearch(max_answer_length=0)
