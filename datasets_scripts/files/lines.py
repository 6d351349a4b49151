"""Read lines of bounded length: a compressed file of megabytes can hold a line of gigabytes."""

from collections.abc import Iterator
from typing import IO, AnyStr

# The longest row, in characters: three times War and Peace.
LONGEST_ROW = 10_000_000


def read_lines(
    file: IO[AnyStr], path: str, longest: int = LONGEST_ROW
) -> Iterator[tuple[int, AnyStr]]:
    """Yield the lines of a file with their numbers, from 1.

    Args:
        file: The open file.
        path: Its path, for messages.
        longest: Most characters of a line, or bytes of a binary file.

    Raises:
        ValueError: If a line is longer; no more than ``longest`` of it is read.
    """
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        check_length(path, number, len(line), longest)
        yield number, line


def check_length(path: str, line: int, length: int, longest: int = LONGEST_ROW) -> None:
    """Refuse a row that is too long; ``line`` is its first one."""
    if length > longest:
        raise ValueError(
            f"{path}:{line}: the row is longer than {longest:,} characters, the limit; split it, "
            "and check that every row ends with a newline"
        )
