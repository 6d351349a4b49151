"""Command lines: a parser with short errors, and conversions of values."""

import argparse
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

# The flag of programs that predict.
PRECISION: dict[str, Any] = {
    "choices": ("auto", "float32", "bfloat16", "int8"),
    "default": "auto",
    "help": "of the computation; auto: bfloat16 where the machine is fast in it, else float32",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the programs with recipes."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with status 2."""
        name = message.partition("unrecognized arguments: ")[2].split("=")[0].split(" ")[0]
        if name.startswith("--"):
            from modeling_minbert import suggest  # here, since it imports torch

            message = f"unknown flag {name}{suggest(name, self._option_string_actions)}"
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from modeling_minbert import suggest  # as above

            raise argparse.ArgumentError(action, f"{value!r}{suggest(value, action.choices)}")

    def refuse(self, mistakes: Mapping[str, Any]) -> None:
        """Print the first message whose mistake was made, if any, and exit with status 2."""
        for message, is_made in mistakes.items():
            if is_made:
                self.error(message)


def expand_path(path: str) -> str:
    """Expand ``~`` and environment variables in a path, a Hub id or the name of a recipe."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111  Path would change an id


def to_location(text: str) -> str:
    """Convert a path or a Hub id."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give a path")
    return expand_path(text)


def to_path(text: str) -> Path:
    """Convert a path."""
    return Path(to_location(text))


def to_count(text: str) -> int:
    """Convert a whole number from 1."""
    if not text.isdecimal() or not 1 <= int(text[:10]) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number from 1 to 10**9")
    return int(text)


def to_number(text: str) -> float:
    """Convert a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a finite number")
    return value
