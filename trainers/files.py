"""Files that are whole or not there, errors of the user, and tokens of the Hub."""

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from io import TextIOWrapper
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

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
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS)  # only writing has these errors
# Messages of ``torch.save``, which has no error class for a full disk.
TORCH_WRITER = re.compile("PytorchStreamWriter|inline_container|iostream|unexpected pos")


class UsageError(ValueError):
    """A command line that is wrong whatever files and values it names: exit status 2."""


@contextmanager
def readable_errors(program: str) -> Iterator[None]:
    """Turn `INPUT_ERRORS` into one line on stderr, and exit status 2 for usage errors, else 1.

    For code that reads and checks user input, not for training: an error there is a bug, and its
    traceback is needed. All processes see the same input; the first of each machine prints. From
    here on the console shows characters that its encoding lacks as escapes. ``program`` begins the
    line.
    """
    for stream in (sys.stdout, sys.stderr):
        # in cp1252 or ASCII there are no Chinese letters, say, which would end the program
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except INPUT_ERRORS as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            line = " ".join(reason_of(error).split())
            print(f"{program}: error: {line}", file=sys.stderr)  # noqa: T201  the message
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


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
def named_writes(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of writing into a WriteError that names the path.

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
        raise WriteError(f"{str(path)!r} cannot be written: {reason}") from error


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


MAX_STEM = 100  # characters of a target's name in its temporary file: names end at 255 bytes
PARTIAL_FOLDER = ".model.partial"
_OPEN_FILES = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")


@contextmanager
def replaced_when_done(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if the block succeeds.

    A symbolic link stays one: the file that it names is replaced. A device, a pipe, a socket or an
    open file of this process is never replaced; the block writes to it directly.

    Args:
        path: The file to write; missing folders are created.

    Yields:
        A path in the same folder with the same suffix, or that of the device or pipe.

    Raises:
        IsADirectoryError: If ``path`` is a folder.
        WriteError: If it cannot be written.
    """
    given = Path(path)
    is_special = given.exists() and not given.is_file() and not given.is_dir()
    if is_special or str(given.absolute()).startswith(_OPEN_FILES):
        with named_writes(path):
            yield given
        return
    target = given.resolve()
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
    """Read a JSON file that must hold one object; anything else raises a ValueError."""
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
            path.unlink(missing_ok=True)


PLACEHOLDER = "<HUB_TOKEN>"


class HubToken(str):
    """A token that is None in every pickled copy and a placeholder where objects are printed.

    ``Trainer`` pickles its arguments into ``training_args.bin``, which is uploaded.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(PLACEHOLDER)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(None), ()

    def __copy__(self) -> "HubToken":
        return self

    def __deepcopy__(self, memo: object) -> "HubToken":
        return self


def hide_token(text: str, token: str | None) -> str:
    """Replace a token in a text."""
    return text.replace(token, PLACEHOLDER) if token else text


def find_inner(model: Any) -> Any:
    """Return the model of transformers that ``model`` is or wraps; without one, ``model``."""
    wrapped = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    return next(wrapped, model)


def takes_task(model: nn.Module) -> bool:
    """Tell whether the forward pass has an argument ``task``, which a wrapper must pass on."""
    outer = signature(model.forward).parameters
    passes_on = any(each.kind is Parameter.VAR_KEYWORD for each in outer.values())
    inner = signature(find_inner(model).forward).parameters
    return "task" in outer or (passes_on and "task" in inner)
