"""The packaged recipes, and ``minbert recipes``, which lists and prints them."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from minbert_cli.command_line import expand_path

# The key of a recipe that only one program has, in the order in which they decide.
PROGRAMS = {"rows": "experiments", "corpus": "pretrain", "tasks": "finetune"}


def find_program(recipe: Mapping[str, object]) -> str | None:
    """Tell which program a recipe is for; None if it has no key that says so."""
    return next((program for key, program in PROGRAMS.items() if key in recipe), None)


def choose_program(recipe: Mapping[str, object], where: str) -> str:
    """Tell which program trains by a recipe; it must be one that makes a single run."""
    program = find_program(recipe)
    if program is None:
        raise ValueError(
            f"{where}: no key says which program it is for; give tasks (minbert finetune) or "
            "corpus (minbert pretrain)"
        )
    if program == "experiments":
        raise ValueError(f"{where} has many runs: use minbert experiments FILE --dry_run")
    return program


def check_program(recipe: Mapping[str, object], where: Path, program: str) -> None:
    """Refuse a recipe that is for another program than ``minbert <program>``."""
    if (right := find_program(recipe)) not in (None, program):
        raise ValueError(
            f"{where} is not a recipe for minbert {program}; use it with minbert {right}"
        )


def load_kinds(program: str) -> tuple[Any, ...]:
    """Import the dataclasses that read the keys of a fine-tuning or a pre-training."""
    from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments

    if program == "finetune":
        return FinetuneArguments, ProgramTrainingArguments
    from minbert_cli.text_tasks import PretrainArguments

    return PretrainArguments, ProgramTrainingArguments


PACKAGE = Path(__file__).resolve().parent
IS_INSTALLED = (PACKAGE / "recipes").is_dir()
HOME = PACKAGE if IS_INSTALLED else PACKAGE.parent
RECIPES = HOME / "recipes"
MODEL_CARD = HOME / "model_card.md"


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


def split_argv(argv: Sequence[str], default_recipe: Path) -> tuple[Path, list[str]]:
    """Split the recipe, which is the first argument or the default, from the flags."""
    if argv and not argv[0].startswith("-"):
        return find_recipe(argv[0]), list(argv[1:])
    return default_recipe, list(argv)


def with_recipe_name(argv: Sequence[str]) -> list[str]:
    """Replace the path of a packaged recipe by its name, which works on every machine."""
    is_packaged = bool(argv) and Path(argv[0]).is_absolute() and RECIPES in Path(argv[0]).parents
    return [_name(Path(argv[0])), *argv[1:]] if is_packaged else list(argv)


def _name(path: Path) -> str:
    return path.relative_to(RECIPES).with_suffix("").as_posix()


def describe_recipe(name: str) -> str:
    """Return the first comment line of a recipe."""
    first = find_recipe(name).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()


def recipes(
    recipe: Annotated[str | None, typer.Argument(help="name of a recipe, or its path")] = None,
) -> None:
    """List the packaged recipes, or print one.

    \b
    minbert recipes                       lists them
    minbert recipes glue/cola             prints one
    minbert recipes glue/cola > my.yaml   copies it, to edit and run
    """  # noqa: D301  \b keeps the lines of a paragraph
    try:
        text = None if recipe is None else find_recipe(recipe).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"minbert recipes: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if text is not None:
        print(text, end="")
        return
    for name in list_recipes():
        print(textwrap.fill(f"{name:<25} {describe_recipe(name)}", 100, subsequent_indent=26 * " "))
    print("\nRun one with `minbert finetune NAME`, or as its second line says.")
