"""Pairs of sentences that mean the same or not."""

from dataclasses import dataclass
from typing import ClassVar

from datasets_scripts.files.readers import shorten

from .sentences import SentenceFormat, parse_number


@dataclass(frozen=True)
class ParaphraseFormat(SentenceFormat):
    """Rows whose ``label`` is 0 or 1."""

    problem_type: ClassVar[str] = "paraphrase"
    has_classes: ClassVar[bool] = True
    text_counts: ClassVar[tuple[int, ...]] = (2,)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return ("0", "1")

    def parse_label(self, text: str) -> int:
        """Convert a label."""
        number = parse_number(text)
        if number not in {0.0, 1.0}:
            raise ValueError(f"label {shorten(text)!r} is out of range; allowed are 0 and 1")
        return int(number)
