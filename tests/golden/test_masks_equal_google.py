"""Our masks, made for all rows at once, against plain loops over one row after the other."""

import pytest

from tests.golden.google_bert import mask_tokens
from tests.golden.masks import (
    CLS,
    MASK,
    NORMAL,
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


def test_a_word_does_not_reach_into_the_next_row_even_without_special_tokens_between():
    rows = [[PIECES[0]], [PIECES[1], PIECES[1]], [PIECES[2]]]

    masked = drawn(make_masking((0.25, 1.0, 0.0), whole_word_mask=True), rows)

    assert [hidden for hidden, _ in masked] == [[MASK], [MASK, MASK], [MASK]]
