"""Evaluate sentence embeddings without fine-tuning: similarity (STS) and transfer (SentEval).

    minbert embeddings CHECKPOINT --sts stsb                       # reads it from the Hub
    minbert embeddings CHECKPOINT ... --data_dir senteval --sts sts --sts_dir FOLDER
    minbert embeddings CHECKPOINT --data_dir senteval --tasks MR,TREC --output_dir embeddings

STS: Spearman's and Pearson's correlation of cosines with human judgments. Transfer: a logistic
regression on frozen embeddings, with SentEval's files, folds and choice of C; tasks without files
are listed and skipped. The results are table.md and table.csv.
"""

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from minbert_cli.command_line import PRECISION, Parser, to_count, to_location, to_path

PROGRAM = "minbert embeddings"
TABLES = ("table.md", "table.csv")


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
    add = parser.add_argument_group("similarity (STS)").add_argument
    add("--sts", help="dataset of pairs with scores: sts or stsb")
    add(
        "--sts_dir", type=to_location, help="folder with its official files (default: from the Hub)"
    )
    add = parser.add_argument_group("transfer (SentEval)").add_argument
    add("--data_dir", type=to_path, help="folder with the folders of SentEval's tasks")
    add("--tasks", help="some of MR,CR,SUBJ,MPQA,TREC (default: all with files)")
    add("--folds", type=to_count, default=10, help="folds of the cross-validation (10)")
    add = parser.add_argument_group("output and machine").add_argument
    add("--output_dir", type=to_path, default=Path("embeddings"), help="folder (embeddings)")
    add("--jobs", type=int, default=-1, help="parallel processes (default: all cores)")
    add("--device", help="cpu or cuda (default: cuda if available)")
    add("--precision", **PRECISION)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate checkpoints; errors of the user are one line each."""
    parser = make_parser()
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    has_data, has_sts = args.data_dir is not None, args.sts is not None
    parser.refuse(
        {
            "nothing to measure: give --data_dir, --sts, or both": not has_data and not has_sts,
            "--tasks needs --data_dir, the folder with SentEval's tasks": args.tasks
            and not has_data,
            "--sts_dir needs --sts, the name of the dataset": args.sts_dir and not has_sts,
            f"--folds {args.folds}: give at least 2": args.folds < 2,
            "--jobs 0: give a number of processes, or -1 for all cores": args.jobs == 0,
        }
    )
    # imported here, so that --help does not wait for torch
    from trainers import readable_errors

    with readable_errors(PROGRAM):
        run(args)


def run(args: argparse.Namespace) -> None:
    """Measure every checkpoint, and write the tables after each."""
    from transformers.utils import logging

    from minbert_cli.checkpoints import load_encoder, set_precision
    from minbert_cli.run_folder import check_tables, sole_writer
    from sentence_vectors import as_vectors, evaluate_similarity, evaluate_transfer
    from trainers import write_text
    from trainers.reports.texts import plain

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    check_tables(args.output_dir, TABLES)
    tasks, similarities = find_transfer(args), load_similarity(args)
    models: dict[str, Any] = {path: load_encoder(path, args.device) for path in args.checkpoints}
    options = {"task": args.task, "pooling": args.pooling, "show_progress": False}
    for model in models.values():
        set_precision(model, args.precision)
        # fail before any checkpoint is measured
        as_vectors(model.encode(["Does it embed?"], **options))
    rows: dict[str, dict[str, float]] = {}
    with sole_writer(args.output_dir):
        for path, model in models.items():
            embed = partial(model.encode, **options)
            # first, as it reads the files of all tasks before it measures
            transfer = evaluate_transfer(
                args.data_dir, embed, tasks=tasks, folds=args.folds, jobs=args.jobs
            )
            row = rows[path] = {}
            for name, (pairs, scores) in similarities.items():
                for metric, value in evaluate_similarity(pairs, scores, embed).items():
                    row[f"{name} {metric}"] = value
            row |= transfer
            if transfer:
                row["mean"] = sum(transfer.values()) / len(transfer)
            lines = [["vectors of", *row], ["---"] * (1 + len(row))]
            for name, values in rows.items():
                lines.append([plain(name), *(f"{value:.2f}" for value in values.values())])
            table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
            write_text(args.output_dir / "table.md", table)
            file = io.StringIO()
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["vectors", *row])
            writer.writerows([name, *values.values()] for name, values in rows.items())
            write_text(args.output_dir / "table.csv", file.getvalue())
    print(table, end="")
    print("\nmean: mean accuracy of the transfer tasks")
    print(f"{args.output_dir}: {', '.join(TABLES)}")


def find_transfer(args: argparse.Namespace) -> list[str]:
    """Find the transfer tasks whose files exist, and list the others."""
    from sentence_vectors.senteval import FILES, find_missing_file

    if args.data_dir is None:
        return []
    names = args.tasks.split(",") if args.tasks else list(FILES)
    tasks = []
    for name in names:
        if missing := find_missing_file(name, args.data_dir):
            print(f"{name}: skipped, there is no {missing}", file=sys.stderr)
        else:
            tasks.append(name)
    if not tasks:
        raise ValueError(f"data_dir={str(args.data_dir)!r} has the files of none of {names}")
    return tasks


def load_similarity(args: argparse.Namespace) -> dict[str, Any]:
    """Load pairs and scores of the held-out splits of a dataset, by name in the table."""
    from datasets_scripts import TaskData, load_task

    if args.sts is None:
        return {}
    task = load_task(TaskData.from_recipe(args.sts, {"dataset": args.sts}, args.sts_dir))
    if task.row_format.score_range is None:
        raise ValueError(f"sts={args.sts!r} is a {task.problem_type}; expected pairs with scores")
    return {
        f"{args.sts} {split}": (
            list(zip(rows["sentence1"][:], rows["sentence2"][:], strict=True)),
            rows["label"][:],
        )
        for split, rows in task.splits.items()
        if split != "train" and "label" in rows.column_names
    }
