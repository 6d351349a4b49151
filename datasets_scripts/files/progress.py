"""Progress bars of `datasets`, only where there is time to read them."""

from collections.abc import Iterator
from contextlib import contextmanager

import datasets


@contextmanager
def progress_bars(*, shown: bool) -> Iterator[None]:
    """Hide the progress bars of `datasets` for a moment, unless they are wanted."""
    hide = not shown and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            datasets.enable_progress_bars()
