"""Choose rows: draw some, hold some out, pair them by class, and find those that repeat."""

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from tokenizers.normalizers import BertNormalizer

from .encoding import make_features
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
        classes, most, names = np.asarray(rows["label"], np.int64), most_per_class, labels or ()
        if most == "balanced":
            sizes = np.bincount(classes, minlength=len(names))
            if missing := [names[number] for number in np.flatnonzero(sizes == 0).tolist()]:
                raise ValueError(
                    f"{data.where}: {key}_per_class={most!r}, but no {split} row has the label "
                    f"{', '.join(map(repr, missing))}, so every class would be left without rows; "
                    "add such rows, remove the label from labels, or give a number"
                )
            most = sizes.min()
    chosen = choose_places(classes, int(most), f"{data.sample_seed} {split}")
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


# Repeated rows


logger = logging.getLogger(__name__)

LARGEST_SHARE = 0.1  # of the rows; official datasets share some short or common texts
# What an uncased vocabulary does to a text, which has no case, accents and invisible characters.
UNCASED = BertNormalizer(handle_chinese_chars=False, strip_accents=True)


def count_repeated(
    where: str, row_format: RowFormat, splits: Mapping[str, datasets.Dataset]
) -> dict[str, int]:
    """Count the rows of each held-out split whose texts are those of a training row.

    Warns of many. Labels are not compared, and neither is what many models cannot tell apart; see
    `digest_alike`.
    """
    learned = set(digest_alike(splits["train"], row_format.text_names))
    counts: dict[str, int] = {}
    for split, rows in splits.items():
        if split == "train":
            continue
        count = sum(key in learned for key in digest_alike(rows, row_format.text_names))
        counts[split] = count
        if count > LARGEST_SHARE * len(rows):
            logger.warning(
                "%s: %d of %d %s rows (%.0f %%) are also training rows (case, accents, white space "
                "and the order of texts are not compared), so their metrics do not measure how the "
                "model does on new rows; use other rows",
                where,
                count,
                len(rows),
                split,
                100 * count / len(rows),
            )
    return counts


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


def _read(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in rows.select_columns(list(columns)).iter(count_batch(rows)):
        yield from zip(*batch.values(), strict=True)


def _join(value: object) -> str:
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

    Returns:
        Whether a row is held out, (N,): about ``share`` of the rows, at most `MOST_HELD_OUT`.

    Raises:
        ValueError: If no row can be held out.
    """
    wanted = min(MOST_HELD_OUT, math.ceil(share * len(rows)))
    # A unit is numbered by its first row, so that the draw of rows that all differ does not depend
    # on what else is considered equal.
    columns = row_format.unit_columns(rows)
    alike = np.fromiter(digest_alike(rows, columns), np.uint64, len(rows))
    _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
    units = np.fromiter(digest_rows(rows, columns), np.uint64, len(rows))[first[inverse]]
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

    ``units`` and ``strata`` number the unit and the stratum of each row, (N,); the stratum of its
    first row counts for a unit. If every unit has more rows than wanted, the smallest is chosen.

    Returns:
        Whether a row is chosen, (N,). Of every stratum one unit is left.
    """
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    _, first, unit_of_row, sizes = np.unique(
        units, return_index=True, return_inverse=True, return_counts=True
    )
    stratum = strata[first]
    left = np.bincount(stratum)
    # a number for each stratum in proportion to its size, by the largest remainders
    rows_by_stratum = np.bincount(strata)
    exact = np.round(wanted * rows_by_stratum / len(strata), 9)
    room = exact.astype(np.int64)
    by_remainder = np.lexsort((rng.random(len(room)), room - exact))
    room[by_remainder[: wanted - room.sum()]] += 1
    order = rng.permutation(len(sizes))
    chosen = np.zeros(len(sizes), np.bool_)
    for unit in order:
        kind = stratum[unit]
        if sizes[unit] <= room[kind] and left[kind] > 1:
            chosen[unit] = True
            room[kind] -= sizes[unit]
            left[kind] -= 1
    others = [unit for unit in order if left[stratum[unit]] > 1]
    if others and not chosen.any():
        chosen[min(others, key=sizes.__getitem__)] = True
    return chosen[unit_of_row]


# Pairs by class


# Pairs of each kind for a held-out row, which are enough to follow the training.
HELD_OUT_PAIRS = 1


def pair_rows(rows: datasets.Dataset, count: int, seed: str) -> datasets.Dataset:
    """Make pairs of rows with a class, for learning from few rows.

    Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section
    3.1.

    Every row begins ``count`` pairs of the same class, and as many of different ones; fewer if
    there are no more. No pair occurs twice, in either order.

    Returns:
        Rows with ``id``, ``sentence1``, ``sentence2`` and ``label``: 1 for the same class, else 0.
    """
    ids, texts = rows["id"][:], rows["sentence1"][:]
    classes = np.asarray(rows["label"][:], np.int64)
    rng = np.random.default_rng(random.Random(f"{seed} pairs").getrandbits(64))
    columns: dict[str, list[Any]] = {"id": [], "sentence1": [], "sentence2": [], "label": []}
    seen: set[tuple[int, int]] = set()
    places = np.arange(len(classes))
    for first in places.tolist():
        for same in (1, 0):
            others = places[((classes == classes[first]) == bool(same)) & (places != first)]
            drawn = 0
            for second in rng.permutation(others).tolist():
                pair = (min(first, second), max(first, second))
                if drawn == count:
                    break
                if pair not in seen:
                    seen.add(pair)
                    drawn += 1
                    values = (f"{ids[first]}+{ids[second]}", texts[first], texts[second], same)
                    for name, value in zip(columns, values, strict=True):
                        columns[name].append(value)
    features = make_features(id="string", sentence1="string", sentence2="string", label="int64")
    return datasets.Dataset.from_dict(columns, features=features)
