"""Turn rows into tokens."""

from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase

from datasets_scripts.files.progress import progress_bars

from .truncation import HEAD_SHARES, choose_tokens

PAIR_ENCODINGS = ("joint", "separate")
LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar could be read


def encode_rows(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    problem_type: str,
    pair_encoding: str | None,
    max_length: int,
    truncation: str = "head",
) -> datasets.Dataset:
    """Encode sentences as tokens; padding and masks are the collator's work.

    Args:
        rows: Rows with id, sentence1, maybe sentence2 and sentence3, and label (if labelled).
        tokenizer: Tokenizer of the model.
        problem_type: ``classification``, ``paraphrase``, ``similarity`` or ``contrastive``.
        pair_encoding: ``joint`` puts both sentences into one sequence, the longer one losing
            tokens first; ``separate`` makes each a sequence, as a contrastive task needs it; None
            for single sentences.
        max_length: Tokens of a sequence at most, special tokens included.
        truncation: What stays of a text that is too long: its ``head``, its ``tail``, or both, as
            ``head_tail``: a quarter of the tokens from the start, 128 of 510, and the others from
            the end (Sun et al. 2019, section 5.3.1). Of a joint pair the longer text is cut first.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for every sequence if they are separate),
        length (tokens, of the longest sequence) and labels (if labelled).

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    is_pair = "sentence2" in rows.column_names
    allowed: tuple[str | None, ...] = PAIR_ENCODINGS if is_pair else (None,)
    kind = "pairs" if is_pair else "single sentences"
    if problem_type == "contrastive":
        allowed, kind = ("separate",), "of a contrastive task"
    if pair_encoding not in allowed:
        raise ValueError(
            f"pair_encoding={pair_encoding!r}, but the rows are {kind}; allowed: "
            f"{', '.join(map(repr, allowed))}"
        )
    if truncation not in HEAD_SHARES:
        raise ValueError(f"truncation={truncation!r}; known: {', '.join(HEAD_SHARES)}")
    is_separate = pair_encoding == "separate"
    encode = _encode_separate if is_separate else _encode_joint
    kwargs = {"tokenizer": tokenizer, "max_length": max_length, "truncation": truncation}
    # A first call sets the tokenizer's truncation. Done here, its state and with it the name of
    # the cached result are the same in every run.
    _tokenize(tokenizer, [""], None, max_length, truncation)
    features = _make_features(
        is_separate=is_separate,
        label=None if "label" not in rows.column_names else _label_type(problem_type),
    )
    with progress_bars(shown=len(rows) > LONG_MAP):
        return rows.map(
            encode,
            batched=True,
            fn_kwargs=kwargs,
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=features,
            desc="encode",
        )


def _make_features(*, is_separate: bool, label: str | None) -> datasets.Features:
    ids = datasets.List(datasets.Value("int32"))
    types = datasets.List(datasets.Value("int8"))
    features = {
        "id": datasets.Value("string"),
        "input_ids": datasets.List(ids) if is_separate else ids,
        "token_type_ids": datasets.List(types) if is_separate else types,
        "length": datasets.Value("int32"),
    }
    if label is not None:
        features["labels"] = datasets.Value(label)
    return datasets.Features(features)


def _label_type(problem_type: str) -> str:
    return "int64" if problem_type == "classification" else "float32"


def _encode_joint(
    batch: dict[str, list[Any]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    truncation: str,
) -> dict[str, list[Any]]:
    first, second = batch["sentence1"], batch.get("sentence2")
    encoded = _tokenize(tokenizer, first, second, max_length, truncation)
    encoded["length"] = [len(ids) for ids in encoded["input_ids"]]
    return encoded | _labels(batch)


def _encode_separate(
    batch: dict[str, list[Any]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    truncation: str,
) -> dict[str, list[Any]]:
    names = sorted(name for name in batch if name.startswith("sentence"))
    columns = [_tokenize(tokenizer, batch[name], None, max_length, truncation) for name in names]
    encoded: dict[str, list[Any]] = {
        key: [list(row) for row in zip(*(column[key] for column in columns), strict=True)]
        for key in columns[0]
    }
    encoded["length"] = [max(map(len, row)) for row in encoded["input_ids"]]
    return encoded | _labels(batch)


def _tokenize(
    tokenizer: PreTrainedTokenizerBase,
    first: list[str],
    second: list[str] | None,
    max_length: int,
    truncation: str,
) -> dict[str, list[Any]]:
    cuts_heads = truncation != "head"  # which tokenizers cannot do
    # Padding and truncation are said aloud: a tokenizer.json can carry its own.
    encoded = tokenizer(
        first,
        second,
        padding=False,
        truncation=False if cuts_heads else "longest_first",
        max_length=None if cuts_heads else max_length,
        return_attention_mask=False,
        return_token_type_ids=True,
        return_special_tokens_mask=cuts_heads,
        verbose=not cuts_heads,  # no warning of sequences that are too long
    )
    columns = {name: encoded[name] for name in ("input_ids", "token_type_ids")}
    if cuts_heads:
        for row, special in enumerate(encoded["special_tokens_mask"]):
            kept = choose_tokens(special, max_length, HEAD_SHARES[truncation])
            for column in columns.values():
                column[row] = [column[row][place] for place in kept]
    return columns


def _labels(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"labels": batch["label"]} if "label" in batch else {}
