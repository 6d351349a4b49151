"""Texts without labels: one, a matching pair, or a pair with a text that does not match it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import datasets

from .encoding import check_pair_encoding, tokenize_rows
from .sentences import SentenceFormat


@dataclass(frozen=True)
class ContrastiveFormat(SentenceFormat):
    """Rows without a label; each text is a sequence."""

    problem_type: ClassVar[str] = "contrastive"
    text_counts: ClassVar[tuple[int, ...]] = (1, 2, 3)
    own_keys: ClassVar[tuple[str, ...]] = ()
    required_keys: ClassVar[tuple[str, ...]] = ("text_columns",)
    hub_keys: ClassVar[tuple[str, ...]] = required_keys

    def parse_label(self, text: str) -> float:
        """Reject any label: the recipe cannot name a column of them."""
        raise ValueError(f"label {text!r}, but contrastive rows have none")

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        """Tokenize every text as a sequence; see `encode_rows`."""
        pair_encoding = options.pop("pair_encoding")
        check_pair_encoding("of a contrastive task", pair_encoding, ("separate",))
        return tokenize_rows(rows, tokenizer, is_separate=True, **options)
