"""List training rows whose label is probably wrong, by confident learning and cross-validation.

    minbert label-issues RECIPE [--folds 5] [--flag value ...]

RECIPE and flags are those of `minbert finetune`. It trains a model for each fold of the training
rows, on all other folds, and compares its predictions for the fold with the labels. The result is
<output_dir>-label-issues/<task>-train.csv for each task whose labels are classes, the most
suspicious rows first. Correct or remove them and train again: nothing else is changed.
"""

import argparse
import sys
from collections.abc import Sequence

from minbert_cli.command_line import Parser, to_count

PROGRAM = "minbert label-issues"


def make_parser() -> Parser:
    """Declare the arguments; other flags are those of the recipe."""
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help="recipe of a fine-tuning: a file or a packaged name")
    parser.add_argument(
        "--folds", type=to_count, default=5, help="parts of the rows, a model for each (5)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Train the folds and write the lists; errors of the user are one line each."""
    parser = make_parser()
    args, flags = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))
    parser.refuse({f"--folds {args.folds}: give at least 2": args.folds < 2})
    # imported here, so that --help does not wait for torch
    from minbert_cli.label_folds import list_label_issues
    from trainers import readable_errors

    with readable_errors(PROGRAM):
        list_label_issues(args.recipe, flags, args.folds)


if __name__ == "__main__":
    main()
