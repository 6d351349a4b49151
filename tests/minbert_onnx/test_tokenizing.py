"""The tokenizer without transformers gives the tokens of theirs."""

import pytest

from modeling_minbert import (
    Encoding,
    find_layout,
    own_tokenizer,
    split_documents,
    split_questions,
    tokenize,
    tokenize_words,
)
from tests.modeling_minbert.conftest import WORDS
from tests.small_run import make_tokenizer
from tests.small_tokenizers import TOKENIZERS, list_texts

pytest.importorskip("onnxruntime")
KINDS = {"bert": lambda: make_tokenizer(WORDS), **TOKENIZERS}


@pytest.fixture(params=KINDS)
def both(request):
    """Return a tokenizer of transformers, and ours of the same file."""
    from tokenizers import Tokenizer

    from minbert_onnx.model import FastTokenizer

    theirs = KINDS[request.param]()
    names = ("unk_token_id", "truncation_side", "model_max_length", "split_special_tokens")
    settings = {name: getattr(theirs, name) for name in names}
    inner = Tokenizer.from_str(own_tokenizer(theirs).backend_tokenizer.to_str())
    return theirs, FastTokenizer(inner, settings)


TEXTS = [
    *list_texts(),
    "",
    " the  cat\u00e9\u200b [SEP] </s> ",
    "the cat sat " * 400,
    "\u4e2d\u6587" * 90,
]
WAYS = [
    Encoding(12),
    *(Encoding(12, truncation=name) for name in ("tail", "head_tail")),
    *(Encoding(12, pair, "head") for pair in ("joint", "separate")),
    Encoding(12, "joint", "head_tail"),
]


@pytest.mark.parametrize("encoding", WAYS, ids=str)
def test_texts_and_pairs(both, encoding):
    rows = [(text,) for text in TEXTS]
    if encoding.pair_encoding is not None:
        rows = list(zip(TEXTS, TEXTS[::-1], strict=True))

    found, expected = (tokenize(tokenizer, rows, encoding) for tokenizer in reversed(both))

    assert found == expected


def test_a_text_without_a_token_is_refused(both):
    theirs, ours = own_tokenizer(both[0]), both[1]
    theirs._tokenizer.post_processor = ours._tokenizer.post_processor = None
    for tokenizer in (theirs, ours):
        with pytest.raises(ValueError, match=r"^'': the tokenizer makes no token of it"):
            tokenize(tokenizer, [("a", "b"), ("the cat", "")], Encoding(12, "separate"))


def test_windows_words_and_questions(both):
    rows = [("the cat sat", text) for text in TEXTS]
    words = [text.split() for text in TEXTS] + [["the", "", "\u200b", "cat"]]
    windows = Encoding(12, truncation="windows", window_overlap=3)
    questions = Encoding(20, max_question_length=6, doc_stride=4)

    theirs, ours = (
        (
            find_layout(tokenizer),
            split_documents(windows, tokenizer, TEXTS),
            split_questions(questions, tokenizer, rows),
            tokenize_words(tokenizer, words, 12),
        )
        for tokenizer in both
    )

    assert ours == theirs
