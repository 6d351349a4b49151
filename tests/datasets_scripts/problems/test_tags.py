"""Windows of tagged sentences: every word is labelled once, at its first token."""

import datasets
import pytest
from transformers import BertTokenizer

from datasets_scripts import Encoding, encode_tagged
from modeling_minbert.texts import cut_word_windows

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##b", "##c"]


@pytest.fixture
def tokenizer():
    """Return a tokenizer of single letters."""
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def make_rows(*sentences, documents=None, tags=True):
    words = [sentence.split(" ") for sentence in sentences]
    columns = {"id": [f"s{number}" for number, _ in enumerate(words)], "words": words}
    columns["document"] = documents or [0] * len(words)
    if tags:
        columns["tags"] = [list(range(len(sentence))) for sentence in words]
    return datasets.Dataset.from_dict(columns)


def decode(tokenizer, row):
    return " ".join(tokenizer.convert_ids_to_tokens(row["input_ids"]))


def test_the_first_token_of_a_word_has_its_label(tokenizer):
    (row,) = encode_tagged(make_rows("a bbc c"), tokenizer, Encoding(10))

    assert decode(tokenizer, row) == "[CLS] a b ##b ##c c [SEP]"
    assert row["labels"] == [-100, 0, 1, -100, -100, 2, -100]
    assert (row["id"], row["sentence"], row["length"]) == ("s0", 0, 7)
    assert row["token_type_ids"] == [0] * 7


@pytest.mark.parametrize("word", ["\x07", "\u200b", "\U0001f600", "\x00", "x\x07", ""])
def test_a_word_without_a_token_keeps_its_place(tokenizer, word):
    rows = datasets.Dataset.from_dict(
        {"id": ["0"], "words": [[word, "a"]], "tags": [[3, 4]], "document": [0]}
    )
    (row,) = encode_tagged(rows, tokenizer, Encoding(10))

    assert decode(tokenizer, row) == "[CLS] [UNK] a [SEP]"
    assert row["labels"] == [-100, 3, 4, -100]


@pytest.mark.parametrize("sizes", [[1] * 23, [3, 1, 2, 5, 1, 1, 4, 2, 2, 1, 5, 5, 5], [1], [5] * 9])
@pytest.mark.parametrize("room", [5, 6, 9])
def test_every_word_belongs_to_the_window_with_most_around_it(sizes, room):
    windows = cut_word_windows(sizes, room)

    owned = [word for window in windows for word in range(window.first, window.last)]
    assert owned == list(range(len(sizes)))
    for window in windows:
        assert sum(sizes[window.start : window.end]) <= room
        assert window.start <= window.first < window.last <= window.end
    for own in windows:
        for word in range(own.first, own.last):
            around = [
                min(sum(sizes[other.start : word]), sum(sizes[word + 1 : other.end]))
                for other in windows
                if other.start <= word < other.end
            ]
            assert min(sum(sizes[own.start : word]), sum(sizes[word + 1 : own.end])) == max(around)


def test_a_long_sentence_becomes_rows_that_miss_no_word(tokenizer):
    sentence = " ".join("abcdefgh" * 3)
    rows = encode_tagged(make_rows("a b", sentence), tokenizer, Encoding(9))

    assert rows["sentence"][:] == [0] + [1] * (len(rows) - 1)
    assert [word for row in rows["words"] for word in row] == [*"ab", *"abcdefgh" * 3]
    labels = [label for row in rows["labels"] for label in row if label != -100]
    assert labels == [0, 1, *range(24)]
    assert max(rows["length"]) <= 9


def test_words_of_unknown_tags_are_found_again(tokenizer):
    (row,) = encode_tagged(make_rows("a bb", tags=False), tokenizer, Encoding(10))

    assert row["labels"] == [-100, -1, -1, -100, -100]


def test_a_sentence_is_read_with_its_neighbours(tokenizer):
    rows = make_rows("a a", "b c", "d", "e f g h", "h", documents=[0, 0, 0, 0, 1])
    found = encode_tagged(rows, tokenizer, Encoding(7), document_context=True)

    # the nearest whole words of the document, as many on both sides, labels in the middle alone
    assert [decode(tokenizer, row)[6:-6] for row in found] == [
        "a a b c d",
        "a b c d e",
        "b c d e f",
        "d e f g h",
        "h",
    ]
    assert found["labels"][1] == [-100, -100, 0, 1, -100, -100, -100]
    assert found["labels"][3] == [-100, -100, 0, 1, 2, 3, -100]
