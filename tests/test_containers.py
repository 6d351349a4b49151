"""Texts in any container have the predictions that they have in a list, or are refused."""

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from tests import small_run

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree", "?", "text"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "joint"},
    "names": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "answers": {"problem_type": "question_answering", "max_question_length": 9},
}
TEXTS = ["the cat sat", "a dog ran", "the tree is a tree"]
OTHERS = ["a cat sat", "the bird", "a mat"]
PAIRS = list(zip(TEXTS, OTHERS, strict=True))


@pytest.fixture(scope="module")
def model():
    """Return a tiny model of many tasks."""
    return small_run.make_model(TASKS, WORDS, max_position_embeddings=40)


class Records:
    """An iterable without a length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


FRAME = pd.DataFrame({"text": TEXTS, "label": [0, 1, 0]}, index=[7, 8, 9])
SINGLES = {
    "series": FRAME["text"],
    "array": np.array(TEXTS),
    "iterable": Records(TEXTS),
    "column": Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0]})["text"],
}


@pytest.mark.parametrize("kind", SINGLES)
@pytest.mark.parametrize("task", ["tone", "names"])
def test_single_texts_come_in_any_container(model, kind, task):
    expected = model.predict(task, TEXTS)

    assert model.predict(task, SINGLES[kind]) == expected
    assert model.predict_all(SINGLES[kind], [task]) == {task: expected}
    assert [row[task] for row in model.predict_all_stream(SINGLES[kind], [task])] == expected


@pytest.mark.parametrize("task", ["near", "answers"])
def test_pairs_are_lists_or_tuples(model, task):
    assert model.predict(task, [list(pair) for pair in PAIRS]) == model.predict(task, PAIRS)


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("tone", FRAME, "tone: a DataFrame has columns, which are no rows: pass one of them"),
        ("names", {"text": TEXTS}, "a dict has columns"),
        ("names", [{"text": "a cat"}], "row 0 must be a text or a list of words, got {'text'"),
        ("names", ["the", 3], "row 1 must be a text or a list of words, got 3"),
        ("names", [["the", None]], "row 0 must be a text or a list of words"),
        ("tone", pd.Series(["a cat", np.nan]), "row 1 must be a sentence, got nan"),
        ("tone", np.array(["a", 1], dtype=object), "row 1 must be a sentence, got 1"),
    ],
)
def test_what_are_no_rows_is_refused(model, task, given, message):
    for compute in (
        lambda: model.predict(task, given),
        lambda: list(model.predict_stream(task, given)),
        lambda: model.predict_all(given, [task]),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is compared below
            compute()
        assert message.removeprefix(f"{task}: ") in str(caught.value)
