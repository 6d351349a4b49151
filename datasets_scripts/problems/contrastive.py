"""Texts without labels: one, a matching pair, or a pair with a text that does not match it."""

from dataclasses import dataclass
from typing import Any

import datasets

from .encoding.sequences import encode_rows
from .sentences import SentenceFormat


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    problem_type = "contrastive"
    has_unlabeled_rows = False  # none of its rows has a label
    text_counts = (1, 2, 3)
    own_keys = ()
    required_keys = ("text_columns",)

    def parse_label(self, text: str) -> float:
        raise ValueError(f"label {text!r}, but contrastive rows have none")

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, is_contrastive=True, **options)
