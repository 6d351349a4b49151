"""Rows of tasks: from what a user passes to flat arrays, and the batches that are made of them.

B rows of S texts; the windows of a long text are sequences. There are N of them in a batch, of up
to L tokens. Batches give them to the model without padding, if it can take them so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from datasets_scripts.row_format import IGNORED_LABEL as IGNORED_LABEL

from .sampling import Counts, TaskBatchSampler

if TYPE_CHECKING:
    from .masking import TextMasking

LABELS = "labels"
# Other names of that column, which the collators of transformers know, too.
LABEL_NAMES = ("label", "label_ids")
MASK = "attention_mask"
MODEL_COLUMNS = ("input_ids", "token_type_ids", LABELS)
# Column of texts that are split into windows: sequences of each text of a row.
WINDOWS_COLUMN = "num_windows"
TEACHER = "teacher_logits"  # outputs of teachers, in rows and batches
ROW_TOKENS = 512  # the most that a row has without windows

Ids: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[Any]  # labels of a type that depends on the task
Batch: TypeAlias = dict[str, Any]  # what the model gets, and the name of its task


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


Rows: TypeAlias = datasets.Dataset | TextSource


def read_rows(where: str, rows: Any, *, of_tokens: bool = False) -> Any:
    """Convert rows to a dataset with the columns that a task needs.

    Args:
        where: Which rows they are, for errors.
        rows: A dataset, a list of rows, a torch dataset, a text source, or None.
        of_tokens: Whether every token has a label.

    Raises:
        TypeError: If they are not rows.
        ValueError: If a column is missing or has values of another type, there are no rows, they
            have a transform or padding.
    """
    if rows is None or isinstance(rows, TextSource):
        return rows
    rows = _to_dataset(where, rows)
    try:
        return _complete_rows(where, rows, of_tokens=of_tokens)
    except ValueError:
        if rows._indices is None:  # all rows of the table
            raise
        # what is wrong may be in rows that are not among the selected ones
        return _complete_rows(where, rows.flatten_indices(), of_tokens=of_tokens)


def _complete_rows(where: str, rows: datasets.Dataset, *, of_tokens: bool) -> datasets.Dataset:
    if "input_ids" not in rows.column_names:
        raise ValueError(
            f"{where} has no column 'input_ids', but {', '.join(rows.column_names)}; encode its "
            "texts with the tokenizer of the model first"
        )
    if rows.format["type"] == "custom":
        raise ValueError(f"{where} has a transform; compute its columns with map instead")
    if "token_type_ids" not in rows.column_names:
        zeros = [_zeros(ids) for ids in rows.with_format(None)["input_ids"]]
        rows = rows.add_column("token_type_ids", zeros)
    other_names = [name for name in LABEL_NAMES if name in rows.column_names]
    if other_names and LABELS not in rows.column_names:
        rows = rows.rename_column(other_names[0], LABELS)
    if not of_tokens:
        rows = _fix_length_of_labels(rows)
    if len(rows):
        try:
            FlatRows(rows)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if MASK not in rows.column_names:
        return rows
    masks = rows.data.column(MASK)
    while pa.types.is_nested(masks.type):
        masks = pc.list_flatten(masks)
    if not pc.all(pc.equal(masks.cast(pa.int64()), 1), skip_nulls=False, min_count=0).as_py():
        raise ValueError(
            f"{where} has an {MASK} with other values than 1; encode texts without padding "
            "(padding=False), which every batch gets when it is made"
        )
    return rows.remove_columns(MASK)


def _fix_length_of_labels(rows: datasets.Dataset) -> datasets.Dataset:
    """Make the length of lists of labels a part of their type, if it is the same in all rows."""
    labels = rows.features.get(LABELS)
    if not isinstance(labels, datasets.List) or labels.length >= 0:
        return rows
    lengths = pc.unique(pc.list_value_length(rows.data.column(LABELS))).to_pylist()
    if len(lengths) != 1 or lengths[0] is None:
        return rows
    return rows.cast_column(LABELS, datasets.List(labels.feature, length=lengths[0]))


def _zeros(ids: Any) -> Any:
    """Return the segment ids of single sequences: 0 for every token."""
    return [_zeros(part) for part in ids] if isinstance(ids, list) else 0


def _to_dataset(where: str, rows: Any) -> datasets.Dataset:
    if isinstance(rows, datasets.Dataset):
        return rows
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    if isinstance(rows, str | Mapping | IterableDataset) or hasattr(rows, "iloc") or not has_items:
        raise TypeError(
            f"{where} is a {type(rows).__name__}; give a datasets.Dataset (from_dict and "
            "from_pandas read columns and frames), a list of rows, or a torch dataset with a "
            "length: list(rows) reads what can be iterated over"
        )
    listed: list[dict[str, Any]] = []
    for number in range(len(rows)):
        row = rows[number]
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{where}: row {number} is a {type(row).__name__}; expected columns such as "
                "{'input_ids': [...], 'labels': 1}"
            )
        if listed and row.keys() != listed[0].keys():
            raise ValueError(
                f"{where}: row {number} has the columns {', '.join(map(str, row))}, but those "
                f"before have {', '.join(map(str, listed[0]))}"
            )
        # tensors and arrays as lists
        listed.append({name: x.tolist() if hasattr(x, "tolist") else x for name, x in row.items()})
    if not listed:
        raise ValueError(f"{where} is empty; give it rows")
    try:
        return datasets.Dataset.from_list(listed)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"{where}: a column has values of several types ({error})") from error


@dataclass(eq=False)
class SomeRows:
    """Some rows of a text source, (B,), the same in every pass."""

    source: TextSource
    rows: Ids

    def __len__(self) -> int:
        return len(self.rows)

    def count_tokens(self, pass_index: int, /) -> Ids:
        return self.source.count_tokens(pass_index)[self.rows]

    def read(self, pass_index: int, rows: Ids, /) -> Mapping[str, Ids]:
        return self.source.read(pass_index, self.rows[rows])


class FlatRows:
    """Views of the Arrow buffers of a dataset, and 20 bytes per sequence.

    Nothing is copied if the dataset is one memory-mapped file or one piece in memory. A format or
    a transform of the dataset is left aside.

    Attributes:
        columns: Of each column with a number for every token: the numbers, possibly with other
            parts of their file in between, and the start of each sequence, (N,).
        lengths: Tokens of each sequence, (N,).
        is_separate: Whether a row is a list of sequences.
        windows: Sequences of each text of a row, (rows, S); None if texts are not split.

    Raises:
        ValueError: If a column is missing, has no value for a row or has values of another type.
    """

    def __init__(self, dataset: datasets.Dataset) -> None:
        self._dataset = dataset
        of_tokens = has_token_labels(dataset)
        first, *others = MODEL_COLUMNS if of_tokens else MODEL_COLUMNS[:2]
        values, starts, self.lengths, self._bounds = _read_tokens(dataset, first)
        self.columns = {first: (values, starts)}
        self.is_separate = self._bounds is not None
        for name in others:
            values, starts, lengths, bounds = _read_tokens(dataset, name)
            is_aligned = np.array_equal(lengths, self.lengths)
            if not is_aligned or not np.array_equal(bounds, self._bounds):
                raise ValueError(f"{name} and {first} differ in length")
            self.columns[name] = (values, starts)
        self._labels: Values | None = None  # (rows,), or (rows, K) for K numbers of a row
        if LABELS in dataset.column_names and not of_tokens:
            self._labels = _read_labels(dataset.data.column(LABELS))
        self.windows: Ids | None = None
        if WINDOWS_COLUMN in dataset.column_names:
            self.windows = np.asarray(dataset.with_format(None)[WINDOWS_COLUMN][:], np.int64)
        elif self._bounds is not None and len(np.unique(np.diff(self._bounds))) > 1:
            raise ValueError("rows differ in their number of sequences")
        # the places of selected rows in the table; select() itself would slice it for each row
        if (indices := dataset._indices) is not None:
            order = indices.column(0).to_numpy().astype(np.int64)
            sequences = self._list_sequences(order)
            self.columns = {
                name: (values, starts[sequences]) for name, (values, starts) in self.columns.items()
            }
            self.lengths = self.lengths[sequences]
            self._labels = None if self._labels is None else self._labels[order]
            if self._bounds is not None:
                self._bounds = np.append(0, np.cumsum(np.diff(self._bounds)[order]))

    def __reduce__(self) -> tuple[Any, ...]:
        # a view of a mapped file would be copied to workers that are not forked
        return FlatRows, (self._dataset,)

    def count_tokens(self) -> Ids:
        """Count the tokens of each row, all of its sequences included, (rows,)."""
        if self._bounds is None:
            return self.lengths.astype(np.int64)
        return np.diff(np.append(0, np.cumsum(self.lengths, dtype=np.int64))[self._bounds])

    def _list_sequences(self, rows: Ids) -> Ids:
        if self._bounds is None:
            return rows
        starts = self._bounds[rows]
        return list_places(starts, self._bounds[rows + 1] - starts)

    def join(self, task: str, rows: Ids, passes: Ids) -> Joined:
        """Concatenate some rows, (B,); their passes, (B,), are only recorded."""
        sequences = self._list_sequences(rows)
        lengths = self.lengths[sequences].astype(np.int64)
        columns = {
            name: values[list_places(starts[sequences], lengths)].astype(np.int64, copy=False)
            for name, (values, starts) in self.columns.items()
        }
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
            num_windows=None if self.windows is None else self.windows[rows],
        )


def has_token_labels(dataset: datasets.Dataset) -> bool:
    """Whether rows have a list of labels."""
    return LABELS in dataset.column_names and _is_list(dataset.data.column(LABELS).type)


def list_places(starts: Ids, lengths: Ids) -> Ids:
    """List the places of ranges that begin at ``starts``, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _read_tokens(dataset: datasets.Dataset, name: str) -> tuple[Values, Ids, NDArray[Any], Any]:
    """Read a column with a number for every token, in the order of its table.

    Returns its numbers, the start and length of each sequence, and if rows are lists of sequences
    the first sequence of each row, and their number at the end, (rows + 1,).
    """
    if name not in dataset.column_names:
        raise ValueError(f"the column {name!r} is missing")
    column = dataset.data.column(name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    bounds: Any = None
    if any(map(_has_nulls, chunks)):
        raise ValueError(f"{name} has missing values")
    kind = column.type
    if _is_list(kind) and _is_list(kind.value_type):
        counts = [chunk.value_lengths().to_numpy() for chunk in chunks]
        bounds = np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64)
        chunks, kind = [chunk.flatten() for chunk in chunks], kind.value_type
    if not _is_list(kind) or not (pa.types.is_integer(kind.value_type) or not chunks):
        raise ValueError(f"{name} is of {column.type}; expected lists of whole numbers")
    return *_view_lists(chunks), bounds


