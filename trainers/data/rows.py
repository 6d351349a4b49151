"""Rows of tasks as flat arrays, with outputs of teachers beside them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LABELS = "labels"
MODEL_COLUMNS = ("input_ids", "token_type_ids", LABELS)
# Column of texts that are split into windows: sequences of each text of a row.
WINDOWS_COLUMN = "num_windows"
# Outputs of teachers, in rows and batches.
TEACHER = "teacher_logits"

Ids: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[Any]  # labels of a type that depends on the task


class Joined(NamedTuple):
    """The B rows of a batch, with their N sequences of T tokens concatenated."""

    task: str
    rows: int  # B
    lengths: Ids  # tokens of each sequence, (N,); without windows a multiple of B
    input_ids: Ids  # (T,)
    token_type_ids: Ids  # (T,)
    places: Ids  # pass index and row index of each row, (2, B)
    labels: Values | None = None  # (B,), or (B, K) for K numbers of a row
    token_labels: Ids | None = None  # (T,), -100 for none
    next_sentence_label: Ids | None = None  # (B,), 0 if B follows A, 1 if random
    is_separate: bool = False  # whether a row is a list of sequences
    num_windows: Ids | None = None  # sequences of each text, (B, S)
    teacher: NDArray[np.float32] | None = None  # outputs of M teachers, (B, M, ...)
    token_teacher: NDArray[np.float32] | None = None  # (T, M, K)


class Tokens(NamedTuple):
    """A column with a number for each token of a task, in N sequences."""

    values: Values  # the numbers, possibly with other parts of their file in between
    starts: Ids  # start of each sequence, (N,)
    lengths: NDArray[np.int32]  # tokens of each sequence, (N,)

    def gather(self, sequences: Ids, lengths: Ids) -> Ids:
        """Concatenate some sequences of these lengths, (T,)."""
        return self.values[_spread(self.starts[sequences], lengths)].astype(np.int64, copy=False)


@runtime_checkable
class TextSource(Protocol):
    """Rows of text that differ in every pass: a function of (pass, row)."""

    def __len__(self) -> int:
        """Count the rows of a pass, the same for all passes."""

    def count_tokens(self, pass_index: int, /) -> Ids:
        """Count the tokens of every row in a pass, special ones included, (N,)."""

    def read(self, pass_index: int, rows: Ids, /) -> Mapping[str, Ids]:
        """Read B rows of a pass.

        Returns:
            ``lengths`` (B,); the concatenated ``input_ids`` and ``token_type_ids``, (T,); and for
            segment pairs ``next_sentence_label`` (B,). All int64.
        """


class SourceRows:
    """All rows of a text source, or some (B,), the same in every pass; readable as `FlatRows`."""

    def __init__(self, source: TextSource, rows: Ids | None = None) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._source if self._rows is None else self._rows)

    def count_tokens(self, pass_index: int, /) -> Ids:
        counts = self._source.count_tokens(pass_index)
        return counts if self._rows is None else counts[self._rows]

    def read(self, pass_index: int, rows: Ids, /) -> Mapping[str, Ids]:
        return self._source.read(pass_index, rows if self._rows is None else self._rows[rows])

    def join(self, task: str, rows: Ids, passes: Ids) -> Joined:
        """Concatenate some rows, (B,), of ascending passes, (B,)."""
        parts = [
            self.read(int(pass_index), rows[passes == pass_index])
            for pass_index in np.unique(passes)
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return Joined(task=task, rows=len(rows), places=np.stack([passes, rows]), **columns)


class FlatRows:
    """Views of the Arrow buffers of a dataset, and 20 bytes per sequence.

    Nothing is copied if the dataset is one memory-mapped file or one piece in memory. A format or
    a transform of the dataset is left aside.

    Args:
        dataset: Encoded rows.

    Raises:
        ValueError: If a column is missing, has no value for a row or has values of another type.
    """

    def __init__(self, dataset: datasets.Dataset) -> None:
        names = dataset.column_names
        of_tokens = has_token_labels(dataset)
        self.tokens, self._bounds = _read_tokens(
            dataset, MODEL_COLUMNS if of_tokens else MODEL_COLUMNS[:2]
        )
        self._labels: Values | None = None  # (rows,), or (rows, K) for K numbers of a row
        if LABELS in names and not of_tokens:
            self._labels = _read_labels(dataset.data.column(LABELS))
        self._windows: Ids | None = None  # (rows, S)
        if WINDOWS_COLUMN in names:
            self._windows = np.asarray(dataset.with_format(None)[WINDOWS_COLUMN][:], np.int64)
        elif len(set(self.count_sequences().tolist())) > 1:
            raise ValueError("rows differ in their number of sequences")
        if (order := row_order(dataset)) is not None:
            sequences = self._list_sequences(order)
            lengths = self.lengths[sequences]
            self.tokens = {
                name: Tokens(column.values, column.starts[sequences], lengths)
                for name, column in self.tokens.items()
            }
            self._labels = None if self._labels is None else self._labels[order]
            if self._bounds is not None:
                self._bounds = np.append(0, np.cumsum(np.diff(self._bounds)[order]))

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sequence, (N,)."""
        return self.tokens["input_ids"].lengths

    @property
    def is_separate(self) -> bool:
        """Whether a row is a list of sequences."""
        return self._bounds is not None

    def count_sequences(self) -> Ids:
        """Count the sequences of each row, (rows,)."""
        if self._bounds is None:
            return np.ones(len(self.lengths), np.int64)
        return np.diff(self._bounds)

    def count_tokens(self) -> Ids:
        """Count the tokens of each row, all of its sequences included, (rows,)."""
        if self._bounds is None:
            return self.lengths.astype(np.int64)
        return np.diff(np.append(0, np.cumsum(self.lengths, dtype=np.int64))[self._bounds])

    def _list_sequences(self, rows: Ids) -> Ids:
        """List the indices of the sequences of some rows."""
        if self._bounds is None:
            return rows
        starts = self._bounds[rows]
        return _spread(starts, self._bounds[rows + 1] - starts)

    def join(self, task: str, rows: Ids, passes: Ids) -> Joined:
        """Concatenate some rows, (B,); their passes, (B,), are only recorded."""
        sequences = self._list_sequences(rows)
        lengths = self.lengths[sequences].astype(np.int64)
        columns = {name: column.gather(sequences, lengths) for name, column in self.tokens.items()}
        return Joined(
            task,
            len(rows),
            lengths,
            columns["input_ids"],
            columns["token_type_ids"],
            np.stack([passes, rows]),
            None if self._labels is None else self._labels[rows],
            columns.get(LABELS),
            is_separate=self.is_separate,
            num_windows=None if self._windows is None else self._windows[rows],
        )


