"""Export a checkpoint: a plain BERT, a sentence encoder, ONNX, int8 weights, or a Space.

    minbert export runs/reviews --format onnx --output_dir onnx
    minbert export runs/reviews --format onnx --precision int8 --output_dir onnx_int8
    minbert export runs/reviews --format minbert --precision int8 --output_dir small
    minbert export runs/reviews --format space --output_dir demo
    minbert export runs/sts --format sentence-transformers --task sts --output_dir encoder

CHECKPOINT is a folder or a Hub id.
"""

import argparse
import sys
from collections.abc import Sequence

from minbert_cli.command_line import Parser, to_location, to_path

PROGRAM = "minbert export"
# The precisions of each format, the default first.
FORMATS = {
    "bert": ("float32",),
    "sentence-transformers": ("float32",),
    "onnx": ("float32", "int8"),
    "space": ("float32",),
    "minbert": ("float32", "int8"),
}
PRECISIONS = ("float32", "int8")


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
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=PRECISIONS[0],
        help=f"of the weights (default: float32); int8 only for {', '.join(formats_with('int8'))}",
    )
    return parser


def formats_with(precision: str) -> list[str]:
    """List the formats that can be written in a precision."""
    return [name for name, precisions in FORMATS.items() if precision in precisions]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.precision not in FORMATS[args.format]:
        parser.error(
            f"--precision {args.precision}: not for --format {args.format}, only for "
            f"{', '.join(formats_with(args.precision))}; leave it out"
        )
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Export a checkpoint; errors of the user are one line each."""
    args = parse(sys.argv[1:] if argv is None else argv)
    # imported here, so that --help does not wait for torch
    from transformers.utils import logging

    from minbert_cli.exporting import export
    from trainers import readable_errors

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with readable_errors(PROGRAM):
        summary = export(args.checkpoint, args.format, args.output_dir, args.task, args.precision)
    print(f"{args.output_dir}: {summary}")
