"""Pairs of sentences with a score of their similarity."""

import math
from dataclasses import dataclass
from typing import ClassVar

from datasets_scripts.files.readers import shorten

from .sentences import SentenceFormat, parse_number


@dataclass(frozen=True)
class SimilarityFormat(SentenceFormat):
    """Rows whose ``label`` is a score in ``score_range``."""

    problem_type: ClassVar[str] = "similarity"
    text_counts: ClassVar[tuple[int, ...]] = (2,)
    own_keys: ClassVar[tuple[str, ...]] = ("label_column", "score_range")
    required_keys: ClassVar[tuple[str, ...]] = ("text_columns", "label_column", "score_range")
    hub_keys: ClassVar[tuple[str, ...]] = required_keys
    row_type: ClassVar[str] = "float32"

    def parse_label(self, text: str) -> float:
        """Convert a score."""
        number = parse_number(text)
        low, high = self.score_range or (-math.inf, math.inf)
        if not low <= number <= high:
            raise ValueError(
                f"label {shorten(text)!r} is out of range; allowed is {low:g} to {high:g}"
            )
        return number
