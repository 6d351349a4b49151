"""Texts that show nothing, and names that look the same."""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

# Control and format characters, such as the zero-width space and the byte order mark.
INVISIBLE = ("Cc", "Cf")
# Letters and symbols that show nothing: fillers of Hangul and Khmer, the empty Braille pattern.
# Source: Default_Ignorable_Code_Point of Unicode, and U+2800.
FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character."""
    return all(map(_is_blank, text))


def find_twin(name: str, names: Iterable[str]) -> str | None:
    """Return a name that looks like this one, but has other characters; None without."""
    wanted = _to_key(name)
    return next((other for other in names if other != name and _to_key(other) == wanted), None)


def check_twins(where: str, names: Iterable[str]) -> None:
    """Reject names of which two look the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(_to_key(name), name)
        if other != name:
            raise ValueError(f"{where} {describe_twins(other, name)}")


def describe_twins(name: str, other: str) -> str:
    """Describe two names that look the same by their characters."""
    return (
        f"{name!a} and {other!a} look the same; they differ only in their Unicode normal form or "
        "in invisible characters: write both in the same way"
    )


@lru_cache(maxsize=10_000)
def _to_key(name: str) -> str:
    letters = ("" if _is_blank(letter) else letter for letter in name)
    return unicodedata.normalize("NFC", "".join(letters))


def _is_blank(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) in INVISIBLE or letter in FILLERS
