"""Batches: what a step of any task gives to the model, with padding removed.

B rows of S texts; a long text has up to W windows, which are sequences. There are N windows in all,
of up to L tokens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from .masking import IGNORED_LABEL, TextTask
from .rows import TEACHER, WINDOWS_COLUMN, Joined, TaskBatch


def pad_windows(columns: Mapping[str, Tensor], counts: Tensor, padding: int) -> dict[str, Tensor]:
    """Arrange the windows of padded columns, (N, L), by text.

    Args:
        columns: ``input_ids``, ``token_type_ids`` and ``attention_mask``.
        counts: Windows of each text, (B,), or (B, S) for several texts of a row.
        padding: Padding of ``input_ids``.

    Returns:
        The columns, (B, W, L) or (B, S, W, L); windows without a token fill the batch.
    """
    is_real = torch.arange(int(counts.max())) < counts.unsqueeze(-1)
    fillers = {"input_ids": padding}
    arranged = {}
    for name, values in columns.items():
        shape = (*is_real.shape, values.shape[1])
        arranged[name] = values.new_full(shape, fillers.get(name, 0))
        arranged[name][is_real] = values
    return arranged


def pad_counts(counts: Tensor, rows: int, windows: int) -> Tensor:
    """Append filler rows to the windows of each text; the first one has all filler ``windows``."""
    filler = F.pad(counts, (0, 0) * (counts.dim() - 1) + (0, rows))
    if windows:
        filler[len(counts)].view(-1)[0] = windows
    return filler


MIN_LENGTH = 32
STEP = 1.25
STEPS_DOWN = 7
MULTIPLE = 32  # tokens; whole tiles of a matrix product
SPARE = 1 / 32


class Shape(NamedTuple):
    """Shape of a packed batch: T tokens, rows (real ones and fillers), ``max_length_q``."""

    tokens: int
    rows: int
    max_length: int


class FixedShapes:
    """Chooses one of few shapes for a batch of real rows; filler rows come after them.

    - Tokens: the maximum of a batch of the task, plus 1/32 for the fillers, and seven smaller
      sizes, each a fifth less. Larger batches, as in evaluation, continue in these steps.
    - Rows: 1, 2, 3, 4, 6, 8, 12, 16 and so on, powers of two and halfway between.
    - ``max_length_q``: 32 or a higher power of two.

    Each sequence of a filler has at least one token, and not more than the longest real sequence
    (or two, if that has only one).
    """

    def __init__(self, max_tokens: Mapping[str, int]) -> None:
        self.max_tokens = dict(max_tokens)

    def fit(self, task: str, tokens: int, rows: int, longest: int, sequences_per_row: int) -> Shape:
        """Find the smallest shape that fits the rows; filler sequences get the remaining tokens."""
        most = self.max_tokens[task] * (1 + SPARE)
        step = max(-STEPS_DOWN, math.ceil(math.log(tokens / most, STEP)))
        while True:
            size = math.ceil(most * STEP**step / MULTIPLE) * MULTIPLE
            filling = max(0, size - tokens)
            fillers = math.ceil(filling / (max(longest, 2) * sequences_per_row))
            filled_rows = _rows(rows + fillers)
            # a filler sequence without a token would have no first token
            if size >= tokens and (filled_rows - rows) * sequences_per_row <= filling:
                most_length = 1 << (longest - 1).bit_length()
                return Shape(size, filled_rows, max(MIN_LENGTH, most_length))
            step += 1


def _rows(rows: int) -> int:
    power: int = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if rows <= 3 * power // 4 else power


# Capacity for predicted tokens in fixed shapes, relative to the expected number, and its multiple.
SPARE_TARGETS = 1.1
TARGETS_MULTIPLE = 64


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

    The windows of a long text are sequences, too: padded (B, W, L), or (B, 2, W, L) for separate
    pairs, where windows without a token fill the batch. Packed, ``num_windows``, (B,) or (B, 2), is
    the number of windows of each text.

    Both begin with ``task`` and, if the rows have them, ``labels`` (B,), or for questions about
    passages (B, 2), the positions of the first and last token of the answer: the Trainer takes the
    batch size from the first tensor. ``labels`` of masked language modeling have the shape of
    ``input_ids``; packed, ``label_positions`` (M,) lists where they are not -100, so that the GPU
    need not be synchronized to find them. If next sentences are trained, too, there is
    ``next_sentence_label`` (B,); if they are trained alone, these are the ``labels`` (B,).

    If the rows have them, outputs of M teachers come last, as ``teacher_logits``: (B, M, ...), or
    of tokens in the shape of ``input_ids``, (B, L, M, K) or (1, T, M, K); for questions (B, L, M,
    2) also if packed. They are NaN at paddings and in fillers.

    With fixed shapes, filler rows of padding tokens follow the real ones. Their label is -100,
    which losses ignore. ``num_rows``, an int, is the number of real rows. The Trainer removes it
    from the model's inputs (a compiled model would need a program for each value) and cuts logits
    and labels to that many rows. ``label_positions`` is padded, too, with positions whose label is
    -100.

    Args:
        pad_token_id: Padding of ``input_ids``.
        packed: Whether to pack.
        fixed_shapes: Shapes to which packed batches are filled.
        texts: The tasks that learn from unlabeled text.

    Raises:
        ValueError: If fixed shapes are given for padded batches.
    """

    def __init__(
        self,
        pad_token_id: int,
        *,
        packed: bool = False,
        fixed_shapes: FixedShapes | None = None,
        texts: Mapping[str, TextTask] | None = None,
    ) -> None:
        if fixed_shapes is not None and not packed:
            raise ValueError("fixed_shapes are for packed batches; give packed=True")
        self.pad_token_id = pad_token_id
        self.packed = packed
        self.fixed_shapes = fixed_shapes
        self.texts = dict(texts or {})

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make a batch of the rows of one task, dictionaries or a ``TaskBatch``.

        Raises:
            ValueError: If the rows are of several tasks, or cannot be masked.
        """
        joined = rows.join() if isinstance(rows, TaskBatch) else join_rows(rows)
        text = self.texts.get(joined.task)
        if text is not None:
            joined = text.prepare(joined)
        of_rows = {
            "next_sentence_label": joined.next_sentence_label,
            "labels": joined.labels,
            TEACHER: joined.teacher,
        }
        batch: dict[str, Any] = {"task": joined.task}
        for name, values in of_rows.items():
            if values is not None:
                batch[name] = _to_tensor(values)
        counts = None
        if joined.num_windows is not None:
            counts = torch.from_numpy(joined.num_windows)
            counts = counts if joined.num_texts > 1 else counts.squeeze(1)
        if not self.packed:
            return batch | self._pad(joined, counts)
        if counts is not None:
            batch[WINDOWS_COLUMN] = counts
        return batch | self._pack(batch, joined)

    def _pad(self, joined: Joined, counts: Tensor | None) -> dict[str, Any]:
        mask = np.arange(joined.lengths.max()) < joined.lengths[:, None]
        is_separate = joined.is_separate and counts is None
        shape = (joined.rows, -1, mask.shape[1]) if is_separate else mask.shape
        padded = {}
        for name, (values, filler) in self._token_columns(joined).items():
            column = np.full(mask.shape, filler, dtype=np.int64)
            column[mask] = values
            padded[name] = torch.from_numpy(column.reshape(shape))
        padded["attention_mask"] = torch.from_numpy(mask.astype(np.int64).reshape(shape))
        if joined.token_teacher is not None:
            by_row = (joined.lengths, len(joined.lengths), mask.shape[1])
            padded[TEACHER] = torch.from_numpy(pad_tokens(joined.token_teacher, *by_row))
        return padded if counts is None else pad_windows(padded, counts, self.pad_token_id)

    def _token_columns(self, joined: Joined) -> dict[str, tuple[NDArray[np.int64], int]]:
        """Return the columns with a value for each token, (T,), and their padding."""
        columns = {
            "input_ids": (joined.input_ids, self.pad_token_id),
            "token_type_ids": (joined.token_type_ids, 0),
        }
        if joined.token_labels is None:
            return columns
        return {"labels": (joined.token_labels, IGNORED_LABEL), **columns}

    def _pack(self, batch: dict[str, Any], joined: Joined) -> dict[str, Any]:
        rows, lengths = joined.rows, joined.lengths
        size, longest = len(joined.input_ids), int(lengths.max())
        more: dict[str, Any] = {}
        if self.fixed_shapes is not None:
            # so that sizes do not depend on the windows of each text, a row counts as a window
            units = rows if joined.num_windows is None else len(lengths)
            per_row = len(lengths) // units
            shape = self.fixed_shapes.fit(joined.task, size, units, longest, per_row)
            fillers = (shape.rows - units) * per_row
            lengths = np.append(lengths, _distribute(shape.tokens - size, fillers))
            more = _fill_rows(batch, shape.rows - rows, fillers)
            more["num_rows"], longest = rows, shape.max_length
            size = shape.tokens
        columns = {
            name: np.pad(values, (0, size - len(values)), constant_values=filler)
            for name, (values, filler) in self._token_columns(joined).items()
        }
        if "labels" in columns:
            more["label_positions"] = torch.from_numpy(self._find(joined, columns["labels"]))
        if joined.token_teacher is not None:
            more[TEACHER] = self._pack_teacher(joined, size, len(lengths), longest)
        ends = np.cumsum(lengths)
        columns["position_ids"] = np.arange(size) - np.repeat(ends - lengths, lengths)
        return {
            **{name: torch.from_numpy(values[None]) for name, values in columns.items()},
            **more,
            "cu_seq_lens_q": torch.from_numpy(np.append(0, ends).astype(np.int32)),
            "max_length_q": longest,
        }

    def _pack_teacher(self, joined: Joined, size: int, rows: int, longest: int) -> Tensor:
        """Lay the outputs of teachers out as the logits of a packed batch: by token, or by row."""
        values: Any = joined.token_teacher
        if joined.token_labels is None:  # questions
            return torch.from_numpy(pad_tokens(values, joined.lengths, rows, longest))
        whole = np.asarray([len(values)])
        return torch.from_numpy(pad_tokens(values, whole, 1, size))

    def _find(self, joined: Joined, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """List the positions of labeled tokens, (M,), padded with others for fixed shapes."""
        labeled = np.flatnonzero(labels != IGNORED_LABEL)
        text = self.texts.get(joined.task)
        if self.fixed_shapes is None:
            return labeled
        share = text.masking.mlm_probability if text is not None and text.masking else 0.0
        wanted = max(len(labeled), SPARE_TARGETS * share * len(labels))
        room = math.ceil(wanted / TARGETS_MULTIPLE) * TARGETS_MULTIPLE - len(labeled)
        others = np.flatnonzero(labels == IGNORED_LABEL)[:room]
        return np.concatenate([labeled, others])


def _to_tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32 if values.dtype.kind == "f" else np.int64))


def _fill_rows(batch: Mapping[str, Any], rows: int, sequences: int) -> dict[str, Any]:
    """Append filler rows, which have so many sequences, to the columns with a value for each."""
    filled = {}
    for name in batch.keys() - {"task", WINDOWS_COLUMN}:
        beside = (0, 0) * (batch[name].dim() - 1)
        filler = math.nan if name == TEACHER else IGNORED_LABEL
        filled[name] = F.pad(batch[name], (*beside, 0, rows), value=filler)
    if WINDOWS_COLUMN in batch:
        filled[WINDOWS_COLUMN] = pad_counts(batch[WINDOWS_COLUMN], rows, sequences)
    return filled


def join_rows(rows: Sequence[Mapping[str, Any]]) -> Joined:
    """Concatenate rows that are dictionaries."""
    names = sorted({row["task"] for row in rows})
    if len(names) > 1:
        raise ValueError(f"a batch mixes the tasks {names}; expected rows of one task")
    sequences, types = ([row[name] for row in rows] for name in ("input_ids", "token_type_ids"))
    is_separate = isinstance(sequences[0][0], Sequence | np.ndarray)
    if is_separate:
        sequences, types = list(chain(*sequences)), list(chain(*types))
    labels, token_labels = _join_labels(rows) if "labels" in rows[0] else (None, None)
    return Joined(
        names[0],
        len(rows),
        np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences)),
        _join(sequences),
        _join(types),
        labels,
        token_labels,
        is_separate=is_separate,
        num_windows=_stack(rows, WINDOWS_COLUMN, np.int64),
        teacher=_stack(rows, TEACHER),
    )


def _stack(rows: Sequence[Mapping[str, Any]], name: str, dtype: Any = None) -> NDArray[Any] | None:
    """Make an array of a column, (B, ...); None if the rows have none of this name."""
    return np.asarray([row[name] for row in rows], dtype) if name in rows[0] else None


def _join(sequences: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(sequences), dtype=np.int64)


def _join_labels(rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """Return labels of rows, such as the two positions of an answer, or of tokens."""
    labels, first = [row["labels"] for row in rows], np.asarray(rows[0]["labels"])
    if first.shape == (len(rows[0]["input_ids"]),) and first.dtype.kind != "f":
        return None, _join(labels)
    return np.asarray(labels), None


def _distribute(tokens: int, count: int) -> NDArray[np.int64]:
    """Distribute tokens over ``count`` sequences as evenly as possible, (count,)."""
    return (tokens + np.arange(count)) // max(1, count)


def pad_tokens(
    values: NDArray[np.float32], lengths: NDArray[np.int64], rows: int, longest: int
) -> NDArray[np.float32]:
    """Lay the values of tokens, (T, ...), out by rows, (rows, longest, ...); NaN elsewhere."""
    padded = np.full((rows, longest, *values.shape[1:]), np.nan, dtype=np.float32)
    padded[: len(lengths)][np.arange(longest) < lengths[:, None]] = values
    return padded


# Key of a mixed batch: a list of the batches of its tasks.
BATCHES = "batches"
# Columns of rows that a batch must keep, and the end of the error: "the rows have ...".
KEPT = {
    "labels": "labels, without which there are no losses and metrics",
    TEACHER: "it, to learn from their teachers",
}


def collate_rows(collator: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Collate rows of one task, or of each task of a mixed step into ``{"batches": [...]}``."""
    if isinstance(rows, list) and not isinstance(rows[0], Mapping):
        return {BATCHES: [collate_rows(collator, part) for part in rows]}
    return collator(rows) if isinstance(collator, TaskCollator) else call_collator(collator, rows)


