"""Values of command lines, and the imports of commands."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "int8"],
    typer.Option(
        help="of the computation; auto: bfloat16 where the machine is fast in it, else float32"
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda if available")]


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import torch and the like in the block: within a command, so that --help need not wait.

    Python would look for garbage among a million objects that stay: again and again while they are
    made, and once more at the end of the process.
    """
    loaded, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > loaded:  # else nothing has become permanent
            gc.freeze()
        if was_enabled:
            gc.enable()


def expand_path(path: str) -> str:
    """Expand ``~`` and environment variables in a path, a Hub id or the name of a recipe."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111  Path would change an id


def to_location(text: str) -> str:
    """Convert a path or a Hub id."""
    if not text:
        raise ValueError("it is empty; give a path")
    return expand_path(text)


def to_path(text: str) -> Path:
    """Convert a path."""
    return Path(to_location(text))
