"""Encoded rows of several tasks as one dataset."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import datasets
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from .masking import IGNORED_LABEL
from .rows import (
    LABELS,
    MODEL_COLUMNS,
    WINDOWS_COLUMN,
    FlatRows,
    Ids,
    Joined,
    SourceRows,
    TeacherRows,
    TextSource,
)
from .sampling import Counts, TaskBatchSampler, counts_of

ROW_TOKENS = 512  # the most that a row has without windows
Rows: TypeAlias = datasets.Dataset | TextSource


class TaskDataset(Dataset[Joined]):
    """The concatenated rows of all tasks.

    Some rows of one task are read as their concatenation, `Joined`, and rows of several tasks as a
    list of these.

    Index ``i + p * len(self)`` is row ``i`` in pass ``p`` over the data, for rows that differ in
    every pass: those of text sources, and masks.

    Args:
        tasks: Encoded rows of each task; columns other than ``MODEL_COLUMNS`` and
            ``num_windows`` are ignored.
        sampler: Receives every ``set_epoch``.

    Attributes:
        sizes: Rows of each task.
        teachers: Outputs of teachers for the rows of some tasks; a batch has them, too.
    """

    def __init__(self, tasks: Mapping[str, Rows], sampler: TaskBatchSampler | None = None) -> None:
        self.sizes = {task: len(rows) for task, rows in tasks.items()}
        self._tasks = list(tasks)
        self._ends = list(accumulate(self.sizes.values()))
        self._datasets: list[Rows] = []
        for rows in tasks.values():
            if isinstance(rows, datasets.Dataset):
                names = [x for x in (*MODEL_COLUMNS, WINDOWS_COLUMN) if x in rows.column_names]
                self._datasets.append(rows.select_columns(names))
            else:
                self._datasets.append(rows)
        self._flat = list(map(_read_flat, self._datasets))
        self._sampler = sampler
        self.teachers: dict[str, TeacherRows] = {}

    def __getstate__(self) -> dict[str, Any]:
        # a view of a mapped file would be copied to workers that are not forked
        return {**self.__dict__, "_flat": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._flat = list(map(_read_flat, self._datasets))

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the sampler.

        accelerate sets the epoch of a batch sampler only if it is not wrapped twice (several
        processes, resumed within an epoch), but always that of the dataset.
        """
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Joined | list[Joined]:
        """Read the rows of a batch; for a mixed step a list with the rows of each task."""
        passes, places = np.divmod(np.asarray(indices, dtype=np.int64), len(self))
        positions = np.searchsorted(self._ends, places, side="right")
        cuts = np.flatnonzero(np.diff(positions)) + 1
        parts = []
        for part in np.split(np.arange(len(places)), cuts):
            position = int(positions[part[0]])
            task = self._tasks[position]
            start = self._ends[position] - self.sizes[task]
            joined = self._flat[position].join(task, places[part] - start, passes[part])
            if task in self.teachers:
                joined = self.teachers[task].add_to(joined)
            parts.append(joined)
        return parts if len(parts) > 1 else parts[0]

    def fit_rows(self, most: int) -> int:
        """Return the rows of a batch if long texts count as a row for every 512 tokens."""
        longest = [
            int(counts_of(count_tokens(rows), 0).max(initial=1))
            for rows in self._datasets
            if WINDOWS_COLUMN in getattr(rows, "column_names", ())
        ]
        return max(1, min([most, *(most * ROW_TOKENS // count for count in longest)]))


def _read_flat(rows: Rows) -> FlatRows | SourceRows:
    if isinstance(rows, datasets.Dataset):
        return FlatRows(rows)
    return rows if isinstance(rows, SourceRows) else SourceRows(rows)


def spread_numbers(count: int, most: int) -> Ids:
    """Choose at most ``most`` of the indices below ``count``, evenly, with the first and last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def spread(rows: Rows, most: int) -> Rows:
    """Take at most ``most`` rows, evenly spread over the task; deterministic."""
    if len(rows) <= most:
        return rows
    chosen = spread_numbers(len(rows), most)
    return SourceRows(rows, chosen) if isinstance(rows, TextSource) else rows.select(chosen)


def find_labeled(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows have a label, (N,); with several labels at least one of them."""
    if isinstance(rows, TextSource) or LABELS not in rows.column_names:
        return np.ones(len(rows), np.bool_)
    labels = np.asarray(rows.with_format(None)[LABELS][:])
    is_labeled: NDArray[np.bool_] = (labels != IGNORED_LABEL).reshape(len(rows), -1).any(axis=1)
    return is_labeled


def select_labeled(rows: Rows) -> Rows:
    """Leave out the rows without a label."""
    if isinstance(rows, TextSource):
        return rows
    is_labeled = find_labeled(rows)
    return rows if is_labeled.all() else rows.select(np.flatnonzero(is_labeled))


def read_lengths(task: str, rows: Rows, column: str) -> Counts:
    """Return the tokens of each row, (N,), or a function from the pass index to them."""
    if isinstance(rows, TextSource):
        return rows.count_tokens
    if column not in rows.column_names:
        raise ValueError(
            f"train_sampling_strategy='group_by_length' needs the column {column!r}; task {task!r} "
            f"has {', '.join(rows.column_names)}"
        )
    return np.asarray(rows[column])


def count_tokens(rows: Rows) -> Counts:
    """Count the tokens of each row, both sentences of a separate pair included; see `Counts`."""
    return rows.count_tokens if isinstance(rows, TextSource) else FlatRows(rows).count_tokens()


def longest_first(task: str, rows: Rows, length_column: str) -> tuple[TaskDataset, Ids]:
    """Sort rows by length, if it is known; a lack of memory shows in the first batch.

    Returns the rows and the index of each in ``rows``, (N,).
    """
    if isinstance(rows, TextSource) or length_column not in rows.column_names:
        return TaskDataset({task: rows}), np.arange(len(rows))
    order = np.argsort(-np.asarray(rows[length_column]), kind="stable")
    return TaskDataset({task: rows.select(order)}), order