def list_batches(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """List the batches of a step, one for each task."""
    return inputs.get(BATCHES, [inputs])


def call_collator(
    collator: Callable[..., Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Make a batch with a collator of the user, and check it.

    It is called as ``collator(rows)``, or ``collator(rows, task=name)`` if it has an argument
    ``task``. The rows are a list of dictionaries with ``input_ids``, ``token_type_ids`` and, if the
    task has them, ``labels`` and ``teacher_logits`` (see ``Distillation``). It returns a mapping
    with the arguments of the model, these two if the rows have them, and tensors with an entry for
    each row, in their order. The trainer adds ``task``.

    Raises:
        TypeError: If the batch is not a mapping.
        ValueError: If the collator raises one, labels are missing, or a tensor has another number
            of rows.
    """
    task = rows[0]["task"]
    given = [{name: value for name, value in row.items() if name != "task"} for row in rows]
    options = {"task": task} if "task" in signature(collator).parameters else {}
    try:
        batch = collator(given, **options)
    except ValueError as error:
        raise ValueError(
            f"the data_collator, for task {task!r}, failed: {error}. Its rows have no padding: use "
            "one that pads, such as DataCollatorWithPadding(tokenizer)"
        ) from error
    _check_batch(batch, rows, task)
    return {"task": task, **batch}


def _check_batch(batch: Any, rows: Sequence[Mapping[str, Any]], task: str) -> None:
    """Check that a batch has the labels of its rows, and an entry for each row."""
    where = f"the data_collator, for task {task!r}, returned"
    if not isinstance(batch, Mapping):
        raise TypeError(f"{where} a {type(batch).__name__}; expected a mapping of tensors")
    if batch.get("task", task) != task:
        raise ValueError(f"{where} task={batch['task']!r}; leave task out, the trainer adds it")
    for name, reason in KEPT.items():
        if name in rows[0] and not isinstance(batch.get(name), Tensor):
            raise ValueError(
                f"{where} no tensor {name!r}, but {', '.join(map(str, batch))}; the rows have "
                f"{reason}"
            )
    if "cu_seq_lens_q" not in batch:  # a packed batch has a single row of tokens
        for name, value in batch.items():
            if isinstance(value, Tensor) and value.shape[:1] != (len(rows),):
                raise ValueError(
                    f"{where} {name!r} of shape {tuple(value.shape)} for {len(rows)} rows; "
                    "expected one entry for each row, in their order"
                )
