"""`TextRows`: pairs and packed sentences, the rows of every pass, the same in every process.

Segment pairs are those of google's code: `tests/golden`.
"""

import pickle
import random
from collections import Counter
from itertools import accumulate, pairwise, product
from math import sqrt

import datasets
import numpy as np
import pytest

from datasets_scripts import pack_sentences
from tests.datasets_scripts.corpus.corpora import draw_documents, read_all, to_rows
from tests.small_tokenizers import make_bpe

PACKINGS = ["segment_pairs", "full_sentences", "doc_sentences"]
CLS, SEP = 2, 3


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where plans are stored."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path


def list_plans(folder):
    return sorted(path.name for path in folder.glob("minbert_plan/*.arrow"))


# Whole sentences


def pack(documents, max_tokens, order=None, *, is_across=True):
    def offsets(number):
        return list(accumulate(map(len, documents[number]), initial=0))

    order = range(len(documents)) if order is None else order
    packed = pack_sentences(offsets, order, max_tokens=max_tokens, is_across=is_across)
    return [row.pieces for row in packed]


def flat(document):
    return [token for sentence in document for token in sentence]


def size_of(row):
    return sum(piece.last - piece.first for piece in row) + len(row) - 1


@pytest.mark.parametrize("is_across", [True, False])
@pytest.mark.parametrize("max_tokens", [1, 5, 300])
def test_every_token_is_in_one_row_and_in_order(max_tokens, is_across):
    for seed in range(3):
        documents = draw_documents(seed)
        order = random.Random(seed).sample(range(30), 30)

        rows = pack(documents, max_tokens, order, is_across=is_across)

        told = [
            token
            for row in rows
            for piece in row
            for token in flat(documents[piece.document])[piece.first : piece.last]
        ]
        assert told == [token for number in order for token in flat(documents[number])]
        assert all(piece.last > piece.first for row in rows for piece in row)


@pytest.mark.parametrize("is_across", [True, False])
def test_rows_are_full_and_never_too_long(is_across):
    documents = draw_documents(0)

    rows = pack(documents, 20, is_across=is_across)

    assert all(size_of(row) <= 20 for row in rows)
    assert (max(map(len, rows)) > 1) is is_across
    for row, after in pairwise(rows):
        piece = after[0]
        ends = list(accumulate(map(len, documents[piece.document]), initial=0))
        sentence = ends[ends.index(piece.first) + 1] - piece.first
        is_new = row[-1].document != piece.document
        if is_across or not is_new:
            assert size_of(row) + is_new + sentence > 20


# Rows


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("max_length", [5, 64])
def test_rows_have_special_tokens_and_known_lengths(packing, max_length):
    rows = to_rows(draw_documents(0, tokens=(1, 40)), packing, max_length)

    for number in range(3):
        read = read_all(rows, number)
        lengths = list(map(len, read))
        assert rows.count_tokens(number).tolist() == lengths
        assert max(lengths) <= max_length
        for row in read:
            assert (row[0], row[-1]) == (CLS, SEP)
            assert row.count(CLS) == 1
            if packing != "full_sentences":
                assert row.count(SEP) == (2 if packing == "segment_pairs" else 1)


@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_of_another_layout_are_those_of_its_tokenizer(packing):
    roberta, sizes = make_bpe(), {"tokens": (1, 40)}
    start, end = roberta.cls_token_id, roberta.sep_token_id
    bert = to_rows(draw_documents(0, **sizes), packing, 30)
    longer = 30 + (packing == "segment_pairs")  # one more special token
    rows = to_rows(draw_documents(0, **sizes), packing, longer, tokenizer=roberta)

    read = read_all(rows)
    assert rows.count_tokens(0).tolist() == list(map(len, read))
    assert max(map(len, read)) <= longer
    for row in read:
        assert (row[0], row[-1], row.count(start)) == (start, end, 1)
        inner, pairs = row[1:-1], list(pairwise(row[1:-1]))
        assert inner.count(end) == 2 * pairs.count((end, end))
        assert packing == "full_sentences" or row.count(end) == (1 + 2 * rows.has_pairs)
    if packing != "full_sentences":  # there is less room at another document
        texts = [[token for token in row if token not in (CLS, SEP)] for row in read_all(bert)]
        assert [[token for token in row if token not in (start, end)] for row in read] == texts
        types = rows.read(0, np.arange(len(rows)))["token_type_ids"]
        assert types.any() == rows.has_pairs


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pass_is_a_function_of_seed_and_number(packing, folder, monkeypatch):
    documents = draw_documents(0)
    first = to_rows(documents, packing, seed=1)
    passes = {number: read_all(first, number) for number in (2, 0, 1)}
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "other")

    second, other = (to_rows(documents, packing, seed=seed) for seed in (1, 2))

    for number in (0, 1, 2):
        assert read_all(second, number) == passes[number]
    if packing != "doc_sentences":  # which leave nothing to be drawn
        assert passes[0] != passes[1] != passes[2]
        assert read_all(other) != passes[0]


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_pass_has_as_many_rows(packing):
    surplus = set()
    for seed, number in product(range(4), range(1, 5)):
        rows = to_rows(draw_documents(seed), packing)
        read = Counter(map(tuple, read_all(rows, number)))
        planned = len(list(rows._plan(number)))

        assert read.total() == len(rows.count_tokens(number)) == len(rows)
        assert len(read) == min(planned, len(rows))
        surplus.add(planned - len(rows))
    if packing == "segment_pairs":
        assert min(surplus) < 0 < max(surplus)  # both happened


@pytest.mark.parametrize(
    "shape",
    [
        {"documents": 300, "sentences": (1, 4)},
        {"documents": 2, "sentences": (600, 600)},
        {"documents": 40, "sentences": (40, 60), "tokens": (10, 40)},
    ],
)
def test_half_of_balanced_pairs_are_random(shape):
    rows = to_rows(draw_documents(0, **shape), balanced_pairs=True)

    assert abs(rows.describe()["random_share"] - 0.5) < 3 * 0.5 / sqrt(len(rows))


# Other processes, and the cache


def test_a_pass_is_planned_once_for_all_processes(folder):
    rows = to_rows(draw_documents(0))
    expected = [read_all(rows, number) for number in range(4)]
    stored = list_plans(folder)

    again = to_rows(draw_documents(0))
    copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  (our own object)

    for number in range(4):
        assert read_all(copy, number) == read_all(again, number) == expected[number]
    assert list_plans(folder) == stored
    assert len(stored) == 4
    to_rows(draw_documents(1))
    assert len(list_plans(folder)) == 5


# What is refused


@pytest.mark.parametrize(
    ("keys", "packing", "message"),
    [
        ({}, "pairs", "mine: unknown packing 'pairs'; .*known: segment_pairs, full_sentences, doc"),
        ({"documents": 1}, "segment_pairs", "mine: 1 document in split 'train', .* 'documents'"),
        (
            {"sentences": (1, 1)},
            "segment_pairs",
            "mine: 100% of the 30 pairs are random: most documents",
        ),
    ],
)
def test_rows_that_cannot_be_made_are_refused(keys, packing, message):
    with pytest.raises(ValueError, match=message):
        to_rows(draw_documents(0, **keys), packing)
    if packing == "segment_pairs":
        assert len(to_rows(draw_documents(0, **keys), "full_sentences")) > 0
