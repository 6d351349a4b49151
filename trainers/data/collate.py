"""Batches: what a step of any task gives to the model, with padding removed.

B rows of S texts; the windows of a long text are sequences. There are N of them in all, of up to L
tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .rows import IGNORED_LABEL, LABELS, TEACHER, WINDOWS_COLUMN, Ids, Joined, Values

if TYPE_CHECKING:
    from .masking import TextMasking

# What the model gets, and the name of its task.
Batch: TypeAlias = dict[str, Any]
BATCHES = "batches"  # key of a mixed batch: a list of the batches of its tasks


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
        if joined.num_windows is not None:
            counts = torch.from_numpy(joined.num_windows)
            batch[WINDOWS_COLUMN] = counts if counts.shape[1] > 1 else counts.squeeze(1)
        return batch | (self._pack(joined) if self.packed else self._pad(joined))

    def _list_columns(self, joined: Joined) -> dict[str, tuple[Ids, int]]:
        """Return the columns with a value for each token, (T,), and their padding."""
        columns = {
            "input_ids": (joined.input_ids, self.pad_token_id),
            "token_type_ids": (joined.token_type_ids, 0),
        }
        if joined.token_labels is None:
            return columns
        return {LABELS: (joined.token_labels, IGNORED_LABEL), **columns}

    def _pad(self, joined: Joined) -> Batch:
        mask = np.arange(joined.lengths.max()) < joined.lengths[:, None]
        is_separate = joined.is_separate and joined.num_windows is None
        shape = (joined.rows, -1, mask.shape[1]) if is_separate else mask.shape
        padded = {}
        for name, (values, filler) in self._list_columns(joined).items():
            column = np.full(mask.shape, filler, dtype=np.int64)
            column[mask] = values
            padded[name] = torch.from_numpy(column.reshape(shape))
        padded["attention_mask"] = torch.from_numpy(mask.astype(np.int64).reshape(shape))
        if joined.token_teacher is not None:
            padded[TEACHER] = _pad_tokens(joined.token_teacher, joined.lengths, mask.shape[1])
        return padded

    def _pack(self, joined: Joined) -> Batch:
        lengths, size, longest = joined.lengths, len(joined.input_ids), int(joined.lengths.max())
        columns = {name: values for name, (values, _) in self._list_columns(joined).items()}
        more: Batch = {}
        if LABELS in columns:
            positions = np.flatnonzero(columns[LABELS] != IGNORED_LABEL)
            more["label_positions"] = torch.from_numpy(positions)
        if (values := joined.token_teacher) is not None:  # laid out as the logits of the model
            if joined.token_labels is None:  # of questions, by row
                more[TEACHER] = _pad_tokens(values, lengths, longest)
            else:
                more[TEACHER] = torch.from_numpy(values[None])
        ends = np.cumsum(lengths)
        columns["position_ids"] = np.arange(size) - np.repeat(ends - lengths, lengths)
        return {
            **{name: torch.from_numpy(values[None]) for name, values in columns.items()},
            **more,
            "cu_seq_lens_q": torch.from_numpy(np.append(0, ends).astype(np.int32)),
            "max_length_q": longest,
        }


def _pad_tokens(values: Values, lengths: Ids, longest: int) -> Tensor:
    """Lay the values of tokens, (T, ...), out by rows, (N, longest, ...); NaN elsewhere."""
    padded = np.full((len(lengths), longest, *values.shape[1:]), np.nan, dtype=np.float32)
    padded[np.arange(longest) < lengths[:, None]] = values
    return torch.from_numpy(padded)


def list_batches(inputs: Batch) -> list[Batch]:
    """List the batches of a step, one for each task."""
    return inputs.get(BATCHES, [inputs])
