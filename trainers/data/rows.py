"""Encoded rows of a task in flat arrays: reading a batch is one gather per column."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MODEL_COLUMNS = ("input_ids", "token_type_ids", "labels")


class Joined(NamedTuple):
    """The rows of a batch, with their N sequences concatenated.

    Args:
        task: Name of the task.
        rows: B, the number of rows.
        lengths: Tokens of each sequence, (N,), int64; N is a multiple of B.
        input_ids: (T,), int64.
        token_type_ids: (T,), int64.
        labels: (B,), int64 or float32, or (B, 2), int64, the positions of answers; None for none.
        token_labels: A label for each token, -100 for none, (T,), int64; or None.
        next_sentence_label: 0 if segment B follows A, 1 if it is random, (B,); None if the rows are
            not segment pairs.
        places: Pass index and row index in the task of each row, (2, B); None if unknown.
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
    """A number for each token of a task.

    Args:
        values: The numbers, possibly with other parts of their file in between.
        starts: Start of each sequence, (N,), int64.
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    def gather(self, sequences: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Concatenate some sequences of these lengths, (T,)."""
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self.starts[sequences] - before, lengths)
        places += np.arange(len(places))
        return self.values[places].astype(np.int64, copy=False)


@runtime_checkable
class TextSource(Protocol):
    """Rows of text that differ in every pass: a function of (pass, row)."""

    def __len__(self) -> int:
        """Count the rows of a pass, the same for all passes."""

    def count_tokens(self, pass_index: int, /) -> NDArray[np.int64]:
        """Count the tokens of every row in a pass, special ones included, (N,)."""

    def read(self, pass_index: int, rows: NDArray[np.int64], /) -> Mapping[str, NDArray[Any]]:
        """Read some rows of a pass.

        Returns:
            ``lengths`` (B,); the concatenated ``input_ids`` and ``token_type_ids``, (T,); and for
            segment pairs ``next_sentence_label`` (B,). All int64.
        """


class SomeRows:
    """Some rows of a text source, with the same indices in every pass.

    Args:
        source: The source.
        rows: Indices of the rows, (B,).
    """

    def __init__(self, source: TextSource, rows: NDArray[np.int64]) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def count_tokens(self, pass_index: int, /) -> NDArray[np.int64]:
        """Count the tokens of each row, (B,)."""
        return self._source.count_tokens(pass_index)[self._rows]

    def read(self, pass_index: int, rows: NDArray[np.int64], /) -> Mapping[str, NDArray[Any]]:
        """Read some of the rows."""
        return self._source.read(pass_index, self._rows[rows])


class SourceRows:
    """The rows of a text source, with the interface of `FlatRows`."""

    is_separate = False

    def __init__(self, source: TextSource) -> None:
        self._source = source

    def join(self, task: str, rows: NDArray[np.int64], passes: NDArray[np.int64]) -> Joined:
        """Concatenate some rows, (B,), of ascending passes, (B,)."""
        parts = [
            self._source.read(int(pass_index), rows[passes == pass_index])
            for pass_index in np.unique(passes)
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        places = np.stack([passes, rows])
        return Joined(task=task, rows=len(rows), labels=None, places=places, **columns)

    def row(self, task: str, index: int, pass_index: int) -> dict[str, Any]:
        """Read a row, with its task."""
        part = self._source.read(pass_index, np.asarray([index]))
        row = {"task": task, **{name: part[name].tolist() for name in part if name != "lengths"}}
        if "next_sentence_label" in row:
            row["next_sentence_label"] = row["next_sentence_label"][0]
        return row


class FlatRows:
    """Views of the Arrow buffers of a dataset.

    Nothing is copied if the dataset is one memory-mapped file or one piece in memory, even if rows
    were selected, filtered or shuffled; otherwise the tokens are copied once. In addition there are
    20 bytes per sequence.

    Args:
        tokens: ``input_ids``, ``token_type_ids``, and ``labels`` if tokens have labels.
        lengths: Tokens of each sequence, (N,), int32.
        labels: (rows,), or (rows, 2) for positions of answers, or None.
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
            The rows; None if they must be read one by one, because the dataset has a format or a
            transform, values are missing, or columns have another type.
        """
        if dataset.format["type"] is not None or not _has_plain_labels(dataset):
            return None
        names = ["input_ids", "token_type_ids"]
        labels_of_tokens = has_token_labels(dataset)
        if labels_of_tokens:
            names.append("labels")
        columns = _read_aligned(dataset, names)
        if columns is None:
            return None
        tokens = {name: column.join() for name, column in columns.items()}
        labels = None
        if "labels" in dataset.column_names and not labels_of_tokens:
            labels = _read_labels(dataset.data.column("labels"))
        ids = columns["input_ids"]
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
        """List the indices of the sequences of some rows."""
        if self._per_row is None:
            return rows
        return (rows[:, None] * self._per_row + np.arange(self._per_row)).ravel()

    def join(self, task: str, rows: NDArray[np.int64], passes: NDArray[np.int64]) -> Joined:
        """Concatenate some rows, (B,); their passes, (B,), are only recorded."""
        sequences = self._sequences(rows)
        lengths = self._lengths[sequences].astype(np.int64)
        columns = {name: column.gather(sequences, lengths) for name, column in self.tokens.items()}
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
            places=np.stack([passes, rows]),
        )

    def row(self, task: str, index: int, pass_index: int) -> dict[str, Any]:  # noqa: ARG002
        """Read a row as a dictionary, with its task."""
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
    """Rows of one task that are still in flat arrays; as a sequence they are dictionaries.

    Args:
        task: Name of the task.
        rows: All rows of the task.
        indices: Indices of the rows of the batch, (B,).
        passes: Pass index of each, (B,).
    """

    def __init__(
        self,
        task: str,
        rows: FlatRows | SourceRows,
        indices: NDArray[np.int64],
        passes: NDArray[np.int64],
    ) -> None:
        self.task = task
        self._rows = rows
        self._indices = indices
        self._passes = passes

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        pass_index = int(self._passes[position])
        return self._rows.row(self.task, int(self._indices[position]), pass_index)

    @property
    def is_separate(self) -> bool:
        """Whether a row has several sequences."""
        return self._rows.is_separate

    def join(self) -> Joined:
        """Concatenate the rows."""
        return self._rows.join(self.task, self._indices, self._passes)


