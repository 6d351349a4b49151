"""Rows of whole sentences, across documents and within them."""

import random
from itertools import pairwise

import pytest

from datasets_scripts.corpus.rows import pack_sentences
from tests.datasets_scripts.corpus.corpora import draw_documents


def pack(documents, max_tokens, order=None, *, is_across=True):
    return list(
        pack_sentences(
            lambda number: [len(sentence) for sentence in documents[number]],
            range(len(documents)) if order is None else order,
            max_tokens=max_tokens,
            is_across=is_across,
        )
    )


def flat(document):
    return [token for sentence in document for token in sentence]


def sizes(row):
    return sum(piece.last - piece.first for piece in row) + len(row) - 1


@pytest.mark.parametrize("is_across", [True, False])
@pytest.mark.parametrize("max_tokens", [1, 2, 5, 17, 300])
def test_every_token_is_in_one_row_and_in_order(max_tokens, is_across):
    for seed in range(5):
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
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_full_and_never_too_long(seed, is_across):
    documents = draw_documents(seed)

    rows = pack(documents, 20, is_across=is_across)

    assert all(sizes(row) <= 20 for row in rows)
    for row, after in pairwise(rows):
        piece = after[0]
        ends = [0]
        for sentence in documents[piece.document]:
            ends.append(ends[-1] + len(sentence))
        sentence = ends[ends.index(piece.first) + 1] - piece.first
        is_new = row[-1].document != piece.document
        if is_across or not is_new:
            assert sizes(row) + is_new + sentence > 20


@pytest.mark.parametrize("seed", range(5))
def test_a_row_of_one_document_stays_in_it(seed):
    rows = pack(draw_documents(seed), 20, is_across=False)

    assert {len(row) for row in rows} == {1}
    assert max(len(row) for row in pack(draw_documents(seed), 20)) > 1


def test_a_sentence_longer_than_a_row_is_cut_into_pieces():
    documents = [[list(range(3)), list(range(25)), list(range(4))]]

    rows = pack(documents, 10)

    assert [[tuple(piece) for piece in row] for row in rows] == [
        [(0, 0, 3)],
        [(0, 3, 13)],
        [(0, 13, 23)],
        [(0, 23, 32)],
    ]


def test_the_separator_takes_a_place():
    assert len(pack([[[1, 2]], [[3, 4]]], 5)) == 1
    assert len(pack([[[1, 2]], [[3, 4]]], 4)) == 2
    assert len(pack([[[1, 2]], [[3, 4]]], 2)) == 2
