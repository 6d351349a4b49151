"""What a page shows, small and ready for JSON: tables, figures, examples, numbers and code.

A problem returns blocks of its predictions, and the page shows them one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Cell: TypeAlias = str | int | float | None
Points: TypeAlias = list[list[float]]


@dataclass(frozen=True)
class Table:
    """A table, whose columns have a name and the format of their numbers, empty for texts."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]  # None is shown as a dash
    note: str = ""
    # The share of each cell in its row, which shades it; None for a cell without one.
    shares: list[list[float | None]] = field(default_factory=list)
    is_folded: bool = False
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Figure:
    """A plot; its points are (x, y), (x, y, standard error of y), or (low, x, high)."""

    title: str
    x: str  # what the axis shows
    y: str
    series: dict[str, Points]  # by name
    note: str = ""
    style: Literal["lines", "points", "intervals"] = "lines"
    has_diagonal: bool = False
    mark: float | None = None  # x of a vertical line
    ring: list[float] | None = None  # a point that is ringed
    kind: Literal["figure"] = "figure"


@dataclass(frozen=True)
class Example:
    """A row of the data."""

    id: str
    texts: list[str]  # none if they may not be quoted
    label: str
    prediction: str
    size: float  # by which the examples are ordered


@dataclass(frozen=True)
class Examples:
    """Rows of the data, the first of which matter most."""

    title: str
    rows: list[Example]
    size: str  # what the sizes are
    size_format: str
    note: str = ""
    other: str = "predicted"  # what the predictions are
    kind: Literal["examples"] = "examples"


@dataclass(frozen=True)
class Number:
    """A number with what it means."""

    name: str
    value: str
    unit: str
    note: str


@dataclass(frozen=True)
class Numbers:
    """A few numbers in large type."""

    rows: list[Number]
    note: str = ""
    title: str = ""
    kind: Literal["numbers"] = "numbers"


@dataclass(frozen=True)
class Code:
    """A text that is shown as it is."""

    title: str
    text: str
    note: str = ""
    kind: Literal["code"] = "code"


Block: TypeAlias = Table | Figure | Examples | Numbers | Code
