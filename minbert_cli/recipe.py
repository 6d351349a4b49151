"""Recipes: YAML files of arguments, which flags on the command line override."""

import copy
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Union, get_args, get_origin

import yaml

from datasets_scripts.checking import check_keys, check_value, key_types, required_keys
from modeling_minbert import suggest
from trainers.files import UsageError

from .command_line import expand_path

Keys = dict[str, Any]  # of a recipe, by name or dotted path
# The keys whose values are paths, at any level of a recipe.
PATHS = frozenset(
    (
        *("data_dir", "train_file", "validation_file", "test_file", "unlabeled_file", "hub_id"),
        *("model_name_or_path", "tokenizer_name_or_path", "teacher", "base"),
        *("output_dir", "resume_from_checkpoint"),
    )
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

    def construct_document(self, node: yaml.Node) -> Any:
        """Build the document; in one go, so that a value which contains itself is refused."""
        self.deep_construct = True
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping, and refuse duplicate keys."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key_node.value!r}", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


class _RecipeDumper(yaml.SafeDumper):
    """Quotes a text that ``RecipeLoader``, or a reader of YAML 1.1, would not read as text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  PyYAML's signature
        """Write repeated values in full instead of as aliases."""
        return True


for tag, pattern, first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:0|-?[1-9][0-9]*)$", "-0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
):
    for kind in (RecipeLoader, _RecipeDumper):
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
_RecipeDumper.add_multi_representer(PurePath, lambda dumper, path: dumper.represent_str(str(path)))


def read_value(text: str) -> Any:
    """Read YAML; every error is a ``yaml.YAMLError``."""
    try:
        return yaml.load(text, RecipeLoader)  # noqa: S506  a safe loader
    except RecursionError:
        raise yaml.YAMLError("too many levels") from None
    # of PyYAML's constructors, for a value that its explicit tag does not allow: !!bool maybe
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, UnicodeError):
            raise
        raise yaml.YAMLError(f"a tag does not fit its value: {error}") from error


def read_recipe(path: Path) -> Keys:
    """Read a recipe; errors name the file and the line."""
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


def expand_paths(keys: Keys) -> Keys:
    """Expand the paths among the keys of a recipe and of its mappings."""
    expanded: Keys = {}
    for key, value in keys.items():
        is_path = str(key).rpartition(".")[2] in PATHS  # keys may be dotted
        if isinstance(value, dict):
            expanded[key] = expand_paths(value)
        elif is_path and isinstance(value, list):
            expanded[key] = [expand_path(each) if isinstance(each, str) else each for each in value]
        else:
            expanded[key] = expand_path(value) if is_path and isinstance(value, str) else value
    return expanded


def format_recipe(recipe: Mapping[str, Any]) -> str:
    """Write a recipe as YAML that ``read_recipe`` reads back.

    Raises:
        ValueError: If a value cannot be written.
    """
    options: Any = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None}
    try:
        return yaml.dump(dict(recipe), Dumper=_RecipeDumper, **options)
    except (yaml.YAMLError, RecursionError) as error:
        what = "a value with too many levels"
        if isinstance(error, yaml.YAMLError):
            what = f"a {type(error.args[-1]).__name__}"
        raise ValueError(
            f"recipe: {what} has no place in a recipe; give rows as files, and use texts, numbers, "
            "booleans, None, lists and dictionaries"
        ) from error


def as_recipe(recipe: Mapping[str, Any]) -> Keys:
    """Return what ``read_recipe`` would read from a file with this recipe."""
    try:
        return expand_paths(read_value(format_recipe(recipe)))
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {error}") from error


def group_flags(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the words after each flag of a command line, ``--flag value ...`` or ``--flag=value``.

    Raises:
        UsageError: If a word belongs to no flag, or a flag is given twice.
    """
    groups: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        flag, equals, value = word.partition("=")
        if not word.startswith("--"):
            if values is None:
                raise UsageError(f"unexpected argument {word!r}; a recipe is the first argument")
            values.append(word)
            continue
        if "." not in flag:
            flag = f"--{flag[2:].replace('-', '_')}"
        if flag in groups:
            raise UsageError(f"{flag} is given twice")
        values = groups[flag] = [value] if equals else []
    return groups


def read_flag(flag: str, words: Sequence[str], kind: Any = Any) -> Any:
    """Read the words after a flag as YAML, but text as it is written where the type is a text.

    Raises:
        UsageError: If they are no value of the type.
    """
    members = list_members(kind)
    kinds = [get_origin(member) or member for member in members]
    value: Any = " ".join(words)
    try:
        if not words:
            value = True
        elif len(words) > 1:
            items = [get_args(member)[0] for member in members if get_origin(member) is list]
            if not items:
                raise UsageError(f"{flag}: expected one value, found {value}")
            value = [read_flag(flag, [word], *items) for word in words]
        elif value == "null" and type(None) in kinds:
            value = None
        elif str not in kinds or {"{": dict, "[": list}.get(value[:1]) in kinds:
            value = read_value(value)
            if list in kinds and not isinstance(value, list):
                value = [value]
        return check_value("", flag, value, kind)
    except yaml.YAMLError as error:
        raise UsageError(f"{flag}: {value!r} is not YAML") from error
    except ValueError as error:
        raise UsageError(str(error)) from None


def override(where: str, recipe: Mapping[str, Any], overrides: Mapping[str, Any]) -> Keys:
    """Return a recipe with fields replaced by dotted paths; null removes a key."""
    changed = copy.deepcopy(dict(recipe))
    for path, value in by_depth(overrides):
        if not all(str(path).split(".")):
            raise ValueError(f"{where}: {path!r} is not a path; expected one like tasks.sts.loss")
        *parents, last = str(path).split(".")
        place = changed
        for depth, name in enumerate(parents):
            reached = ".".join(parents[: depth + 1])
            if len(parents) == 1 and place.get(name) is None:
                place[name] = {}  # a recipe may omit a mapping such as model_config
            if name not in place:
                known = suggest(name, place)
                raise ValueError(f"{where}: {path}: the recipe has no {reached}{known}")
            if not isinstance(place[name], dict):
                raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type
                    f"{where}: {path}: {reached} is {place[name]!r}, not a mapping; give {reached} "
                    "as a whole"
                )
            place = place[name]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return changed