def _view_lists(chunks: list[pa.Array]) -> tuple[Values, Ids, NDArray[np.int32]]:
    """View the numbers of lists in their shared memory, or concatenate them; see `_read_tokens`."""
    if not chunks:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
    bounds = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
    parts = [chunk.values for chunk in chunks]
    buffers = [part.buffers()[1] for part in parts]
    dtype = np.dtype(parts[0].type.to_pandas_dtype())
    whole = _root(buffers[0])
    skips = np.asarray([buffer.address - whole.address for buffer in buffers])
    is_shared = all(_root(buffer).address == whole.address for buffer in buffers)
    if not is_shared or (skips % dtype.itemsize).any():
        pairs = zip(parts, bounds, strict=True)
        kept = [part.to_numpy()[bound[0] : bound[-1]] for part, bound in pairs]
        offsets = np.cumsum([0, *map(len, kept[:-1])]) - [bound[0] for bound in bounds]
        values = np.concatenate(kept)
    else:
        offsets = [part.offset for part in parts] + skips // dtype.itemsize
        values = np.frombuffer(whole, dtype, count=whole.size // dtype.itemsize)
    starts = [bound[:-1] + offset for bound, offset in zip(bounds, offsets, strict=True)]
    lengths = np.concatenate([*map(np.diff, bounds)]).astype(np.int32)
    return values, np.concatenate(starts), lengths


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
    parts = [chunk.flatten() for chunk in column.chunks]
    if any(part.null_count for part in parts):
        raise ValueError("labels have lists with a missing number; -100 stands for none")
    flat = [part.to_numpy(zero_copy_only=False) for part in parts]
    return np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, size)


