"""User errors: one line with the place and what to do."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError

# Base class of the errors of huggingface_hub's HTTP client, whose package has changed its name.
HTTPError: type[Exception] = HfHubHTTPError.__bases__[0]

# Errors of files and the network.
OUTSIDE_ERRORS: tuple[type[Exception], ...] = (OSError, HTTPError)
# Errors that an invalid value of the user can raise.
INPUT_ERRORS: tuple[type[Exception], ...] = (*OUTSIDE_ERRORS, ValueError, StrictDataclassError)
# transformers meets files of the wrong content with any of the last three.
CHECKPOINT_ERRORS: tuple[type[Exception], ...] = (
    *INPUT_ERRORS,
    RuntimeError,
    SafetensorError,
    AttributeError,
    LookupError,
    TypeError,
)


@contextmanager
def readable_errors(program: str) -> Iterator[None]:
    """Turn user errors into one line on stderr and exit status 2.

    For code that reads and checks user input, not for training: an error there is a bug, and its
    traceback is needed. All processes see the same input; the first of each machine prints.

    Args:
        program: Prefix of the line.
    """
    try:
        yield
    except INPUT_ERRORS as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            line = " ".join(reason_of(error).split())
            print(f"{program}: error: {line}", file=sys.stderr)  # noqa: T201  the message
        raise SystemExit(2) from None


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


def reason_of(error: BaseException) -> str:
    """Return the useful message: the cause in strict dataclasses, the server's on the Hub."""
    if isinstance(error, HfHubHTTPError) and error.server_message:
        return f"{error.response.status_code} {error.server_message}"
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
    return str(cause or error).strip()
