"""``minbert predict``: its flags."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from minbert_cli.command_line import Device, Precision, quick_imports, to_location, to_path

# Formats of results by the suffix of --output.
FORMS = {"": "tsv", ".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".html": "html"}


def predict(
    checkpoint: Annotated[str, typer.Argument(parser=to_location, help="folder or Hub id")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="texts; for a task on pairs, first and second texts alternate"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            parser=to_path,
            help="table (.csv, .tsv, .jsonl, .json, .parquet, .conll, .conllu), or file with a "
            "text or a pair on each line; both may be compressed",
        ),
    ] = None,
    text_columns: Annotated[
        str | None,
        typer.Option(
            "--text_columns",
            help="one or two columns of a table with the texts, separated by a comma; by default "
            "those that the task was trained on",
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="read every line as a text, also of a table")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(
            help="task to predict, needed if the model has several, or whose embeddings to use; "
            "several tasks to predict, separated by commas, or all that take the texts"
        ),
    ] = None,
    pooling: Annotated[
        Literal["cls", "mean", "max"] | None, typer.Option(help="pooling of the embeddings")
    ] = None,
    truncation: Annotated[
        Literal["head", "tail", "head_tail", "windows"] | None,
        typer.Option(help="what embeddings keep of a text that is too long"),
    ] = None,
    device: Device = None,
    precision: Precision = "auto",
    embed: Annotated[
        Path | None, typer.Option(parser=to_path, help="write embeddings, as .npy")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="also give the share of every word in the decision; with --output page.html as a "
            "page with colored words",
        ),
    ] = False,
    format: Annotated[  # noqa: A002  the name of the flag
        Literal["tsv", "csv", "jsonl"] | None,
        typer.Option(help="format of the output; by default that of --output, else tsv"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(parser=to_path, help="file; by default the standard output")
    ] = None,
) -> None:
    """Predict or embed texts.

    \b
    minbert predict CHECKPOINT --task sst "a text" "another one"
    minbert predict CHECKPOINT --task quora < pairs.tsv                  # two columns
    minbert predict CHECKPOINT --task sst --file texts.txt --output predictions.csv
    minbert predict CHECKPOINT --file reviews.csv --text_columns review  # a table
    minbert predict CHECKPOINT --task all --file texts.txt               # or --task sst,topics
    minbert predict CHECKPOINT --task sst --explain --output why.html "a text"
    minbert predict CHECKPOINT --embed vectors.npy --file sentences.txt

    Texts come from the command line, a file, or the standard input: one per line; the two texts of
    a pair are separated by a tab. Tables are read as in training: the task knows its columns, or
    --text_columns names them. Results are tab-separated columns (for tags one line per entity), CSV
    or JSON lines; of several tasks one line per text or pair.
    CHECKPOINT is a folder or a Hub id of minBERT, BERT or sentence-transformers.
    """  # noqa: D301  \b keeps the lines of a paragraph
    args = SimpleNamespace(**locals())
    args.text_columns = text_columns.split(",") if text_columns else None
    check_flags(args)
    args.format = format or FORMS["" if output is None else output.suffix.lower()]
    with quick_imports():
        from minbert_cli.predicting import run
        from trainers import WriteError, readable_errors

    with readable_errors("minbert predict"):
        try:
            run(args)
        except BrokenPipeError:  # the reader has closed the pipe, as `head` does
            drop_output()
        except WriteError:
            drop_output()
            raise


def check_flags(args: SimpleNamespace) -> None:
    """Refuse combinations of flags that have no meaning."""
    written = [path for path in (args.output, args.embed) if path and path.is_file()]
    mistakes = {
        f"texts are given, and --file {args.file}; leave one out": args.texts and args.file,
        f"--embed {args.embed}: name a file that ends in .npy": (
            args.embed and args.embed.suffix != ".npy"
        ),
        f"--truncation {args.truncation} is for embeddings; a task keeps what its recipe says": (
            args.truncation and not args.embed
        ),
        f"--pooling {args.pooling} is for embeddings; give --embed, or leave it out": (
            args.pooling and not args.embed
        ),
        "--embed writes vectors alone; leave out --output and --format": (
            args.embed and (args.output or args.format)
        ),
        f"the output would replace {args.file}, which is read": (
            args.file and args.file.exists() and any(map(args.file.samefile, written))
        ),
        "--text_columns names columns of a file; leave it out, or give --file": (
            args.text_columns and not args.file
        ),
        "--lines and --text_columns exclude each other; leave one out": (
            args.lines and args.text_columns
        ),
        "--explain is for predictions; leave out --embed": args.explain and args.embed,
        f"--output {args.output}: no format has this suffix; name a file that ends in .tsv, .csv "
        "or .jsonl, or .html with --explain; or give --format": (
            args.output and not args.format and args.output.suffix.lower() not in FORMS
        ),
    }
    for message, is_made in mistakes.items():
        if is_made:
            raise typer.BadParameter(message)


def drop_output() -> None:
    """Send what is left of the standard output nowhere, since Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
