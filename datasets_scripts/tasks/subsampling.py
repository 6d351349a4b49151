"""Draw rows of a split, at random or up to a number for each class."""

import random
from collections.abc import Sequence

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.splits import is_test

from .task_data import TaskData


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
    rows: datasets.Dataset,
    num_valid: int,
    labels: Sequence[str] | None,
    num_undecided: int,
    num_invalid: int,
) -> dict[str, int | dict[str, int]]:
    """Count the rows of a split."""
    facts: dict[str, int | dict[str, int]] = {"rows": len(rows), "usable_rows": num_valid}
    if labels is not None and "label" in rows.column_names:
        sizes = np.bincount(np.asarray(rows["label"], np.int64), minlength=len(labels))
        facts["classes"] = dict(zip(labels, sizes.tolist(), strict=True))
    if num_undecided:
        facts["undecided_rows"] = num_undecided
    if num_invalid:
        facts["unusable_rows"] = num_invalid
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
