"""Choose rows: draw some, hold some out, pair them by class, and find those that repeat."""

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import gt
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from tokenizers.normalizers import BertNormalizer

from .hub import count_batch, digest_text
from .readers import is_test
from .row_format import RowFormat
from .task_data import TaskData

# Draws


def sample_rows(
    rows: datasets.Dataset, data: TaskData, split: str, labels: Sequence[str] | None
) -> datasets.Dataset:
    """Draw rows so that a split, or each of its classes, does not exceed its maximum."""
    # Draws depend on seed, split and position alone: a larger sample contains a smaller one.
    part = "train" if split == "train" else "test" if is_test(split) else "eval"
    key = f"max_{part}_samples"
    # test rows may have no classes
    most, most_per_class = getattr(data, key), getattr(data, f"{key}_per_class", None)
    if most is None and most_per_class is None:
        return rows
    classes = np.zeros(len(rows), np.int64)
    if most_per_class is not None:
        classes = np.asarray(rows["label"], np.int64)
        where = f"{data.where}: {key}_per_class"
        most = _find_size(where, split, classes, most_per_class, labels or ())
    chosen = choose_places(classes, int(most or 0), f"{data.sample_seed} {split}")
    return rows if len(chosen) == len(rows) else rows.select(chosen)


def choose_places(classes: NDArray[np.int64], most: int, seed: str) -> NDArray[np.int64]:
    """Choose up to ``most`` rows of each class, (N,); returns their positions, ascending, int64."""
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    order = np.lexsort((rng.random(len(classes)), classes))
    sizes = np.bincount(classes)
    ranks = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[ranks < most])


def describe_rows(
    rows: datasets.Dataset, num_valid: int, labels: Sequence[str] | None
) -> dict[str, int | dict[str, int]]:
    """Count the rows of a split."""
    facts: dict[str, int | dict[str, int]] = {"rows": len(rows), "usable_rows": num_valid}
    if labels is not None and "label" in rows.column_names:
        sizes = np.bincount(np.asarray(rows["label"], np.int64), minlength=len(labels))
        facts["classes"] = dict(zip(labels, sizes.tolist(), strict=True))
    return facts


def _find_size(
    where: str, split: str, classes: NDArray[np.int64], wanted: int | str, labels: Sequence[str]
) -> int:
    if wanted != "balanced":
        return int(wanted)
    sizes = np.bincount(classes, minlength=len(labels))
    if missing := [labels[number] for number in np.flatnonzero(sizes == 0).tolist()]:
        raise ValueError(
            f"{where}={wanted!r}, but no {split} row has the label "
            f"{', '.join(map(repr, missing))}, so every class would be left without rows; add such "
            "rows, remove the label from labels, or give a number"
        )
    return int(sizes.min())


# Repeated rows


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


# Held-out rows


MOST_HELD_OUT = 10_000  # more make evaluations slow and metrics hardly more precise


def hold_out(
    where: str, rows: datasets.Dataset, row_format: RowFormat, share: float, seed: int
) -> NDArray[np.bool_]:
    """Choose the training rows that become validation rows.

    Rows are drawn by label, and those with equal texts, or about one passage, stay together; texts
    are equal if many models cannot tell them apart, see `digest_alike`. The draw depends on the
    rows and ``seed`` alone, so that runs with other seeds are comparable.

    Args:
        where: Owner of the rows, for messages.
        rows: The valid training rows.
        row_format: Their format.
        share: Share of the rows to hold out, at most `MOST_HELD_OUT`, in (0, 1).
        seed: Seed of the draw.

    Returns:
        Whether a row is held out, (N,).

    Raises:
        ValueError: If no row can be held out.
    """
    wanted = min(MOST_HELD_OUT, math.ceil(share * len(rows)))
    units = _number_units(rows, row_format.unit_columns(rows))
    held = choose_units(units, row_format.strata(rows), wanted, f"{seed} held out")
    # a sentence of a held-out document may also be in others
    texts = np.fromiter(digest_alike(rows, row_format.text_names), np.uint64, len(rows))
    held &= ~np.isin(texts, texts[~held])
    if not held.any():
        raise ValueError(
            f"{where}: there are no validation rows, and none of its {len(rows)} training rows can "
            "be held out, since rows with equal texts stay together and every label needs a "
            "training row; give validation_file, or more rows"
        )
    return held


