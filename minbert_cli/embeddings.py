"""Evaluate sentence embeddings without fine-tuning: similarity (STS) and transfer (SentEval).

    minbert embeddings CHECKPOINT --sts stsb                       # reads it from the Hub
    minbert embeddings CHECKPOINT ... --data_dir senteval --sts sts --sts_dir FOLDER
    minbert embeddings CHECKPOINT --data_dir senteval --tasks MR,TREC --output_dir embeddings

STS: Spearman's and Pearson's correlation of cosines with human judgments. Transfer: a logistic
regression on frozen embeddings, with SentEval's files, folds and choice of C; tasks without files
are listed and skipped. `--peer sentence-transformers` also measures the same embeddings with that
library. The results are table.md, table.csv and table.png.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from minbert_cli.command_line import PRECISION, Parser, to_count, to_location, to_path

PROGRAM = "minbert embeddings"


def make_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument_group("models").add_argument
    add(
        "checkpoints",
        nargs="+",
        type=to_location,
        help="folders or Hub ids, one row of the table each",
    )
    add("--task", help="task of the checkpoints whose embeddings to measure")
    add("--pooling", choices=("cls", "mean", "max"), help="overrides the pooling of the checkpoint")
    add("--peer", choices=("sentence-transformers",), help="also measure this library")
    _add_data(parser)
    add = parser.add_argument_group("output and machine").add_argument
    add("--output_dir", type=to_path, default=Path("embeddings"), help="folder (embeddings)")
    add("--jobs", type=int, default=-1, help="parallel processes (default: all cores)")
    add("--device", help="cpu or cuda (default: cuda if available)")
    add("--precision", **PRECISION)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    args = parser.parse_args(argv)
    parser.refuse(list_mistakes(args))
    return args


def _add_data(parser: Parser) -> None:
    add = parser.add_argument_group("similarity (STS)").add_argument
    add("--sts", help="dataset of pairs with scores: sts or stsb")
    add(
        "--sts_dir", type=to_location, help="folder with its official files (default: from the Hub)"
    )
    add = parser.add_argument_group("transfer (SentEval)").add_argument
    add("--data_dir", type=to_path, help="folder with the folders of SentEval's tasks")
    add("--tasks", help="some of MR,CR,SUBJ,MPQA,SST2,SST5,TREC,MRPC (default: all with files)")
    add("--folds", type=to_count, default=10, help="folds of the cross-validation (10)")


def list_mistakes(args: argparse.Namespace) -> dict[str, bool]:
    """List what can be wrong with a combination of flags, and whether it is."""
    has_data, has_sts = args.data_dir is not None, args.sts is not None
    return {
        "nothing to measure: give --data_dir, --sts, or both": not has_data and not has_sts,
        "--tasks needs --data_dir, the folder with SentEval's tasks": args.tasks and not has_data,
        "--sts_dir needs --sts, the name of the dataset": args.sts_dir and not has_sts,
        f"--folds {args.folds}: give at least 2": args.folds < 2,
        "--jobs 0: give a number of processes, or -1 for all cores": args.jobs == 0,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate checkpoints; errors of the user are one line each."""
    args = parse(sys.argv[1:] if argv is None else argv)
    # imported here, so that --help does not wait for torch
    from minbert_cli.evaluating.embeddings import run
    from trainers import readable_errors

    with readable_errors(PROGRAM):
        run(args)
