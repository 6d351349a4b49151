"""Tokenize sentences and pairs of them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase

from datasets_scripts.files.cache import count_batch, progress_bars
from datasets_scripts.problems.row_format import make_features
from modeling_minbert import unknown

from .document_windows import DocumentWindows

LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar is of use
# Share of the kept tokens that comes from the start of a text: the paper's 128 of 510, with 382
# from the end. Source: Sun et al. 2019, How to Fine-Tune BERT for Text Classification?, 5.3.1.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}

WINDOWS = "windows"  # the truncation that keeps all of a text

Columns = dict[str, list[Any]]


def encode_rows(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pair_encoding: str | None,
    max_length: int,
    truncation: str = "head",
    label_type: str | datasets.List = "int64",
    is_contrastive: bool = False,
    window_overlap: int | None = None,
    max_windows: int | None = None,
) -> datasets.Dataset:
    """Tokenize sentences; padding and masks are left to the collator.

    Args:
        rows: Rows with id, sentence1, optionally sentence2 and sentence3, and label (if labeled).
        tokenizer: Tokenizer of the model.
        pair_encoding: ``joint`` puts both sentences into one sequence, ``separate`` makes each a
            sequence; None for single sentences.
        max_length: Maximum tokens of a sequence, including special tokens.
        truncation: Part of a long text to keep: its ``head``, its ``tail``, or both, as
            ``head_tail``: a quarter of the tokens from the start, 128 of 510, and the rest from
            the end (Sun et al. 2019, section 5.3.1). The longer text of a joint pair is truncated
            first. Or ``windows``: each text becomes one or more sequences; see `DocumentWindows`.
        label_type: Type of the labels, as the loss needs it.
        is_contrastive: Whether each text, including a single one, is a sequence.
        window_overlap: Tokens that a window shares with the one before; only for windows.
        max_windows: Maximum windows of a text; only for windows.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each sequence if they are separate),
        length (in tokens, of the longest sequence) and labels (if labeled); for windows as
        `DocumentWindows` returns them.

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    _check_pair_encoding(rows, pair_encoding, is_contrastive=is_contrastive)
    known = (*HEAD_SHARES, WINDOWS)
    if truncation not in known:
        raise ValueError(unknown("truncation", truncation, known))
    if truncation == WINDOWS:
        if pair_encoding == "joint":
            raise ValueError("truncation='windows' needs each text of a pair as a sequence")
        windows = DocumentWindows(max_length, window_overlap or 0, max_windows)
        encode = partial(windows.encode, tokenizer=tokenizer)
        encode([[""]])  # see `make_tokenize`
    else:
        tokenize = make_tokenize(tokenizer, max_length, truncation)
        encode = partial(_encode_texts, is_separate=pair_encoding == "separate", tokenize=tokenize)
    with progress_bars(shown=len(rows) > LONG_MAP):
        return rows.map(
            _encode,
            batched=True,
            batch_size=count_batch(rows),
            fn_kwargs={"encode": encode},
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=make_features(
                id="string",
                **_token_features(pair_encoding, truncation),
                length="int32",
                **({"labels": label_type} if "label" in rows.column_names else {}),
            ),
            desc="encode",
        )


def _token_features(pair_encoding: str | None, truncation: str) -> dict[str, list[Any]]:
    """Return the types of the columns of tokens."""
    has_windows = truncation == WINDOWS
    types: dict[str, list[Any]] = {"input_ids": ["int32"], "token_type_ids": ["int8"]}
    if pair_encoding == "separate" or has_windows:
        types = {name: [kind] for name, kind in types.items()}
    return types | ({"num_windows": ["int32"]} if has_windows else {})


def make_tokenize(
    tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: str
) -> Callable[[list[list[str]]], Columns]:
    """Return a function that tokenizes a column of texts, or two as pairs; see `encode_rows`."""
    if truncation not in HEAD_SHARES:
        raise ValueError(unknown("truncation", truncation, HEAD_SHARES))
    tokenize = partial(_tokenize, tokenizer=tokenizer, max_length=max_length, truncation=truncation)
    # The first call sets the tokenizer's truncation. Made here, the state of the tokenizer and
    # with it the name of the cached result are the same in every run.
    tokenize([[""]])
    return tokenize


