"""Recipes: a YAML file of arguments, which flags on the command line override."""

import os
import types
from argparse import SUPPRESS, Action, ArgumentError, ArgumentTypeError
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser

from modeling_minbert import suggest, unknown
from trainers.errors import UsageError

from .overrides import override, split_dotted
from .recipe_files import PATH_KEYS, expand_path, expand_paths, read_recipe, read_value


class _Parser(HfArgumentParser):
    """A parser that raises UsageError where argparse would print usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ArgumentError(action, f"{value!r}{_suggest_choice(value, action)}")


def parse_recipe(
    argument_classes: Sequence[type],
    argv: Sequence[str],
    *,
    default_recipe: str | os.PathLike[str] | None = None,
) -> tuple[Any, ...]:
    """Fill dataclasses from a recipe file and from flags, which override it.

    Args:
        argument_classes: Dataclasses; their fields are the keys of the recipe and the flags.
        argv: ``[recipe.yaml] [--flag value ...]``. A flag for a mapping takes YAML, or names of
            its keys in the recipe, such as ``--tasks sst,sts``, which drops the others. A flag with
            a dotted name changes one key of a mapping, as in ``--tasks.sts.loss mse``; null
            removes it.
        default_recipe: Recipe to use if ``argv`` does not begin with one.

    Returns:
        An instance of every class.

    Raises:
        FileNotFoundError: If the recipe does not exist.
        ValueError: If the recipe is not YAML, has a duplicate or unknown key or a value of the
            wrong type, or if a flag is invalid.
    """
    path, flags = split_argv(argv, default_recipe)
    recipe = {} if path is None else read_recipe(Path(path))
    flags, dotted = split_dotted(flags)
    recipe = override("command line", recipe, expand_paths(dotted))
    return fill_arguments(argument_classes, recipe, flags, where=path)


def fill_arguments(
    argument_classes: Sequence[type],
    recipe: Mapping[str, Any],
    flags: Sequence[str] = (),
    *,
    where: Any,
) -> tuple[Any, ...]:
    """Fill dataclasses from the keys of a recipe and from flags, which override them.

    ``where`` is the prefix of errors about the recipe; else as in ``parse_recipe``.
    """
    recipe = dict(recipe)
    classes: list[Any] = list(argument_classes)
    parser = _Parser(classes, allow_abbrev=False)
    actions = {
        action.dest: action for action in reversed(parser._actions) if action.default != SUPPRESS
    }
    hints = _type_hints(argument_classes)
    for key in recipe:
        if key not in hints:
            raise ValueError(f"{where}: {unknown('key', key, hints)}")
    for key in _list_replaced(classes, flags):
        recipe.pop(key, None)
    for name, action in actions.items():
        _extend(action, hints[name], recipe.get(name))
    for name, value in recipe.items():
        actions[name].required = False
        recipe[name] = _convert(where, name, value, hints[name], actions[name])
    parser.set_defaults(**recipe)
    parsed: tuple[Any, ...] = parser.parse_args_into_dataclasses(
        list(flags), return_remaining_strings=True, look_for_args_file=False
    )
    *instances, rest = parsed
    if rest:
        _refuse(rest, parser)
    return tuple(instances)


def _list_replaced(classes: Sequence[Any], flags: Sequence[str]) -> list[str]:
    """List the keys of a recipe that flags replace, by ``replaced_keys`` of the dataclasses."""
    replaced: list[str] = []
    for place, word in enumerate(flags):
        name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
        if (value or "".join(flags[place + 1 : place + 2])) != "null":
            for kind in classes:
                replaced += getattr(kind, "replaced_keys", {}).get(name, ())
    return replaced


def split_argv(
    argv: Sequence[str], default_recipe: str | os.PathLike[str] | None = None
) -> tuple[str | os.PathLike[str] | None, list[str]]:
    """Split the recipe, which is the first argument or the default, from the flags."""
    if argv and not argv[0].startswith("-"):
        return argv[0], list(argv[1:])
    return default_recipe, list(argv)


def split_keys(
    where: str, keys: Any, readers: Sequence[type | Collection[str]]
) -> tuple[dict[str, Any], ...]:
    """Split the keys of a mapping of a recipe among the dataclasses that they configure.

    A key may belong to several readers. A reader is a set of keys, or a dataclass: the names that
    its classmethod ``recipe_fields()`` returns if it has one, else all its fields but ``name``.
    """
    if not isinstance(keys, dict):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{where}: expected keys and values, as in {{dataset: sst}}, got {keys!r}"
        )
    names = [_recipe_fields(reader) for reader in readers]
    known = sorted(set().union(*names))
    for key in keys:
        if key not in known:
            raise ValueError(f"{where}: {unknown('key', key, known)}")
    return tuple({key: keys[key] for key in keys if key in part} for part in names)


def _recipe_fields(reader: Any) -> set[str]:
    if not isinstance(reader, type):
        return set(reader)
    if hasattr(reader, "recipe_fields"):
        return set(reader.recipe_fields())
    return {entry.name for entry in fields(reader)} - {"name"}


def _type_hints(argument_classes: Iterable[type]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for kind in argument_classes:
        types_of_kind = get_type_hints(kind)
        hints |= {field.name: types_of_kind[field.name] for field in fields(kind) if field.init}
    return hints


def check_types(where: str, kind: type, values: Mapping[str, Any]) -> None:
    """Check values from YAML against the field types of a dataclass."""
    hints = _type_hints([kind])
    for name, value in values.items():
        if not _fits(hints[name], value):
            raise ValueError(f"{where}: {name}={value!r}; expected {_name(hints[name])}")


def _extend(action: Action, hint: Any, value: Any) -> None:
    """Accept booleans without a value, mappings as YAML or key names, and null for None."""
    options = _options(hint)
    if bool in options and action.nargs is None and action.const is None:
        action.nargs, action.const = "?", True
    if str not in options and any((get_origin(each) or each) is dict for each in options):
        action.type = partial(_mapping, recipe=value)
    elif action.dest in PATH_KEYS:
        action.type = expand_path
    if type(None) in options and action.nargs is None:
        _allow_null(action)


def _allow_null(action: Action) -> None:
    """Extend the type and the choices of an action by null."""
    convert: Any = action.type

    def read(text: str) -> Any:
        return None if text == "null" else (convert or str)(text)

    read.__name__ = getattr(convert, "__name__", "str")  # for the message of argparse
    action.type = read
    action.choices = None if action.choices is None else [*action.choices, None]


def _mapping(text: str, recipe: Any) -> dict[Any, Any]:
    """Read a mapping from YAML, or select keys of the mapping in the recipe."""
    given = recipe if isinstance(recipe, dict) else {}
    names = _split_names(text, given)
    if all(name in given for name in names):
        return {name: given[name] for name in names}
    try:
        value = read_value(text)
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"{text!r} is not YAML") from error
    if isinstance(value, dict):
        return expand_paths(value)
    if not isinstance(recipe, dict):
        raise ArgumentTypeError(f"{text!r} is not a mapping; write it as '{{key: value}}'")
    missing = next(name for name in names if name not in recipe)
    raise ArgumentTypeError(f"the recipe has no {missing!r}{suggest(missing, recipe)}")


def _split_names(text: str, known: Collection[str]) -> list[str]:
    """Split names at commas; where known names contain commas, the longest one is taken."""
    parts = text.split(",")
    most = 1 + max((name.count(",") for name in known), default=0)
    names = []
    while parts:
        joined = [",".join(parts[:count]).strip() for count in range(min(most, len(parts)), 0, -1)]
        name = next((name for name in joined if name in known), joined[-1])
        names.append(name)
        parts = parts[len(joined) - joined.index(name) :]
    return names


def _refuse(rest: Sequence[str], parser: _Parser) -> NoReturn:
    """Raise an error for the first argument that is not a flag."""
    first = rest[0].split("=")[0]
    if not first.startswith("-"):
        raise UsageError(f"unexpected argument {first!r}; a recipe is the first argument")
    hint = suggest(first, (f"--{action.dest}" for action in parser._actions))
    raise UsageError(f"unknown flag {first}{hint}")


def _suggest_choice(value: Any, action: Action) -> str:
    """Return the end of a message about a value that is none of the choices."""
    return suggest(value, [choice for choice in action.choices or () if choice is not None])


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _convert(path: Any, name: str, value: Any, hint: Any, action: Action) -> Any:
    """Check the type of a value, and parse text as on the command line."""
    if _fits(hint, value):
        if isinstance(value, str) and action.choices and value not in action.choices:
            raise ValueError(f"{path}: {name}={value!r}{_suggest_choice(value, action)}")
        return float(value) if type(value) is int and _options(hint)[0] is float else value
    if str in _options(hint) and type(value) in (int, float):
        return str(value)
    try:
        return _parse(value, action)
    except (ValueError, TypeError, ArgumentTypeError) as error:
        raise ValueError(f"{path}: {name}={value!r}; expected {_name(hint)}") from error


def _parse(value: Any, action: Action) -> Any:
    """Parse text as on the command line."""
    if not isinstance(value, str) or not callable(action.type) or action.nargs == "+":
        raise ValueError(value)
    converted = action.type(value)
    if action.choices and converted not in action.choices:
        raise ValueError(value)
    return converted


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value from YAML has the type of a field."""
    origin, options = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(option, value) for option in options)
    if origin is Literal:
        return value in options
    if origin is list and options:
        return isinstance(value, list) and all(_fits(options[0], item) for item in value)
    return origin is Any or _fits_class(origin, value)


def _fits_class(origin: Any, value: Any) -> bool:
    if isinstance(origin, type) and issubclass(origin, Enum):
        return value in [member.value for member in origin]
    if isinstance(value, bool) or origin is bool:
        return isinstance(value, bool) and origin is bool
    return isinstance(value, (int, float) if origin is float else origin)


def _name(hint: Any) -> str:
    if hint is type(None):
        return "null"
    options = _options(hint)
    if len(options) > 1:
        return " or ".join(_name(option) for option in options)
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
