"""Segment pairs: what they are, whoever compares them with google's loops draw by draw."""

import random
from math import sqrt

import pytest

from datasets_scripts.corpus.rows import Balance, plan_pairs
from tests.datasets_scripts.corpus.corpora import draw_documents

MAX_TOKENS = 29


def plan(documents, seed, *, balanced=False, short_seq_prob=0.1, max_tokens=MAX_TOKENS):
    """The pairs of all documents."""
    rng = random.Random(seed)
    balance = Balance() if balanced else None
    return [
        pair
        for document in range(len(documents))
        for pair in plan_pairs(
            lambda number: [len(sentence) for sentence in documents[number]],
            document,
            documents=len(documents),
            max_tokens=max_tokens,
            short_seq_prob=short_seq_prob,
            rng=rng,
            balanced=balance,
        )
    ]


def join(document, first, last, front=0, back=0):
    tokens = [token for sentence in document[first:last] for token in sentence]
    return tokens[front : len(tokens) - back]


def segments(documents, pair):
    other = documents[pair.other]
    return (
        join(documents[pair.document], pair.first, pair.middle, pair.a_front, pair.a_back),
        join(other, pair.other_first, pair.other_last, pair.b_front, pair.b_back),
    )


@pytest.mark.parametrize("seed", range(10))
def test_an_actual_b_follows_a_in_its_document(seed):
    documents = draw_documents(seed)

    for pair in plan(documents, seed):
        if not pair.is_random:
            assert (pair.other, pair.other_first, pair.other_last) == (
                pair.document,
                pair.middle,
                pair.last,
            )
            a, b = segments(documents, pair)
            whole = join(documents[pair.document], pair.first, pair.last)
            assert pair.first < pair.middle < pair.last
            # in order, without overlap; gaps only where tokens were cut
            start = whole.index(a[0])
            assert whole[start : start + len(a)] == a
            gap = pair.a_back + pair.b_front
            assert whole[start + len(a) + gap :][: len(b)] == b


@pytest.mark.parametrize("seed", range(10))
def test_a_random_b_is_of_another_document(seed):
    documents = draw_documents(seed)

    for pair in plan(documents, seed):
        assert pair.is_random == (pair.other != pair.document)


@pytest.mark.parametrize("max_tokens", [2, 3, 7, MAX_TOKENS])
@pytest.mark.parametrize("seed", range(5))
def test_no_pair_is_too_long_and_no_segment_empty(seed, max_tokens):
    documents = draw_documents(seed, tokens=(1, 40))

    for pair in plan(documents, seed, max_tokens=max_tokens):
        a, b = segments(documents, pair)
        assert a
        assert b
        assert len(a) + len(b) <= max_tokens


@pytest.mark.parametrize("seed", range(5))
def test_every_sentence_is_in_a_pair(seed):
    documents = draw_documents(seed)
    told = dict.fromkeys(range(len(documents)), 0)

    for pair in plan(documents, seed):
        assert pair.first == told[pair.document]  # goes on where the last pair ended
        told[pair.document] = pair.middle if pair.is_random else pair.last

    assert told == {number: len(document) for number, document in enumerate(documents)}


def test_only_the_longer_segment_is_cut():
    documents = draw_documents(3, tokens=(1, 40))

    for pair in plan(documents, 3):
        a, b = segments(documents, pair)
        if pair.a_front + pair.a_back and pair.b_front + pair.b_back:
            assert abs(len(a) - len(b)) <= 1
        elif pair.a_front + pair.a_back:
            assert len(a) >= len(b)
        elif pair.b_front + pair.b_back:
            assert len(b) >= len(a) - 1


def test_both_ends_are_cut_alike():
    pairs = plan(draw_documents(0, documents=200, tokens=(10, 40)), 0)
    front = sum(pair.a_front + pair.b_front for pair in pairs)
    back = sum(pair.a_back + pair.b_back for pair in pairs)

    assert abs(front - back) < 3 * sqrt(front + back)


def test_short_pairs_are_as_many_documents_as_asked():
    documents = draw_documents(1, documents=400, sentences=(30, 30), tokens=(1, 1))
    firsts = {}
    for pair in plan(documents, 1, short_seq_prob=0.25):
        firsts.setdefault(pair.document, pair.last - pair.first)

    # of 28 lengths that a short pair may have, one is the full one
    short = sum(length < MAX_TOKENS for length in firsts.values())
    assert abs(short - 400 * 0.25 * 27 / 28) < 3 * sqrt(400 * 0.25 * 0.75)


def test_documents_of_one_sentence_make_random_pairs_alone():
    assert all(pair.is_random for pair in plan(draw_documents(2, sentences=(1, 1)), 2))


def share(pairs):
    return sum(pair.is_random for pair in pairs) / len(pairs)


def test_more_than_half_of_googles_pairs_are_random():
    pairs = plan(draw_documents(4, documents=300), 4)

    alone = sum(pair.last - pair.first == 1 for pair in pairs) / len(pairs)
    assert alone > 0.1
    assert abs(share(pairs) - (alone + (1 - alone) / 2)) < 3 * 0.5 / sqrt(len(pairs))


@pytest.mark.parametrize(
    "shape",
    [
        {"documents": 300},
        {"documents": 300, "sentences": (1, 4)},
        {"documents": 2, "sentences": (600, 600)},
        {"documents": 40, "sentences": (40, 60), "tokens": (10, 40)},
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_half_of_balanced_pairs_are_random(seed, shape):
    pairs = plan(draw_documents(seed, **shape), seed, balanced=True)

    assert abs(share(pairs) - 0.5) < 3 * 0.5 / sqrt(len(pairs))
