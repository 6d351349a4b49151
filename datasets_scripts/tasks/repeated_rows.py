"""Held-out rows that are also training rows: their metrics are those of rows that were learned."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import gt
from typing import Any

import datasets
from tokenizers.normalizers import BertNormalizer

from datasets_scripts.files.cache import count_batch, digest_text
from datasets_scripts.problems.row_format import RowFormat

logger = logging.getLogger(__name__)

LARGEST_SHARE = 0.1  # of the rows; official datasets share some short or common texts
# What an uncased vocabulary does to a text, which has no case, accents and invisible characters.
UNCASED = BertNormalizer(handle_chinese_chars=False, strip_accents=True)


def count_repeated(
    where: str, row_format: RowFormat, splits: Mapping[str, datasets.Dataset]
) -> dict[str, dict[str, int]]:
    """Count the held-out rows whose texts are those of a training row, and warn of many.

    Labels are not compared, and neither is what many models cannot tell apart; see `digest_alike`.

    Args:
        where: Owner of the rows, for messages.
        row_format: Their format.
        splits: Rows by split.

    Returns:
        By held-out split ``training_rows``, the number of these rows; and ``shared_texts``, if
        there are any, of others that have one of several texts in common with a training row.
    """
    names, shared = row_format.text_names, row_format.shared_names
    learned = set(digest_alike(splits["train"], names))
    texts = set(chain.from_iterable(_digest_texts(splits["train"], shared)))
    counts: dict[str, dict[str, int]] = {}
    for split, rows in splits.items():
        if split == "train":
            continue
        is_learned = [key in learned for key in digest_alike(rows, names)]
        counts[split] = {"training_rows": sum(is_learned)}
        has_text = (not texts.isdisjoint(keys) for keys in _digest_texts(rows, shared))
        if others := sum(map(gt, has_text, is_learned)):
            counts[split]["shared_texts"] = others
        if sum(is_learned) > LARGEST_SHARE * len(rows):
            logger.warning(
                "%s: %d of %d %s rows (%.0f %%) are also training rows (case, accents, white space "
                "and the order of texts are not compared), so their metrics do not measure how the "
                "model does on new rows; use other rows",
                where,
                sum(is_learned),
                len(rows),
                split,
                100 * sum(is_learned) / len(rows),
            )
    return counts


def count_equal_tokens(encoded: Mapping[str, datasets.Dataset]) -> dict[str, int]:
    """Count the encoded rows of each held-out split that are a training row to the model.

    These include texts that differ only in what was cut, or in what the vocabulary does not know.
    The several sequences of a row are compared in any order.
    """
    held = {split: list(_list_tokens(rows)) for split, rows in encoded.items() if split != "train"}
    wanted = set(chain.from_iterable(held.values()))
    learned = {tokens for tokens in _list_tokens(encoded["train"]) if tokens in wanted}
    return {split: sum(tokens in learned for tokens in rows) for split, rows in held.items()}


def _list_tokens(rows: datasets.Dataset) -> Iterator[Any]:
    columns = ["input_ids", "token_type_ids"]
    for batch in rows.select_columns(columns).with_format(None).iter(count_batch(rows)):
        for ids, types in zip(*(batch[name] for name in columns), strict=True):
            is_nested = bool(ids) and isinstance(ids[0], list)
            yield tuple(sorted(map(tuple, ids))) if is_nested else (tuple(ids), tuple(types))


def digest_rows(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[int]:
    """Hash some columns of every row, such as its texts, without their white space."""
    for values in _read(rows, columns):
        yield digest_text("\0".join(map(_join, values)))


def digest_alike(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[int]:
    """Hash some columns of every row, equally if many models cannot tell the rows apart.

    That is so if they differ in case, accents, white space and invisible characters alone, which
    uncased vocabularies remove, or in the order of their texts, which symmetric heads do not know.
    """
    for values in _read(rows, columns):
        texts = (
            "\0".join(sorted(map(_simplify, value)))
            if isinstance(value, list) and len(values) > 1  # choices; words alone have an order
            else _simplify(_join(value))
            for value in values
        )
        yield digest_text("\0\0".join(sorted(texts)))


def _digest_texts(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[list[int]]:
    """Hash each text of every row."""
    for values in _read(rows, columns) if columns else ():
        yield [digest_text(_simplify(text)) for text in values]


def _read(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in rows.select_columns(list(columns)).iter(count_batch(rows)):
        yield from zip(*batch.values(), strict=True)


def _join(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _simplify(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.lower()  # the same, and much faster
    return UNCASED.normalize_str(text)
