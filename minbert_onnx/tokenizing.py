"""A tokenizer without transformers, with what `texts.py` and `pieces.py` use of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Encoding, Tokenizer

# Names of the columns, and of the same attribute of tokenizers.
COLUMNS = {
    "input_ids": "ids",
    "token_type_ids": "type_ids",
    "special_tokens_mask": "special_tokens_mask",
    "offset_mapping": "offsets",
}


class Encodings(dict[str, Any]):
    """The tokens of rows: a column by its name, a row by its number."""

    def __init__(self, rows: Sequence[Encoding]) -> None:
        super().__init__(
            {name: [getattr(row, key) for row in rows] for name, key in COLUMNS.items()}
        )
        self.rows = rows

    def __getitem__(self, key: Any) -> Any:
        return self.rows[key] if isinstance(key, int) else super().__getitem__(key)

    def word_ids(self, row: int) -> list[int | None]:
        """Return the word of each token of a row."""
        return self.rows[row].word_ids


class FastTokenizer:
    """Reads texts as a fast tokenizer of transformers does.

    Args:
        tokenizer: The tokenizer.
        settings: What is not in its file: `unk_token_id`, `truncation_side`, `model_max_length` and
            `split_special_tokens`.
    """

    is_fast = True

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self.unk_token_id: int | None = settings["unk_token_id"]
        self.truncation_side: str = settings["truncation_side"]
        self.model_max_length: int = settings["model_max_length"]
        tokenizer.encode_special_tokens = settings["split_special_tokens"]

    def __call__(
        self,
        *texts: Any,
        truncation: str | bool = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        return_special_tokens_mask: bool = False,
        **_: Any,
    ) -> Any:
        """Tokenize one text or a pair, or a list of rows in one or two columns."""
        if max_length is not None and truncation:
            side, way = self.truncation_side, str(truncation)
            self._tokenizer.enable_truncation(max_length, strategy=way, direction=side)
        is_one = isinstance(texts[0], str)
        columns = [[text] for text in texts] if is_one else texts
        rows = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
        found = Encodings(
            self._tokenizer.encode_batch(
                rows, is_pretokenized=is_split_into_words, add_special_tokens=add_special_tokens
            )
        )
        if not return_special_tokens_mask:
            del found["special_tokens_mask"]
        return {name: values[0] for name, values in found.items()} if is_one else found