def _has_nulls(array: pa.Array) -> bool:
    return array.null_count > 0 or (_is_list(array.type) and _has_nulls(array.values))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _root(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer that contains this one: the whole file, if it is memory-mapped."""
    while buffer.parent is not None:
        buffer = buffer.parent
    return buffer


class TaskDataset(Dataset[Joined]):
    """The concatenated rows of all tasks.

    Some rows of one task are read as their concatenation, `Joined`.

    Index ``i + p * len(self)`` is row ``i`` in pass ``p`` over the data, for rows that differ in
    every pass: those of text sources, and masks.

    Args:
        tasks: Encoded rows of each task; columns other than ``MODEL_COLUMNS`` and
            ``num_windows`` are ignored.
        sampler: Receives every ``set_epoch``.

    Attributes:
        sizes: Rows of each task.
        teachers: Of some tasks, what adds the outputs of teachers to the rows of a batch.
    """

    def __init__(self, tasks: Mapping[str, Rows], sampler: TaskBatchSampler | None = None) -> None:
        self.sizes = {task: len(rows) for task, rows in tasks.items()}
        self._tasks = list(tasks)
        self._ends = list(accumulate(self.sizes.values()))
        self._rows: list[FlatRows | TextSource] = []
        for rows in tasks.values():
            if isinstance(rows, datasets.Dataset):
                names = [x for x in (*MODEL_COLUMNS, WINDOWS_COLUMN) if x in rows.column_names]
                self._rows.append(FlatRows(rows.select_columns(names)))
            else:
                self._rows.append(rows)
        self._sampler = sampler
        self.teachers: dict[str, Callable[[Joined], Joined]] = {}

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the sampler.

        accelerate sets the epoch of a batch sampler only if it is not wrapped twice (several
        processes, resumed within an epoch), but always that of the dataset.
        """
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Joined:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Joined:
        """Read the rows of a batch, which are of one task."""
        passes, places = np.divmod(np.asarray(indices, dtype=np.int64), len(self))
        (position,) = set(np.searchsorted(self._ends, places, side="right").tolist())
        task = self._tasks[position]
        rows, chosen = self._rows[position], places - (self._ends[position] - self.sizes[task])
        if isinstance(rows, FlatRows):
            joined = rows.join(task, chosen, passes)
        else:  # the passes ascend
            read = [rows.read(int(n), chosen[passes == n]) for n in np.unique(passes)]
            columns: dict[str, Any] = {
                name: np.concatenate([each[name] for each in read]) for name in read[0]
            }
            columns["places"] = np.stack([passes, chosen])
            joined = Joined(task=task, rows=len(chosen), **columns)
        return self.teachers[task](joined) if task in self.teachers else joined

    def fit_rows(self, most: int) -> int:
        """Return the rows of a batch if long texts count as a row for every 512 tokens."""
        longest = [
            int(rows.count_tokens().max(initial=1))
            for rows in self._rows
            if isinstance(rows, FlatRows) and rows.windows is not None
        ]
        return max(1, min([most, *(most * ROW_TOKENS // count for count in longest)]))


def spread_numbers(count: int, most: int) -> Ids:
    """Choose at most ``most`` of the indices below ``count``, evenly, with the first and last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def spread(rows: Rows, most: int) -> Rows:
    """Take at most ``most`` rows, spread over the task; deterministic."""
    if len(rows) <= most:
        return rows
    # one of each part: equal distances could hit one label alone where labels alternate
    ends = np.linspace(0, len(rows), most + 1).astype(np.int64)
    chosen = np.random.default_rng(0).integers(ends[:-1], ends[1:])
    return SomeRows(rows, chosen) if isinstance(rows, TextSource) else rows.select(chosen)


def find_labeled(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows have a label, (N,); with several labels at least one of them."""
    if isinstance(rows, TextSource) or LABELS not in rows.column_names:
        return np.ones(len(rows), np.bool_)
    labels: NDArray[Any] = np.asarray(rows.with_format(None)[LABELS][:])
    return (labels != IGNORED_LABEL).reshape(len(rows), -1).any(axis=1)


def read_lengths(task: str, rows: Rows, column: str) -> Counts:
    """Return the tokens of each row, (N,), or a function from the pass index to them."""
    if isinstance(rows, TextSource):
        return rows.count_tokens
    if column not in rows.column_names:
        raise ValueError(
            f"train_sampling_strategy='group_by_length' needs the column {column!r}; task {task!r} "
            f"has {', '.join(rows.column_names)}"
        )
    return np.asarray(rows[column][:])


def longest_first(task: str, rows: Rows, length_column: str) -> tuple[TaskDataset, Ids]:
    """Sort rows by length, if it is known; a lack of memory shows in the first batch.

    Returns the rows and the index of each in ``rows``, (N,).
    """
    order = np.arange(len(rows))
    if not isinstance(rows, TextSource):
        kind = getattr(rows.features.get(length_column), "dtype", "")
        if kind.startswith("int"):  # and not a column of the user's own
            order = np.argsort(-np.asarray(rows[length_column][:]), kind="stable")
            rows = rows.select(order)
    return TaskDataset({task: rows}), order


@dataclass(eq=False)
class TaskCollator:
    """Make the rows of one task a batch.

    Padded, single sequences and joint pairs become tensors of (B, L), separate pairs of (B, 2, L)
    and the S sentences of a contrastive task of (B, S, L), where L is the longest sequence:

    - ``input_ids``, ``token_type_ids``, ``attention_mask``, int64.

    Packed, all N sequences are concatenated into one row of T tokens, those of separate pairs in
    the order a0, b0, a1, b1, and so on:

    - ``input_ids``, ``token_type_ids``, ``position_ids``, (1, T), int64;
    - ``cu_seq_lens_q``: start of each sequence, and T, (N + 1,), int32;
    - ``max_length_q``: tokens of the longest sequence, an int.

    The windows of long texts are sequences, too, padded (N, L); ``num_windows``, (B,) or (B, 2), is
    the number of windows of each text.

    Both begin with ``task`` and, if the rows have them, ``labels`` (B,), or for questions about
    passages (B, 2), the positions of the first and last token of the answer: the Trainer takes the
    batch size from the first tensor. ``labels`` of masked language modeling have the shape of
    ``input_ids``; packed, ``label_positions`` (M,) lists where they are not -100, so that the GPU
    need not be synchronized to find them. If next sentences are trained, too, there is
    ``next_sentence_label`` (B,); if they are trained alone, these are the ``labels`` (B,).

    If the rows have them, outputs of M teachers come last, as ``teacher_logits``: (B, M, ...), or
    of tokens in the shape of ``input_ids``, (B, L, M, K) or (1, T, M, K); for questions (B, L, M,
    2) also if packed. They are NaN at paddings.

    Args:
        pad_token_id: Padding of ``input_ids``.
        packed: Whether to pack.
        texts: The tasks that learn from unlabeled text.
    """

    pad_token_id: int
    _: KW_ONLY
    packed: bool = False
    texts: Mapping[str, "TextMasking"] = field(default_factory=dict)

    def __call__(self, joined: Joined) -> Batch:
        """Make a batch; rows that cannot be masked raise ValueError."""
        if joined.task in self.texts:
            joined = self.texts[joined.task].prepare(joined)
        of_rows = {
            "next_sentence_label": joined.next_sentence_label,
            LABELS: joined.labels,
            TEACHER: joined.teacher,
        }
        batch: Batch = {"task": joined.task}
        for name, values in of_rows.items():
            if values is not None:
                kind = np.float32 if values.dtype.kind == "f" else np.int64
                batch[name] = torch.from_numpy(values.astype(kind))
        if joined.num_windows is not None:
            counts = torch.from_numpy(joined.num_windows)
            batch[WINDOWS_COLUMN] = counts if counts.shape[1] > 1 else counts.squeeze(1)
        return batch | (self._pack(joined) if self.packed else self._pad(joined))

    def _pad(self, joined: Joined) -> Batch:
        fillers = {"input_ids": self.pad_token_id, "token_type_ids": 0, LABELS: IGNORED_LABEL}
        mask = np.arange(joined.lengths.max()) < joined.lengths[:, None]
        is_separate = joined.is_separate and joined.num_windows is None
        shape = (joined.rows, -1, mask.shape[1]) if is_separate else mask.shape
        padded = {}
        for name, values in _list_columns(joined).items():
            column = np.full(mask.shape, fillers[name], dtype=np.int64)
            column[mask] = values
            padded[name] = torch.from_numpy(column.reshape(shape))
        padded["attention_mask"] = torch.from_numpy(mask.astype(np.int64).reshape(shape))
        if joined.token_teacher is not None:
            padded[TEACHER] = _pad_tokens(joined.token_teacher, joined.lengths, mask.shape[1])
        return padded

    def _pack(self, joined: Joined) -> Batch:
        lengths, size, longest = joined.lengths, len(joined.input_ids), int(joined.lengths.max())
        ends, columns = np.cumsum(lengths), _list_columns(joined)
        columns["position_ids"] = np.arange(size) - np.repeat(ends - lengths, lengths)
        batch: Batch = {name: torch.from_numpy(values[None]) for name, values in columns.items()}
        if LABELS in columns:
            positions = np.flatnonzero(columns[LABELS] != IGNORED_LABEL)
            batch["label_positions"] = torch.from_numpy(positions)
        if (values := joined.token_teacher) is not None:  # laid out as the logits of the model
            if joined.token_labels is None:  # of questions, by row
                batch[TEACHER] = _pad_tokens(values, lengths, longest)
            else:
                batch[TEACHER] = torch.from_numpy(values[None])
        batch["cu_seq_lens_q"] = torch.from_numpy(np.append(0, ends).astype(np.int32))
        batch["max_length_q"] = longest
        return batch


def _list_columns(joined: Joined) -> dict[str, Ids]:
    """Return the columns with a value for each token, (T,)."""
    columns = {} if joined.token_labels is None else {LABELS: joined.token_labels}
    return {**columns, "input_ids": joined.input_ids, "token_type_ids": joined.token_type_ids}


def _pad_tokens(values: Values, lengths: Ids, longest: int) -> Tensor:
    """Lay the values of tokens, (T, ...), out by rows, (N, longest, ...); NaN elsewhere."""
    padded = np.full((len(lengths), longest, *values.shape[1:]), np.nan, dtype=np.float32)
    padded[np.arange(longest) < lengths[:, None]] = values
    return torch.from_numpy(padded)
