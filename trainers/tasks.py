"""How one task is trained: the training keys of a task in a recipe."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TaskTraining:
    """Batch size and weight of one task.

    Args:
        batch_size: Rows per device and step; None takes ``per_device_train_batch_size``.
        loss_weight: Factor on the loss of this task in the gradient. The logs have ``loss_<task>``
            without it, ``loss`` and ``train_loss`` with it.

    Raises:
        ValueError: If a value is of the wrong type or out of range.
    """

    batch_size: int | None = None
    loss_weight: float = 1.0

    def __post_init__(self) -> None:
        # Any: the values come from a recipe
        size: Any = self.batch_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(
                f"batch_size={size!r}; expected a whole number of rows >= 1, or null for "
                "per_device_train_batch_size"
            )
        weight: Any = self.loss_weight
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not math.isfinite(weight) or weight <= 0:
            raise ValueError(
                f"loss_weight={weight!r}; expected a number > 0 (leave a task out of the recipe "
                "to train without it)"
            )
