"""Fields of the dataclasses of flags and recipe keys, and checks of their values."""

import math
from dataclasses import field
from typing import Any, TypeVar

T = TypeVar("T")

# Of a batch, whose order of rows is kept in memory.
MAX_ROWS = 100_000
MAX_TOKENS = 100_000_000


def option(default: T, description: str) -> T:
    """Return a dataclass field with a default and the description that ``--help`` shows."""
    return field(default=default, metadata={"help": description})


def is_count(value: Any, least: int, most: int) -> bool:
    """Whether a value is a whole number in a range, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_count(name: str, value: Any, most: int, *, null: str) -> None:
    """Check a whole number of a recipe; ``null`` is what None means."""
    if value is not None and not is_count(value, 1, most):
        raise ValueError(
            f"{name}={value!r}; expected a whole number from 1 to {most:,}, or null for {null}"
        )


def is_positive(value: Any, *, or_zero: bool = False) -> bool:
    """Whether a value is a finite number > 0, and not a boolean; ``or_zero`` allows 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and (value > 0 or (or_zero and value == 0))
