"""Rows as tokens: sentences, pairs, and windows of long texts.

What becomes of a text is decided by `modeling_minbert.texts`, for predictions, too. The rows that
are returned are cached by `datasets`, under a name made of the rows, the options and a tokenizer
without truncation or padding of its own: what was set on it before does not count.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import tokenizers
from datasets import Dataset
from datasets.utils import tqdm
from transformers import PreTrainedTokenizerBase as Tokenizer

from modeling_minbert import texts, unknown
from modeling_minbert.texts import (
    HEAD_SHARES,
    WINDOWS,
    Encoded,
    Encoding as Encoding,
    own_tokenizer,
    tokenize,
)

# What the rows say of themselves, so that a trainer can store it with the task.
ENCODED_WITH = "encoded by minBERT with max_length="
LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar is of use

Row = dict[str, Any]
Batch = dict[str, list[Any]]  # columns
# A type of a column: a name as of `datasets.Value`, a list with one, or a feature.
Feature: TypeAlias = "str | list[Feature] | datasets.Value | datasets.List"
Types = dict[str, Feature]

# The label of a row or token without one, which losses and metrics leave out, and that of a word
# whose tag is unknown.
IGNORED_LABEL, UNKNOWN_LABEL = -100, -1
SENTENCES = ("sentence1", "sentence2", "sentence3")  # columns of rows, for up to three texts
ONE_SEQUENCE: Types = {"input_ids": ["int32"], "token_type_ids": ["int8"], "length": "int32"}
SEVERAL_SEQUENCES: Types = ONE_SEQUENCE | {"input_ids": [["int32"]], "token_type_ids": [["int8"]]}


def make_features(**types: Feature) -> datasets.Features:
    """Make features of types; a list with one type is a list of any length."""

    def make(kind: Feature) -> Any:
        if isinstance(kind, list):
            return datasets.List(make(kind[0]))
        return datasets.Value(kind) if isinstance(kind, str) else kind

    return datasets.Features({name: make(kind) for name, kind in types.items()})


def note_length(rows: Dataset, max_length: int) -> Dataset:
    """Note in the description of encoded rows at which length texts were cut or split."""
    rows.info.description = f"{ENCODED_WITH}{max_length}"
    return rows


# Large data, and the cache


PACKAGE = Path(__file__).parent
SILENT_SECONDS = 5  # before a progress bar appears
# Rows, and characters or bytes of them, that are in memory at a time.
MOST_ROWS = 1000
MOST_CHARACTERS = 10_000_000


def hash_sources() -> str:
    """Hash the code that makes rows and tokens: `datasets` does not notice that it has changed."""
    digest = hashlib.sha256(tokenizers.__version__.encode())
    for folder in (PACKAGE, Path(texts.__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_text(text: str) -> int:
    """Hash a text without its white space to a number below 2 ** 64."""
    letters = "".join(text.split())
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")


def count_batch(rows: Dataset) -> int:
    """Return how many rows to process together: fewer if they are long."""
    return max(1, min(MOST_ROWS, MOST_CHARACTERS * len(rows.data) // (rows.data.nbytes + 1)))


def show_progress(rows: Iterable[Any], title: str, total: int | None = None) -> Iterator[Any]:
    """Yield rows with a progress bar, which appears after a while."""
    return iter(tqdm(rows, desc=title, total=total, unit=" rows", delay=SILENT_SECONDS))


# Sentences


def encode_rows(
    rows: Dataset,
    tokenizer: Tokenizer,
    encoding: Encoding,
    *,
    label_type: Feature = "int64",
    is_contrastive: bool = False,
) -> Dataset:
    """Tokenize rows with id, sentences, and label if labeled; padding is left to the collator.

    The labels get the type that the loss needs. Each text of a contrastive row is a sequence.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each sequence if they are separate),
        length (in tokens, of the longest sequence) and labels (if labeled). For windows, those of
        all texts of a row are one list, ``num_windows`` counts those of each text, and length is
        that of all windows.

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    allowed: tuple[str | None, ...]
    if is_contrastive:
        kind, allowed = "of a contrastive task", ("separate",)
    elif "sentence2" in rows.column_names:
        kind, allowed = "pairs", ("joint", "separate")
    else:
        kind, allowed = "single sentences", (None,)
    pairs, truncation = encoding.pair_encoding, encoding.truncation
    if pairs not in allowed:
        remedy = "remove it" if None in allowed else f"allowed: {', '.join(map(repr, allowed))}"
        raise ValueError(f"pair_encoding={pairs!r}, but the rows are {kind}; {remedy}")
    if truncation not in (*HEAD_SHARES, WINDOWS):
        raise ValueError(unknown("truncation", truncation, (*HEAD_SHARES, WINDOWS)))
    if truncation == WINDOWS and pairs == "joint":
        raise ValueError("truncation='windows' needs each text of a pair as a sequence")
    types = ONE_SEQUENCE
    if truncation == WINDOWS:
        types = SEVERAL_SEQUENCES | {"num_windows": ["int32"]}
    elif pairs == "separate":
        types = SEVERAL_SEQUENCES
    return map_rows(rows, _encode_texts, tokenizer, encoding, types, {"labels": label_type})


def map_rows(
    rows: Dataset,
    encode: Callable[..., Batch],
    tokenizer: Tokenizer,
    encoding: Encoding,
    types: Types,
    label_types: Types,
    *,
    batch_size: int | None = None,
) -> Dataset:
    """Encode batches of rows, with their ids; only labeled rows have columns of ``label_types``."""
    if "label" in rows.column_names:
        rows, types = rows.rename_column("label", "labels"), types | label_types
    features = make_features(id="string", **types)
    hide = len(rows) <= LONG_MAP and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        encoded = rows.map(
            encode,
            batched=True,
            batch_size=batch_size or count_batch(rows),
            fn_kwargs={"tokenizer": own_tokenizer(tokenizer), "encoding": encoding},
            remove_columns=[name for name in rows.column_names if name not in features],
            features=features,
            desc="encode",
        )
    finally:
        if hide:
            datasets.enable_progress_bars()
    return note_length(encoded, encoding.max_length)


def _encode_texts(batch: Batch, *, tokenizer: Tokenizer, encoding: Encoding) -> Batch:
    rows = list_texts(batch)
    if encoding.truncation == WINDOWS:
        from modeling_minbert.pieces import split_documents

        split = iter(split_documents(encoding, tokenizer, list(chain.from_iterable(rows))))
        columns: Batch = {name: [] for name in (*Encoded._fields, "num_windows", "length")}
        for row in rows:
            parts = list(islice(split, len(row)))
            windows = list(chain.from_iterable(parts))
            columns["input_ids"].append([window.input_ids[0] for window in windows])
            columns["token_type_ids"].append([window.token_type_ids[0] for window in windows])
            columns["num_windows"].append(list(map(len, parts)))
            columns["length"].append(sum(window.tokens for window in windows))
        return columns
    is_separate = encoding.pair_encoding == "separate"
    encoded = tokenize(tokenizer, rows, encoding)
    columns = {"length": [max(map(len, row.input_ids)) for row in encoded]}
    for name in Encoded._fields:
        sequences = [getattr(row, name) for row in encoded]
        columns[name] = sequences if is_separate else [ids for (ids,) in sequences]
    return columns


def list_texts(batch: Batch) -> list[tuple[str, ...]]:
    """List the texts of each row."""
    return list(zip(*(batch[name] for name in SENTENCES if name in batch), strict=True))
