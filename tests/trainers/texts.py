"""A text source for tests: segment pairs that are a function of (pass, row)."""

import numpy as np

CLS, SEP, MASK, FIRST = 1, 2, 3, 5  # 0 is padding, 4 the unknown token; words begin at FIRST
VOCABULARY = 23  # as in tiny.py


class Pairs:
    """Rows of random words, other ones in every pass; half of them are random pairs.

    Args:
        size: Rows.
        seed: Of the words.
    """

    def __init__(self, size, seed=0):
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.size

    def row(self, number, row):
        """Return ids, types and label of a row."""
        generator = np.random.default_rng((self.seed, number, row))
        first, second = (
            generator.integers(FIRST, VOCABULARY, generator.integers(2, 7)) for _ in "ab"
        )
        ids = np.concatenate([[CLS], first, [SEP], second, [SEP]])
        types = (np.arange(len(ids)) > len(first) + 1).astype(np.int64)
        return ids, types, int(generator.integers(2))

    def count_tokens(self, number):
        """Count the tokens of every row."""
        return np.asarray([len(self.row(number, row)[0]) for row in range(self.size)])

    def read(self, number, rows):
        """Read some rows."""
        ids, types, labels = zip(*(self.row(number, row) for row in rows.tolist()), strict=True)
        return {
            "lengths": np.asarray([len(row) for row in ids]),
            "input_ids": np.concatenate(ids),
            "token_type_ids": np.concatenate(types),
            "next_sentence_label": np.asarray(labels),
        }
