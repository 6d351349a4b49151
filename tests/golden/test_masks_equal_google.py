"""Our masks, made for all rows at once, against plain loops over one row after the other."""

import numpy as np
import pytest

from tests.golden.google_bert import find_words, mask_tokens
from tests.golden.masks import (
    CLS,
    MASK,
    NORMAL,
    PAD,
    PIECES,
    SEP,
    SHARES,
    SPECIAL,
    WORDS,
    apply,
    drawn,
    make_masking,
    make_rows,
    targets_of,
    uniform,
)


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES.keys())
def test_ids_and_labels_equal_the_loops(shares, whole_words):
    rows = make_rows(600)
    draws = uniform(rows)

    masked = apply(make_masking(shares, whole_word_mask=whole_words), rows, draws)

    start = 0
    for row, result in zip(rows, masked, strict=True):
        stop = start + len(row)
        assert result == mask_tokens(
            row,
            tuple(draw[start:stop] for draw in draws),
            mask_token_id=MASK,
            special_ids=set(SPECIAL),
            continuation_ids=set(PIECES),
            random_ids=NORMAL,
            shares=shares,
            whole_words=whole_words,
        )
        start = stop


@pytest.mark.parametrize("share", [0.15, 0.4, 0.5])
def test_every_length_has_as_many_targets_as_google_counts(share):
    lengths = range(4, 513)
    rows = [[CLS, *[WORDS[0]] * (length - 2), SEP] for length in lengths]

    masked = apply(make_masking((share, 0.8, 0.1)), rows, uniform(rows))

    counts = [len(targets_of(labels)) for _, labels in masked]
    assert counts == [max(1, round(share * length)) for length in lengths]


def test_a_piece_after_a_special_token_begins_a_word():
    word, piece = WORDS[0], PIECES[0]
    row = [CLS, word, piece, SEP, piece, piece, SEP] * 20
    masking = make_masking((2 / 7, 1.0, 0.0), whole_word_mask=True)

    ((hidden, _),) = drawn(masking, [row])

    words = [hidden[start : start + 2] for start in range(1, len(row), 7)]
    others = [hidden[start : start + 2] for start in range(4, len(row), 7)]
    assert {tuple(pair) for pair in words} == {(word, piece), (MASK, MASK)}
    assert {tuple(pair) for pair in others} == {(piece, piece), (MASK, MASK)}
    assert any(
        MASK in pair and MASK not in other for pair, other in zip(words, others, strict=True)
    )


def test_a_word_does_not_reach_into_the_next_row_even_without_special_tokens_between():
    rows = [[PIECES[0]], [PIECES[1], PIECES[1]], [PIECES[2]]]

    masked = drawn(make_masking((0.25, 1.0, 0.0), whole_word_mask=True), rows)

    assert [hidden for hidden, _ in masked] == [[MASK], [MASK, MASK], [MASK]]


def test_a_word_that_does_not_fit_is_skipped_and_a_later_one_taken():
    long, short = [WORDS[0], *[PIECES[0]] * 3], [WORDS[1]]
    row = [CLS, *long, *short, *short, SEP]  # 8 tokens, so 2 targets
    order = np.array([0.9, 0.1, 0, 0, 0, 0.3, 0.2, 0.9])
    draws = np.stack([order, np.zeros(8), np.zeros(8)])

    ((hidden, _),) = apply(make_masking((0.25, 1.0, 0.0), whole_word_mask=True), [row], draws)

    assert hidden == [CLS, *long, MASK, MASK, SEP]


def test_the_first_word_in_order_is_taken_whole_if_none_fits():
    row = [CLS, WORDS[0], *[PIECES[0]] * 2, WORDS[1], *[PIECES[1]] * 3, SEP]
    order = np.array([0, 0.7, 0, 0, 0.6, 0.9, 0.9, 0.9, 0])
    draws = np.stack([order, np.zeros(9), np.zeros(9)])

    ((hidden, labels),) = apply(make_masking(whole_word_mask=True), [row], draws)

    assert hidden == [*row[:4], *[MASK] * 4, SEP]
    assert labels == [*[-100] * 4, *row[4:8], -100]


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_row_of_special_tokens_has_no_target_and_no_effect_on_its_neighbours(whole_words):
    masking = make_masking(whole_word_mask=whole_words)
    bare = [CLS, SEP, SEP, MASK, PAD]
    word = [CLS, WORDS[0], SEP]

    masked = drawn(masking, [bare, word, bare, bare, word, bare])

    counts = [len(targets_of(labels)) for _, labels in masked]
    assert counts == [0, 1, 0, 0, 1, 0]
    assert masked[0] == masked[3] == (bare, [-100] * 5)


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_row_with_a_word_has_a_target_and_special_tokens_are_none(whole_words):
    rows = make_rows(600, seed=1)

    masked = drawn(make_masking(whole_word_mask=whole_words), rows)

    for row, (hidden, labels) in zip(rows, masked, strict=True):
        positions = targets_of(labels)
        assert bool(positions) == bool(set(row) - set(SPECIAL))
        assert all(labels[position] == row[position] for position in positions)
        assert not {row[position] for position in positions} & set(SPECIAL)
        assert all(
            hidden[position] == token
            for position, token in enumerate(row)
            if position not in positions
        )


def test_words_are_hidden_whole():
    rows = make_rows(600, seed=2)

    masked = drawn(make_masking((0.3, 0.8, 0.1), whole_word_mask=True), rows)

    longest = 0
    for row, (_, labels) in zip(rows, masked, strict=True):
        positions = set(targets_of(labels))
        for word in find_words(row, set(SPECIAL), set(PIECES)):
            assert len(positions & set(word)) in {0, len(word)}
            longest = max(longest, len(positions & set(word)))
    assert longest > 3
