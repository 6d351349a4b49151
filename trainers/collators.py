"""Rows of one task as a batch: padded, or packed without padding."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from .rows import Joined, TaskBatch
from .shapes import FixedShapes

IGNORED_LABEL = -100  # what the losses of torch leave out


class TaskCollator:
    """Make the rows of one task a batch.

    Padded, single sequences and joint pairs become tensors of (B, L) and separate pairs of
    (B, 2, L), where L is the longest sequence of the batch:

    - ``input_ids``, ``token_type_ids``, ``attention_mask``, int64.

    Packed, all N sequences stand one after the other in one row of T tokens, those of separate
    pairs in the order a0, b0, a1, b1, and so on:

    - ``input_ids``, ``token_type_ids``, ``position_ids``, (1, T), int64;
    - ``cu_seq_lens_q``: where each sequence begins, and T, (N + 1,), int32;
    - ``max_length_q``: tokens of the longest sequence, an int.

    Both begin with ``task`` and, if the rows have them, ``labels`` (B,): of the tensors the Trainer
    takes the first one for the size of the batch.

    With fixed shapes, filler rows of padding tokens follow the real ones. Their label is -100: a
    loss is a mean over the rows with another label. ``num_rows``, an int, is the number of real
    rows; it is for the Trainer, which takes it out of what the model gets (to a compiled model
    every other int is another program) and cuts logits and labels to that many rows.

    Args:
        pad_token_id: Fills ``input_ids`` where no real token is.
        packed: Whether to pack.
        fixed_shapes: Fill packed batches up to these shapes.

    Raises:
        ValueError: If there are fixed shapes for padded batches.
    """

    def __init__(
        self, pad_token_id: int, *, packed: bool = False, fixed_shapes: FixedShapes | None = None
    ) -> None:
        if fixed_shapes is not None and not packed:
            raise ValueError("fixed_shapes are for packed batches; give packed=True")
        self.pad_token_id = pad_token_id
        self.packed = packed
        self.fixed_shapes = fixed_shapes

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make a batch.

        Args:
            rows: Rows of one task with ``input_ids`` and ``token_type_ids``; ``labels`` if known.

        Raises:
            ValueError: If the rows are of several tasks.
        """
        joined = rows.join() if isinstance(rows, TaskBatch) else join_rows(rows)
        batch: dict[str, Any] = {"task": joined.task}
        if joined.labels is not None:
            batch["labels"] = torch.from_numpy(joined.labels)
        if self.packed:
            return batch | self._pack(batch, joined)
        return batch | self._pad(joined, separate=_is_separate(rows))

    def _pad(self, joined: Joined, *, separate: bool) -> dict[str, Any]:
        """Pad the sequences of a batch to the longest of them."""
        mask = np.arange(joined.lengths.max()) < joined.lengths[:, None]
        padded = {
            "input_ids": np.full(mask.shape, self.pad_token_id, dtype=np.int64),
            "token_type_ids": np.zeros(mask.shape, dtype=np.int64),
            "attention_mask": mask.astype(np.int64),
        }
        padded["input_ids"][mask] = joined.input_ids
        padded["token_type_ids"][mask] = joined.token_type_ids
        shape = (joined.rows, -1, mask.shape[1]) if separate else mask.shape
        return {name: torch.from_numpy(values.reshape(shape)) for name, values in padded.items()}

    def _pack(self, batch: dict[str, Any], joined: Joined) -> dict[str, Any]:
        """Join the sequences of a batch and, if asked for, add fillers, which have labels too."""
        _, rows, lengths, ids, types, _ = joined
        longest = int(lengths.max())
        more: dict[str, Any] = {}
        if self.fixed_shapes is not None:
            per_row = len(lengths) // rows
            shape = self.fixed_shapes.fit(joined.task, len(ids), rows, longest, per_row)
            fillers = shape.rows - rows
            lengths = np.append(lengths, _deal(shape.tokens - len(ids), fillers * per_row))
            padding = (0, shape.tokens - len(ids))
            ids = np.pad(ids, padding, constant_values=self.pad_token_id)
            types = np.pad(types, padding)
            if "labels" in batch:
                more["labels"] = F.pad(batch["labels"], (0, fillers), value=IGNORED_LABEL)
            more["num_rows"], longest = rows, shape.max_length
        ends = np.cumsum(lengths)
        positions = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
        return {
            **more,
            "input_ids": torch.from_numpy(ids[None]),
            "token_type_ids": torch.from_numpy(types[None]),
            "position_ids": torch.from_numpy(positions[None]),
            "cu_seq_lens_q": torch.from_numpy(np.append(0, ends).astype(np.int32)),
            "max_length_q": longest,
        }


def join_rows(rows: Sequence[Mapping[str, Any]]) -> Joined:
    """Join rows that are dictionaries.

    Raises:
        ValueError: If they are of several tasks.
    """
    names = sorted({row["task"] for row in rows})
    if len(names) > 1:
        raise ValueError(f"a batch mixes the tasks {names}; expected rows of one task")
    sequences = _sequences(rows, "input_ids")
    labels = None
    if "labels" in rows[0]:
        labels = np.asarray([row["labels"] for row in rows])
        labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)
    return Joined(
        names[0],
        len(rows),
        np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences)),
        _join(sequences),
        _join(_sequences(rows, "token_type_ids")),
        labels,
    )


def list_rows(collator: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Call the collator of a user with what it expects: a list of dictionaries."""
    return collator(list(rows))


def _is_separate(rows: Sequence[Mapping[str, Any]]) -> bool:
    if isinstance(rows, TaskBatch):
        return rows.is_separate
    return isinstance(rows[0]["input_ids"][0], Sequence | np.ndarray)


def _sequences(rows: Sequence[Mapping[str, Any]], name: str) -> list[Sequence[int]]:
    """List the sequences of a batch, both of a pair one after the other."""
    if _is_separate(rows):
        return [sequence for row in rows for sequence in row[name]]
    return [row[name] for row in rows]


def _join(sequences: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(sequences), dtype=np.int64)


def _deal(tokens: int, count: int) -> NDArray[np.int64]:
    """Share tokens among ``count`` sequences as evenly as they can be, (count,)."""
    return (tokens + np.arange(count)) // max(1, count)
