"""Rows that cannot be used: they are skipped and reported, unless there are too many."""

import logging
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MAX_ROWS_LISTED = 20
MAX_ROWS_IN_ERROR = 3
MOST_LETTERS = 300  # of a reason, which may quote a value of any length


@dataclass(frozen=True)
class InvalidRow:
    """A row that cannot be used.

    Args:
        file: Path of the file, or ``hub_id:split``.
        line: First line of the row, from 1 (in Parquet and on the Hub: its row).
        reason: What is wrong with it; the end of a long reason is cut.
    """

    file: str
    line: int
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > MOST_LETTERS:
            object.__setattr__(self, "reason", f"{self.reason[: MOST_LETTERS - 3]}...")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"

    def describe(self, *, quotes: bool) -> str:
        """Return its place, and if values may be quoted the reason."""
        hidden = "see the log of the run for the reason"
        return f"{self.file}:{self.line}: {self.reason if quotes else hidden}"


def check_invalid_fraction(
    file: str, invalid: list[InvalidRow], num_rows: int, max_invalid_fraction: float
) -> None:
    """Reject rows if too many, or all of them, are invalid."""
    if len(invalid) < num_rows and len(invalid) <= max_invalid_fraction * num_rows:
        return
    shown = "; ".join(
        f"line {row.line}: {row.reason}" if row.file == file else str(row)
        for row in invalid[:MAX_ROWS_IN_ERROR]
    )
    raise ValueError(
        f"{file}: {len(invalid)} of {num_rows} rows are invalid, but max_invalid_fraction="
        f"{max_invalid_fraction:g} allows {int(max_invalid_fraction * num_rows)}; the first are: "
        f"{shown}; correct the file or raise max_invalid_fraction"
    )


def log_invalid_rows(owner: str, invalid: list[InvalidRow]) -> None:
    """Warn about skipped rows: the first ones and their number."""
    for row in invalid[:MAX_ROWS_LISTED]:
        logger.warning("%s", row)
    if len(invalid) > MAX_ROWS_LISTED:
        logger.warning("... and %d more", len(invalid) - MAX_ROWS_LISTED)
    if invalid:
        logger.warning("%s: skipped %d invalid rows", owner, len(invalid))