def row_order(dataset: datasets.Dataset) -> NDArray[np.int64] | None:
    """Return the indices of a dataset's rows in its table, (rows,); None for all in order."""
    # select() of datasets itself would slice the table for each row
    indices = dataset._indices
    return None if indices is None else indices.column(0).to_numpy().astype(np.int64)


class _Lists(NamedTuple):
    """A column of lists of numbers, or of equally many such lists in every row.

    Args:
        parts: The numbers of each chunk.
        starts: Boundaries of the sequences of each chunk in its part, (N + 1,).
        lengths: Length of each sequence of all chunks, (N,).
        per_row: Lists of a row; None for lists of numbers.
    """

    parts: list[pa.Array]
    starts: list[NDArray[np.int64]]
    lengths: NDArray[np.int32]
    per_row: int | None

    def join(self) -> Tokens:
        """View the parts in their shared memory, or concatenate them."""
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


def _read_aligned(dataset: datasets.Dataset, names: Sequence[str]) -> dict[str, _Lists] | None:
    """Read columns of lists with equal lengths; None if they are not."""
    columns: dict[str, _Lists] = {}
    for name in names:
        column = _read_lists(dataset, name)
        if column is None:
            return None
        columns[name] = column
    ids = columns["input_ids"]
    are_aligned = all(np.array_equal(column.lengths, ids.lengths) for column in columns.values())
    are_alike = columns["token_type_ids"].per_row == ids.per_row
    return columns if are_aligned and are_alike else None


def _read_lists(dataset: datasets.Dataset, name: str) -> _Lists | None:
    """Read a column in the order of its table; None if it is no such column, or empty."""
    if name not in dataset.column_names:
        return None
    column = dataset.data.column(name)
    depth, leaf = _depth(column.type)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    is_supported = depth in (1, 2) and pa.types.is_integer(leaf)
    if not chunks or not is_supported or _has_nulls(chunks):
        return None
    chunks, counts = _unnest(chunks, depth)
    if len(counts) > 1 or 0 in counts:
        return None
    (per_row,) = counts
    starts = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
    lengths = np.concatenate([np.diff(start) for start in starts]).astype(np.int32)
    return _Lists([chunk.values for chunk in chunks], starts, lengths, per_row)


def _unnest(chunks: list[pa.Array], depth: int) -> tuple[list[pa.Array], set[int | None]]:
    """Return the innermost lists, and the different numbers of them in a row, None for no rows."""
    if depth == 1:
        return chunks, {None}
    lists = []
    counts: set[int | None] = set()
    for chunk in chunks:
        outer = chunk.offsets.to_numpy()
        counts |= set(np.unique(np.diff(outer)).tolist())
        lists.append(chunk.values.slice(outer[0], outer[-1] - outer[0]))
    return lists, counts


def _has_nulls(arrays: Sequence[pa.Array]) -> bool:
    """Whether arrays of lists have missing values at any depth."""
    while arrays:
        if any(array.null_count for array in arrays):
            return True
        arrays = [array.values for array in arrays if _is_list(array.type)]
    return False


def _depth(kind: pa.DataType) -> tuple[int, pa.DataType]:
    """Return how often lists are nested, and the type of their elements."""
    depth = 0
    while _is_list(kind):
        depth, kind = depth + 1, kind.value_type
    return depth, kind


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def has_token_labels(dataset: datasets.Dataset) -> bool:
    """Whether rows have a list of labels."""
    names = dataset.column_names
    return "labels" in names and _is_list(dataset.data.column("labels").type)


def _has_plain_labels(dataset: datasets.Dataset) -> bool:
    """Whether labels are missing altogether, of tokens, or equally many numbers in every row."""
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
    """Read a number for every row, (rows,), or the positions of an answer, (rows, 2)."""
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_numpy()
    flat = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, column.type.list_size)


def _root(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer that contains this one: the whole file, if it is memory-mapped."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer
