"""``minbert export``: its flags."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from minbert_cli.command_line import quick_imports, to_location, to_path

Format = Literal["transformers", "sentence-transformers", "onnx", "minbert"]
INT8 = ("onnx", "minbert")  # formats that may have weights in int8


def export(
    checkpoint: Annotated[str, typer.Argument(parser=to_location, help="folder or Hub id")],
    to: Annotated[Format, typer.Option("--format", help="format to write")],
    output_dir: Annotated[
        Path, typer.Option("--output_dir", parser=to_path, help="a new or empty folder")
    ],
    task: Annotated[
        str | None, typer.Option(help="one task of a multi-task model; of onnx by default all")
    ] = None,
    precision: Annotated[
        Literal["float32", "int8"],
        typer.Option(help=f"of the weights; int8 only for {' and '.join(INT8)}"),
    ] = "float32",
) -> None:
    """Export a checkpoint to transformers, sentence-transformers, ONNX, or int8 weights.

    \b
    minbert export runs/reviews --format onnx --output_dir onnx
    minbert export runs/reviews --format onnx --precision int8 --output_dir onnx_int8
    minbert export runs/reviews --format minbert --precision int8 --output_dir small
    minbert export runs/sts --format sentence-transformers --task sts --output_dir encoder
    """  # noqa: D301  \b keeps the lines of a paragraph
    if precision == "int8" and to not in INT8:
        raise typer.BadParameter(
            f"--precision int8: not for --format {to}, only for {', '.join(INT8)}; leave it out"
        )
    with quick_imports():
        from transformers.utils import logging

        from minbert_cli import exporting
        from trainers import readable_errors

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with readable_errors("minbert export"):
        summary = exporting.export(checkpoint, to, output_dir, task, precision)
    print(f"{output_dir}: {summary}")
