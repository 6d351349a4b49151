"""`encode` takes sentences in any container, and returns what sentence-transformers returns."""

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
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
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.Series(TEXTS, index=[9, 7, 5, 3, 1]),
        pd.Series(TEXTS, dtype="string"),
        pd.DataFrame({"text": TEXTS}),
        {"text": TEXTS},
        {"sentence": np.array(TEXTS)},
        datasets.Dataset.from_dict({"text": TEXTS}),
        datasets.Dataset.from_dict({"text": TEXTS})["text"],
        datasets.Dataset.from_dict({"text": TEXTS})[:],
        [[text] for text in TEXTS],
        (text for text in TEXTS),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_container_of_sentences_has_their_vectors(model, container):
    expected = model.encode(TEXTS)

    if not hasattr(container, "__next__"):
        assert_close(model.encode_query(container), expected)
    assert_close(model.encode(container), expected)


@pytest.mark.parametrize("one", ["the cat sat", np.str_("the cat sat"), np.array("the cat sat")])
def test_one_sentence_has_one_vector(model, one):
    assert_close(model.encode(one), model.encode(["the cat sat"])[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"text": "the cat sat"}, "'text' is one text, 'the cat sat', not a column"),
        ({"first": TEXTS, "second": TEXTS}, "columns 'first', 'second', but 1 with the texts"),
        (pd.DataFrame({"text": TEXTS, "label": 1}), "columns 'text', 'label', but 1"),
        ({"label": TEXTS}, "columns 'label', but 1"),
        (pd.Series([*TEXTS, None]), "row 5 must be a sentence, got"),
        (pd.Series([*TEXTS, float("nan")]), "row 5 must be a sentence, got nan"),
        (np.array([TEXTS, TEXTS]), "row 0 must be a sentence"),
        ([("the cat sat", "a dog")], "row 0 must be a sentence"),
        ([3], "row 0 must be a sentence, got 3"),
        (b"the cat sat", "row 0 must be a sentence, got 116"),
    ],
    ids=str,
)
def test_what_is_no_sentence_is_named(model, wrong, message):
    with pytest.raises(ValueError, match=message):
        model.encode(wrong)


def test_a_dictionary_with_one_text_is_no_column_of_letters_for_a_task_either(model):
    with pytest.raises(ValueError, match="'first' is one text, 'a cat', not a column of texts"):
        model.predict("near", {"first": "a cat", "second": "a dog"})


@pytest.mark.parametrize(
    ("options", "kind", "row"),
    [
        # as in sentence-transformers, but for the first, where its default is an array
        ({}, torch.Tensor, torch.Tensor),
        ({"convert_to_numpy": True}, np.ndarray, np.ndarray),
        ({"convert_to_tensor": False}, np.ndarray, np.ndarray),
        ({"convert_to_tensor": True}, torch.Tensor, torch.Tensor),
        ({"convert_to_tensor": True, "convert_to_numpy": True}, torch.Tensor, torch.Tensor),
        ({"convert_to_numpy": False}, list, torch.Tensor),
        ({"convert_to_tensor": False, "convert_to_numpy": False}, list, torch.Tensor),
    ],
    ids=str,
)
def test_vectors_have_the_type_that_is_asked_for(model, options, kind, row):
    vectors = model.encode(TEXTS, **options)

    assert isinstance(vectors, kind)
    assert isinstance(vectors[0], row)
    assert isinstance(model.encode(TEXTS[0], **options), row)
    assert len(model.encode([], **options)) == 0
    for given, expected in zip(vectors, model.encode(TEXTS), strict=True):
        assert_close(torch.as_tensor(given), expected)
        assert torch.as_tensor(given).dtype == torch.float32


@pytest.mark.parametrize("value", ["token_embeddings", None])
def test_other_outputs_than_vectors_of_sentences_are_refused(model, value):
    with pytest.raises(ValueError, match=f"output_value={value!r} is not supported"):
        model.encode(TEXTS, output_value=value)
