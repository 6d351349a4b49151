# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Labels of several tasks for the rows of one batch.

Shapes: B rows, k of them with a label of a task.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .head_minbert import Inputs, MinBertHead, TaskBatch


def only_labels(labels: Any, name: str) -> Any:
    """Return the labels of a single task, None for none; a dictionary raises ValueError."""
    if not isinstance(labels, Mapping):
        return labels
    raise ValueError(
        f"labels are a dictionary of several tasks, but task={name!r} names one; give a list of "
        "their names"
    )


class GivenLabels:
    """The labels of a batch by task.

    Args:
        names: The tasks that are computed.
        labels: Their labels, (B, ...) or (k, ...), by name; None for none.
        rows: By name, indices of the rows that have a label, (k,); those of other tasks all have.

    Raises:
        ValueError: If labels are not a dictionary, or of a task that is not computed.
    """

    def __init__(self, names: Sequence[str], labels: Any, rows: Any) -> None:
        if labels is not None and not isinstance(labels, Mapping):
            raise ValueError(
                f"task={list(names)!r} names several tasks, so labels are a dictionary by task, "
                f"not a {type(labels).__name__}"
            )
        self.labels: Mapping[str, Tensor] = labels or {}
        self.rows: Mapping[str, Tensor] = rows or {}
        for what, given, known in (
            ("labels", self.labels, names),
            ("labelled_rows", self.rows, self.labels),
        ):
            if others := [name for name in given if name not in known]:
                raise ValueError(
                    f"{what} of task {others[0]!r}; expected some of {', '.join(known) or 'none'}"
                )

    def make_batch(
        self, name: str, head: MinBertHead, inputs: Inputs, options: Mapping[str, Any]
    ) -> TaskBatch:
        """Make the batch of a task: with its labels, or to be predicted."""
        labels = self.labels.get(name)
        count = head.task.num_predicted if labels is None else head.task.num_sequences
        batch = TaskBatch(name, inputs, {**options}, count, labels)
        batch.labelled_rows = self.rows.get(name)
        if batch.labelled_rows is not None and not head.computes_some_rows:
            raise ValueError(
                f"labelled_rows of task {name!r}: a {head.task.problem_type} task computes all "
                "rows of a batch; leave them out"
            )
        return batch
