"""The rows of a text file equal google's loops on the same text."""

import random

import numpy as np
import pytest
from transformers import BertTokenizer

from datasets_scripts import CorpusData, TextRows, encode_corpus
from tests.golden.google_bert import create_instances

CLS, SEP = 2, 3
WORDS = 400
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(WORDS))]
ROW, SHORT, SEED = 24, 0.1, 3


@pytest.fixture
def corpus():
    """Token ids of the sentences of some documents."""
    rng = random.Random(0)
    return [
        [
            [rng.randrange(5, 5 + WORDS) for _ in range(rng.randint(1, 30))]
            for _ in range(rng.randint(1, 12))
        ]
        for _ in range(25)
    ]


@pytest.fixture
def rows(corpus, tmp_path):
    """Our rows of the same documents, which were read from a file in google's format."""
    documents = [
        "\n".join(" ".join(VOCABULARY[token] for token in sentence) for sentence in document)
        for document in corpus
    ]
    train, held_out = tmp_path / "train.txt", tmp_path / "held-out.txt"
    train.write_text("\n\n".join(documents), encoding="utf-8")
    held_out.write_text("w1 w2", encoding="utf-8")
    recipe = {"train_file": str(train), "validation_file": str(held_out), "sentences": "line"}
    tokenizer = BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)})
    encoded = encode_corpus([CorpusData.from_recipe("text", recipe)], tokenizer)
    return TextRows(
        encoded.splits["train"],
        tokenizer,
        packing="segment_pairs",
        max_length=ROW,
        seed=SEED,
        name="text",
    )


def google_rows(corpus, number):
    """The rows of a pass: ids, token types and label of each."""
    found = []
    for document in range(len(corpus)):
        rng = random.Random(f"{SEED} {number} {document}")
        for first, second, is_random in create_instances(corpus, document, ROW, SHORT, rng):
            ids = [CLS, *first, SEP, *second, SEP]
            types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            found.append((ids, types, int(is_random)))
    return found


def our_rows(rows, number):
    columns = rows.read(number, np.arange(len(rows)))
    ends = columns["lengths"].cumsum()[:-1]
    ids, types = (
        [part.tolist() for part in np.split(columns[name], ends)]
        for name in ("input_ids", "token_type_ids")
    )
    return list(zip(ids, types, columns["next_sentence_label"].tolist(), strict=True))


def test_rows_of_the_first_pass_equal_google(corpus, rows):
    assert our_rows(rows, 0) == google_rows(corpus, 0)
    assert rows.count_tokens(0).tolist() == [len(ids) for ids, _, _ in google_rows(corpus, 0)]


@pytest.mark.parametrize(("number", "has_more"), [(1, True), (2, False)])
def test_a_later_pass_has_as_many_of_its_own_google_rows_as_the_first_one(
    corpus, rows, number, has_more
):
    ours, googles = our_rows(rows, number), google_rows(corpus, number)

    assert (len(googles) > len(rows)) == has_more
    assert len(ours) == len(google_rows(corpus, 0))
    assert all(row in googles for row in ours)
    assert len({str(row) for row in ours}) == min(len(ours), len(googles))
