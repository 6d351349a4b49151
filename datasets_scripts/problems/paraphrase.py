"""Pairs of sentences that mean the same or not."""

from dataclasses import dataclass

from datasets_scripts.files.readers import shorten

from .sentences import SentenceFormat, parse_number


@dataclass(frozen=True)
class ParaphraseFormat(SentenceFormat):
    """Rows whose ``label`` is 0 or 1."""

    problem_type = "paraphrase"
    has_classes = True
    text_counts = (2,)

    @property
    def class_names(self) -> tuple[str, ...]:
        return ("0", "1")

    def parse_label(self, text: str) -> int:
        number = parse_number(text)
        if number not in {0.0, 1.0}:
            raise ValueError(f"label {shorten(text)!r} is out of range; allowed are 0 and 1")
        return int(number)
