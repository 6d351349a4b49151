"""Encoded rows of several tasks as one dataset."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import datasets
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from .masking import IGNORED_LABEL
from .rows import (
    LABELS,
    MODEL_COLUMNS,
    TEACHER,
    WINDOWS_COLUMN,
    FlatRows,
    SourceRows,
    TaskBatch,
    TeacherRows,
    TextSource,
    row_order,
)
from .sampling.streams import Counts, counts_of

ROW_TOKENS = 512  # the most that a row has without windows
Rows: TypeAlias = datasets.Dataset | TextSource


class TaskDataset(Dataset[dict[str, Any]]):
    """The concatenated rows of all tasks; every row has the name of its task.

    A row is a dictionary. Several rows of one task are a ``TaskBatch`` in flat arrays, unless the
    dataset has a format or a transform, which is then applied. Rows of several tasks are a list of
    these.

    Index ``i + p * len(self)`` is row ``i`` in pass ``p`` over the data, for rows that differ in
    every pass: those of text sources, and masks.

    Args:
        tasks: Encoded rows of each task; columns other than ``MODEL_COLUMNS`` and
            ``num_windows`` are ignored.
        sampler: Receives every ``set_epoch``.

    Attributes:
        teachers: Outputs of teachers for the rows of some tasks; a batch has them, too.
    """

    def __init__(
        self,
        tasks: Mapping[str, Rows],
        sampler: Sampler[list[int]] | None = None,
    ) -> None:
        self.sizes = {task: len(rows) for task, rows in tasks.items()}
        self._tasks = list(tasks)
        self._ends = list(accumulate(self.sizes.values()))
        self._datasets = [_select_columns(rows) for rows in tasks.values()]
        self._flat = [_read_flat(rows) for rows in self._datasets]
        self._sampler = sampler
        self.teachers: dict[str, TeacherRows] = {}

    def __getstate__(self) -> dict[str, Any]:
        # a view of a mapped file would be copied to workers that are not forked
        return {**self.__dict__, "_flat": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._flat = [_read_flat(rows) for rows in self._datasets]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the sampler.

        accelerate sets the epoch of a batch sampler only if it is not wrapped twice (several
        processes, resumed within an epoch), but always that of the dataset.
        """
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Read the rows of a batch; for a mixed step a list with the rows of each task."""
        passes, places = np.divmod(np.asarray(indices, dtype=np.int64), len(self))
        positions = np.searchsorted(self._ends, places, side="right")
        cuts = np.flatnonzero(np.diff(positions)) + 1
        if len(cuts):
            runs = np.split(np.asarray(indices), cuts)
            return [self.__getitems__(run.tolist()) for run in runs]
        position = int(positions[0])
        task, flat = self._tasks[position], self._flat[position]
        start = self._ends[position] - self.sizes[task]
        teacher, places = self.teachers.get(task), places - start
        if flat is not None:
            return TaskBatch(task, flat, places, passes, teacher)
        rows = self._datasets[position][places.tolist()]
        if teacher is not None:
            rows = {**rows, TEACHER: teacher.read(places).tolist()}
        return [
            {"task": task, **dict(zip(rows, values, strict=True))}
            for values in zip(*rows.values(), strict=True)
        ]

    def fit_rows(self, most: int) -> int:
        """Return the rows of a batch if long texts count as a row for every 512 tokens."""
        longest = [
            int(counts_of(count_tokens(rows), 0).max(initial=1))
            for rows in self._datasets
            if WINDOWS_COLUMN in getattr(rows, "column_names", ())
        ]
        return max(1, min([most, *(most * ROW_TOKENS // count for count in longest)]))


def _select_columns(rows: Rows) -> Any:
    if isinstance(rows, TextSource):
        return rows
    names = (*MODEL_COLUMNS, WINDOWS_COLUMN)
    return rows.select_columns([name for name in names if name in rows.column_names])


def _read_flat(rows: Rows) -> FlatRows | SourceRows | None:
    if isinstance(rows, SourceRows):
        return rows
    return SourceRows(rows) if isinstance(rows, TextSource) else FlatRows.read(rows)


def spread_numbers(count: int, most: int) -> NDArray[np.int64]:
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


def read_lengths(task: str, dataset: Rows, column: str) -> Counts:
    """Return the tokens of each row, (N,), or a function from the pass index to them."""
    if isinstance(dataset, TextSource):
        return dataset.count_tokens
    if column not in dataset.column_names:
        raise ValueError(
            f"train_sampling_strategy='group_by_length' needs the column {column!r}; task {task!r} "
            f"has {', '.join(dataset.column_names)}"
        )
    return np.asarray(dataset[column])


def count_tokens(dataset: Rows) -> Counts:
    """Count the tokens of each row, both sentences of a separate pair included; see `Counts`."""
    if isinstance(dataset, TextSource):
        return dataset.count_tokens
    counts = [np.empty(0, dtype=np.int64)]
    # without leaving Arrow: a million Python lists would take half a minute
    for sequences in dataset.data.column("input_ids").chunks:
        lengths, values = sequences.value_lengths().to_numpy(), sequences.flatten()
        if hasattr(values, "value_lengths"):  # the sentences of a pair
            sums = np.concatenate([[0], np.cumsum(values.value_lengths().to_numpy())])
            lengths = np.diff(sums[np.concatenate([[0], np.cumsum(lengths)])])
        counts.append(lengths)
    total, order = np.concatenate(counts), row_order(dataset)
    return total if order is None else total[order]


def longest_first(
    task: str, dataset: Rows, length_column: str
) -> tuple[TaskDataset, NDArray[np.int64]]:
    """Sort rows by length, if it is known; a lack of memory shows in the first batch.

    Returns the rows and the index of each in ``dataset``, (N,).
    """
    if isinstance(dataset, TextSource) or length_column not in dataset.column_names:
        return TaskDataset({task: dataset}), np.arange(len(dataset))
    order = np.argsort(-np.asarray(dataset[length_column]), kind="stable")
    return TaskDataset({task: dataset.select(order)}), order
