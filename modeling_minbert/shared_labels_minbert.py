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
        _check_mapping("labels", labels)
        _check_mapping("labelled_rows", rows)
        self.labels: Mapping[str, Tensor] = labels or {}
        self.rows: Mapping[str, Tensor] = rows or {}
        _check_names("labels", self.labels, names)
        _check_names("labelled_rows", self.rows, list(self.labels))

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


def _check_mapping(what: str, given: Any) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(
            f"task names several tasks, so {what} are a dictionary by task, not a "
            f"{type(given).__name__}"
        )


def _check_names(what: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    if others := [name for name in given if name not in known]:
        raise ValueError(
            f"{what} of task {others[0]!r}; expected some of {', '.join(known) or 'none'}"
        )
