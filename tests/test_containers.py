"""Texts in any container have the predictions that they have in a list, or are refused."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from transformers import BertTokenizer

from modeling_minbert import MinBertConfig, MinBertForMultiTask

WORDS = ["a", "bird", "cat", "dog", "is", "mat", "ran", "sat", "the", "tree", "?", "text"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "mood": {
        "problem_type": "classification",
        "labels": ["down", "up"],
        "data_keys": {"text_columns": ["review"]},
    },
    "same": {"problem_type": "paraphrase", "data_keys": {"text_columns": ["q1", "q2"]}},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "joint"},
    "names": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "answers": {"problem_type": "question_answering", "max_question_length": 9},
    "choices": {
        "problem_type": "multiple_choice",
        "num_choices": 2,
        "data_keys": {"text_columns": ["start"], "choice_columns": ["c0", "c1"]},
    },
}
TEXTS = ["the cat sat", "a dog ran", "the tree is a tree"]
OTHERS = ["a cat sat", "the bird", "a mat"]
PAIRS = list(zip(TEXTS, OTHERS, strict=True))


@pytest.fixture(scope="module")
def model():
    """Return a tiny model of many tasks."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(0)
    config = MinBertConfig(
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=len(pieces),
        intermediate_size=30,
        max_position_embeddings=40,
        initializer_range=0.3,
        tasks=TASKS,
    )
    model = MinBertForMultiTask(config).eval()
    model.tokenizer = BertTokenizer(vocab={piece: n for n, piece in enumerate(pieces)})
    return model


class Records:
    """An iterable without a length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


FRAME = pd.DataFrame({"text": TEXTS, "label": [0, 1, 0]}, index=[7, 8, 9])
SINGLES = {
    "frame": FRAME[["text"]],
    "series": FRAME["text"],
    "index": pd.Index(TEXTS),
    "dictionary": {"text": TEXTS},
    "array": np.array(TEXTS),
    "objects": np.array(TEXTS, dtype=object),
    "tuple": tuple(TEXTS),
    "iterable": Records(TEXTS),
    "column": Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0]})["text"],
    "dataset": Dataset.from_dict({"text": TEXTS}),
    "batch": Dataset.from_dict({"text": TEXTS})[:],
    "numpy batch": Dataset.from_dict({"text": TEXTS}).with_format("numpy")[:],
    "arrow": pa.table({"text": TEXTS}),
}
COUPLES = {
    "frame": pd.DataFrame(PAIRS, columns=["first", "second"]),
    "dictionary": {"first": TEXTS, "second": OTHERS},
    "array": np.array(PAIRS),
    "lists": [list(pair) for pair in PAIRS],
    "dataset": Dataset.from_dict({"first": TEXTS, "second": OTHERS}),
    "zip": zip(TEXTS, OTHERS, strict=True),
}


@pytest.mark.parametrize("kind", SINGLES)
@pytest.mark.parametrize("task", ["tone", "mood", "names"])
def test_single_texts_come_in_any_container(model, kind, task):
    expected = model.predict(task, TEXTS)

    assert model.predict(task, SINGLES[kind]) == expected
    assert list(model.predict_stream(task, SINGLES[kind])) == expected
    assert model.predict_all(SINGLES[kind], [task]) == {task: expected}
    assert [row[task] for row in model.predict_all_stream(SINGLES[kind], [task])] == expected


@pytest.mark.parametrize("kind", [kind for kind in COUPLES if kind != "zip"])
@pytest.mark.parametrize("task", ["same", "near", "answers"])
def test_pairs_come_in_any_container(model, kind, task):
    expected = model.predict(task, PAIRS)

    assert model.predict(task, COUPLES[kind]) == expected
    assert model.predict_all(COUPLES[kind], [task]) == {task: expected}


def test_the_columns_of_the_training_file_are_taken_of_many(model):
    table = {"label": [0, 1, 0], "q2": OTHERS, "review": TEXTS, "q1": TEXTS}
    expected = model.predict_all(TEXTS, ["mood"]) | model.predict_all(PAIRS, ["same"])

    assert model.predict("mood", table) == expected["mood"]
    assert model.predict("same", pd.DataFrame(table)) == expected["same"]
    assert model.predict_all(Dataset.from_dict(table), ["same"]) == {"same": expected["same"]}


def test_choices_come_in_columns(model):
    rows = [(text, [text, other]) for text, other in PAIRS]
    expected = model.predict("choices", rows)

    table = {"answer": [0, 0, 0], "start": TEXTS, "c1": OTHERS, "c0": TEXTS}
    assert model.predict("choices", table) == expected
    lists = {"context": TEXTS, "choices": [list(pair) for pair in PAIRS]}
    assert model.predict("choices", pd.DataFrame(lists)) == expected


def test_questions_come_in_any_order_of_their_columns(model):
    expected = model.predict("answers", PAIRS)
    table = {"context": OTHERS, "question": TEXTS}

    assert model.predict("answers", table) == expected
    for kind in (pd.Series, np.array, tuple, lambda texts: {"some": texts}):
        found = model.answer(kind(TEXTS), kind(OTHERS))
        assert [answer["answer"] for answer in found] == [answer["answer"] for answer in expected]


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("tone", FRAME, "tone: the rows have the columns 'text', 'label', but 1 with the texts"),
        ("tone", FRAME[["text", "label"]].to_dict("list"), "pass only these, in their order"),
        (
            "same",
            {"text": TEXTS, "label": TEXTS},
            "same: the rows have the columns 'text', 'label'",
        ),
        ("same", {"text": TEXTS}, "'text', but 2 with the texts are needed"),
        ("near", {"first": TEXTS, "second": TEXTS[:2]}, "different lengths, {'first': 3, 'secon"),
        ("names", [{"text": "a cat"}], "row 0 must be a text or a list of words, got {'text'"),
        ("tone", pd.Series(["a cat", np.nan]), "row 1 must be a sentence, got nan"),
        ("tone", np.array(["a", 1], dtype=object), "row 1 must be a sentence, got 1"),
        ("names", FRAME, "names: the rows have the columns 'text', 'label'"),
    ],
)
def test_columns_that_are_not_those_of_the_texts_are_refused(model, task, given, message):
    for compute in (
        lambda: model.predict(task, given),
        lambda: list(model.predict_stream(task, given)),
        lambda: model.predict_all(given, [task]),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is compared below
            compute()
        assert message.removeprefix(f"{task}: ") in str(caught.value)
