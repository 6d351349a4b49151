"""The random numbers of masks: shares within three standard deviations, and dependencies."""

import math

import numpy as np
import pytest

from tests.golden.masks import MASK, NORMAL, SHARES, UNK, flat, make_masking, make_rows


def assert_share(count, trials, expected, deviations=3):
    """A count of independent trials lies within some standard deviations of the expected one."""
    deviation = math.sqrt(trials * expected * (1 - expected))
    assert abs(count - trials * expected) <= deviations * deviation


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES.keys())
def test_shares_of_masks_random_and_kept_tokens_are_those_asked_for(shares, whole_words):
    ids, lengths = flat(make_rows(1500, seed=3))
    masking = make_masking(shares, whole_word_mask=whole_words)

    hidden, labels = masking.apply(
        ids, lengths, masking.draw(0, 0, np.arange(len(lengths)), lengths)
    )

    targets = ((labels != -100) & (ids != UNK)).sum()
    unchanged = ((labels != -100) & (ids != UNK) & (hidden == ids)).sum()
    masks = ((labels != -100) & (ids != UNK) & (hidden == MASK)).sum()
    # a random token is at times the one it replaces
    kept = 1 - shares[1] - shares[2] + shares[2] / len(NORMAL)
    assert targets > 4000
    assert_share(masks, targets, shares[1])
    assert_share(unchanged, targets, kept)


def test_draws_of_a_row_do_not_depend_on_the_batch_around_it():
    lengths = np.array([7, 30, 1, 12, 512])
    rows = np.array([4, 0, 1_000_000, 17, 3])
    together = make_masking(seed=3).draw(1, 2, rows, lengths)

    alone = [
        make_masking(seed=3).draw(1, 2, rows[[place]], lengths[[place]])
        for place in (4, 1, 0, 2, 3)
    ]

    borders = lengths.cumsum()[:-1]
    parts = np.split(together, borders, axis=1)
    for place, draws in zip((4, 1, 0, 2, 3), alone, strict=True):
        np.testing.assert_array_equal(parts[place], draws)
