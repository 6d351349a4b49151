"""Check a recipe with its data and its model, without training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minbert_cli.finetune import finetune
from minbert_cli.pretrain import pretrain
from minbert_cli.recipe import read_recipe
from minbert_cli.recipes import find_program, with_recipe
from trainers import UsageError, readable_errors

PROGRAM = "minbert check"


def check_training(program: str, given: Sequence[str] | Mapping[str, Any]) -> None:
    """Prepare a fine-tuning or a pre-training, and print what it would do."""
    run = {"finetune": finetune, "pretrain": pretrain}[program](given, is_dry=True)
    print()
    for task, splits in run.encoded.items():
        # a pre-training evaluates only some of its training rows
        sampler: Any = run.trainer.train_sampler
        sizes = {"train": sampler.sizes[task]}
        sizes |= {split: len(rows) for split, rows in splits.items() if split != "train"}
        shown = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
        kind, source = run.trainer.problems[task].problem_type, run.facts.data[task]
        print(f"{task}: {kind}, {source}, {shown} rows")
        if skipped := run.facts.bad_rows.get(task):
            print(f"{task}: {len(skipped):,} invalid rows are skipped")


def main(argv: Sequence[str]) -> None:
    """Check a recipe; errors of the user are one line each."""
    with readable_errors(PROGRAM):
        if not argv or argv[0].startswith("-"):
            raise UsageError(f"give a recipe; see {PROGRAM} --help")
        argv = with_recipe(argv)
        program = find_program(read_recipe(Path(argv[0])))
        if program is None:
            raise ValueError(
                f"{argv[0]}: no key says which program it is for; give tasks (minbert finetune) "
                "or corpus (minbert pretrain)"
            )
        if program == "experiments":
            raise ValueError(f"{argv[0]} has many runs: use minbert experiments FILE --dry_run")
        check_training(program, argv)
    print("\nok")
