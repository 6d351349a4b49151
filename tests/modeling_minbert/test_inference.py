"""Inference deals rows to full batches, and streams results in order, whatever the batches are."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import Encoded
from modeling_minbert.packing import pool
from modeling_minbert.rows import split_batches

LENGTHS = [3, 40, 7, 7, 1, 12, 39, 2, 7, 30, 16, 5, 5, 5, 28]


def rows_of(lengths, sequences=1):
    """Return encoded rows of these lengths; a second sequence has half of them."""
    return [
        Encoded(
            [[1 + index] * max(1, length // (1 + part)) for part in range(sequences)],
            [[part] * max(1, length // (1 + part)) for part in range(sequences)],
        )
        for index, length in enumerate(lengths)
    ]


def cost(rows, packed):
    """Return the tokens of a batch, paddings included if it is padded."""
    sequences = [ids for row in rows for ids in row.input_ids]
    if packed:
        return sum(map(len, sequences))
    return len(sequences) * max(map(len, sequences))


# Dealing


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sequences", [1, 2])
@pytest.mark.parametrize("budget", [1, 10, 41, 64, 100, 10_000])
def test_batches_keep_the_budget_and_no_row_is_lost(packed, sequences, budget):
    rows = rows_of(LENGTHS, sequences)

    batches = list(split_batches(rows, budget, packed=packed))

    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(rows)))
    for batch in batches:
        tokens = cost([rows[index] for index in batch], packed)
        assert tokens <= budget or len(batch) == 1
    for batch, after in itertools.pairwise(batches):  # no batch had room for one more
        assert cost([rows[index] for index in [*batch, after[0]]], packed) > budget


# Streams


@pytest.fixture
def narrow(monkeypatch):
    """Make windows of seven rows."""
    monkeypatch.setattr("modeling_minbert.rows.WINDOW", 7)


def some_texts(count):
    """Return texts of one to twelve words."""
    words = ["the", "cat", "a", "dog", "bird", "sang", "tree", "on", "mat", "very"]
    return [" ".join(words[(i * k) % 10] for k in range(1, 2 + (i * 5) % 12)) for i in range(count)]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("budget", [1, 20, None])
def test_many_rows_equal_single_rows(model, attention, budget):
    texts = some_texts(24)
    alone = torch.cat([model.encode([text]) for text in texts])
    model.set_attn_implementation(attention)

    together = model.encode(texts, max_tokens_per_batch=budget)

    assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_the_mean_of_a_long_text_does_not_overflow_in_float16():
    hidden = torch.full((1, 8192, 2), 10.0, dtype=torch.float16)
    mask = (torch.arange(8192) < 8000).unsqueeze(0)

    assert pool(hidden, mask, "mean").tolist() == [[10.0, 10.0]]
