"""Predict, embed, search, or find similar sentences, from the shell.

    minbert predict CHECKPOINT --task sst "a text" "another one"
    minbert predict CHECKPOINT --task quora < pairs.tsv                  # two columns
    minbert predict CHECKPOINT --task swag "a context" "a choice" "another choice"
    minbert predict CHECKPOINT --task sst --file texts.txt --output predictions.csv
    minbert predict CHECKPOINT --file reviews.csv --text_columns review  # a table
    minbert predict CHECKPOINT --task all --file texts.txt               # or --task sst,topics
    minbert predict CHECKPOINT --embed vectors.npy --file sentences.txt
    minbert predict CHECKPOINT --corpus sentences.txt --query "text to look for"
    minbert predict CHECKPOINT --pairs 10 --file sentences.txt           # the most similar pairs
    minbert predict CHECKPOINT --communities --file sentences.txt        # groups of similar ones

Texts come from the command line, a file, or the standard input: one per line; the two texts of a
pair, or a context and its choices, are separated by tabs. Tables are read as in training: the task
knows its columns, or --text_columns names them. Results are tab-separated columns (for
tags one line per entity), CSV or JSON lines; of several tasks one line per text or pair. CHECKPOINT
is a folder or a Hub id of minBERT, BERT or sentence-transformers.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from minbert_cli.command_line import PRECISION, Parser, to_count, to_location, to_number, to_path

PROGRAM = "minbert predict"
TRUNCATIONS = ("head", "tail", "head_tail", "windows")


def make_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_input(parser)
    _add_modes(parser)
    _add_output(parser)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    # texts may follow flags, as in `--task sst "a text"`
    args = parser.parse_intermixed_args(argv)
    parser.refuse(list_mistakes(args))
    return args


def _add_input(parser: Parser) -> None:
    add = parser.add_argument_group("model and texts").add_argument
    add("checkpoint", type=to_location, help="folder or Hub id")
    help_texts = (
        "texts; for a task on pairs, first and second texts alternate; for one on choices, "
    )
    add("texts", nargs="*", help=f"{help_texts}a context and its choices")
    add(
        "--file",
        type=to_path,
        help="table (.csv, .tsv, .jsonl, .json, .parquet or .conll), or file with a text or a pair "
        "on each line; both may be compressed",
    )
    add(
        "--text_columns",
        nargs="+",
        help="one or two columns of a table with the texts (default: those the task was trained "
        "on)",
    )
    add("--lines", action="store_true", help="read every line as a text, also of a table")
    add(
        "--task",
        help="task to predict, needed if the model has several, or whose embeddings to use; "
        "several tasks to predict, separated by commas, or all that take the texts",
    )
    add("--pooling", choices=("cls", "mean", "max"), help="pooling of the embeddings")
    add("--truncation", choices=TRUNCATIONS, help="what embeddings keep of a text that is too long")
    add("--device", help="cpu or cuda (default: cuda if available)")
    add("--precision", **PRECISION)


def _add_modes(parser: Parser) -> None:
    mode = parser.add_argument_group(
        "instead of predictions, one of"
    ).add_mutually_exclusive_group()
    mode.add_argument(
        "--embed", type=to_path, help="write embeddings: .npy, or .jsonl with the texts"
    )
    mode.add_argument(
        "--corpus", type=to_path, help="search the texts of this file, read as --file"
    )
    mode.add_argument("--pairs", type=to_count, help="number of most similar pairs to find")
    mode.add_argument("--communities", action="store_true", help="group similar texts")
    add = parser.add_argument_group("search").add_argument
    add("--query", action="append", help="text to search for, repeatable (default: the texts)")
    add("--top_k", type=to_count, default=5, help="results per query (5)")
    add = parser.add_argument_group("communities").add_argument
    add("--threshold", type=to_number, default=0.75, help="lowest cosine with the center (0.75)")
    add("--min_size", type=to_count, default=2, help="smallest community (2)")


def _add_output(parser: Parser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--format",
        choices=("tsv", "csv", "jsonl"),
        help="output format (default: by --output, else tsv)",
    )
    add("--output", type=to_path, help="output file (default: standard output)")


def list_mistakes(args: argparse.Namespace) -> dict[str, Any]:
    """List what can be wrong with a combination of flags, and whether it is."""
    has_texts = bool(args.texts or args.file)
    has_vectors = args.embed or args.corpus or args.pairs or args.communities
    return {
        f"texts are given, and --file {args.file}; leave one out": args.texts and args.file,
        f"--embed {args.embed}: name a file that ends in .npy or .jsonl": (
            args.embed is not None and args.embed.suffix not in (".npy", ".jsonl")
        ),
        f"--truncation {args.truncation} is for embeddings; a task keeps what its recipe says": (
            args.truncation and not has_vectors
        ),
        f"the output would replace {args.file or args.corpus}, which is read": (
            _replaces_input(args)
        ),
        "--text_columns names columns of a file; leave it out, or give --file": (
            args.text_columns and not (args.file or args.corpus)
        ),
        "--lines and --text_columns exclude each other; leave one out": (
            args.lines and args.text_columns
        ),
        "--query needs --corpus, the file to search": args.query and args.corpus is None,
        "--query replaces the texts; leave out texts and --file": args.query and has_texts,
    }


def _replaces_input(args: argparse.Namespace) -> bool:
    written = [path for path in (args.output, args.embed) if path and path.is_file()]
    read = [path for path in (args.file, args.corpus) if path and path.exists()]
    return any(path.samefile(other) for path in written for other in read)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program; errors of the user are one line each."""
    args = parse(sys.argv[1:] if argv is None else argv)
    # imported here, so that --help does not wait for torch
    from minbert_cli.predicting import run
    from trainers import WriteError, readable_errors

    with readable_errors(PROGRAM):
        try:
            run(args)
        except BrokenPipeError:  # the reader has closed the pipe, as `head` does
            drop_output()
        except WriteError:
            drop_output()
            raise


def drop_output() -> None:
    """Send what is left of the standard output nowhere, since Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
