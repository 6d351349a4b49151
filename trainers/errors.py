"""Errors that a user can act on: one line that names the place and the way out."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import HfHubHTTPError, StrictDataclassError
from safetensors import SafetensorError

# The class of all errors of the client, which changed its name, that huggingface_hub is built on.
HTTPError: type[Exception] = HfHubHTTPError.__bases__[0]

# What reading, fetching and sending raise for reasons outside of this program.
OUTSIDE_ERRORS: tuple[type[Exception], ...] = (OSError, HTTPError)
# What a user's value raises.
INPUT_ERRORS: tuple[type[Exception], ...] = (*OUTSIDE_ERRORS, ValueError, StrictDataclassError)
CHECKPOINT_ERRORS: tuple[type[Exception], ...] = (*INPUT_ERRORS, RuntimeError, SafetensorError)


@contextmanager
def readable_errors(program: str) -> Iterator[None]:
    """Turn errors about what a user gave into one line on stderr and exit status 2.

    To be wrapped around what reads and checks a user's input, not around training: an error there
    is a bug, and its traceback is wanted. All processes see the same input; the first one of each
    machine writes the line.

    Args:
        program: Name that begins the line.
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
    """Let errors of libraries name the place and the way out.

    Of their paragraphs, written for programmers, the first line says what happened.

    Args:
        where: What was tried, with the value of the user.
        advice: What to do.
        kinds: Errors that count as those of a library.

    Raises:
        ValueError: In the place of every error of `kinds`.
    """
    try:
        yield
    except kinds as error:
        reason = (reason_of(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{where}: {reason.rstrip('.')}; {advice}") from error


def reason_of(error: BaseException) -> str:
    """Take the message; strict dataclasses wrap the one that helps, and the Hub's comes last."""
    if isinstance(error, HfHubHTTPError) and error.server_message:
        return f"{error.response.status_code} {error.server_message}"
    cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
    return str(cause or error).strip()
