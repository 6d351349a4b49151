"""Which program a recipe is for, told by its keys."""

from collections.abc import Sequence
from pathlib import Path

# The key of a recipe that only one program has, in the order in which they decide.
PROGRAMS = {"rows": "experiments", "corpus": "pretrain", "tasks": "finetune"}


def find_program(path: str) -> str | None:
    """Tell which program a recipe is for; None if it has no key that says so."""
    # imported here, so that --help does not wait for torch
    from minbert_cli.recipe import read_recipe

    recipe = read_recipe(Path(path))
    return next((program for key, program in PROGRAMS.items() if key in recipe), None)


def check_program(argv: Sequence[str], program: str) -> None:
    """Refuse a recipe that is for another program than ``minbert <program>``."""
    if not argv or argv[0].startswith("-"):
        return
    right = find_program(argv[0])
    if right not in (None, program):
        raise ValueError(
            f"{argv[0]} is not a recipe for minbert {program}; use it with minbert {right}"
        )
