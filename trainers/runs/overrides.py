"""Overrides of a recipe by dotted paths, as in ``tasks.sts.loss``."""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import yaml

from modeling_minbert import suggest
from trainers.errors import UsageError

from .recipe_files import read_value


def split_dotted(flags: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the flags of a command line from those with dotted names, which give one value.

    Args:
        flags: Such as ``["--seed", "1", "--tasks.sts.loss", "mse"]``.

    Returns:
        The other flags, and a value by path, ``{"tasks.sts.loss": "mse"}``.

    Raises:
        UsageError: If a dotted flag has several values, is given twice, or its value is not YAML.
    """
    plain: list[str] = []
    dotted: dict[str, Any] = {}
    for words in group_flags(flags):
        name = words[0].partition("=")[0].removeprefix("--")
        if not words[0].startswith("--") or "." not in name:
            plain += words
        elif name in dotted:
            raise UsageError(f"--{name} is given twice")
        else:
            dotted[name] = read_flag(words)
    return plain, dotted


def group_flags(flags: Sequence[str]) -> list[list[str]]:
    """Group a command line into flags with their values."""
    groups: list[list[str]] = []
    for word in flags:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return groups


def read_flag(words: Sequence[str]) -> Any:
    """Return the value of a flag, ``[--name, value]`` or ``[--name=value]``, as YAML."""
    name, given, value = words[0].partition("=")
    values = [*([value] if given else []), *words[1:]] or ["true"]
    if len(values) > 1:
        raise UsageError(f"{name}: expected one value, found {' '.join(values)}")
    try:
        return read_value(values[0])
    except yaml.YAMLError as error:
        raise UsageError(f"{name} {values[0]!r} is not YAML") from error


def format_flags(keys: Mapping[str, Any]) -> list[str]:
    """Return the flags that give these values to keys of a recipe; None clears a key."""
    flags: list[str] = []
    for key, value in keys.items():
        flags += [f"--{key}", value if isinstance(value, str) else json.dumps(value)]
    return flags


def override(where: str, recipe: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe with fields replaced by dotted paths, in order; null removes a key."""
    changed = copy.deepcopy(dict(recipe))
    for path, value in overrides.items():
        if not all(str(path).split(".")):
            raise ValueError(f"{where}: {path!r} is not a path; expected one like tasks.sts.loss")
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
    """Return the mapping that contains the last key of a path."""
    place = recipe
    for depth, name in enumerate(parents):
        reached = ".".join(parents[: depth + 1])
        if len(parents) == 1 and place.get(name) is None:
            place[name] = {}  # a recipe may omit a mapping such as model_config
        if name not in place:
            raise ValueError(f"{where}: {path}: the recipe has no {reached}{suggest(name, place)}")
        if not isinstance(place[name], dict):
            raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
                f"{where}: {path}: {reached} is {place[name]!r}, not a mapping; give {reached} "
                "as a whole"
            )
        place = place[name]
    return place


def check_disjoint(where: str, left: Iterable[str], right: Iterable[str], how: str) -> None:
    """Reject two values for one field: equal paths, or one that contains the other."""
    for path, other in product(left, right):
        if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
            named = path if path == other else f"{path} and {other}"
            raise ValueError(f"{where}: {named} is set {how}; leave one out")
