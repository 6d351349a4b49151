"""Recipe files: YAML read and written by the same rules."""

import re
from pathlib import Path
from typing import Any

import yaml


class RecipeLoader(yaml.SafeLoader):
    """YAML 1.2 without duplicate keys: in 1.1 ``no`` is a boolean and ``2e-5`` a string."""

    # a copy: add_implicit_resolver and the change below must not reach other users of yaml
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith((":bool", ":float"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

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
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


class _RecipeDumper(yaml.SafeDumper):
    """Quotes a text that ``RecipeLoader`` would not read as text."""

    yaml_implicit_resolvers = RecipeLoader.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        """Write repeated values in full instead of as aliases."""
        return True


def read_value(text: str) -> Any:
    """Read YAML."""
    return yaml.load(text, RecipeLoader)  # noqa: S506  a safe loader


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
    return recipe


def format_recipe(recipe: dict[str, Any]) -> str:
    """Write a recipe as YAML that ``read_recipe`` reads back."""
    return yaml.dump(
        recipe, Dumper=_RecipeDumper, sort_keys=False, allow_unicode=True, default_flow_style=None
    )
