"""Encoded rows of a task in flat arrays: reading a batch is one gather for each column."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MODEL_COLUMNS = ("input_ids", "token_type_ids", "labels")


class Joined(NamedTuple):
    """The rows of a batch, their N sequences one after the other.

    Args:
        task: Their task.
        rows: B.
        lengths: Tokens of each sequence, (N,), int64; N is a multiple of B.
        input_ids: (T,), int64.
        token_type_ids: (T,), int64.
        labels: (B,), int64 or float32, or (B, 2), int64, the places of answers; None if the rows
            have none.
        token_labels: One label for each token, -100 where there is none, (T,), int64; or None.
        next_sentence_label: 0 where B follows A, 1 where it is random, (B,); None if the rows are
            no segment pairs.
        places: The pass of each row and its number in its task, (2, B); None if nobody knows.
    """

    task: str
    rows: int
    lengths: NDArray[np.int64]
    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    labels: NDArray[Any] | None
    token_labels: NDArray[np.int64] | None = None
    next_sentence_label: NDArray[np.int64] | None = None
    places: NDArray[np.int64] | None = None


class Tokens(NamedTuple):
    """One number for each token of a task.

    Args:
        values: The numbers, and between them maybe other parts of the file that they are in.
        starts: Where each sequence begins, (N,), int64.
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    def gather(self, sequences: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Join some sequences of these lengths, (T,)."""
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self.starts[sequences] - before, lengths)
        places += np.arange(len(places))
        return self.values[places].astype(np.int64, copy=False)


@runtime_checkable
class TextSource(Protocol):
    """Rows of text that are other ones in every pass: a function of (pass, row)."""

    def __len__(self) -> int:
        """Count the rows, which are as many in every pass."""

    def count_tokens(self, number: int) -> NDArray[np.int64]:
        """Count the tokens of every row in pass ``number``, special ones included, (N,)."""

    def read(self, number: int, rows: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Read some rows of pass ``number``.

        Returns:
            ``lengths`` (B,); ``input_ids`` and ``token_type_ids`` of all rows one after the other,
            (T,); and of segment pairs ``next_sentence_label`` (B,). All int64.
        """


class SomeRows:
    """Some rows of a text source, in every pass the same ones.

    Args:
        source: The source.
        rows: Their numbers, (B,).
    """

    def __init__(self, source: TextSource, rows: NDArray[np.int64]) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def count_tokens(self, number: int) -> NDArray[np.int64]:
        """Count the tokens of each row, (B,)."""
        return self._source.count_tokens(number)[self._rows]

    def read(self, number: int, rows: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
        """Read some of the rows."""
        return self._source.read(number, self._rows[rows])


class SourceRows:
    """The rows of a text source, read as `FlatRows` are."""

    is_separate = False

    def __init__(self, source: TextSource) -> None:
        self._source = source

    def join(self, task: str, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> Joined:
        """Join some rows, (B,), of the passes ``numbers``, (B,), which ascend."""
        parts = [
            self._source.read(int(number), rows[numbers == number]) for number in np.unique(numbers)
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        places = np.stack([numbers, rows])
        return Joined(task=task, rows=len(rows), labels=None, places=places, **columns)

    def row(self, task: str, index: int, number: int) -> dict[str, Any]:
        """Read a row, with its task."""
        part = self._source.read(number, np.asarray([index]))
        row = {"task": task, **{name: part[name].tolist() for name in part if name != "lengths"}}
        if "next_sentence_label" in row:
            row["next_sentence_label"] = row["next_sentence_label"][0]
        return row


class FlatRows:
    """Views of the Arrow buffers of a dataset.

    Nothing is copied from a dataset that is one file, mapped into memory, or one piece in memory,
    also if its rows were chosen, filtered or shuffled; of others the tokens are copied once. Beside
    them there are 20 bytes for each sequence.

    Args:
        tokens: Of ``input_ids`` and ``token_type_ids``, and ``labels`` if tokens have them.
        lengths: Tokens of each sequence, (N,), int32.
        labels: (rows,), (rows, 2) of places of answers, or None.
        per_row: Sequences of a row, 2 for separate pairs; None for single lists.
    """

    def __init__(
        self,
        tokens: dict[str, Tokens],
        lengths: NDArray[np.int32],
        labels: NDArray[Any] | None,
        per_row: int | None,
    ) -> None:
        self.tokens = tokens
        self._lengths = lengths
        self._labels = labels
        self._per_row = per_row

    @classmethod
    def read(cls, dataset: datasets.Dataset) -> "FlatRows | None":
        """Find the buffers of a dataset.

        Returns:
            The rows; None if they have to be read one by one, since the user gave the dataset a
            format or a transform, values are missing, or columns are of another type.
        """
        if dataset.format["type"] is not None or not _has_plain_labels(dataset):
            return None
        columns = {name: _read_lists(dataset, name) for name in ("input_ids", "token_type_ids")}
        ids, types = columns.values()
        if ids is None or types is None or ids.per_row != types.per_row:
            return None
        if not np.array_equal(ids.lengths, types.lengths):
            return None
        tokens = {"input_ids": ids.join(), "token_type_ids": types.join()}
        labels = None
        if has_token_labels(dataset):
            of_tokens = _read_lists(dataset, "labels")
            if of_tokens is None or not np.array_equal(of_tokens.lengths, ids.lengths):
                return None
            tokens["labels"] = of_tokens.join()
        elif "labels" in dataset.column_names:
            labels = _read_labels(dataset.data.column("labels"))
        rows = cls(tokens, ids.lengths, labels, ids.per_row)
        order = row_order(dataset)
        return rows if order is None else rows._select(order)

    def _select(self, order: NDArray[np.int64]) -> "FlatRows":
        sequences = self._sequences(order)
        tokens = {
            name: Tokens(column.values, column.starts[sequences])
            for name, column in self.tokens.items()
        }
        labels = None if self._labels is None else self._labels[order]
        return FlatRows(tokens, self._lengths[sequences], labels, self._per_row)

    @property
    def is_separate(self) -> bool:
        """Whether a row has several sequences."""
        return self._per_row is not None

    def _sequences(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number the sequences of some rows."""
        if self._per_row is None:
            return rows
        return (rows[:, None] * self._per_row + np.arange(self._per_row)).ravel()

    def join(self, task: str, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> Joined:
        """Join some rows, (B,), which are the same in every pass, but belong to one, (B,)."""
        sequences = self._sequences(rows)
        lengths = self._lengths[sequences].astype(np.int64)
        columns = {name: found.gather(sequences, lengths) for name, found in self.tokens.items()}
        labels = self._labels
        if labels is not None:
            labels = labels[rows].astype(np.float32 if labels.dtype.kind == "f" else np.int64)
        return Joined(
            task,
            len(rows),
            lengths,
            columns["input_ids"],
            columns["token_type_ids"],
            labels,
            columns.get("labels"),
            places=np.stack([numbers, rows]),
        )

    def row(self, task: str, index: int, number: int) -> dict[str, Any]:  # noqa: ARG002
        """Read a row, as a dataset gives it, with its task."""
        sequences = self._sequences(np.asarray([index]))
        lengths = self._lengths[sequences].astype(np.int64)
        row: dict[str, Any] = {"task": task}
        for name, column in self.tokens.items():
            joined = column.gather(sequences, lengths)
            parts = [part.tolist() for part in np.split(joined, np.cumsum(lengths)[:-1])]
            row[name] = parts[0] if self._per_row is None else parts
        if self._labels is not None:
            row["labels"] = self._labels[index].tolist()
        return row


class TaskBatch(Sequence[dict[str, Any]]):
    """Rows of one task that are still in their arrays; as a sequence they are dictionaries.

    Args:
        task: Their task.
        rows: All rows of the task.
        indices: Those of the batch, (B,).
        numbers: The pass of each, (B,).
    """

    def __init__(
        self,
        task: str,
        rows: FlatRows | SourceRows,
        indices: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> None:
        self.task = task
        self._rows = rows
        self._indices = indices
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        number = int(self._numbers[position])
        return self._rows.row(self.task, int(self._indices[position]), number)

    @property
    def is_separate(self) -> bool:
        """Whether a row has several sequences."""
        return self._rows.is_separate

    def join(self) -> Joined:
        """Join the rows."""
        return self._rows.join(self.task, self._indices, self._numbers)


def row_order(dataset: datasets.Dataset) -> NDArray[np.int64] | None:
    """Find which rows of the table of a dataset are its rows, (rows,); None for all in order."""
    # selecting by datasets itself takes a slice of the table for each row
    indices = dataset._indices
    return None if indices is None else indices.column(0).to_numpy().astype(np.int64)


class _Lists(NamedTuple):
    """A column of lists of numbers, or of lists of as many such lists in every row.

    Args:
        parts: The numbers of each chunk.
        starts: Where the sequences of each chunk begin in its part, and the end, (N + 1,).
        lengths: Numbers of each sequence of all chunks, (N,).
        per_row: Lists of a row; None for lists of numbers.
    """

    parts: list[pa.Array]
    starts: list[NDArray[np.int64]]
    lengths: NDArray[np.int32]
    per_row: int | None

    def join(self) -> Tokens:
        """View the parts in the memory that they share, or join them."""
        buffers = [part.buffers()[1] for part in self.parts]
        dtype = np.dtype(self.parts[0].type.to_pandas_dtype())
        whole = _root(buffers[0])
        skips = np.asarray([buffer.address - whole.address for buffer in buffers])
        if (skips % dtype.itemsize).any() or any(
            _root(buffer).address != whole.address for buffer in buffers
        ):
            return self._copy()
        values = np.frombuffer(whole, dtype, count=whole.size // dtype.itemsize)
        offsets = [part.offset for part in self.parts] + skips // dtype.itemsize
        starts = [start[:-1] + at for start, at in zip(self.starts, offsets, strict=True)]
        return Tokens(values, np.concatenate(starts))

    def _copy(self) -> Tokens:
        ends = [(start[0], start[-1]) for start in self.starts]
        parts = [
            part.to_numpy()[first:last]
            for part, (first, last) in zip(self.parts, ends, strict=True)
        ]
        sums = np.cumsum(self.lengths, dtype=np.int64)
        return Tokens(np.concatenate(parts), sums - self.lengths)


def _read_lists(dataset: datasets.Dataset, name: str) -> _Lists | None:
    """Read a column without its order; None if it is none of `_Lists`, or empty."""
    if name not in dataset.column_names:
        return None
    column = dataset.data.column(name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    kind = column.type
    nested = _is_list(kind) and _is_list(kind.value_type)
    leaf = kind.value_type if _is_list(kind) else kind
    leaf = leaf.value_type if nested else leaf
    if not chunks or not _is_list(kind) or not pa.types.is_integer(leaf):
        return None
    parts, starts, counts = [], [], set()
    for chunk in chunks:
        part, start = chunk.values, chunk.offsets.to_numpy()
        missing = chunk.null_count + part.null_count
        if nested:
            counts |= set(np.unique(np.diff(start)).tolist())
            start = part.offsets.to_numpy()[start[0] : start[-1] + 1]
            part = part.values
            missing += part.null_count
        if missing:
            return None
        parts.append(part)
        starts.append(start.astype(np.int64))
    if len(counts) > 1 or 0 in counts:
        return None
    lengths = np.concatenate([np.diff(start) for start in starts]).astype(np.int32)
    return _Lists(parts, starts, lengths, counts.pop() if nested else None)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def has_token_labels(dataset: datasets.Dataset) -> bool:
    """Tell whether rows have a list of labels."""
    names = dataset.column_names
    return "labels" in names and _is_list(dataset.data.column("labels").type)


def _has_plain_labels(dataset: datasets.Dataset) -> bool:
    """Tell whether there are no labels, or numbers for tokens, or as many for every row."""
    if "labels" not in dataset.column_names:
        return True
    column = dataset.data.column("labels")
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if has_token_labels(dataset):
        return True
    return not column.null_count and any(is_kind(kind) for is_kind in kinds)


def _read_labels(column: pa.ChunkedArray) -> NDArray[Any]:
    """Read one number for every row, (rows,), or the places of an answer, (rows, 2)."""
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_numpy()
    flat = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, column.type.list_size)


def _root(buffer: pa.Buffer) -> pa.Buffer:
    """Find the memory that a buffer is a part of: the whole file, if that is mapped."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer
