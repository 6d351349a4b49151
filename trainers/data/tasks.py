"""Training settings of one task: its training keys in a recipe."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TaskTraining:
    """Batch size, loss weight and role of one task.

    Args:
        batch_size: Rows per device and step; None takes the default of the run.
        max_tokens_per_batch: Token budget per process and step, instead of a number of rows; both
            sentences of a pair count, padding does not.
        loss_weight: Factor on the loss of this task in the gradient. The logs have ``loss_<task>``
            without it, ``loss`` and ``train_loss`` with it.
        auxiliary: Whether the task only helps the others: it is trained and evaluated, but does not
            count in aggregates over tasks.
        regularize: Whether ``r_drop`` and ``smart`` apply to this task; without them its steps are
            plain and cost accordingly.

    Raises:
        ValueError: If a value has the wrong type or is out of range, or both sizes are given.
    """

    batch_size: int | None = None
    max_tokens_per_batch: int | None = None
    loss_weight: float = 1.0
    auxiliary: bool = False
    regularize: bool = True

    def __post_init__(self) -> None:
        for name, unit in (("batch_size", "rows"), ("max_tokens_per_batch", "tokens")):
            _check_size(name, getattr(self, name), unit)
        if self.batch_size is not None and self.max_tokens_per_batch is not None:
            raise ValueError(
                f"batch_size={self.batch_size} and max_tokens_per_batch="
                f"{self.max_tokens_per_batch}; give one of them"
            )
        for name in ("auxiliary", "regularize"):
            flag: Any = getattr(self, name)
            if flag is not True and flag is not False:
                raise ValueError(f"{name}={flag!r}; expected true or false")
        weight: Any = self.loss_weight
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not math.isfinite(weight) or weight <= 0:
            raise ValueError(
                f"loss_weight={weight!r}; expected a number > 0 (to train without a task, remove "
                "it from the recipe)"
            )


def _check_size(name: str, size: Any, unit: str) -> None:
    """Check a number of rows or tokens from a recipe."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ValueError(
            f"{name}={size!r}; expected a whole number of {unit} >= 1, or null for the default of "
            "the run"
        )
