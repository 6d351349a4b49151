"""Rows of sentences against the tokenizer called by hand, and the WordPiece trainer."""

import datasets
import pytest

from datasets_scripts import Encoding, TaskData, load_format, train_wordpiece

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A quick dog sleeps; the fox does not.",
    "Why does the dog sleep?",
] * 5
LONG = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(TEXTS, 120)


@pytest.fixture
def pairs():
    return datasets.Dataset.from_dict(
        {
            "id": ["a", "b"],
            "sentence1": ["the fox", LONG],
            "sentence2": ["why does the dog sleep?", "a dog"],
            "label": [0, 1],
        }
    )


def encode(rows, tokenizer, pair_encoding, problem_type="paraphrase", max_length=64, **options):
    row_format = load_format(TaskData("own", problem_type=problem_type, text_columns=("text",)))
    encoding = Encoding(max_length, pair_encoding, **options)
    return row_format.encode(rows, tokenizer, encoding)


def test_a_pair_is_one_sequence_with_two_segments_or_two_sequences(pairs, tokenizer):
    joint, separate = (encode(pairs, tokenizer, name)[0] for name in ("joint", "separate"))

    texts = ("the fox", "why does the dog sleep?")
    expected, alone = tokenizer(*texts), [tokenizer(text) for text in texts]
    for name in ("input_ids", "token_type_ids"):
        assert joint[name] == expected[name]
        assert separate[name] == [one[name] for one in alone]
    assert 1 in joint["token_type_ids"]
    assert joint["length"] == len(expected["input_ids"])
    assert separate["length"] == len(alone[1]["input_ids"])


# Of eight tokens round(8 * 128 / 510) = 2 are taken from the start.
@pytest.mark.parametrize(
    ("texts", "pair_encoding", "max_length", "truncation", "expected"),
    [
        (["the fox"], None, 10, "head_tail", ["the fox"]),
        ([LONG], None, 10, "head", ["the quick brown fox jumps over the lazy"]),
        ([LONG], None, 10, "tail", ["quick brown fox jumps over the lazy dog"]),
        ([LONG], None, 10, "head_tail", ["the quick fox jumps over the lazy dog"]),
        (["the [SEP] " + LONG], None, 6, "tail", ["over the lazy dog"]),  # it is a text
        ([LONG, "a dog"], "joint", 8, "head", ["the quick brown [SEP] a dog"]),
        ([LONG, "a dog"], "joint", 9, "head_tail", ["the the lazy dog [SEP] a dog"]),
        ([LONG, "a dog"], "separate", 6, "head", ["the quick brown fox", "a dog"]),
        ([LONG, LONG[:-9]], "separate", 6, "head_tail", ["the the lazy dog", "the jumps over the"]),
    ],
)
def test_long_texts_are_cut(tokenizer, texts, pair_encoding, max_length, truncation, expected):
    columns = {f"sentence{place}": [text] for place, text in enumerate(texts, start=1)}
    rows = datasets.Dataset.from_dict({"id": ["a"], **columns})
    options = {"max_length": max_length, "truncation": truncation}

    row = encode(rows, tokenizer, pair_encoding, **options)[0]

    ids, types = row["input_ids"], row["token_type_ids"]
    ids, types = (ids, types) if pair_encoding == "separate" else ([ids], [types])
    for sequence, segments, words in zip(ids, types, expected, strict=True):
        tokens = ["[CLS]", *words.split(), "[SEP]"]
        assert tokenizer.convert_ids_to_tokens(sequence) == tokens
        first = tokens.index("[SEP]") + 1
        assert segments == [0] * first + [1] * (len(tokens) - first)
    assert row["length"] == max(map(len, ids))


@pytest.mark.parametrize(
    ("pair_encoding", "options", "message"),
    [
        ("joint", {"truncation": "middle"}, "'middle'; known: head, tail, head_tail"),
        (None, {}, "but the rows are pairs; allowed: 'joint', 'separate'"),
        ("joint", {"truncation": "windows"}, "needs each text of a pair as a sequence"),
    ],
)
def test_an_encoding_must_fit_the_rows(pairs, tokenizer, pair_encoding, options, message):
    with pytest.raises(ValueError, match=message):
        encode(pairs, tokenizer, pair_encoding, **options)


def test_what_was_set_on_a_tokenizer_changes_no_row_and_no_cache(tmp_path, tokenizer):
    rows = datasets.Dataset.from_generator(
        lambda: iter([{"id": "a", "sentence1": "the fox"}]), cache_dir=str(tmp_path)
    )
    first = encode(rows, tokenizer, None, "classification")
    tokenizer("the quick brown fox", truncation=True, max_length=3, padding="max_length")
    state = tokenizer.backend_tokenizer.to_str()

    second = encode(rows, tokenizer, None, "classification")

    assert tokenizer.backend_tokenizer.to_str() == state
    assert first.cache_files == second.cache_files != []
    assert first[:] == second[:]


@pytest.mark.parametrize("count", [1, 3])
def test_every_sentence_of_a_contrastive_row_is_a_sequence(tokenizer, count):
    texts = [LONG, "the fox", "a dog sleeps"][:count]
    columns = {f"sentence{place}": [text] for place, text in enumerate(texts, start=1)}
    rows = datasets.Dataset.from_dict({"id": ["a"], **columns})

    data = TaskData("own", problem_type="contrastive", text_columns=tuple(columns))
    row_format = load_format(data)
    encoded = row_format.encode(rows, tokenizer, Encoding(6, "separate"))

    expected = [tokenizer(text, truncation=True, max_length=6) for text in texts]
    assert encoded[0] == {
        "id": "a",
        "input_ids": [one["input_ids"] for one in expected],
        "token_type_ids": [one["token_type_ids"] for one in expected],
        "length": 6,
    }
    with pytest.raises(ValueError, match="the rows are of a contrastive task; allowed: 'separate'"):
        row_format.encode(rows, tokenizer, Encoding(6))
