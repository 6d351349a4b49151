"""Choose some of the rows of a split, at random or so many of each class."""

import random
from collections.abc import Mapping, Sequence

import datasets
import numpy as np
from numpy.typing import NDArray

BALANCED = "balanced"


def sample_rows(
    rows: datasets.Dataset,
    *,
    where: str,
    split: str,
    most: int | None,
    most_per_class: int | str | None,
    labels: Sequence[str] | None,
    seed: int,
) -> datasets.Dataset:
    """Leave rows out of a split, so that it, or each of its classes, has no more than it may have.

    Every row draws a number from the seed, the split and its place alone, and those with the lowest
    ones stay, in their order: nothing else decides about a row, a larger sample holds the smaller
    one, and other classes or tasks change nothing.

    Args:
        rows: The usable rows; with a label if classes count.
        where: Whose rows they are, for the message.
        split: Name of the split.
        most: Rows at most; None for all.
        most_per_class: Rows of a class at most, or ``balanced`` for as many as the smallest class
            has; None for all.
        labels: Names of the classes, by number.
        seed: Seed of the choice.

    Raises:
        ValueError: If the smallest class has no rows at all.
    """
    if most is None and most_per_class is None:
        return rows
    classes = np.zeros(len(rows), np.int64)
    if most_per_class is not None:
        classes = np.asarray(rows["label"], np.int64)
        most = _find_size(where, split, classes, most_per_class, labels or ())
    chosen = choose_places(classes, int(most or 0), f"{seed} {split}")
    return rows if len(chosen) == len(rows) else rows.select(chosen)


def choose_places(classes: NDArray[np.int64], most: int, seed: str) -> NDArray[np.int64]:
    """Choose at most so many rows of each class.

    Args:
        classes: Class of each row, from 0, (N,), int64.
        most: Rows of a class at most.
        seed: What the choice depends on.

    Returns:
        Their places, ascending, int64.
    """
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    order = np.lexsort((rng.random(len(classes)), classes))
    sizes = np.bincount(classes)
    ranks = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[ranks < most])


def count_classes(rows: datasets.Dataset, labels: Sequence[str]) -> dict[str, int]:
    """Count the rows of each class."""
    sizes = np.bincount(np.asarray(rows["label"], np.int64), minlength=len(labels))
    return dict(zip(labels, sizes.tolist(), strict=True))


def describe_splits(
    splits: Mapping[str, datasets.Dataset],
    usable: Mapping[str, int],
    labels: Sequence[str] | None,
    undecided: Mapping[str, int],
    unusable: Mapping[str, int] | None = None,
) -> dict[str, dict[str, int | dict[str, int]]]:
    """Say how many rows each split has, of how many, and of each class.

    Args:
        splits: The rows.
        usable: How many there were by split, before some were left out.
        labels: Names of the classes; None if there are scores.
        undecided: By split, the rows that were left out because annotators did not agree.
        unusable: The same of those that could not be read.
    """
    facts: dict[str, dict[str, int | dict[str, int]]] = {}
    for split, rows in splits.items():
        facts[split] = {"rows": len(rows), "usable_rows": usable[split]}
        if labels is not None and "label" in rows.column_names:
            facts[split]["classes"] = count_classes(rows, labels)
        if undecided[split]:
            facts[split]["undecided_rows"] = undecided[split]
        if count := (unusable or {}).get(split):
            facts[split]["unusable_rows"] = count
    return facts


def _find_size(
    where: str,
    split: str,
    classes: NDArray[np.int64],
    wanted: int | str,
    labels: Sequence[str],
) -> int:
    if wanted != BALANCED:
        return int(wanted)
    sizes = np.bincount(classes, minlength=len(labels))
    if missing := [labels[number] for number in np.flatnonzero(sizes == 0).tolist()]:
        raise ValueError(
            f"{where}: max_{split}_rows_per_class={wanted!r}, but no {split} row has the label "
            f"{', '.join(map(repr, missing))}, so none of any class would be left; add such rows, "
            "leave the label out of labels, or give a number"
        )
    return int(sizes.min())
