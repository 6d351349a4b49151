"""Batches of a step, made by `TaskCollator` or by a collator of the user."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from torch import Tensor

from .collators import TaskCollator
from .rows import TEACHER

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
