"""Messages about a name that is none of the known ones: the similar names, or all of them."""

import difflib
from collections.abc import Iterable

FEW, MOST = 12, 80  # names that a message lists beside similar ones, and without any


def suggest(name: object, known: Iterable[object]) -> str:
    """Return the end of a message about an unknown name.

    Args:
        name: What was given.
        known: The names that would be right.
    """
    names = [str(each) for each in known]
    similar = _find_similar(str(name).lower(), names)
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    if len(names) > (FEW if similar else MOST):
        return hint
    return f"{hint or ';'} known: {', '.join(names) or 'none'}"


def _find_similar(given: str, names: list[str]) -> list[str]:
    """Return up to two names that begin with what was given, or else resemble it."""
    by_lower = {name.lower(): name for name in names}
    begun = [lower for lower in by_lower if len(given) > 2 and lower.startswith(given)]
    similar = begun or difflib.get_close_matches(given, by_lower)
    return [by_lower[lower] for lower in similar[:2]]


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """Return a message about an unknown name, such as ``unknown metric 'acc'; did you mean ...``.

    Args:
        what: What the name is of, such as ``metric``.
        name: What was given.
        known: The names that would be right.
    """
    return f"unknown {what} {name!r}{suggest(name, known)}"
