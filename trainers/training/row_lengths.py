"""The tokens of the rows that a task learns from, which its predictions should read, too."""

import logging
from collections.abc import Mapping
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainers.task import Task

logger = logging.getLogger(__name__)

# The fewest rows, and the least share of all rows, that are as long as the longest if texts were
# cut there; natural lengths have no such peak at their end.
FEWEST_CUT, LEAST_SHARE = 5, 0.05


def keep_row_lengths(model: Any, tasks: Mapping[str, Task], tokenizer: Any) -> None:
    """Store the length at which rows were cut as the ``max_length`` of tasks that have none.

    It is known if the tokenizer last cut texts to the tokens of the longest training row. If rows
    only look as if they were cut, a warning says so.

    Args:
        model: A model with named heads; others are left alone.
        tasks: The tasks by name.
        tokenizer: The ``processing_class`` of the trainer; may be None.
    """
    cut = getattr(getattr(tokenizer, "backend_tokenizer", None), "truncation", None) or {}
    heads: Any = getattr(model, "heads", None)
    for name, task in tasks.items():
        spec = getattr(heads.get(name), "task", None) if heads is not None else None
        if spec is None or spec.max_length is not None or spec.has_windows:
            continue
        lengths = measure_rows(task.train)
        longest = int(lengths.max()) if lengths is not None and len(lengths) else 0
        if longest >= 8 and cut.get("max_length") == longest:  # fewer tokens are refused
            spec.max_length = longest
            fields = {**model.config.tasks[name], "max_length": longest}
            model.config.tasks = {**model.config.tasks, name: fields}
        elif lengths is not None and _look_cut(lengths, longest):
            logger.warning(
                "task %r: many of its training rows have exactly %d tokens, as if texts were cut "
                "there, but it has no max_length, so that predict reads as many as there are "
                "positions; give config.tasks[%r] a max_length",
                name,
                longest,
                name,
            )


def measure_rows(rows: Any) -> NDArray[np.int64] | None:
    """Count the tokens of each sequence of the rows; None if they are no dataset."""
    if not isinstance(rows, datasets.Dataset):
        return None
    counts = []
    for chunk in rows.data.column("input_ids").chunks:
        values = chunk
        while pa.types.is_nested(values.type.value_type):  # several sequences in a row
            values = values.flatten()
        counts.append(values.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)


def _look_cut(lengths: NDArray[np.int64], longest: int) -> bool:
    """Return whether far more rows have the greatest length than the one below."""
    if not len(lengths) or lengths.min() == longest:
        return False
    last, before = (int((lengths == length).sum()) for length in (longest, longest - 1))
    return last >= max(FEWEST_CUT, LEAST_SHARE * len(lengths), 2 * before)
