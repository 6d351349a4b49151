"""Rows of tasks as flat arrays, with outputs of teachers beside them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LABELS = "labels"
MODEL_COLUMNS = ("input_ids", "token_type_ids", "labels")
# Column of texts that are split into windows: sequences of each text of a row.
WINDOWS_COLUMN = "num_windows"
# Outputs of teachers, in rows and batches.
TEACHER = "teacher_logits"


class Joined(NamedTuple):
    """The B rows of a batch, with their N sequences of T tokens concatenated."""

    task: str
    rows: int  # B
    lengths: NDArray[np.int64]  # tokens of each sequence, (N,); without windows a multiple of B
    input_ids: NDArray[np.int64]  # (T,)
    token_type_ids: NDArray[np.int64]  # (T,)
    labels: NDArray[Any] | None  # (B,), or (B, K) for K numbers of a row
    token_labels: NDArray[np.int64] | None = None  # (T,), -100 for none
    next_sentence_label: NDArray[np.int64] | None = None  # (B,), 0 if B follows A, 1 if random
    places: NDArray[np.int64] | None = None  # pass index and row index of each row, (2, B)
    is_separate: bool = False  # whether a row is a list of sequences
    num_windows: NDArray[np.int64] | None = None  # sequences of each text, (B, S)
    teacher: NDArray[np.float32] | None = None  # outputs of M teachers, (B, M, ...)
    token_teacher: NDArray[np.float32] | None = None  # (T, M, K)

    @property
    def num_texts(self) -> int:
        """Texts of a row, S, if they are split into windows."""
        return 1 if self.num_windows is None else self.num_windows.shape[1]


class Tokens(NamedTuple):
    """A column with a number for each token of a task, in N sequences."""

    values: NDArray[Any]  # the numbers, possibly with other parts of their file in between
    starts: NDArray[np.int64]  # start of each sequence, (N,)
    lengths: NDArray[np.int32]  # tokens of each sequence, (N,)
    per_row: int | None  # sequences of a row, 2 for separate pairs; None for single lists

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
        """Read B rows of a pass.

        Returns:
            ``lengths`` (B,); the concatenated ``input_ids`` and ``token_type_ids``, (T,); and for
            segment pairs ``next_sentence_label`` (B,). All int64.
        """


class SourceRows:
    """All rows of a text source, or some (B,), the same in every pass; readable as `FlatRows`."""

    def __init__(self, source: TextSource, rows: NDArray[np.int64] | None = None) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._source if self._rows is None else self._rows)

    def count_tokens(self, pass_index: int, /) -> NDArray[np.int64]:
        counts = self._source.count_tokens(pass_index)
        return counts if self._rows is None else counts[self._rows]

    def read(self, pass_index: int, rows: NDArray[np.int64], /) -> Mapping[str, NDArray[Any]]:
        return self._source.read(pass_index, rows if self._rows is None else self._rows[rows])

    def join(self, task: str, rows: NDArray[np.int64], passes: NDArray[np.int64]) -> Joined:
        """Concatenate some rows, (B,), of ascending passes, (B,)."""
        parts = [
            self.read(int(pass_index), rows[passes == pass_index])
            for pass_index in np.unique(passes)
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        places = np.stack([passes, rows])
        return Joined(task=task, rows=len(rows), labels=None, places=places, **columns)


class FlatRows:
    """Views of the Arrow buffers of a dataset, and 20 bytes per sequence.

    Nothing is copied if the dataset is one memory-mapped file or one piece in memory.
    """

    def __init__(self, tokens: dict[str, Tokens], labels: NDArray[Any] | None) -> None:
        # input_ids, token_type_ids, and labels if tokens have any; all with the same lengths
        self.tokens = tokens
        self._lengths, self._per_row = tokens["input_ids"].lengths, tokens["input_ids"].per_row
        self._labels = labels  # (rows,), or (rows, K) for K numbers of a row

    @classmethod
    def read(cls, dataset: datasets.Dataset) -> "FlatRows | None":
        """Find the buffers; None if rows must be read one by one.

        That is so with a format or a transform, missing values, columns of another type, and
        windows.
        """
        if WINDOWS_COLUMN in dataset.column_names:
            return None
        if dataset.format["type"] is not None or not _has_plain_labels(dataset):
            return None
        of_tokens = has_token_labels(dataset)
        names = ["input_ids", "token_type_ids", *(["labels"] if of_tokens else [])]
        tokens = _read_aligned(dataset, names)
        if tokens is None:
            return None
        labels = None
        if "labels" in dataset.column_names and not of_tokens:
            labels = _read_labels(dataset.data.column("labels"))
        rows, order = cls(tokens, labels), row_order(dataset)
        return rows if order is None else rows._select(order)

    def _select(self, order: NDArray[np.int64]) -> "FlatRows":
        sequences = self._sequences(order)
        lengths = self._lengths[sequences]
        tokens = {
            name: column._replace(starts=column.starts[sequences], lengths=lengths)
            for name, column in self.tokens.items()
        }
        return FlatRows(tokens, None if self._labels is None else self._labels[order])

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
        return Joined(
            task,
            len(rows),
            lengths,
            columns["input_ids"],
            columns["token_type_ids"],
            None if self._labels is None else self._labels[rows],
            columns.get("labels"),
            places=np.stack([passes, rows]),
            is_separate=self.is_separate,
        )


class TeacherRows:
    """Outputs of M teachers for the rows of a task, read by row; NaN where there is no teacher.

    Args:
        values: Of N rows, (N, M, ...), or of all their T tokens in the order of the rows, (T, M,
            K).
        lengths: Tokens of each row, (N,), if the values are of tokens.
    """

    def __init__(
        self, values: NDArray[np.float32], lengths: NDArray[np.int64] | None = None
    ) -> None:
        self._values = values
        self._lengths = lengths
        self._starts = None if lengths is None else np.cumsum(lengths) - lengths

    @property
    def is_of_tokens(self) -> bool:
        """Whether there is a value for every token."""
        return self._starts is not None

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the values of some rows, (B, M, ...), or of their tokens, (T, M, K)."""
        if self._starts is None or self._lengths is None:
            return np.asarray(self._values[rows], dtype=np.float32)
        lengths = self._lengths[rows]
        before = np.cumsum(lengths) - lengths
        places = np.repeat(self._starts[rows] - before, lengths) + np.arange(lengths.sum())
        return np.asarray(self._values[places], dtype=np.float32)


