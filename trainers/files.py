"""Atomic writes: a killed run leaves no partial file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_done(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if the block succeeds.

    Args:
        path: The file to write; missing folders are created.

    Yields:
        A path in the same folder with the same suffix.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` atomically as UTF-8, with newlines unchanged."""
    with replaced_when_done(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
