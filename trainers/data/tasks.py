"""How one task is trained: the training keys of a task in a recipe."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TaskTraining:
    """Batch size and weight of one task, and whether it is regularised.

    Args:
        batch_size: Rows per device and step; None takes the default of the run.
        max_tokens_per_batch: As many rows as have at most so many tokens together, per process and
            step, in the place of a number of rows; both sentences of a pair count, padding does
            not.
        loss_weight: Factor on the loss of this task in the gradient. The logs have ``loss_<task>``
            without it, ``loss`` and ``train_loss`` with it.
        auxiliary: Whether it is there to help the others: it is trained and measured, and does not
            count in the aggregates of all tasks.
        regularize: Whether ``r_drop`` and ``smart`` are of this task, too; without them a step of
            it is a plain one and costs as much.

    Raises:
        ValueError: If a value is of the wrong type or out of range, or both sizes are given.
    """

    batch_size: int | None = None
    max_tokens_per_batch: int | None = None
    loss_weight: float = 1.0
    auxiliary: bool = False
    regularize: bool = True

    def __post_init__(self) -> None:
        for name, unit in (("batch_size", "rows"), ("max_tokens_per_batch", "tokens")):
            # Any: the values come from a recipe
            size: Any = getattr(self, name)
            if size is None:
                continue
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"{name}={size!r}; expected a whole number of {unit} >= 1, or null for the "
                    "default of the run"
                )
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
                f"loss_weight={weight!r}; expected a number > 0 (leave a task out of the recipe "
                "to train without it)"
            )