def _check_pair_encoding(
    rows: datasets.Dataset, given: str | None, *, is_contrastive: bool
) -> None:
    """Reject an encoding of pairs that does not fit the rows."""
    allowed: tuple[str | None, ...]
    if is_contrastive:
        kind, allowed = "of a contrastive task", ("separate",)
    elif "sentence2" in rows.column_names:
        kind, allowed = "pairs", ("joint", "separate")
    else:
        kind, allowed = "single sentences", (None,)
    if given in allowed:
        return
    remedy = "remove it" if None in allowed else f"allowed: {', '.join(map(repr, allowed))}"
    raise ValueError(f"pair_encoding={given!r}, but the rows are {kind}; {remedy}")


def choose_tokens(special: Sequence[int], max_length: int, head_share: float) -> list[int]:
    """Choose the tokens to keep, as positions; ``special``, (T,), is 1 for added tokens."""
    # The longer of two texts loses tokens first, as with ``truncation="longest_first"``.
    places = range(len(special))
    if len(special) <= max_length:
        return list(places)
    texts = [list(run) for added, run in groupby(places, special.__getitem__) if not added]
    room = max_length - sum(special)
    longer = max(reversed(texts), key=len)  # the second one, if both have the same length
    shorter_size = min(sum(map(len, texts)) - len(longer), room // 2)
    dropped: set[int] = set()
    for text in texts:
        size = room - shorter_size if text is longer else shorter_size
        head = round(head_share * size)
        dropped.update(text[head : len(text) - (size - head)])
    return [place for place in places if place not in dropped]


def _encode(batch: Columns, *, encode: Callable[[list[list[str]]], Columns]) -> Columns:
    texts = [batch[name] for name in ("sentence1", "sentence2", "sentence3") if name in batch]
    return encode(texts) | ({"labels": batch["label"]} if "label" in batch else {})


def _encode_texts(
    texts: list[list[str]], *, is_separate: bool, tokenize: Callable[[list[list[str]]], Columns]
) -> Columns:
    """Tokenize columns of texts, and measure the rows."""
    if is_separate:
        columns = [tokenize([column]) for column in texts]
        encoded: Columns = {
            key: [list(row) for row in zip(*(column[key] for column in columns), strict=True)]
            for key in columns[0]
        }
        encoded["length"] = [max(map(len, row)) for row in encoded["input_ids"]]
    else:
        encoded = tokenize(texts)
        encoded["length"] = [len(ids) for ids in encoded["input_ids"]]
    return encoded


def _tokenize(
    texts: list[list[str]], *, tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: str
) -> Columns:
    """Tokenize a column of texts, or two of them as pairs."""
    is_own = truncation != "head"  # tokenizers can only keep heads
    # Padding and truncation are explicit: a tokenizer.json can contain its own.
    encoded = tokenizer(
        *texts,
        padding=False,
        truncation=False if is_own else "longest_first",
        max_length=None if is_own else max_length,
        return_attention_mask=False,
        return_token_type_ids=True,
        return_special_tokens_mask=is_own,
        verbose=not is_own,  # no warning about sequences that are too long
    )
    columns = {name: encoded[name] for name in ("input_ids", "token_type_ids")}
    if is_own:
        for row, special in enumerate(encoded["special_tokens_mask"]):
            kept = choose_tokens(special, max_length, HEAD_SHARES[truncation])
            for column in columns.values():
                column[row] = [column[row][place] for place in kept]
    return columns


def tokenize_whole(tokenizer: PreTrainedTokenizerBase, texts: list[Any], **options: bool) -> Any:
    """Tokenize texts, or lists of words, without special tokens and at their full length."""
    # Padding and truncation are explicit: a tokenizer.json can contain its own.
    return tokenizer(
        texts,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warning about long texts: they are split into windows
        **options,
    )
