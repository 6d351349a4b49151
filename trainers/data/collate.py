"""Batches: what a step of any task gives to the model, with padding removed.

B rows of S texts; a long text has up to W windows, which are sequences. There are N windows in all,
of up to L tokens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .masking import IGNORED_LABEL, TextTask
from .rows import LABELS, TEACHER, WINDOWS_COLUMN, Ids, Joined, Values

# Of packed batches in fixed shapes.
MIN_LENGTH = 32
STEP = 1.25
STEPS_DOWN = 7
MULTIPLE = 32  # tokens; whole tiles of a matrix product
SPARE = 1 / 32
# Capacity for predicted tokens, relative to the expected number, and its multiple.
SPARE_TARGETS = 1.1
TARGETS_MULTIPLE = 64

# What the model gets, and the name of its task.
Batch: TypeAlias = dict[str, Any]
BATCHES = "batches"  # key of a mixed batch: a list of the batches of its tasks


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
            power = 1 << (rows + fillers - 1).bit_length()
            filled_rows = 3 * power // 4 if rows + fillers <= 3 * power // 4 else power
            # a filler sequence without a token would have no first token
            if size >= tokens and (filled_rows - rows) * sequences_per_row <= filling:
                most_length = 1 << (longest - 1).bit_length()
                return Shape(size, filled_rows, max(MIN_LENGTH, most_length))
            step += 1


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

    def __call__(self, joined: Joined | Sequence[Joined]) -> Batch:
        """Make a batch of the rows of one task, or of each task, ``{"batches": [...]}``.

        Raises:
            ValueError: If the rows cannot be masked.
        """
        if not isinstance(joined, Joined):
            return {BATCHES: list(map(self, joined))}
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
        counts = None
        if joined.num_windows is not None:
            counts = torch.from_numpy(joined.num_windows)
            counts = counts if counts.shape[1] > 1 else counts.squeeze(1)
        if not self.packed:
            return batch | self._pad(joined, counts)
        if counts is not None:
            batch[WINDOWS_COLUMN] = counts
        return batch | self._pack(batch, joined)

    def _list_columns(self, joined: Joined) -> dict[str, tuple[Ids, int]]:
        """Return the columns with a value for each token, (T,), and their padding."""
        columns = {
            "input_ids": (joined.input_ids, self.pad_token_id),
            "token_type_ids": (joined.token_type_ids, 0),
        }
        if joined.token_labels is None:
            return columns
        return {LABELS: (joined.token_labels, IGNORED_LABEL), **columns}

    def _pad(self, joined: Joined, counts: Tensor | None) -> Batch:
        mask = np.arange(joined.lengths.max()) < joined.lengths[:, None]
        is_separate = joined.is_separate and counts is None
        shape = (joined.rows, -1, mask.shape[1]) if is_separate else mask.shape
        padded = {}
        for name, (values, filler) in self._list_columns(joined).items():
            column = np.full(mask.shape, filler, dtype=np.int64)
            column[mask] = values
            padded[name] = torch.from_numpy(column.reshape(shape))
        padded["attention_mask"] = torch.from_numpy(mask.astype(np.int64).reshape(shape))
        if joined.token_teacher is not None:
            by_row = (joined.lengths, len(joined.lengths), mask.shape[1])
            padded[TEACHER] = _pad_tokens(joined.token_teacher, *by_row)
        if counts is None:
            return padded
        # by text, (B, W, L) or (B, S, W, L)
        is_real = torch.arange(int(counts.max())) < counts.unsqueeze(-1)
        for name, windows in padded.items():
            filler = self.pad_token_id if name == "input_ids" else 0
            padded[name] = windows.new_full((*is_real.shape, windows.shape[1]), filler)
            padded[name][is_real] = windows
        return padded

    def _pack(self, batch: Batch, joined: Joined) -> Batch:
        rows, lengths = joined.rows, joined.lengths
        size, longest = len(joined.input_ids), int(lengths.max())
        more: Batch = {}
        if self.fixed_shapes is not None:
            # so that sizes do not depend on the windows of each text, a row counts as a window
            units = rows if joined.num_windows is None else len(lengths)
            per_row = len(lengths) // units
            shape = self.fixed_shapes.fit(joined.task, size, units, longest, per_row)
            fillers = (shape.rows - units) * per_row
            filling = (shape.tokens - size + np.arange(fillers)) // max(1, fillers)
            lengths = np.append(lengths, filling)
            more = _fill_rows(batch, shape.rows - rows, fillers)
            more["num_rows"], longest = rows, shape.max_length
            size = shape.tokens
        columns = {
            name: np.pad(values, (0, size - len(values)), constant_values=filler)
            for name, (values, filler) in self._list_columns(joined).items()
        }
        if LABELS in columns:
            positions = np.flatnonzero(columns[LABELS] != IGNORED_LABEL)
            if self.fixed_shapes is not None:  # padded with unlabeled positions
                text = self.texts.get(joined.task)
                share = text.masking.mlm_probability if text and text.masking else 0.0
                wanted = max(len(positions), SPARE_TARGETS * share * size)
                room = math.ceil(wanted / TARGETS_MULTIPLE) * TARGETS_MULTIPLE - len(positions)
                others = np.flatnonzero(columns[LABELS] == IGNORED_LABEL)[:room]
                positions = np.concatenate([positions, others])
            more["label_positions"] = torch.from_numpy(positions)
        if (values := joined.token_teacher) is not None:  # laid out as the logits of the model
            if joined.token_labels is None:  # of questions, by row
                more[TEACHER] = _pad_tokens(values, joined.lengths, len(lengths), longest)
            else:
                more[TEACHER] = _pad_tokens(values, np.asarray([len(values)]), 1, size)
        ends = np.cumsum(lengths)
        columns["position_ids"] = np.arange(size) - np.repeat(ends - lengths, lengths)
        return {
            **{name: torch.from_numpy(values[None]) for name, values in columns.items()},
            **more,
            "cu_seq_lens_q": torch.from_numpy(np.append(0, ends).astype(np.int32)),
            "max_length_q": longest,
        }


def _fill_rows(batch: Batch, rows: int, sequences: int) -> Batch:
    """Append filler rows, which have so many sequences, to the columns with a value for each."""
    filled = {}
    for name in batch.keys() - {"task"}:
        beside = (0, 0) * (batch[name].dim() - 1)
        fillers = {TEACHER: math.nan, WINDOWS_COLUMN: 0}
        filler = fillers.get(name, IGNORED_LABEL)
        filled[name] = F.pad(batch[name], (*beside, 0, rows), value=filler)
        if name == WINDOWS_COLUMN and sequences:  # the first filler row has them all
            filled[name][len(batch[name])].view(-1)[0] = sequences
    return filled


def _pad_tokens(values: Values, lengths: Ids, rows: int, longest: int) -> Tensor:
    """Lay the values of tokens, (T, ...), out by rows, (rows, longest, ...); NaN elsewhere."""
    padded = np.full((rows, longest, *values.shape[1:]), np.nan, dtype=np.float32)
    padded[: len(lengths)][np.arange(longest) < lengths[:, None]] = values
    return torch.from_numpy(padded)


def list_batches(inputs: Batch) -> list[Batch]:
    """List the batches of a step, one for each task."""
    return inputs.get(BATCHES, [inputs])
