"""Recipes: YAML files of arguments, which flags on the command line override."""

import copy
import json
import os
import re
import types
from argparse import SUPPRESS, Action, ArgumentError, ArgumentTypeError
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path, PurePath
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser

from modeling_minbert import suggest, unknown
from trainers.files import UsageError

# Recipes are small: what is larger or deeper would only exhaust the memory.
MAX_DEPTH = 50
MAX_VALUES = 100_000
MAX_CHARACTERS = 1_000_000
# Keys whose values are paths, at any level.
PATH_KEYS = frozenset(
    {
        *("data_dir", "output_dir", "logging_dir"),
        *("train_file", "validation_file", "test_file", "unlabeled_file", "extra_files"),
        *("model_name_or_path", "tokenizer_name_or_path", "resume_from_checkpoint"),
        *("base", "recipe", "teacher"),
    }
)


class RecipeLoader(yaml.SafeLoader):
    """YAML 1.2 without duplicate keys: in 1.1 ``no`` is a boolean and ``2e-5`` a string.

    A number is what Python would write so, too. All else is text, as ``010``, ``1_000``, ``0x10``,
    ``1:30`` and ``2024-01-02``, which in 1.1 are 8, 1000, 16, 90 and a date: a label or a column
    with such a name is this text, and a key that needs a number refuses it.
    """

    # a copy: add_implicit_resolver and the change below must not reach other users of yaml
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, regexp) for tag, regexp in resolvers if tag.endswith((":null", ":merge"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def get_single_node(self) -> yaml.Node | None:
        """Compose the document, and refuse one that is too deep or too large."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _measure(node, {}, 0)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping, and refuse duplicate keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key_node.value!r}", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^(?:0|-?[1-9][0-9]*)$"), list("-0123456789")
)
RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def _measure(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """Count the values below a node as often as aliases repeat them; an endless one is too deep."""
    if depth > MAX_DEPTH:
        raise yaml.MarkedYAMLError(
            problem=f"values are nested deeper than {MAX_DEPTH}", problem_mark=node.start_mark
        )
    if id(node) not in sizes:
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = 1 + sum(_measure(child, sizes, depth + 1) for child in children)
    if sizes[id(node)] > MAX_VALUES:
        raise yaml.MarkedYAMLError(
            problem=f"more than {MAX_VALUES:,} values", problem_mark=node.start_mark
        )
    return sizes[id(node)]


class _RecipeDumper(yaml.SafeDumper):
    """Quotes a text that ``RecipeLoader``, or a reader of YAML 1.1, would not read as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [
            *RecipeLoader.yaml_implicit_resolvers.get(first, []),
            *yaml.SafeLoader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in RecipeLoader.yaml_implicit_resolvers.keys()
        | yaml.SafeLoader.yaml_implicit_resolvers.keys()
    }

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        """Write repeated values in full instead of as aliases."""
        return True


def read_value(text: str) -> Any:
    """Read YAML; every error is a ``yaml.YAMLError``."""
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        return yaml.load(text, RecipeLoader)  # noqa: S506  a safe loader
    except RecursionError:
        raise yaml.YAMLError(f"values are nested deeper than {MAX_DEPTH}") from None
    # of PyYAML's constructors, for a value that its explicit tag does not allow: !!bool maybe
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, UnicodeError):
            raise
        raise yaml.YAMLError(f"a tag does not fit its value: {error}") from error


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a recipe; errors name the file and the line."""
    if not path.is_file():
        raise FileNotFoundError(
            f"recipe {str(path)!r} is not a file; expected [recipe.yaml] [--flag value ...]"
        )
    try:
        recipe = read_value(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ValueError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a YAML file in UTF-8: {error}") from error
    if not isinstance(recipe, dict):
        found = "nothing" if recipe is None else f"a {type(recipe).__name__}"
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{path}: expected a mapping from keys to values, got {found}"
        )
    return expand_paths(recipe)


def expand_path(path: str) -> str:
    """Expand ``~`` and environment variables, as a shell does for words without quotes."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111  Path would change a Hub id


def expand_paths(keys: Mapping[Any, Any], *, all_paths: bool = False) -> dict[Any, Any]:
    """Expand the paths among the keys of a recipe and of its mappings; or all values."""
    expanded: dict[Any, Any] = {}
    for key, value in keys.items():
        is_path = all_paths or str(key).rpartition(".")[2] in PATH_KEYS  # keys may be dotted
        if isinstance(value, dict):
            expanded[key] = expand_paths(value, all_paths=is_path)
        elif is_path and isinstance(value, list):
            expanded[key] = [expand_path(each) if isinstance(each, str) else each for each in value]
        else:
            expanded[key] = expand_path(value) if is_path and isinstance(value, str) else value
    return expanded


_RecipeDumper.add_multi_representer(PurePath, lambda dumper, path: dumper.represent_str(str(path)))


def format_recipe(recipe: Mapping[str, Any]) -> str:
    """Write a recipe as YAML that ``read_recipe`` reads back.

    Raises:
        ValueError: If a value cannot be written.
    """
    options: Any = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None}
    try:
        return yaml.dump(dict(recipe), Dumper=_RecipeDumper, **options)
    except (yaml.YAMLError, RecursionError) as error:
        value = error.args[-1] if isinstance(error, yaml.YAMLError) else "too many levels"
        raise ValueError(
            f"recipe: {value!r} has no place in a recipe; use texts, numbers, booleans, None, "
            "lists and dictionaries"
        ) from error


def as_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``read_recipe`` would read from a file with this recipe."""
    try:
        return expand_paths(read_value(format_recipe(recipe)))
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {error}") from error


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