def choose_units(
    units: NDArray[np.uint64], strata: NDArray[np.int64], wanted: int, seed: str
) -> NDArray[np.bool_]:
    """Choose about ``wanted`` rows at random, in whole units and evenly from all strata.

    Args:
        units: Number of the unit of each row, (N,).
        strata: Number of the stratum of each row, (N,); that of its first row counts for a unit.
        wanted: Number of rows to choose. If every unit has more rows, the smallest one is chosen.
        seed: Seed of the draw.

    Returns:
        Whether a row is chosen, (N,). Of every stratum one unit is left.
    """
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    _, first, unit_of_row, sizes = np.unique(
        units, return_index=True, return_inverse=True, return_counts=True
    )
    stratum = strata[first]
    left = np.bincount(stratum)
    room = _share_out(np.bincount(strata), wanted, rng)
    order = rng.permutation(len(sizes))
    chosen = np.zeros(len(sizes), np.bool_)
    for unit in order:
        own = stratum[unit]
        if sizes[unit] <= room[own] and left[own] > 1:
            chosen[unit] = True
            room[own] -= sizes[unit]
            left[own] -= 1
    others = [unit for unit in order if left[stratum[unit]] > 1]
    if others and not chosen.any():
        chosen[min(others, key=sizes.__getitem__)] = True
    return chosen[unit_of_row]


def _share_out(
    sizes: NDArray[np.int64], wanted: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Divide a number in proportion to sizes, (S,), by the largest remainders."""
    exact = np.round(wanted * sizes / sizes.sum(), 9)
    shares = exact.astype(np.int64)
    order = np.lexsort((rng.random(len(sizes)), shares - exact))
    shares[order[: wanted - shares.sum()]] += 1
    return shares


def _number_units(rows: datasets.Dataset, columns: Sequence[str]) -> NDArray[np.uint64]:
    """Return a number for each row, (N,), the same for rows that models may not tell apart.

    It is the hash of the first of these rows, so that the draw of rows that all differ does not
    depend on what else is considered equal.
    """
    alike = np.fromiter(digest_alike(rows, columns), np.uint64, len(rows))
    _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
    return np.fromiter(digest_rows(rows, columns), np.uint64, len(rows))[first[inverse]]


# Pairs by class


# Pairs of each kind for a held-out row, which are enough to follow the training.
HELD_OUT_PAIRS = 1


def pair_rows(rows: datasets.Dataset, count: int, seed: str) -> datasets.Dataset:
    """Make pairs of rows with a class, for learning from few rows.

    Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section
    3.1.

    Args:
        rows: Rows with ``id``, ``sentence1`` and ``label``.
        count: Pairs of the same class, and of different ones, that every row begins; fewer if there
            are no more. No pair occurs twice, in either order.
        seed: Seed of the draws.

    Returns:
        Rows with ``id``, ``sentence1``, ``sentence2`` and ``label``: 1 for the same class, else 0.
    """
    ids, texts = rows["id"][:], rows["sentence1"][:]
    pairs = list(_draw(np.asarray(rows["label"][:], np.int64), count, seed))
    first = [pair[0] for pair in pairs]
    second = [pair[1] for pair in pairs]
    columns = {
        "id": [f"{ids[i]}+{ids[j]}" for i, j in zip(first, second, strict=True)],
        "sentence1": [texts[i] for i in first],
        "sentence2": [texts[j] for j in second],
        "label": [pair[2] for pair in pairs],
    }
    features = datasets.Features(
        {name: datasets.Value("int64" if name == "label" else "string") for name in columns}
    )
    return datasets.Dataset.from_dict(columns, features=features)


def _draw(classes: NDArray[np.int64], count: int, seed: str) -> Iterator[tuple[int, int, int]]:
    """Draw pairs of positions, and whether their classes are equal."""
    rng = np.random.default_rng(random.Random(f"{seed} pairs").getrandbits(64))
    seen: set[tuple[int, int]] = set()
    places = np.arange(len(classes))
    for first in places.tolist():
        for same in (1, 0):
            others = places[((classes == classes[first]) == bool(same)) & (places != first)]
            found = 0
            for second in rng.permutation(others).tolist():
                pair = (min(first, second), max(first, second))
                if found == count:
                    break
                if pair not in seen:
                    seen.add(pair)
                    found += 1
                    yield first, second, same
