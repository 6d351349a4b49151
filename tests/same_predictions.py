"""Predictions of models with equal weights: equal labels, scores that may be rounded apart."""

import numpy as np
import pytest


def assert_same(found, expected):
    """Compare predictions: scores by five digits, all else exactly.

    Where in memory weights lie decides how a product of matrices is rounded, so that equal weights
    need not give equal last digits.
    """
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, float | np.floating):
        assert isinstance(found, float | np.floating)
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-5)
    else:
        assert found == expected
