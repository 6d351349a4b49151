"""Pairs of sentences with a score of their similarity."""

import math
from dataclasses import dataclass

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.readers import shorten

from .sentences import SentenceFormat, parse_number

STRATA = 10  # ranges of scores with equal numbers of rows


@dataclass(frozen=True)
class SimilarityFormat(SentenceFormat):
    """Rows whose ``label`` is a score in ``score_range``."""

    problem_type = "similarity"
    text_counts = (2,)
    own_keys = ("label_column", "score_range")
    required_keys = ("text_columns", "label_column", "score_range")
    row_type = "float32"

    def strata(self, rows: datasets.Dataset) -> NDArray[np.int64]:
        scores = np.asarray(rows["label"])
        limits = np.quantile(scores, np.linspace(0, 1, STRATA + 1)[1:-1])
        return np.searchsorted(limits, scores, side="right")

    def parse_label(self, text: str) -> float:
        number = parse_number(text)
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= number <= high:
            raise ValueError(
                f"label {shorten(text)!r} is out of range; allowed is {low:g} to {high:g}"
            )
        return number
