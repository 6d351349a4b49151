"""Texts in any container are predicted and embedded as those of a list, or are refused."""

import datasets
import numpy as np
import pandas as pd
import pytest
from torch.testing import assert_close

from tests import small_run

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree", "?", "text"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "joint"},
    "names": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
}
TEXTS = ["the cat sat", "a dog ran", "text", "the tree is a tree"]


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


FRAME = pd.DataFrame({"text": TEXTS, "label": [0, 1, 0, 1]}, index=[7, 8, 9, 4])
COLUMNS = {"text": TEXTS, "label": [0, 1, 0, 1]}
CONTAINERS = {
    "series": FRAME["text"],
    "series of strings": FRAME["text"].astype("string"),
    "array": np.array(TEXTS),
    "iterable": Records(TEXTS),
    "column": datasets.Dataset.from_dict(COLUMNS)["text"],
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_single_texts_come_in_any_container(model, kind):
    given = CONTAINERS[kind]

    for task in ("tone", "names"):
        expected = model.predict(task, TEXTS)
        assert model.predict(task, given) == expected
        assert model.predict_all(given, [task]) == {task: expected}
        assert [row[task] for row in model.predict_all_stream(given, [task])] == expected
    assert_close(model.encode(given), model.encode(TEXTS))


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("tone", FRAME, "tone: a DataFrame has columns, which are no rows: pass one of them"),
        ("names", COLUMNS, "a dict has columns"),
        ("near", datasets.Dataset.from_dict(COLUMNS), "a Dataset has columns"),
        ("names", [{"text": "a cat"}], "row 0 must be a text or a list of words, got {'text'"),
        ("names", ["the", 3], "row 1 must be a text or a list of words, got 3"),
        ("names", [["the", None]], "row 0 must be a text or a list of words"),
        ("tone", pd.Series(["a cat", np.nan]), "row 1 must be a sentence, got nan"),
        ("tone", np.array(["a", 1], dtype=object), "row 1 must be a sentence, got 1"),
        (None, b"the cat sat", "pass a list of rows, not bytes"),
        (None, [("the cat sat", "a dog")], "row 0 must be a sentence"),
    ],
)
def test_what_are_no_rows_is_refused(model, task, given, message):
    of_a_task = [
        lambda: model.predict(task, given),
        lambda: list(model.predict_stream(task, given)),
        lambda: model.predict_all(given, [task]),
    ]
    vectors = [lambda: model.encode(given)]
    for compute in (of_a_task if task else []) + (vectors if task in (None, "tone") else []):
        with pytest.raises((TypeError, ValueError)) as caught:  # the message is compared below
            compute()
        assert message.removeprefix(f"{task}: ") in str(caught.value)


# Vectors


def test_one_sentence_has_one_vector(model):
    for sentence, vector in zip(["", *TEXTS], model.encode(["", *TEXTS]), strict=True):
        assert_close(model.encode(np.str_(sentence)), vector)
        assert_close(model.encode([[sentence]]), vector[None])  # as a row of one column
    assert model.encode([]).shape == (0, 24)
