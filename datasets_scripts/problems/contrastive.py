"""Texts without labels: one, a matching pair, or a pair with a text that does not match it."""

from dataclasses import dataclass
from typing import Any

import datasets

from .encoding import check_pair_encoding, tokenize_rows
from .sentences import SentenceFormat


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    problem_type = "contrastive"
    text_counts = (1, 2, 3)
    own_keys = ()
    required_keys = ("text_columns",)

    def parse_label(self, text: str) -> float:
        raise ValueError(f"label {text!r}, but contrastive rows have none")

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        pair_encoding = options.pop("pair_encoding")
        check_pair_encoding("of a contrastive task", pair_encoding, ("separate",))
        return tokenize_rows(rows, tokenizer, is_separate=True, **options)
