"""Tokenize contexts with several choices: a sequence for each choice."""

from collections.abc import Callable
from itertools import islice

import datasets
from transformers import PreTrainedTokenizerBase

from datasets_scripts.files.cache import count_batch, progress_bars
from datasets_scripts.problems.row_format import make_features

from .sequences import LONG_MAP, Columns, make_tokenize


def encode_choices(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    num_choices: int,
    max_length: int,
    truncation: str = "head",
    pair_encoding: str | None = "joint",
) -> datasets.Dataset:
    """Tokenize the pairs of a context and each of its choices.

    Args:
        rows: Rows with id, sentence1, optionally sentence2, choices, and label (if labeled).
        tokenizer: Tokenizer of the model.
        num_choices: Sequences of a row. A missing one is a single token of padding.
        max_length: Maximum tokens of a sequence, including special tokens.
        truncation: As in `encode_rows`.
        pair_encoding: ``joint``; there is no other one.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each choice), length (in tokens, of
        the longest sequence) and labels (if labeled).

    Raises:
        ValueError: If ``pair_encoding`` or ``truncation`` is unknown, or a row has more choices.
    """
    if pair_encoding != "joint":
        raise ValueError(f"pair_encoding={pair_encoding!r}: choices are encoded as 'joint' alone")
    settings = {
        "tokenize": make_tokenize(tokenizer, max_length, truncation),
        "num_choices": num_choices,
        "padding": tokenizer.pad_token_id or 0,
    }
    with progress_bars(shown=len(rows) > LONG_MAP):
        return rows.map(
            _encode,
            batched=True,
            batch_size=count_batch(rows),
            fn_kwargs=settings,
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=make_features(
                id="string",
                input_ids=[["int32"]],
                token_type_ids=[["int8"]],
                length="int32",
                **({"labels": "int64"} if "label" in rows.column_names else {}),
            ),
            desc="encode",
        )


def _encode(
    batch: Columns,
    *,
    tokenize: Callable[[list[list[str]]], Columns],
    num_choices: int,
    padding: int,
) -> Columns:
    sizes = list(map(len, batch["choices"]))
    if max(sizes) > num_choices:
        raise ValueError(f"a row has {max(sizes)} choices, but the task takes {num_choices}")
    contexts, choices = _pair_up(batch)
    encoded: Columns = {}
    for name, sequences in tokenize([contexts, choices]).items():
        rest, filler = iter(sequences), [padding if name == "input_ids" else 0]
        encoded[name] = [[*islice(rest, size), *[filler] * (num_choices - size)] for size in sizes]
    encoded["length"] = [max(map(len, row)) for row in encoded["input_ids"]]
    return encoded | ({"labels": batch["label"]} if "label" in batch else {})


def _pair_up(batch: Columns) -> tuple[list[str], list[str]]:
    """Return the first and the second text of every sequence."""
    contexts: list[str] = []
    texts: list[str] = []
    for place, choices in enumerate(batch["choices"]):
        start = f"{batch['sentence2'][place]} " if "sentence2" in batch else ""
        contexts += [batch["sentence1"][place]] * len(choices)
        texts += [start + choice for choice in choices]
    return contexts, texts
