"""Check a recipe with its data and its model, without training."""

from collections.abc import Mapping, Sequence
from typing import Any

from minbert_cli.recipes import find_program, with_recipe
from trainers import UsageError, readable_errors

PROGRAM = "minbert check"


def describe_data(run: Any) -> str:
    """Count the rows of every task and split; the log names the skipped ones."""
    lines = []
    for task, splits in run.encoded.items():
        # a pre-training evaluates only some of its training rows
        held_out = {split: len(rows) for split, rows in splits.items() if split != "train"}
        sizes = describe_sizes({"train": run.trainer.train_sampler.sizes[task], **held_out})
        kind, source = run.trainer.problems[task].problem_type, run.facts.data[task]
        lines.append(f"{task}: {kind}, {source}, {sizes}")
        skipped = run.facts.bad_rows.get(task, [])
        if skipped:
            lines.append(f"{task}: {len(skipped):,} invalid rows are skipped")
    return "\n".join(lines)


def describe_sizes(sizes: Mapping[str, int]) -> str:
    """Say how many rows each split has."""
    return ", ".join(f"{size:,} {split}" for split, size in sizes.items()) + " rows"


def check_training(program: str, given: Sequence[str] | Mapping[str, Any]) -> None:
    """Prepare a fine-tuning or a pre-training, and print what it would do."""
    from minbert_cli.finetune import finetune
    from minbert_cli.pretrain import pretrain

    run = {"finetune": finetune, "pretrain": pretrain}[program](given, is_dry=True)
    print(f"\n{describe_data(run)}")


def check_experiments(argv: Sequence[str]) -> None:
    """Check the recipes of all runs, as ``minbert experiments --dry_run``."""
    from minbert_cli.experiments.program import describe_runs, order_runs, plan

    _, rows, states = plan(argv)
    print(describe_runs(order_runs(rows), states))


def main(argv: Sequence[str]) -> None:
    """Check a recipe; errors of the user are one line each."""
    with readable_errors(PROGRAM):
        if not argv or argv[0].startswith("-"):
            raise UsageError(f"give a recipe; see {PROGRAM} --help")
        argv = with_recipe(argv)
        program = find_program(argv[0])
        if program is None:
            raise ValueError(
                f"{argv[0]}: no key says which program it is for; give tasks (minbert finetune), "
                "corpus (minbert pretrain) or rows (minbert experiments)"
            )
        if program == "experiments":
            check_experiments(argv)
        else:
            check_training(program, argv)
    print("\nok")
