"""Open files that may be compressed, by suffix."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Find the suffix that tells the format of a file, in lower case: ``.txt`` of ``a.txt.gz``."""
    whole = Path(path.lower())
    return whole.with_suffix("").suffix if is_compressed(path) else whole.suffix


def is_compressed(path: str) -> bool:
    """Tell by its suffix whether a file is compressed."""
    return Path(path).suffix.lower() in OPENERS


@contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file to read what it holds once it is decompressed.

    Raises:
        ValueError: If it is not what its suffix says, or is cut off.
    """
    suffix = Path(path).suffix.lower()
    try:
        with OPENERS.get(suffix, _open_plain)(path) as file:
            yield file
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if not is_compressed(path) or isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(
            f"{path}: cannot be decompressed as {suffix} ({error}); it is cut off or something "
            "else, so fetch it again, or correct its name"
        ) from error


def _open_plain(path: str) -> IO[bytes]:
    return Path(path).open("rb")