class TaskBatch(Sequence[dict[str, Any]]):
    """Some rows of a task, (B,), in their passes, (B,); as a sequence they are dictionaries.

    With ``teacher``, rows have the outputs of teachers, too.
    """

    def __init__(
        self,
        task: str,
        rows: FlatRows | SourceRows,
        indices: NDArray[np.int64],
        passes: NDArray[np.int64],
        teacher: TeacherRows | None = None,
    ) -> None:
        self.task = task
        self._rows = rows
        self._teacher = teacher
        self._places = np.stack([indices, passes])

    def __len__(self) -> int:
        return self._places.shape[1]

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        return _only_row(self._join(self._places[:, [position]]))

    def join(self) -> Joined:
        """Concatenate the rows."""
        return self._join(self._places)

    def _join(self, places: NDArray[np.int64]) -> Joined:
        joined = self._rows.join(self.task, *places)
        if self._teacher is None:
            return joined
        values = self._teacher.read(places[0])
        if self._teacher.is_of_tokens:
            return joined._replace(token_teacher=values)
        return joined._replace(teacher=values)


def _only_row(joined: Joined) -> dict[str, Any]:
    """Convert a batch of one row to a dictionary."""
    row: dict[str, Any] = {"task": joined.task}
    columns = (joined.input_ids, joined.token_type_ids, joined.token_labels)
    for name, values in zip(MODEL_COLUMNS, columns, strict=True):
        if values is not None:
            parts = np.split(values, np.cumsum(joined.lengths)[:-1])
            row[name] = [part.tolist() for part in parts] if joined.is_separate else values.tolist()
    if joined.labels is not None:
        row[LABELS] = joined.labels[0].tolist()
    if joined.next_sentence_label is not None:
        row["next_sentence_label"] = joined.next_sentence_label[0].tolist()
    if joined.teacher is not None:
        row[TEACHER] = joined.teacher[0].tolist()
    return row


