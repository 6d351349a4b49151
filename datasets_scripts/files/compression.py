"""Open files that may be compressed; the suffix determines the format."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pyarrow as pa


def _open_zstandard(path: str) -> IO[bytes]:
    # the standard library cannot read it before Python 3.14
    return io.BufferedReader(pa.input_stream(path, compression="zstd"))


OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstandard,
}


def find_suffix(path: str) -> str:
    """Return the suffix of the uncompressed file, in lower case: ``.txt`` for ``a.txt.gz``."""
    whole = Path(path.lower())
    return whole.with_suffix("").suffix if is_compressed(path) else whole.suffix


def is_compressed(path: str) -> bool:
    """Return whether the suffix belongs to a compressed format."""
    return Path(path).suffix.lower() in OPENERS


@contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading its decompressed content."""
    suffix = Path(path).suffix.lower()
    try:
        opener = OPENERS.get(suffix)
        with opener(path) if opener else Path(path).open("rb") as file:
            yield file
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if not is_compressed(path) or isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(
            f"{path}: cannot be decompressed as {suffix} ({error}); the file is truncated or has "
            "another format: download it again or correct its name"
        ) from error


@contextmanager
def open_text(path: str, newline: str | None = None) -> Iterator[TextIOWrapper]:
    """Open a UTF-8 file, with or without a byte order mark, for reading its decompressed text."""
    try:
        with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file is not UTF-8 ({error.reason}); save it with that encoding"
        ) from error
