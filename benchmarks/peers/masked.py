"""Batches of masked language modelling for minBERT: padded, packed, or packed to few shapes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.workloads import CLS, IGNORED
from trainers.shapes import FixedShapes

from .common import Job, pad, pad_side

# Room for masked tokens: 15 % of the words are masked, and it varies.
MASKED_SHARE = 0.16
MULTIPLE = 64
TASK = "mlm"


class MlmCollator:
    """Make batches of masked rows.

    Args:
        packed: Whether to lay all rows one after the other in place of padding them.
        positions: Whether to list the labelled tokens of a packed batch, for a device that would
            have to be waited for otherwise.
        shapes: Fill packed batches up to these shapes, and the list of labelled tokens to few
            lengths.
    """

    def __init__(
        self, *, packed: bool, positions: bool = False, shapes: FixedShapes | None = None
    ) -> None:
        self.packed = packed
        self.positions = positions
        self.shapes = shapes

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make a batch: padded (B, L), or packed (1, T) with offsets."""
        if not self.packed:
            return {"labels": pad([row["labels"] for row in rows], IGNORED), **pad_side(rows)}
        lengths = np.array([len(row["input_ids"]) for row in rows])
        tokens, longest = int(lengths.sum()), int(lengths.max())
        size = tokens
        if self.shapes is not None:
            shape = self.shapes.fit(TASK, tokens, len(rows), longest, 1)
            size, longest = shape.tokens, shape.max_length
            fillers = shape.rows - len(rows)
            shares = np.arange(size - tokens, size - tokens + fillers) // max(1, fillers)
            lengths = np.append(lengths, shares)
        ends = lengths.cumsum()
        labels = join(rows, "labels", size, IGNORED)
        values = {
            "labels": labels,
            "input_ids": join(rows, "input_ids", size, CLS),
            "token_type_ids": join(rows, "token_type_ids", size, 0),
            "position_ids": np.arange(size) - np.repeat(ends - lengths, lengths),
        }
        batch = {name: torch.from_numpy(array[None]) for name, array in values.items()}
        if self.positions:
            batch["label_positions"] = torch.from_numpy(self._find(labels))
        offsets = torch.from_numpy(np.append(0, ends).astype(np.int32))
        return {**batch, "cu_seq_lens_q": offsets, "max_length_q": longest}

    def _find(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """List the labelled tokens; with fixed shapes tokens that are none fill up."""
        found = np.flatnonzero(labels != IGNORED)
        if self.shapes is None:
            return found
        room = math.ceil(max(len(found), MASKED_SHARE * len(labels)) / MULTIPLE) * MULTIPLE
        others = np.flatnonzero(labels == IGNORED)[: room - len(found)]
        return np.concatenate([found, others])


def make_mlm_collator(job: Job, *, packed: bool) -> MlmCollator:
    """Make the collator of a job."""
    shapes = None
    if job.compile is not None and packed:
        ((_, rows),) = job.data.items()
        most = max(rows.tokens(batch) for batch in range(len(rows.batches)))
        shapes = FixedShapes({TASK: most})
    return MlmCollator(packed=packed, positions=job.device != "cpu", shapes=shapes)


def join(rows: Sequence[Mapping[str, Any]], name: str, size: int, filler: int) -> NDArray[np.int64]:
    """Join the values of all rows, and fill up to a size, (size,) int64."""
    joined = np.concatenate([np.asarray(row[name], dtype=np.int64) for row in rows])
    return np.pad(joined, (0, size - len(joined)), constant_values=filler)
