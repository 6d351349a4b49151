"""Progress bars of `datasets`, shown only for long operations."""

from collections.abc import Iterator
from contextlib import contextmanager

import datasets


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
