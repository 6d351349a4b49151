"""Recipes: YAML files of arguments, which flags on the command line override."""

import copy
import json
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from functools import cache
from itertools import product
from pathlib import Path, PurePath
from typing import Annotated, Any, Union, get_args, get_origin

import yaml

from datasets_scripts.checking import check_keys, check_value, key_types, keys_with
from modeling_minbert import suggest, unknown
from trainers.files import UsageError

from .command_line import expand_path

# Recipes are small: what is larger or deeper would only exhaust the memory.
MAX_DEPTH = 50
MAX_VALUES = 100_000
MAX_CHARACTERS = 1_000_000


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


@cache
def path_keys() -> frozenset[str]:
    """Return the keys whose values are paths, at any level of a recipe."""
    # imported here, since they know all options of training
    from datasets_scripts import TaskData

    from .arguments import FinetuneArguments

    ours = (*keys_with(TaskData, "path"), *keys_with(FinetuneArguments, "path"))
    # of pretraining, of experiments, and of transformers
    others = ("tokenizer_name_or_path", "base", "output_dir", "resume_from_checkpoint")
    return frozenset({*ours, *others})


def expand_paths(keys: Mapping[Any, Any], *, all_paths: bool = False) -> dict[Any, Any]:
    """Expand the paths among the keys of a recipe and of its mappings; or all values."""
    expanded: dict[Any, Any] = {}
    for key, value in keys.items():
        is_path = all_paths or str(key).rpartition(".")[2] in path_keys()  # keys may be dotted
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


def check_disjoint(where: str, left: Iterable[str], right: Iterable[str], how: str) -> None:
    """Reject two values for one field: equal paths, or one that contains the other."""
    for path, other in product(left, right):
        if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
            named = path if path == other else f"{path} and {other}"
            raise ValueError(f"{where}: {named} is set {how}; leave one out")


def split_dotted(flags: Sequence[str]) -> tuple[list[list[str]], dict[str, Any]]:
    """Split flags, in words, from those with dotted names, which give one value: by path."""
    plain: list[list[str]] = []
    dotted: dict[str, Any] = {}
    for words in group_flags(flags):
        name = words[0].partition("=")[0].removeprefix("--")
        if not words[0].startswith("--") or "." not in name:
            plain.append(words)
        elif name in dotted:
            raise UsageError(f"--{name} is given twice")
        else:
            dotted[name] = read_flag(words)
    return plain, dotted


def fill_arguments(
    argument_classes: Sequence[type],
    recipe: Mapping[str, Any],
    flags: Sequence[str] = (),
    *,
    where: Any,
) -> tuple[Any, ...]:
    """Fill dataclasses from the keys of a recipe and from flags, which override them.

    Args:
        argument_classes: Dataclasses; their fields are the keys of the recipe and the flags.
        recipe: The keys.
        flags: ``[--flag value ...]``. A flag for a mapping takes YAML, or names of its keys in the
            recipe, such as ``--tasks sst,sts``, which drops the others. A flag with a dotted name
            changes one key of a mapping, as in ``--tasks.sts.loss mse``; null removes it.
        where: Prefix of errors about the recipe.

    Returns:
        An instance of every class.

    Raises:
        ValueError: If the recipe has an unknown key or a value of the wrong type, or if a flag is
            invalid.
    """
    known: dict[str, Any] = {}
    for kind in argument_classes:
        known |= key_types(kind)
    plain, dotted = split_dotted(flags)
    recipe = override("command line", recipe, expand_paths(dotted))
    given = _read_flags(plain, known, recipe)
    replaced: set[str] = set()
    for kind in argument_classes:
        for flag, keys in getattr(kind, "replaced_keys", {}).items():
            replaced |= set(keys) if given.get(flag) not in (None, "null") else set()
    values = {name: value for name, value in recipe.items() if name not in replaced}
    texts = {name: _read_text(value, known.get(name, Any)) for name, value in values.items()}
    values = check_keys(str(where), texts, known) | given
    for kind in argument_classes:
        for entry in fields(kind):
            is_required = entry.default is MISSING and entry.default_factory is MISSING
            if entry.init and is_required and entry.name not in values:
                raise UsageError(
                    f"{entry.name} is missing; give it in a recipe, or as --{entry.name}"
                )
    return tuple(
        kind(**{name: values[name] for name in key_types(kind) if name in values})
        for kind in argument_classes
    )


