"""Atomic writes: a killed run leaves no partial file."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import named_writes

MAX_STEM = 100  # characters of a target's name in its temporary file: names end at 255 bytes
PARTIAL_FOLDER = ".model.partial"
_OPEN_FILES = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")


@contextmanager
def replaced_when_done(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if the block succeeds.

    A symbolic link stays one: the file that it names is replaced. A device or a pipe is never
    replaced; the block writes to it directly.

    Args:
        path: The file to write; missing folders are created.

    Yields:
        A path in the same folder with the same suffix, or that of the device or pipe.

    Raises:
        IsADirectoryError: If ``path`` is a folder.
        WriteError: If it cannot be written.
    """
    if _is_special(Path(path)):
        with named_writes(path):
            yield Path(path)
        return
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file")
    with named_writes(path):
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem[:MAX_STEM]}-{os.getpid()}.partial{target.suffix}")
    try:
        with named_writes(target):
            yield temporary
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def filled_when_done(folder: str | os.PathLike[str], *, moves: bool) -> Iterator[Path]:
    """Yield a temporary folder whose files move into ``folder`` if the block succeeds.

    All processes of a run yield the same folder; the one with ``moves`` moves the files.
    """
    target = Path(folder)
    temporary = target / PARTIAL_FOLDER
    try:
        with named_writes(target):
            yield temporary
            for path in sorted(temporary.rglob("*")) if moves else ():
                place = target / path.relative_to(temporary)
                if path.is_dir():
                    place.mkdir(exist_ok=True)
                else:
                    path.replace(place)
    finally:
        if moves:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` atomically as UTF-8, with newlines unchanged."""
    with replaced_when_done(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold one object.

    Raises:
        ValueError: If it is not JSON, or other JSON; names the file.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(  # noqa: TRY004  the file of a user is wrong, not a type in the code
            f"{path} holds a {type(values).__name__}; expected a JSON object of names and values"
        )
    return values


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of killed processes; call it as the only writer of the folder."""
    shutil.rmtree(folder / PARTIAL_FOLDER, ignore_errors=True)
    for path in folder.glob(".*-*.partial*"):
        match = re.fullmatch(r"\..+-(\d+)\.partial(\.\w+)?", path.name)
        if match and path.is_file() and int(match[1]) != os.getpid():
            with suppress(FileNotFoundError):
                path.unlink()


def _is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket, or names an open file of this process."""
    if path.exists() and not path.is_file() and not path.is_dir():
        return True
    return str(path.absolute()).startswith(_OPEN_FILES)
