"""Messages about a name that is none of the known ones: the similar names, or all of them.

It imports nothing, so all packages can use it. `modeling_minbert/names_minbert.py` is its copy,
since a checkpoint carries the code of its model; a test compares them.
"""

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
    given, by_lower = str(name).lower(), {each.lower(): each for each in names}
    begun = [low for low in by_lower if len(given) > 2 and low.startswith(given)]
    similar = begun or difflib.get_close_matches(given, by_lower)
    found = [by_lower[low] for low in similar[:2]]
    hint = f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
    if len(names) > (FEW if found else MOST):
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
