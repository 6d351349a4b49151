"""Rows of a made-up vocabulary for the tests of masks, and the masks."""

import random

import numpy as np

from trainers import Masking

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = [PAD, CLS, SEP, MASK]
WORDS = range(5, 30)
PIECES = range(30, 40)
NORMAL = [*WORDS, *PIECES]
SHARES = {
    "google's": (0.15, 0.8, 0.1),
    "many targets": (0.45, 0.5, 0.25),
    "all of them masks": (0.3, 1.0, 0.0),
    "all of them random": (0.3, 0.0, 1.0),
    "every token": (1.0, 0.6, 0.3),
}


def make_masking(shares=SHARES["google's"], random_ids=NORMAL, **options):
    names = ("mlm_probability", "mask_replace_prob", "random_replace_prob")
    return Masking(
        MASK, SPECIAL, PIECES, random_ids, **dict(zip(names, shares, strict=True)), **options
    )


def make_segment(rng, length):
    """Tokens in which half of all go on with a word, also the first one."""
    return rng.choices([*WORDS, *PIECES, UNK], [2] * len(WORDS) + [5] * len(PIECES) + [3], k=length)


def make_row(rng):
    """A pair or a single segment, at times padded, with a different mask, or without any word."""
    row = [CLS, *make_segment(rng, rng.randrange(40)), SEP]
    if rng.random() < 0.6:
        row += [*make_segment(rng, rng.randrange(25)), SEP]
    if rng.random() < 0.1:
        row[rng.randrange(len(row))] = MASK
    return row + [PAD] * rng.choice([0, 0, 0, 3])


def make_rows(count, seed=0):
    rng = random.Random(seed)
    return [make_row(rng) for _ in range(count)]


def flat(rows):
    """All rows as one stream, and their lengths."""
    return np.array([token for row in rows for token in row]), np.array([len(row) for row in rows])


def apply(masking, rows, draws):
    """Hide the targets of all rows in one call; their ids and labels, row by row."""
    ids, lengths = flat(rows)
    borders = lengths.cumsum()[:-1]
    hidden, labels = masking.apply(ids, lengths, draws)
    return [
        (left.tolist(), right.tolist())
        for left, right in zip(np.split(hidden, borders), np.split(labels, borders), strict=True)
    ]


def uniform(rows, seed=0):
    tokens = sum(map(len, rows))
    return np.random.default_rng(seed).random((3, tokens))


def drawn(masking, rows, number=0):
    """Hide the targets of all rows with the numbers that a run draws."""
    lengths = np.array([len(row) for row in rows])
    return apply(masking, rows, masking.draw(0, number, np.arange(len(rows)), lengths))


def targets_of(labels):
    return [position for position, label in enumerate(labels) if label != -100]