class TeacherRows:
    """Outputs of M teachers for the rows of a task, read by row; NaN where there is no teacher.

    Args:
        values: Of N rows, (N, M, ...), or of all their T tokens in the order of the rows, (T, M,
            K).
        lengths: Tokens of each row, (N,), if the values are of tokens.
    """

    def __init__(self, values: NDArray[np.float32], lengths: Ids | None = None) -> None:
        self._values = values
        self._lengths = lengths
        self._starts = None if lengths is None else np.cumsum(lengths) - lengths

    def add_to(self, joined: Joined) -> Joined:
        """Add the values of the rows of a batch, or of their tokens."""
        _, rows = joined.places
        if self._starts is None or self._lengths is None:
            return joined._replace(teacher=np.asarray(self._values[rows], dtype=np.float32))
        places = _spread(self._starts[rows], self._lengths[rows])
        return joined._replace(token_teacher=np.asarray(self._values[places], dtype=np.float32))


def row_order(dataset: datasets.Dataset) -> Ids | None:
    """Return the indices of a dataset's rows in its table, (rows,); None for all in order."""
    # select() of datasets itself would slice the table for each row
    indices = dataset._indices
    return None if indices is None else indices.column(0).to_numpy().astype(np.int64)


def has_token_labels(dataset: datasets.Dataset) -> bool:
    """Whether rows have a list of labels."""
    return LABELS in dataset.column_names and _is_list(dataset.data.column(LABELS).type)


def _spread(starts: Ids, lengths: Ids) -> Ids:
    """List the places of ranges that begin at ``starts``, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _read_tokens(
    dataset: datasets.Dataset, names: tuple[str, ...]
) -> tuple[dict[str, Tokens], Ids | None]:
    """Read columns with a number for every token, in the order of their table.

    Returns the columns, and if rows are lists of sequences the first sequence of each row, and
    their number at the end, (rows + 1,).
    """
    columns: dict[str, Tokens] = {}
    bounds: Any = None
    for name in names:
        if name not in dataset.column_names:
            raise ValueError(f"the column {name!r} is missing")
        column = dataset.data.column(name)
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        counts: Any = None
        if any(map(_has_nulls, chunks)):
            raise ValueError(f"{name} has missing values")
        kind = column.type
        if _is_list(kind) and _is_list(kind.value_type):
            lengths = [chunk.value_lengths().to_numpy() for chunk in chunks]
            counts = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
            chunks, kind = [chunk.flatten() for chunk in chunks], kind.value_type
        if not _is_list(kind) or not (pa.types.is_integer(kind.value_type) or not chunks):
            raise ValueError(f"{name} is of {column.type}; expected lists of whole numbers")
        columns[name] = _view_lists(chunks)
        first = columns[names[0]]
        bounds = counts if name == names[0] else bounds
        is_aligned = np.array_equal(columns[name].lengths, first.lengths)
        if not is_aligned or not np.array_equal(counts, bounds):
            raise ValueError(f"{name} and {names[0]} differ in length")
        columns[name] = columns[name]._replace(lengths=first.lengths)
    return columns, bounds


def _view_lists(chunks: list[pa.Array]) -> Tokens:
    """View the numbers of lists in their shared memory, or concatenate them."""
    if not chunks:
        return Tokens(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))
    bounds = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
    parts = [chunk.values for chunk in chunks]
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
    lengths = np.concatenate([*map(np.diff, bounds)]).astype(np.int32)
    return Tokens(values, np.concatenate(starts), lengths)


def _read_labels(column: pa.ChunkedArray) -> Values:
    """Read a number for every row, (rows,), or K of them, (rows, K)."""
    kind, size = column.type, None
    if pa.types.is_fixed_size_list(kind):
        kind, size = kind.value_type, kind.list_size
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if column.null_count or not is_number:
        raise ValueError(f"labels are of {column.type}, or missing; expected numbers")
    if size is None:
        return column.to_numpy()
    flat = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, size)


def _has_nulls(array: pa.Array) -> bool:
    """Whether an array of lists has missing values at any depth."""
    return array.null_count > 0 or (_is_list(array.type) and _has_nulls(array.values))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _root(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer that contains this one: the whole file, if it is memory-mapped."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer
