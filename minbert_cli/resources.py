"""Recipes, card template and Space: at the top of a clone, inside this package in a wheel."""

from collections.abc import Sequence
from pathlib import Path

from minbert_cli.command_line import expand_path

PACKAGE = Path(__file__).resolve().parent
IS_INSTALLED = (PACKAGE / "recipes").is_dir()
HOME = PACKAGE if IS_INSTALLED else PACKAGE.parent
RECIPES = HOME / "recipes"
MODEL_CARD = HOME / "model_card.md"
SPACE = HOME / "space"


def list_recipes() -> list[str]:
    """Return the names of the packaged recipes, such as ``cs224n`` and ``glue/cola``."""
    return sorted(_name(path) for path in RECIPES.rglob("*.yaml"))


def find_recipe(recipe: str) -> Path:
    """Find a recipe by its path, or else by its name."""
    recipe = expand_path(recipe)
    if Path(recipe).is_file():
        return Path(recipe)
    names = list_recipes()
    if recipe in names:
        return RECIPES / f"{recipe}.yaml"
    from modeling_minbert import suggest  # here, since it imports torch

    stem = recipe.removesuffix(".yaml").removesuffix(".yml").removeprefix("recipes/")
    raise FileNotFoundError(
        f"recipe {recipe!r} is not a file, and no packaged recipe has this name"
        f"{suggest(stem, names)}"
    )


def with_recipe(argv: Sequence[str]) -> list[str]:
    """Replace the name of a recipe at the start of a command line by its path."""
    if not argv or argv[0].startswith("-"):
        return list(argv)
    return [str(find_recipe(argv[0])), *argv[1:]]


def with_recipe_name(argv: Sequence[str]) -> list[str]:
    """Undo `with_recipe`, since a name works on every machine."""
    is_packaged = bool(argv) and Path(argv[0]).is_absolute() and RECIPES in Path(argv[0]).parents
    return [_name(Path(argv[0])), *argv[1:]] if is_packaged else list(argv)


def _name(path: Path) -> str:
    return path.relative_to(RECIPES).with_suffix("").as_posix()