def by_depth(changes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Sort changes such that none replaces a mapping that an earlier one has changed."""
    return sorted(changes.items(), key=lambda change: str(change[0]).count("."))


def fill_arguments(
    argument_classes: Sequence[type],
    recipe: Mapping[str, Any],
    flags: Sequence[str] = (),
    *,
    where: object,
) -> tuple[Any, ...]:
    """Return an instance of each dataclass, from the keys of a recipe and overriding flags.

    Args:
        argument_classes: Dataclasses; their fields are the keys of the recipe and the flags.
        recipe: The keys.
        flags: ``[--flag value ...]``. A flag for a mapping takes YAML, or names of its keys in the
            recipe, such as ``--tasks sst,sts``, which drops the others. A flag with a dotted name
            then changes one key of a mapping, as in ``--tasks.sts.loss mse``; null removes it.
        where: Prefix of errors about the recipe.

    Raises:
        ValueError: If the recipe has an unknown key or a value of the wrong type, or if a flag is
            invalid.
    """
    known: Keys = {}
    for kind in argument_classes:
        known |= key_types(kind)
    groups = group_flags(flags)
    dotted = {flag[2:]: read_flag(flag, groups.pop(flag)) for flag in [*groups] if "." in flag}
    dotted = expand_paths(dotted)
    # a mapping that a flag gives is changed below
    whole = {flag[2:] for flag, words in groups.items() if words and words[0].startswith("{")}
    present = {path: dotted[path] for path in dotted if path.partition(".")[0] not in whole}
    recipe = override("command line", recipe, present)
    given: Keys = {}
    for flag, words in groups.items():
        name = flag[2:]
        if name not in known:
            names = (f"--{key}" for key in known)
            raise UsageError(f"unknown flag {flag}{suggest(flag, names)}")
        mapping, is_text = recipe.get(name), str in list_members(known[name])
        is_value = is_text or not words or words[0] == "null" or words[0].startswith("{")
        if isinstance(mapping, dict) and not is_value:
            given[name] = select(flag, mapping, ",".join(words))
        else:
            given |= expand_paths({name: read_flag(flag, words, known[name])})
    kept = drop_replaced(recipe, given, *argument_classes)
    # single keys change also in mappings that a flag gives or chooses as a whole
    changed = override("command line", kept | given, dotted)
    for path in dotted:
        name = path.partition(".")[0]
        given.pop(name, None)
        kept[name] = changed[name]
    filled = []
    parts = check_keys(str(where), kept, *argument_classes)
    for kind, part in zip(argument_classes, parts, strict=True):
        values = part | {name: given[name] for name in key_types(kind) if name in given}
        for name in required_keys(kind) - values.keys():
            raise UsageError(f"{name} is missing; give it in a recipe, or as --{name}")
        filled.append(kind(**values))
    return tuple(filled)


def drop_replaced(recipe: Keys, changes: Keys, *argument_classes: type[Any]) -> Keys:
    """Drop the keys of a recipe that changes replace, as `replaced_keys` of the classes say."""
    changed, dropped = {str(key).split(".")[0] for key in changes}, set[str]()
    for kind in argument_classes:
        for key, replaced in getattr(kind, "replaced_keys", {}).items():
            if changes.get(key) not in (None, "null"):
                dropped |= {*replaced} - changed
    return {name: value for name, value in recipe.items() if name not in dropped}


def select(flag: str, mapping: Keys, text: str) -> Keys:
    """Return the part of a mapping of a recipe that a flag names, as in ``--tasks sst,sts``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in mapping:
            raise UsageError(f"{flag}: the recipe has no {name!r}{suggest(name, mapping)}")
    return {name: mapping[name] for name in names}


def list_members(kind: Any) -> tuple[Any, ...]:
    """Return the types that a type is a union of."""
    is_union = get_origin(kind) in (Union, types.UnionType)
    members = get_args(kind) if is_union else (kind,)
    return tuple(get_args(each)[0] if get_origin(each) is Annotated else each for each in members)
