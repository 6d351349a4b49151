"""Recipe files: YAML read and written by the same rules."""

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

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
