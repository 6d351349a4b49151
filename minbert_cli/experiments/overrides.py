"""Changes of a recipe by dotted paths, as in ``tasks.sts.loss``."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def override(where: str, recipe: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Change fields of a recipe.

    Args:
        where: Begins the message of an error.
        recipe: The recipe, which stays as it is.
        overrides: Dotted path to value, one after the other. A mapping or a list is replaced as a
            whole; null takes back what the recipe says, so that ``tasks.sts: null`` leaves a task
            out.

    Returns:
        The changed recipe.

    Raises:
        ValueError: If a path is none, or leads through what is no mapping or not there.
    """
    changed = copy.deepcopy(dict(recipe))
    for path, value in overrides.items():
        if not all(str(path).split(".")):
            raise ValueError(f"{where}: {path!r} is no field; expected one as tasks.sts.loss")
        *parents, last = str(path).split(".")
        place = _descend(where, path, changed, parents)
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return changed


def _descend(
    where: str, path: str, recipe: dict[str, Any], parents: Sequence[str]
) -> dict[str, Any]:
    """Find the mapping that holds a field."""
    place = recipe
    for depth, name in enumerate(parents):
        reached = ".".join(parents[: depth + 1])
        if depth == 0 and place.get(name) is None:
            place[name] = {}  # a mapping that the recipe leaves out, such as model_config
        if name not in place:
            raise ValueError(
                f"{where}: {path}: the recipe has no {reached}; it has "
                f"{', '.join(map(str, place)) or 'nothing'} there"
            )
        if not isinstance(place[name], dict):
            raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
                f"{where}: {path}: {reached} is {place[name]!r}, no mapping; give {reached} as a "
                "whole"
            )
        place = place[name]
    return place


def check_disjoint(where: str, left: Iterable[str], right: Iterable[str], how: str) -> None:
    """Refuse two values for one field, of which one would be lost.

    Args:
        where: Begins the message of an error.
        left: Paths.
        right: Other paths.
        how: Where the first and the second ones are set.

    Raises:
        ValueError: If two are equal, or one leads into the other.
    """
    right = list(right)
    for path in left:
        for other in right:
            if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
                named = path if path == other else f"{path} and {other}"
                raise ValueError(f"{where}: {named} is set {how}; leave one out")
