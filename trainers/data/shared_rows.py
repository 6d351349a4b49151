"""Rows with labels of several tasks: each row is encoded once for all of them.

Shapes: N rows of a group of tasks, B rows of a batch, k of them with a label of a task.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray

TOKEN_COLUMNS = ("input_ids", "token_type_ids")
LABELS = "labels"
BLOCK = 1_000  # rows that are in memory as Python lists


class BatchLabels(NamedTuple):
    """Labels of a task for some rows of a batch."""

    values: NDArray[Any]  # (k, ...)
    rows: NDArray[np.int64] | None  # which rows they are of, (k,); None for all

    def only(self) -> Any:
        """Return the label of the only row, None if it has none."""
        return self.values[0].tolist() if len(self.values) else None


@dataclass(frozen=True)
class SharedLabels:
    """Labels of a task for the rows of its group."""

    values: NDArray[Any]  # (N, ...); arbitrary where there is none
    is_given: NDArray[np.bool_]  # (N,)

    def read(self, rows: NDArray[np.int64]) -> BatchLabels:
        """Read the labels that some rows, (B,), have."""
        given = np.flatnonzero(self.is_given[rows])
        places = None if len(given) == len(rows) else given
        return BatchLabels(self.values[rows[given]], places)


def describe_labels(labels: Mapping[str, SharedLabels]) -> str:
    """Count the rows of tasks that share them, and the labels of each."""
    rows = len(next(iter(labels.values())).is_given)
    counts = ", ".join(f"{task} {each.is_given.sum():,}" for task, each in labels.items())
    return f"each of these {rows:,} rows is encoded once for its labels: {counts}"


def list_labels(labels: Mapping[str, SharedLabels], row: int) -> dict[str, Any]:
    """Return the labels of a row by task, None where it has none."""
    return {
        task: each.values[row].tolist() if each.is_given[row] else None
        for task, each in labels.items()
    }


def join_labels(rows: Sequence[Mapping[str, Any]]) -> dict[str, BatchLabels]:
    """Join what ``list_labels`` returned for each row of a batch."""
    joined = {}
    for task in rows[0]:
        values = [row[task] for row in rows]
        given = [place for place, value in enumerate(values) if value is not None]
        places = None if len(given) == len(values) else np.asarray(given, np.int64)
        joined[task] = BatchLabels(np.asarray([values[place] for place in given]), places)
    return joined


class SharedRows(NamedTuple):
    """The rows of a group of tasks, without labels, and the labels of each task."""

    rows: datasets.Dataset
    labels: dict[str, SharedLabels]


def share_rows(tasks: Mapping[str, datasets.Dataset]) -> SharedRows:
    """Merge the training rows of several tasks that have the same texts.

    Rows with equal tokens are one row. If a task has such rows several times, the first of them is
    that of the first one in the other tasks, and so on.

    Args:
        tasks: Encoded rows of each task, with labels.

    Raises:
        ValueError: If a task has no row that another one has, too.
    """
    places: dict[tuple[bytes, int], int] = {}
    parts, found = [], {}
    for task, rows in tasks.items():
        known = len(places)
        own = np.asarray(
            [places.setdefault(key, len(places)) for key in _number_rows(rows)], np.int64
        )
        found[task] = own
        parts.append(rows.select(np.flatnonzero(own >= known)).remove_columns(LABELS))
    _check_overlap(found, len(places))
    labels = {
        task: _scatter(tasks[task].with_format("numpy")[LABELS][:], own, len(places))
        for task, own in found.items()
    }
    return SharedRows(_concatenate(parts), labels)


def _check_overlap(found: Mapping[str, NDArray[np.int64]], count: int) -> None:
    """Check that every task has a row that is also one of another task."""
    tasks = np.zeros(count, np.int64)
    for own in found.values():
        tasks[own] += 1
    for task, own in found.items():
        if tasks[own].max() < 2:
            raise ValueError(
                f"task {task!r}: none of its training rows has the tokens of a row of "
                f"{', '.join(map(repr, found.keys() - {task}))}, with which it shares rows; tasks "
                "that do need the same texts, encoded in the same way (pair_encoding, truncation, "
                "max_length)"
            )


def _number_rows(rows: datasets.Dataset) -> Iterator[tuple[bytes, int]]:
    """Yield a hash of the tokens of each row, and how many rows before it have the same."""
    seen: Counter[bytes] = Counter()
    columns = rows.select_columns(list(TOKEN_COLUMNS)).with_format(None)
    for block in columns.iter(BLOCK):
        for tokens in zip(*block.values(), strict=True):
            key = hashlib.blake2b(repr(tokens).encode(), digest_size=16).digest()
            yield key, seen[key]
            seen[key] += 1


def _scatter(labels: NDArray[Any], places: NDArray[np.int64], count: int) -> SharedLabels:
    """Put the labels of a task to their places among all rows of the group."""
    values = np.zeros((count, *labels.shape[1:]), labels.dtype)
    is_given = np.zeros(count, np.bool_)
    values[places], is_given[places] = labels, True
    return SharedLabels(values, is_given)


def _concatenate(parts: list[datasets.Dataset]) -> datasets.Dataset:
    """Concatenate rows with the columns that all of them have."""
    common = [name for name in parts[0].column_names if all(name in x.column_names for x in parts)]
    chosen = [part.select_columns(common) for part in parts if len(part)]
    return datasets.concatenate_datasets(chosen)
