"""Encoded rows of several tasks as one dataset, and rows as a batch."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

MODEL_COLUMNS = ("input_ids", "token_type_ids", "labels")


class TaskDataset(Dataset[dict[str, Any]]):
    """The rows of all tasks one after the other; every row carries the name of its task.

    Args:
        tasks: Encoded rows of each task; other columns than ``MODEL_COLUMNS`` are left out.
    """

    def __init__(self, tasks: Mapping[str, datasets.Dataset]) -> None:
        self.sizes = {task: len(dataset) for task, dataset in tasks.items()}
        self._tasks = list(tasks)
        self._ends = list(accumulate(self.sizes.values()))
        self._rows = [
            dataset.select_columns([name for name in MODEL_COLUMNS if name in dataset.column_names])
            for dataset in tasks.values()
        ]
        self._sampler: Sampler[list[int]] | None = None

    def register_sampler(self, sampler: Sampler[list[int]]) -> None:
        """Pass every later ``set_epoch`` on to ``sampler``."""
        self._sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Tell the sampler the epoch.

        accelerate tells a batch sampler only if it is not wrapped twice (several processes, resumed
        within an epoch), but always tells the dataset.
        """
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read the rows of a batch, with one query if they are of one task."""
        position = bisect_right(self._ends, indices[0])
        start, end = self._ends[position] - len(self._rows[position]), self._ends[position]
        if not all(start <= index < end for index in indices):
            return [self[index] for index in indices]
        rows = self._rows[position][[index - start for index in indices]]
        task = self._tasks[position]
        return [
            {"task": task, **dict(zip(rows, values, strict=True))}
            for values in zip(*rows.values(), strict=True)
        ]


def read_lengths(task: str, dataset: datasets.Dataset, column: str) -> NDArray[np.int64]:
    """Read the tokens of each row, (N,).

    Raises:
        ValueError: If the dataset has no such column.
    """
    if column not in dataset.column_names:
        raise ValueError(
            f"train_sampling_strategy='group_by_length' needs the column {column!r}; task {task!r} "
            f"has {', '.join(dataset.column_names)}"
        )
    return np.asarray(dataset[column])


def longest_first(
    task: str, dataset: datasets.Dataset, length_column: str
) -> tuple[TaskDataset, NDArray[np.int64]]:
    """Order rows by length, which saves padding; the longest batch shows at once if memory lacks.

    Args:
        task: Name of the task.
        dataset: Encoded rows.
        length_column: Column with the tokens of each row; without it the order stays.

    Returns:
        The rows, and for each of them its position in ``dataset``, (N,).
    """
    if length_column not in dataset.column_names:
        return TaskDataset({task: dataset}), np.arange(len(dataset))
    order = np.argsort(-np.asarray(dataset[length_column]), kind="stable")
    return TaskDataset({task: dataset.select(order)}), order


class TaskCollator:
    """Pad the rows of one task to a batch.

    Single sequences and joint pairs become tensors of (B, L), separate pairs of (B, 2, L), where L
    is the longest sequence of the batch.

    Args:
        pad_token_id: Fills ``input_ids`` where the attention mask is 0.
        pad_to_multiple_of: Round L up to a multiple of this many tokens.
    """

    def __init__(self, pad_token_id: int, pad_to_multiple_of: int | None = None) -> None:
        self.pad_token_id = pad_token_id
        self.pad_to_multiple_of = pad_to_multiple_of

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make a batch: task (str), input_ids, attention_mask, token_type_ids and labels (B,).

        Args:
            rows: Rows of one task with ``input_ids`` and ``token_type_ids``; ``labels`` if known.

        Raises:
            ValueError: If the rows are of several tasks.
        """
        names = sorted({row["task"] for row in rows})
        if len(names) > 1:
            raise ValueError(f"a batch mixes the tasks {names}; expected rows of one task")
        mask = self._mask(_sequences(rows, "input_ids"))
        shape = (len(rows), -1, mask.shape[1]) if _is_separate(rows[0]) else mask.shape
        batch: dict[str, Any] = {"task": names[0]}
        for name, padding in (("input_ids", self.pad_token_id), ("token_type_ids", 0)):
            batch[name] = torch.from_numpy(
                _pad(_sequences(rows, name), mask, padding).reshape(shape)
            )
        batch["attention_mask"] = torch.from_numpy(mask.astype(np.int64).reshape(shape))
        if "labels" in rows[0]:
            dtype = torch.float32 if isinstance(rows[0]["labels"], float) else torch.int64
            batch["labels"] = torch.tensor([row["labels"] for row in rows], dtype=dtype)
        return batch

    def _mask(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        """Mark the real tokens, (sequences, L)."""
        lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
        step = self.pad_to_multiple_of or 1
        longest = -(-int(lengths.max()) // step) * step
        return np.arange(longest) < lengths[:, None]


def _is_separate(row: Mapping[str, Any]) -> bool:
    return isinstance(row["input_ids"][0], Sequence | np.ndarray)


def _sequences(rows: Sequence[Mapping[str, Any]], name: str) -> list[Sequence[int]]:
    """List the sequences of a batch, both of a pair one after the other."""
    if _is_separate(rows[0]):
        return [sequence for row in rows for sequence in row[name]]
    return [row[name] for row in rows]


def _pad(
    sequences: Sequence[Sequence[int]], mask: NDArray[np.bool_], padding: int
) -> NDArray[np.int64]:
    padded = np.full(mask.shape, padding, dtype=np.int64)
    padded[mask] = np.fromiter(chain.from_iterable(sequences), dtype=np.int64)
    return padded
