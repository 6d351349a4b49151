"""Of a long text, only as much is tokenized as can remain, and the tokens are those of the whole.

The oracle is the tokenizer itself, which truncates after it has tokenized everything.
"""

import copy
import random

import pytest
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from modeling_minbert import Encoding, texts, tokenize
from tests.small_tokenizers import make_bpe, make_unigram

PARTS = [
    *("good", "a", "the", "über", "Ωmega", "??", "...", "x" * 30, "中文", "\U0001f44d", "I'm"),
    *("e\u0301", "\u0301", "Σ", "12,000", " ", "  ", "\n", "\n\n", "\t", "\u200b", "\x1f"),
    *("\u2028", "\xa0", "[MASK]", "<mask>", "</s>", "don't "),
]


class Counting:
    """A tokenizer that counts the characters that it is given."""

    def __call__(self, *columns, **options):
        self.characters.append(sum(map(len, (text for column in columns for text in column))))
        return super().__call__(*columns, **options)


def count_characters(tokenizer):
    """Return a copy of a tokenizer that counts its characters."""
    kind = type("CountingTokenizer", (Counting, type(tokenizer)), {})
    own = copy.copy(tokenizer)
    own.__class__ = kind
    own.characters = []
    assert isinstance(own, PreTrainedTokenizerBase)
    return own


@pytest.fixture(params=["wordpiece", "bpe", "unigram"])
def each(request, tokenizer):
    return {"wordpiece": lambda: tokenizer, "bpe": make_bpe, "unigram": make_unigram}[
        request.param
    ]()


@pytest.mark.parametrize("kind", ["single", "separate", "joint"])
def test_tokens_are_those_of_the_whole_text(each, kind, monkeypatch):
    monkeypatch.setattr(texts, "CUT", 1)
    monkeypatch.setattr(texts, "LONG", 2)
    draw = random.Random(0)
    shortened = 0
    for _ in range(150):
        rows = [
            tuple(
                "".join(
                    draw.choice(PARTS) + draw.choice(["", " ", " "])
                    for _ in range(draw.choice([0, 3, 40, 90]))
                )
                for _ in range(1 if kind == "single" else 2)
            )
            for _ in range(3)
        ]
        length = draw.choice([5, 6, 9, 16, 31])
        counting = count_characters(each)
        encoded = tokenize(counting, rows, Encoding(length, pair_encoding=kind))
        if kind == "separate":
            expected = [[list_ids(each, (text,), length) for text in row] for row in rows]
        else:
            expected = [[list_ids(each, row, length)] for row in rows]

        assert [row.input_ids for row in encoded] == expected
        assert [list(map(len, row.token_type_ids)) for row in encoded] == [
            list(map(len, ids)) for ids in expected
        ]
        given = sum(len(text) for row in rows for text in row)
        shortened += counting.characters[0] < given
    assert shortened > 50


def list_ids(tokenizer, row, length):
    columns = ([text] for text in row)  # an empty second text alone would be none
    return tokenizer(*columns, truncation="longest_first", max_length=length)["input_ids"][0]


PAGE = "the good film was a long road " * 2000


@pytest.mark.parametrize("row", [(PAGE,), ("is it good", PAGE), (PAGE, "is it good")])
def test_a_page_is_not_tokenized_for_its_first_tokens(each, row):
    counting = count_characters(each)

    ((ids,),) = ([row.input_ids] for row in tokenize(counting, [row], Encoding(32)))

    assert ids == [list_ids(each, row, 32)]
    assert sum(counting.characters) < 1000


def split(tokenizer, *parts):
    tokenizer._tokenizer.pre_tokenizer = (
        parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(list(parts))
    )


class Whole:
    def pre_tokenize(self, text):
        """Leave a text as it is."""


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer.add_tokens([AddedToken("road the", normalized=False)]),
        lambda tokenizer: tokenizer.add_tokens([AddedToken("road\xa0the", normalized=True)]),
        lambda tokenizer: setattr(tokenizer, "truncation_side", "left"),
        lambda tokenizer: split(
            tokenizer, pre_tokenizers.Metaspace(split=False), pre_tokenizers.WhitespaceSplit()
        ),
        lambda tokenizer: split(
            tokenizer,
            pre_tokenizers.ByteLevel(use_regex=False),
            pre_tokenizers.WhitespaceSplit(),
        ),
        lambda tokenizer: setattr(
            tokenizer._tokenizer, "normalizer", normalizers.Replace(Regex(" {2,}"), "")
        ),
        lambda tokenizer: split(tokenizer, pre_tokenizers.PreTokenizer.custom(Whole())),
    ],
    ids=[
        *("a token with a space", "a token with another space", "the end remains"),
        *("metaspace", "bytes", "spaces go", "code in Python"),
    ],
)
def test_a_text_is_not_cut_where_its_end_matters(tokenizer, change):
    own = copy.deepcopy(tokenizer)
    change(own)
    counting = count_characters(own)

    (row,) = tokenize(counting, [(PAGE,)], Encoding(32))

    assert row.input_ids == [list_ids(own, (PAGE,), 32)]
    assert counting.characters == [len(PAGE)]
