"""The measurements of ``minbert embeddings``."""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from transformers.utils import logging

from datasets_scripts import TaskData, load_task
from minbert_cli.checkpoints import load_encoder, set_precision
from minbert_cli.evaluating.plot import plot_scores
from sentence_vectors import as_vectors
from sentence_vectors.senteval import SOURCES, TransferTask, load_transfer_task, missing_files
from sentence_vectors.tables import MEAN, add_mean, to_csv, to_markdown
from sentence_vectors.transfer import Embedder, check_folds, evaluate_similarity, evaluate_transfer
from trainers import sole_writer, write_text
from trainers.reports.escaping import plain
from trainers.runs.run_folder import check_tables

PEER = "sentence-transformers"
TABLES = ("table.md", "table.csv", "table.png")
# Pairs of sentences with their scores.
Similarity = tuple[list[tuple[str, str]], list[float]]


def load_transfer(args: argparse.Namespace) -> list[TransferTask]:
    """Load the transfer tasks whose files exist, and list the others."""
    if args.data_dir is None:
        return []
    names = args.tasks.split(",") if args.tasks else list(SOURCES)
    missing = {name: missing_files(name, args.data_dir) for name in names}
    for name, files in missing.items():
        if files:
            print(f"{name}: skipped, there is no {args.data_dir / files[0]}", file=sys.stderr)
    tasks = [load_transfer_task(name, args.data_dir) for name in names if not missing[name]]
    for task in tasks:
        check_folds(task, args.folds)
    if not tasks:
        raise ValueError(f"data_dir={str(args.data_dir)!r} has the files of none of {names}")
    return tasks


def load_similarity(args: argparse.Namespace) -> dict[str, Similarity]:
    """Load the held-out splits of a dataset of scored pairs, by name in the table."""
    if args.sts is None:
        return {}
    task = load_task(TaskData.from_recipe(args.sts, {"dataset": args.sts}, args.sts_dir))
    if task.score_range is None:
        raise ValueError(f"sts={args.sts!r} is a {task.problem_type}; expected pairs with scores")
    return {
        f"{args.sts} {split}": (
            list(zip(rows["sentence1"][:], rows["sentence2"][:], strict=True)),
            rows["label"][:],
        )
        for split, rows in task.splits.items()
        if split != "train" and "label" in rows.column_names
    }


def load_peer(model: Any, args: argparse.Namespace) -> Embedder:
    """Load the same embeddings with sentence-transformers."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ValueError(f"--peer needs {PEER}: pip install sentence-transformers") from error
    with tempfile.TemporaryDirectory() as folder:
        model.save_as_sentence_transformers(folder, task=args.task, pooling=args.pooling)
        peer = SentenceTransformer(folder, device=str(model.device))
    return lambda texts: peer.encode(list(texts), show_progress_bar=False)


def load_embedders(args: argparse.Namespace) -> dict[str, Embedder]:
    """Load every checkpoint, and its peer if requested, by name of the row."""
    embedders: dict[str, Embedder] = {}
    for path in args.checkpoints:
        model: Any = load_encoder(path, args.device)
        set_precision(model, args.precision)
        embedders[path] = lambda texts, model=model: model.encode(  # type: ignore[misc]
            texts, task=args.task, pooling=args.pooling, show_progress=False
        )
        # fail before any checkpoint is measured
        as_vectors(embedders[path](["Does it embed?"]))
        if args.peer:
            embedders[f"{path} ({PEER})"] = load_peer(model, args)
    return embedders


def measure(
    embed: Embedder,
    similarities: Mapping[str, Similarity],
    tasks: Sequence[TransferTask],
    args: argparse.Namespace,
) -> dict[str, float]:
    """Measure embeddings on all tasks, in percent."""
    row: dict[str, float] = {}
    for name, (pairs, scores) in similarities.items():
        found = evaluate_similarity(pairs, scores, embed)
        row |= {f"{name} {metric}": value for metric, value in found.items()}
    for task in tasks:
        score = evaluate_transfer(task, embed, folds=args.folds, jobs=args.jobs)
        row[task.name] = score.accuracy
        row |= {} if score.f1 is None else {f"{task.name} F1": score.f1}
    return add_mean(row, [task.name for task in tasks])


def run(args: argparse.Namespace) -> None:
    """Measure every checkpoint, and write the table after each."""
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    check_tables(args.output_dir, TABLES)
    tasks, similarities = load_transfer(args), load_similarity(args)
    embedders = load_embedders(args)
    rows: dict[str, dict[str, float]] = {}
    table = ""
    with sole_writer(args.output_dir):
        for name, embed in embedders.items():
            rows[name] = measure(embed, similarities, tasks, args)
            table = to_markdown({plain(name): row for name, row in rows.items()})
            write_text(args.output_dir / "table.md", table)
            write_text(args.output_dir / "table.csv", to_csv(rows))
            plot_scores(rows, args.output_dir / "table.png")
    print(table, end="")
    print(f"\n{MEAN}: mean accuracy of the transfer tasks")
    print(f"{args.output_dir}: {', '.join(TABLES)}")
