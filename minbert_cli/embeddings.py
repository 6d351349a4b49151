"""``minbert embeddings``: sentence embeddings measured without fine-tuning."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from minbert_cli.command_line import Device, Precision, to_location, to_path


def embeddings(
    checkpoints: Annotated[
        list[str],
        typer.Argument(parser=to_location, help="folders or Hub ids, one row of the table each"),
    ],
    task: Annotated[
        str | None, typer.Option(help="task of the checkpoints whose embeddings to measure")
    ] = None,
    pooling: Annotated[
        Literal["cls", "mean", "max"] | None,
        typer.Option(help="overrides the pooling of the checkpoint"),
    ] = None,
    sts: Annotated[
        str | None, typer.Option(help="dataset of pairs with scores: sts or stsb")
    ] = None,
    sts_dir: Annotated[
        str | None,
        typer.Option(
            "--sts_dir",
            parser=to_location,
            help="folder with its official files; by default from the Hub",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data_dir", parser=to_path, help="folder with SentEval's folders"),
    ] = None,
    device: Device = None,
    precision: Precision = "auto",
) -> None:
    """Evaluate sentence embeddings without fine-tuning: similarity (STS) and transfer (SentEval).

    \b
    minbert embeddings CHECKPOINT --sts stsb                       # reads it from the Hub
    minbert embeddings CHECKPOINT ... --data_dir senteval --sts sts --sts_dir FOLDER
    minbert embeddings CHECKPOINT --data_dir senteval > table.md

    STS: Spearman's and Pearson's correlation of cosines with human judgments. Transfer: a logistic
    regression on frozen embeddings, with SentEval's files, folds and choice of C; tasks without
    files are listed and skipped. The table has a row for each checkpoint, in percent.
    """  # noqa: D301  \b keeps the lines of a paragraph
    if data_dir is None and sts is None:
        raise typer.BadParameter("nothing to measure: give --data_dir, --sts, or both")
    if sts_dir and sts is None:
        raise typer.BadParameter("--sts_dir needs --sts, the name of the dataset")
    # imported here, so that --help does not wait for torch
    from transformers.utils import logging

    from minbert_cli.checkpoints import load_encoder, set_precision
    from minbert_cli.senteval import check_vectors, evaluate_similarity, evaluate_transfer
    from trainers import readable_errors
    from trainers.reports.texts import plain

    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with readable_errors("minbert embeddings"):
        tasks = [] if data_dir is None else find_transfer(data_dir)
        similarities = load_similarity(sts, sts_dir)
        models: dict[str, Any] = {path: load_encoder(path, device) for path in checkpoints}
        options = {"task": task, "pooling": pooling, "show_progress": False}
        for model in models.values():
            set_precision(model, precision)
            # fail before any checkpoint is measured
            check_vectors(model.encode(["Does it embed?"], **options))
        for number, (path, model) in enumerate(models.items()):
            embed = partial(model.encode, **options)
            # first, as it reads the files of all tasks before it measures
            transfer: dict[str, float] = {}
            if data_dir is not None:
                transfer = evaluate_transfer(data_dir, embed, tasks=tasks)
                transfer["mean accuracy"] = sum(transfer.values()) / len(transfer)
            row: dict[str, float] = {}
            for name, (pairs, scores) in similarities.items():
                correlations = evaluate_similarity(pairs, scores, embed)
                row |= {f"{name} {metric}": value for metric, value in correlations.items()}
            row |= transfer
            if number == 0:
                print(f"| vectors of | {' | '.join(row)} |\n|{' --- |' * (1 + len(row))}")
            cells = [plain(path), *(f"{value:.2f}" for value in row.values())]
            print(f"| {' | '.join(cells)} |", flush=True)


def find_transfer(folder: Path) -> list[str]:
    """Find the transfer tasks whose files exist, and list the others."""
    from minbert_cli.senteval import FILES

    present = []
    for name, files in FILES.items():
        if missing := [folder / file for file in files if not (folder / file).exists()]:
            print(f"{name}: skipped, there is no {missing[0]}", file=sys.stderr)
        else:
            present.append(name)
    if not present:
        raise ValueError(f"data_dir={str(folder)!r} has the files of none of {', '.join(FILES)}")
    return present


def load_similarity(name: str | None, folder: str | None) -> dict[str, Any]:
    """Load pairs and scores of the held-out splits of a dataset, by name in the table."""
    from datasets_scripts import TaskData, load_task

    if name is None:
        return {}
    task = load_task(TaskData.from_recipe(name, {"dataset": name}, folder))
    if task.row_format.data.score_range is None:
        raise ValueError(f"sts={name!r} is a {task.problem_type}; expected pairs with scores")
    return {
        f"{name} {split}": (
            list(zip(rows["sentence1"][:], rows["sentence2"][:], strict=True)),
            rows["label"][:],
        )
        for split, rows in task.splits.items()
        if split != "train" and "label" in rows.column_names
    }
