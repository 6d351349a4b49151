"""`encode` takes sentences in any container of texts, and refuses what are no rows."""

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertTokenizer

from modeling_minbert import MinBertConfig, MinBertForMultiTask

WORDS = ["a", "bird", "cat", "dog", "ran", "sat", "text", "the", "tree"]
TEXTS = ["the cat sat", "a dog", "", "the bird ran a tree", "text"]


@pytest.fixture(scope="module")
def model():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(0)
    tasks = {"near": {"problem_type": "similarity", "score_range": [0, 1]}}
    config = MinBertConfig(
        vocab_size=len(pieces), hidden_size=12, num_hidden_layers=1, num_attention_heads=3,
        intermediate_size=8, max_position_embeddings=16, initializer_range=1.0, tasks=tasks,
    )  # fmt: skip
    model = MinBertForMultiTask(config).eval()
    model.tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    return model


@pytest.mark.parametrize(
    "container",
    [
        np.array(TEXTS),
        pd.Series(TEXTS, index=[9, 7, 5, 3, 1]),
        pd.Series(TEXTS, dtype="string"),
        datasets.Dataset.from_dict({"text": TEXTS})["text"],
        [[text] for text in TEXTS],
        (text for text in TEXTS),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_container_of_sentences_has_their_vectors(model, container):
    assert_close(model.encode(container), model.encode(TEXTS))


def test_one_sentence_has_one_vector(model):
    vectors = model.encode(TEXTS)

    for sentence, vector in zip(TEXTS, vectors, strict=True):
        assert_close(model.encode(np.str_(sentence)), vector)
    assert model.encode([TEXTS[0]]).shape == (1, 12)
    assert len(model.encode([])) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"text": TEXTS}, "a dict has columns, which are no rows: pass one of them"),
        (pd.DataFrame({"text": TEXTS}), "a DataFrame has columns"),
        (datasets.Dataset.from_dict({"text": TEXTS}), "a Dataset has columns"),
        (pd.Series([*TEXTS, None]), "row 5 must be a sentence, got"),
        ([("the cat sat", "a dog")], "row 0 must be a sentence"),
        ([3], "row 0 must be a sentence, got 3"),
        (b"the cat sat", "row 0 must be a sentence, got 116"),
    ],
    ids=str,
)
def test_what_is_no_sentence_is_named(model, wrong, message):
    with pytest.raises(ValueError, match=message):
        model.encode(wrong)


def test_columns_are_no_rows_of_a_task_either(model):
    with pytest.raises(ValueError, match="near: a DataFrame has columns"):
        model.predict("near", pd.DataFrame({"first": TEXTS, "second": TEXTS}))
    with pytest.raises(ValueError, match="predict_all: a dict has columns"):
        model.predict_all({"first": TEXTS, "second": TEXTS})


def test_vectors_are_cut_and_then_normalized(model):
    vectors = model.encode(TEXTS)

    cut = model.encode(TEXTS, truncate_dim=7, normalize=True)
    assert_close(cut, F.normalize(vectors[:, :7], dim=1))
    assert_close(model.encode(TEXTS, truncate_dim=7), vectors[:, :7])
    with pytest.raises(ValueError, match="truncate_dim=0 must be 1 or more"):
        model.encode(TEXTS, truncate_dim=0)


def test_a_prompt_stands_before_every_sentence(model):
    prompted = model.encode(TEXTS, prompt="the tree ")

    assert_close(prompted, model.encode([f"the tree {each}" for each in TEXTS]))
    assert_close(model.encode_query(TEXTS), model.encode(TEXTS))
    with pytest.raises(ValueError, match="unknown prompt_name 'question'; known: query"):
        model.encode(TEXTS, prompt_name="question")
