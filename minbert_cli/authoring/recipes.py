"""List, print or copy the packaged recipes.

minbert recipes                           lists them
minbert recipes glue/cola                 prints one
minbert recipes glue/cola --copy my.yaml  copies it, to edit and run
"""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from minbert_cli.command_line import Parser, to_path
from minbert_cli.resources import find_recipe, list_recipes

PROGRAM = "minbert recipes"
WIDTH = 100
NOTE = "Run one with `minbert finetune NAME`, or as its second line says."


def make_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", help="name of a recipe, or its path")
    parser.add_argument("--copy", type=to_path, metavar="FILE", help="file to write; a new one")
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    args = parser.parse_args(argv)
    parser.refuse({"--copy needs the name of a recipe": args.copy and args.recipe is None})
    return args


def describe_recipes() -> str:
    """List the recipes by folder, with the first comment line of each."""
    names = sorted(list_recipes(), key=lambda name: (str(Path(name).parent), name))
    width = max(map(len, names))
    lines = []
    for folder, group in groupby(names, key=lambda name: str(Path(name).parent)):
        lines.append("recipes:" if folder == "." else f"\n{folder}:")
        for name in group:
            first = f"  {name:<{width}}  "
            text = textwrap.wrap(describe_recipe(name), WIDTH - len(first))
            lines += [first + text[0], *(" " * len(first) + line for line in text[1:])]
    return "\n".join([*lines, "", NOTE])


def describe_recipe(name: str) -> str:
    """Return the first comment line of a recipe."""
    first = find_recipe(name).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()


def copy_recipe(recipe: Path, target: Path) -> None:
    """Copy a recipe to a new file."""
    if target.exists():
        raise FileExistsError(f"{str(target)!r} exists; name another file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist; make it first")
    shutil.copyfile(recipe, target)


def main(argv: Sequence[str] | None = None) -> None:
    """List, print or copy recipes; errors of the user are one line each."""
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        if args.recipe is None:
            print(describe_recipes())
        elif args.copy is None:
            print(find_recipe(args.recipe).read_text(encoding="utf-8"), end="")
        else:
            copy_recipe(find_recipe(args.recipe), args.copy)
            print(f"{args.copy}: a copy of {args.recipe}")
    except OSError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