def row_order(dataset: datasets.Dataset) -> NDArray[np.int64] | None:
    """Return the indices of a dataset's rows in its table, (rows,); None for all in order."""
    # select() of datasets itself would slice the table for each row
    indices = dataset._indices
    return None if indices is None else indices.column(0).to_numpy().astype(np.int64)


def _read_aligned(dataset: datasets.Dataset, names: Sequence[str]) -> dict[str, Tokens] | None:
    """Read columns of lists with equal lengths; None if they are not."""
    read = {name: _read_lists(dataset, name) for name in names}
    columns = {name: column for name, column in read.items() if column is not None}
    if len(columns) < len(names):
        return None
    ids = columns["input_ids"]
    are_aligned = all(np.array_equal(column.lengths, ids.lengths) for column in columns.values())
    if not are_aligned or columns["token_type_ids"].per_row != ids.per_row:
        return None
    return {name: column._replace(lengths=ids.lengths) for name, column in columns.items()}


def _read_lists(dataset: datasets.Dataset, name: str) -> Tokens | None:
    """Read a column in the order of its table; None if it is no such column, or empty."""
    if name not in dataset.column_names:
        return None
    column = dataset.data.column(name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if not chunks or not _is_list(column.type) or any(map(_has_nulls, chunks)):
        return None
    chunks, counts = _unnest(chunks)
    if len(counts) > 1 or 0 in counts or not pa.types.is_integer(chunks[0].type.value_type):
        return None
    (per_row,) = counts
    bounds = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
    lengths = np.concatenate([*map(np.diff, bounds)]).astype(np.int32)
    values, starts = _view_whole([chunk.values for chunk in chunks], bounds)
    return Tokens(values, starts, lengths, per_row)


def _view_whole(
    parts: list[pa.Array], bounds: list[NDArray[np.int64]]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """View the parts in their shared memory, or concatenate them; return values and starts."""
    buffers = [part.buffers()[1] for part in parts]
    dtype = np.dtype(parts[0].type.to_pandas_dtype())
    whole = _root(buffers[0])
    skips = np.asarray([buffer.address - whole.address for buffer in buffers])
    if (skips % dtype.itemsize).any() or any(
        _root(buffer).address != whole.address for buffer in buffers
    ):
        kept = [
            part.to_numpy()[bound[0] : bound[-1]] for part, bound in zip(parts, bounds, strict=True)
        ]
        offsets = np.cumsum([0, *map(len, kept[:-1])]) - [bound[0] for bound in bounds]
        values = np.concatenate(kept)
    else:
        offsets = [part.offset for part in parts] + skips // dtype.itemsize
        values = np.frombuffer(whole, dtype, count=whole.size // dtype.itemsize)
    starts = [bound[:-1] + offset for bound, offset in zip(bounds, offsets, strict=True)]
    return values, np.concatenate(starts)


def _unnest(chunks: list[pa.Array]) -> tuple[list[pa.Array], set[int | None]]:
    """Return the inner lists and the distinct numbers of them in a row, None for single lists."""
    if not _is_list(chunks[0].type.value_type):
        return chunks, {None}
    counts = {count for chunk in chunks for count in chunk.value_lengths().unique().to_pylist()}
    return [chunk.flatten() for chunk in chunks], counts


def _has_nulls(array: pa.Array) -> bool:
    """Whether an array of lists has missing values at any depth."""
    return array.null_count > 0 or (_is_list(array.type) and _has_nulls(array.values))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def has_token_labels(dataset: datasets.Dataset) -> bool:
    """Whether rows have a list of labels."""
    names = dataset.column_names
    return "labels" in names and _is_list(dataset.data.column("labels").type)


def _has_plain_labels(dataset: datasets.Dataset) -> bool:
    """Whether labels are missing altogether, of tokens, or equally many numbers in every row."""
    if "labels" not in dataset.column_names or has_token_labels(dataset):
        return True
    column = dataset.data.column("labels")
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return not column.null_count and any(is_kind(kind) for is_kind in kinds)


def _read_labels(column: pa.ChunkedArray) -> NDArray[Any]:
    """Read a number for every row, (rows,), or K of them, (rows, K)."""
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_numpy()
    flat = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, column.type.list_size)


def _root(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer that contains this one: the whole file, if it is memory-mapped."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer
