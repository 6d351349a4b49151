"""Predictions of models with equal weights: equal labels, scores that may be rounded apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def assert_same_predictions(
    found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> None:
    """Compare labels exactly and scores closely.

    Where in memory weights lie decides how a product of matrices is rounded, so that equal weights
    need not give equal last digits.

    Args:
        found: Predictions of a ``label`` and a ``score``.
        expected: What they should be.
    """
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected])
