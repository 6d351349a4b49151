"""Helpers for the cache of `datasets`: hashes, sizes of batches, and progress bars."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
from datasets.utils import tqdm

PACKAGE = Path(__file__).parents[1]
SILENT_SECONDS = 5  # before a progress bar appears
# Rows, and characters or bytes of them, that are in memory at a time.
MOST_ROWS = 1000
MOST_CHARACTERS = 10_000_000


def hash_sources(*rooms: str) -> str:
    """Hash the modules of rooms of this package: `datasets` does not notice edits of the code."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((PACKAGE / room).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_text(text: str) -> int:
    """Hash a text without its white space to a number below 2 ** 64."""
    letters = "".join(text.split())
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")


def count_batch(rows: datasets.Dataset) -> int:
    """Return how many rows to process together: fewer if they are long."""
    return max(1, min(MOST_ROWS, MOST_CHARACTERS * len(rows.data) // (rows.data.nbytes + 1)))


def show_progress(rows: Iterable[Any], title: str, total: int | None = None) -> Iterator[Any]:
    """Yield rows with a progress bar, which appears after a while."""
    return iter(tqdm(rows, desc=title, total=total, unit=" rows", delay=SILENT_SECONDS))


@contextmanager
def progress_bars(*, shown: bool) -> Iterator[None]:
    """Hide the progress bars of `datasets` temporarily, unless they are to be shown."""
    hide = not shown and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            datasets.enable_progress_bars()
