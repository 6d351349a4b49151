"""Tasks with labels of their own for the same texts: which of these are for validation, and drawn.

Shapes: N different texts of a split, of all tasks.
"""

import math
from collections.abc import Mapping

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.splits import is_test

from .held_out import MOST_HELD_OUT, choose_units
from .reading import TaskRows, ValidRows
from .repeated_rows import digest_alike
from .subsampling import choose_places
from .task_data import TaskData


def share_rows(first: TaskData, tasks: Mapping[str, TaskRows]) -> dict[str, TaskRows]:
    """Hold out and draw the same texts for all tasks.

    Args:
        first: The task whose keys say how many rows there are.
        tasks: The valid rows of each task, itself first; they need not have the same texts.

    Raises:
        ValueError: If validation rows must be held out, and a task gets none.
    """
    shared = dict(tasks)
    if "validation" not in shared[first.name].found:
        shared = _hold_out(first, shared)
    for split in shared[first.name].found:
        part = "train" if split == "train" else "test" if is_test(split) else "eval"
        most = getattr(first, f"max_{part}_samples")
        if most is not None:
            _draw(split, shared, most, f"{first.sample_seed} {split}")
    return shared


def count_texts(tasks: Mapping[str, TaskRows]) -> int:
    """Count the different texts of the training rows of all tasks."""
    units, _ = _number({name: _digest(read, "train") for name, read in tasks.items()})
    return len(units)


def _hold_out(first: TaskData, tasks: Mapping[str, TaskRows]) -> dict[str, TaskRows]:
    """Make validation rows of training rows: the same texts in all tasks.

    They are drawn by the labels of the first task. Every label of the others keeps a training row.
    """
    texts = {name: _digest(read, "train") for name, read in tasks.items()}
    units, places = _number(texts)
    strata = {name: _label_units(tasks[name], own, len(units)) for name, own in places.items()}
    wanted = min(MOST_HELD_OUT, math.ceil(first.validation_share * len(units)))
    numbers = np.arange(len(units), dtype=np.uint64)
    held = choose_units(numbers, strata[first.name], wanted, f"{first.sample_seed} held out")
    for own in strata.values():
        _keep_labels(held, own)
    return {name: _move(first, name, tasks[name], held[places[name]]) for name in tasks}


def _label_units(read: TaskRows, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the stratum of each text, (N,): 0 without a label of this task."""
    strata = np.zeros(count, np.int64)
    strata[places] = 1 + read.row_format.strata(read.found["train"].rows)
    return strata


def _keep_labels(held: NDArray[np.bool_], strata: NDArray[np.int64]) -> None:
    """Give a text back to each label, (N,), that has none left for training."""
    for label in np.setdiff1d(strata[held], strata[~held]):
        held[np.flatnonzero(strata == label)[0]] = False


def _move(first: TaskData, name: str, read: TaskRows, held: NDArray[np.bool_]) -> TaskRows:
    """Move the rows that are held out to the validation rows."""
    valid = read.found["train"]
    if not held.any():
        raise ValueError(
            f"task {name!r}: there are no validation rows, and of the texts that are held out for "
            f"{first.name!r} and all tasks that share its rows none has a label; give "
            f"{first.name!r} a validation_file, or a larger validation_share"
        )
    train, validation = (valid.rows.select(np.flatnonzero(part)) for part in (~held, held))
    others = {split: rows for split, rows in read.found.items() if split != "train"}
    found = {"train": valid._replace(rows=train), "validation": ValidRows(validation), **others}
    return read._replace(found=found, held_out_of=len(valid.rows))


def _draw(split: str, tasks: dict[str, TaskRows], most: int, seed: str) -> None:
    """Keep the rows of at most so many texts of a split, in place."""
    texts = {name: _digest(read, split) for name, read in tasks.items()}
    units, places = _number(texts)
    drawn = choose_places(np.zeros(len(units), np.int64), most, seed)
    chosen = np.isin(np.arange(len(units)), drawn)
    for name, read in tasks.items():
        valid = read.found[split]
        rows = valid.rows.select(np.flatnonzero(chosen[places[name]]))
        tasks[name] = read._replace(found={**read.found, split: valid._replace(rows=rows)})


def _digest(read: TaskRows, split: str) -> NDArray[np.uint64]:
    rows: datasets.Dataset = read.found[split].rows
    return np.fromiter(digest_alike(rows, read.row_format.text_names), np.uint64, len(rows))


def _number(
    texts: Mapping[str, NDArray[np.uint64]],
) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.int64]]]:
    """List the different texts of all tasks in their order, (N,), and their numbers by task."""
    units, first, inverse = np.unique(
        np.concatenate(list(texts.values())), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    ends = np.cumsum([len(own) for own in texts.values()])[:-1]
    numbers = np.split(rank[inverse], ends)
    return units[order], dict(zip(texts, numbers, strict=True))
