"""Export a checkpoint: a plain BERT, a sentence encoder, ONNX, or a Space.

    minbert export runs/reviews --format onnx --output_dir onnx
    minbert export runs/reviews --format space --output_dir demo
    minbert export runs/sts --format sentence-transformers --task sts --output_dir encoder

CHECKPOINT is a folder or a Hub id.
"""

import argparse
import sys
from collections.abc import Sequence

from minbert_cli.command_line import Parser, to_location, to_path

PROGRAM = "minbert export"
FORMATS = ("bert", "sentence-transformers", "onnx", "space")


def make_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(
        PROGRAM,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("checkpoint", type=to_location, help="folder or Hub id")
    parser.add_argument("--format", required=True, choices=FORMATS, help="format to write")
    parser.add_argument("--output_dir", required=True, type=to_path, help="a new or empty folder")
    parser.add_argument("--task", help="one task of a multi-task model (default for onnx: all)")
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Export a checkpoint; errors of the user are one line each."""
    args = parse(sys.argv[1:] if argv is None else argv)
    # imported here, so that --help does not wait for torch
    from transformers.utils import logging

    from minbert_cli.export_formats import export
    from trainers import readable_errors

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with readable_errors(PROGRAM):
        summary = export(args.checkpoint, args.format, args.output_dir, args.task)
    print(f"{args.output_dir}: {summary}")
