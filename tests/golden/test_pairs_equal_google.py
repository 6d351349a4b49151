"""Our segment pairs against google's loops: the same random numbers have to give the same pairs."""

import random
from itertools import accumulate, chain, pairwise, product

import pytest

from datasets_scripts import plan_pairs
from tests.golden.google_bert import create_instances

# How many documents, how many sentences each has, and how many tokens each of these: from, to.
SHAPES = {
    "thirty documents": (30, (1, 20), (1, 12)),
    "two documents": (2, (1, 12), (1, 10)),
    "documents of one sentence": (12, (1, 1), (1, 30)),
    "sentences of one token": (5, (1, 40), (1, 1)),
    "sentences beyond the row": (8, (1, 6), (10, 90)),
}
ROWS = [5, 9, 24, 64]  # tokens of a row; 5 is the least: one of A, one of B, three special ones
SHORT = 0.1


def make_corpus(shape, seed):
    """Documents of sentences; every token of a corpus is unique and identifies its place."""
    documents, sentences, tokens = SHAPES[shape]
    rng = random.Random(seed)
    sizes = [
        [rng.randint(*tokens) for _ in range(rng.randint(*sentences))] for _ in range(documents)
    ]
    spans = pairwise(accumulate(chain.from_iterable(sizes), initial=0))
    return [[list(range(*next(spans))) for _ in document] for document in sizes]


def plan(corpus, document, max_seq_length, seed):
    def offsets(number):
        return list(accumulate(map(len, corpus[number]), initial=0))

    return list(
        plan_pairs(
            offsets,
            [document],
            documents=len(corpus),
            max_tokens=max_seq_length - 3,
            seed=str(seed),
        )
    )


def instance_of(corpus, row):
    """A pair: the tokens of A and of B, and whether B is random."""
    first, second = (
        list(chain.from_iterable(corpus[piece.document]))[piece.first : piece.last]
        for piece in row.pieces
    )
    return first, second, row.is_random


@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_equal_google(shape):
    for seed, row in product(range(18), ROWS):
        corpus = make_corpus(shape, seed)
        for document in range(len(corpus)):
            pairs = plan(corpus, document, row, seed)
            rng = random.Random(f"{seed} {document}")
            instances = create_instances(corpus, document, row, SHORT, rng)

            assert [instance_of(corpus, pair) for pair in pairs] == instances


def test_ten_draws_of_the_same_document_give_a_random_b_from_it_as_with_google():
    corpus = [[[1], [2]], [[3], [4]]]
    from_itself = 0
    for seed in range(3000):
        pairs = plan(corpus, 0, 64, seed)
        instances = create_instances(corpus, 0, 64, SHORT, random.Random(f"{seed} 0"))

        assert [instance_of(corpus, pair) for pair in pairs] == instances
        from_itself += sum(pair.is_random and pair.pieces[1].document == 0 for pair in pairs)
    assert 0 < from_itself < 20  # half of 3,000 chunks, and what they put back; 1 in 1,024 of these
