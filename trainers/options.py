"""Fields of the dataclasses of flags and recipe keys."""

from dataclasses import field
from typing import TypeVar

T = TypeVar("T")


def option(default: T, description: str) -> T:
    """Return a dataclass field with a default and the description that ``--help`` shows."""
    return field(default=default, metadata={"help": description})