def _read_flags(
    flags: Sequence[Sequence[str]], known: Mapping[str, Any], recipe: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the flags of a command line; that of a mapping may name keys of it in the recipe."""
    values: dict[str, Any] = {}
    for words in flags:
        flag, equals, text = words[0].partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        texts = [text, *words[1:]] if equals else list(words[1:])
        if not flag.startswith("--"):
            raise UsageError(f"unexpected argument {flag!r}; a recipe is the first argument")
        if name not in known:
            names = (f"--{key}" for key in known)
            raise UsageError(f"unknown flag {flag}{suggest(flag, names)}")
        value = _read_words(flag, texts, known[name], recipe.get(name))
        if not isinstance(value, dict):  # whose paths are expanded
            value = expand_paths({name: value})[name]
        try:
            values[name] = check_value("", flag, value, known[name])
        except ValueError as error:
            raise UsageError(str(error)) from None
    return values


def _read_words(flag: str, texts: Sequence[str], kind: Any, of_recipe: Any) -> Any:
    """Read the words after a flag as a value of the type of its key."""
    kinds = _list_types(kind)
    if not texts:
        if bool in kinds:
            return True
        raise UsageError(f"{flag}: expected a value")
    if texts == ["null"] and type(None) in kinds:
        return None
    if list in kinds and (len(texts) > 1 or str not in kinds):
        (item,) = (
            get_args(member)[0] for member in list_members(kind) if get_origin(member) is list
        )
        return [_read_text(text, item) for text in texts]
    if len(texts) > 1:
        raise UsageError(f"unexpected argument {texts[1]!r}; a recipe is the first argument")
    if dict in kinds and (str not in kinds or texts[0].startswith("{")):
        return _read_mapping(flag, texts[0], of_recipe)
    return _read_text(texts[0], kind)


def list_members(kind: Any) -> tuple[Any, ...]:
    """Return the types that a type is a union of."""
    is_union = get_origin(kind) in (Union, types.UnionType)
    members = get_args(kind) if is_union else (kind,)
    return tuple(get_args(each)[0] if get_origin(each) is Annotated else each for each in members)


def _list_types(kind: Any) -> tuple[Any, ...]:
    """Return the classes that values of a type have."""
    return tuple(get_origin(member) or member for member in list_members(kind))


def _read_text(value: object, kind: Any) -> Any:
    """Read a text in the place of a number or a boolean, and a number in that of a text.

    What cannot be read stays as it is, and is refused later.
    """
    expected = _list_types(kind)
    if str in expected and type(value) in (int, float) and type(value) not in expected:
        return str(value)
    if isinstance(value, str) and bool in expected and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, str) or str in expected:
        return value
    for number in (int, float):
        if number in expected:
            with suppress(ValueError):
                return number(value)
    return value


def _read_mapping(flag: str, text: str, of_recipe: Any) -> dict[Any, Any]:
    """Read a mapping from YAML, or select keys of the mapping in the recipe."""
    present = of_recipe if isinstance(of_recipe, dict) else {}
    names = [name.strip() for name in text.split(",")]
    if all(name in present for name in names):
        return {name: present[name] for name in names}
    try:
        value = read_value(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{flag}: {text!r} is not YAML") from error
    if isinstance(value, dict):
        return expand_paths(value)
    if not isinstance(of_recipe, dict):
        raise UsageError(f"{flag}: {text!r} is not a mapping; write it as '{{key: value}}'")
    missing = next(name for name in names if name not in present)
    raise UsageError(f"{flag}: the recipe has no {missing!r}{suggest(missing, present)}")


def split_argv(
    argv: Sequence[str], default_recipe: Path | None = None
) -> tuple[Path | None, list[str]]:
    """Split the recipe, which is the first argument or the default, from the flags."""
    if argv and not argv[0].startswith("-"):
        return Path(argv[0]), list(argv[1:])
    return default_recipe, list(argv)


@contextmanager
def name_task(name: str) -> Iterator[None]:
    """Name the task in errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"task {name!r}: {error}") from None


def split_keys(
    where: str, keys: Any, readers: Sequence[type | Collection[str]]
) -> tuple[dict[str, Any], ...]:
    """Split the keys of a mapping of a recipe among the dataclasses that they configure.

    A key may belong to several readers. A reader is a dataclass, or the names of keys.
    """
    if not isinstance(keys, dict):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{where}: expected keys and values, as in {{dataset: sst}}, got {keys!r}"
        )
    names = [set(key_types(reader) if isinstance(reader, type) else reader) for reader in readers]
    known = sorted(set().union(*names))
    for key in keys:
        if key not in known:
            raise ValueError(f"{where}: {unknown('key', key, known)}")
    return tuple({key: keys[key] for key in keys if key in part} for part in names)


def check_types(where: str, kind: type, values: Mapping[str, Any]) -> None:
    """Check keys and values from YAML against the fields of a dataclass."""
    check_keys(where, values, key_types(kind))
