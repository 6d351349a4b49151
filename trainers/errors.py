"""User errors: one line with the place and what to do."""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from pickle import UnpicklingError

from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError

# Base class of the errors of huggingface_hub's HTTP client, whose package has changed its name.
HTTPError: type[Exception] = HfHubHTTPError.__bases__[0]

# Errors of files and the network.
OUTSIDE_ERRORS: tuple[type[Exception], ...] = (OSError, HTTPError)
# Errors that an invalid value of the user can raise.
INPUT_ERRORS: tuple[type[Exception], ...] = (
    *OUTSIDE_ERRORS,
    ValueError,
    StrictDataclassError,
    ImportError,  # of a library that an argument needs
)
# transformers meets files of the wrong content with any of the last three.
CHECKPOINT_ERRORS: tuple[type[Exception], ...] = (
    *INPUT_ERRORS,
    RuntimeError,
    SafetensorError,
    UnpicklingError,  # of weights that torch.load refuses
    AttributeError,
    LookupError,
    TypeError,
)
# Only writing has these errors.
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS)
# Messages of ``torch.save``, which has no error class for a full disk.
TORCH_WRITER = re.compile("PytorchStreamWriter|inline_container|iostream|unexpected pos")


class UsageError(ValueError):
    """A command line that is wrong whatever files and values it names: exit status 2."""


@contextmanager
def readable_errors(
    program: str, kinds: tuple[type[Exception], ...] = INPUT_ERRORS
) -> Iterator[None]:
    """Turn user errors into one line on stderr, and exit status 2 for usage errors, else 1.

    For code that reads and checks user input, not for training: an error there is a bug, and its
    traceback is needed. All processes see the same input; the first of each machine prints. From
    here on the console shows any text.

    Args:
        program: Prefix of the line.
        kinds: The errors of users; others keep their traceback.
    """
    show_any_text()
    try:
        yield
    except kinds as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            line = " ".join(reason_of(error).split())
            print(f"{program}: error: {line}", file=sys.stderr)  # noqa: T201  the message
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


def show_any_text() -> None:
    """Let the console show characters that its encoding lacks as escapes, and not end the program.

    A console in cp1252 or ASCII has no Chinese letters, say. Files are in UTF-8 on any machine.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def named_errors(
    where: str, advice: str, kinds: tuple[type[Exception], ...] = OUTSIDE_ERRORS
) -> Iterator[None]:
    """Turn errors of libraries into a ValueError: where, the first line of the message, advice.

    ``where`` names what failed, with the value of the user; ``advice`` what to do.
    """
    try:
        yield
    except kinds as error:
        reason = (reason_of(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{where}: {reason.rstrip('.')}; {advice}") from error


class WriteError(OSError):
    """A file cannot be written, often because the disk is full; names the path and the reason."""


@contextmanager
def named_writes(path: str | os.PathLike[str], *, kept: str = "") -> Iterator[None]:
    """Turn errors of writing into a WriteError that names the path, and what is kept.

    Errors that name another file, as of reading one, stay as they are.
    """
    try:
        yield
    except (WriteError, BrokenPipeError):
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        if not _is_of_writing(error, Path(path)):
            raise
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise WriteError(f"{str(path)!r} cannot be written: {reason}{kept}") from error


def _is_of_writing(error: Exception, path: Path) -> bool:
    if isinstance(error, RuntimeError):
        return TORCH_WRITER.search(str(error)) is not None
    named = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if named is None or getattr(error, "errno", None) in FULL:
        return True
    # the file or folder, what is in it, its temporary file, or a folder to be made for it
    place = Path(str(named))
    is_temporary = place.parent == path.parent and place.name.startswith(f".{path.stem[:50]}")
    return place in (path, *path.parents) or path in place.parents or is_temporary


def reason_of(error: BaseException) -> str:
    """Return the useful message: the cause in strict dataclasses, the server's on the Hub."""
    if isinstance(error, HfHubHTTPError) and error.server_message:
        return f"{error.response.status_code} {error.server_message}"
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
    return str(cause or error).strip()
