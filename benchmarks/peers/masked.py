"""Batches of masked language modeling for minBERT: padded, packed, or packed to few shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainers import TaskCollator
from trainers.data.collate import FixedShapes

from .common import Job

TASK = "mlm"


class MlmCollator:
    """Collate rows with the precomputed masks that all peers share.

    Args:
        collator: That of the trainer.
    """

    def __init__(self, collator: TaskCollator) -> None:
        self.collator = collator

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate a batch: padded (B, L), or packed (1, T) with offsets."""
        batch = self.collator([{"task": TASK, **row} for row in rows])
        # a model of one task has no task names and no filler rows
        return {name: values for name, values in batch.items() if name not in ("task", "num_rows")}


def make_mlm_collator(job: Job, *, packed: bool) -> MlmCollator:
    """Create the collator of a job."""
    shapes = None
    if job.compile is not None and packed:
        ((_, rows),) = job.data.items()
        most = max(rows.tokens(batch) for batch in range(len(rows.batches)))
        shapes = FixedShapes({TASK: most})
    return MlmCollator(TaskCollator(0, packed=packed, fixed_shapes=shapes))
