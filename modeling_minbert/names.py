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
    wanted, by_lower = str(name).lower(), {full.lower(): full for full in names}
    begun = [lower for lower in by_lower if len(wanted) > 2 and lower.startswith(wanted)]
    # up to two that begin with what was given, or else resemble it
    nearest = (begun or difflib.get_close_matches(wanted, by_lower))[:2]
    similar = [by_lower[lower] for lower in nearest]
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    if len(names) > (FEW if similar else MOST):
        return hint
    return f"{hint or ';'} known: {', '.join(names) or 'none'}"


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """Return a message about an unknown name, such as ``unknown metric 'acc'; did you mean ...``.

    Args:
        what: What the name is of, such as ``metric``.
        name: What was given.
        known: The names that would be right.
    """
    return f"unknown {what} {name!r}{suggest(name, known)}"
