"""What ``minbert predict`` computes with a checkpoint."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import tee
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from minbert_cli.checkpoints import load_encoder
from minbert_cli.predict_io import (
    Row,
    check_texts,
    make_rows,
    read_file,
    read_texts,
    split_tags,
    write_rows,
)
from modeling_minbert import MinBertForMultiTask
from sentence_vectors import (
    agglomerative_clusters,
    community_detection,
    kmeans_clusters,
    paraphrase_mining,
    semantic_search,
)
from trainers import replaced_when_done


def predict(model: Any, args: argparse.Namespace, texts: Iterator[str]) -> Iterator[Row]:
    """Predict a task row by row."""
    if not isinstance(model, MinBertForMultiTask):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"checkpoint={args.checkpoint!r} has no tasks to predict; it has vectors: give "
            "--embed, --corpus, --pairs or --clusters"
        )
    task = args.task or str(model.config.default_task)
    pairs = model.config.task(task).pair_encoding is not None
    rows, shown = tee(make_rows(texts, len(args.texts), pairs=pairs))
    found = model.predict_stream(task, rows, show_progress=show_progress(args))
    for prediction, row in zip(found, shown, strict=True):
        columns = {"text1": row[0], "text2": row[1]} if pairs else {"text": row}
        yield prediction | columns


def show_progress(args: argparse.Namespace) -> bool | None:
    """Return None (the default) to show a progress bar that cannot mix with results, else False."""
    separate = args.output or args.embed or not sys.stdout.isatty()
    return None if sys.stderr.isatty() and separate else False


def embed(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> Tensor:
    """Return the embeddings of all texts, (n, D)."""
    vectors: Tensor = model.encode(
        texts, task=args.task, pooling=args.pooling, show_progress=show_progress(args)
    )
    return vectors


def write_vectors(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Write embeddings to a file, completely or not at all."""
    vectors = embed(model, args, texts).numpy()
    with replaced_when_done(args.embed) as path:
        if args.embed.suffix == ".npy":
            np.save(path, vectors)
            return
        with path.open("w", encoding="utf-8") as file:
            for text, vector in zip(texts, vectors.tolist(), strict=True):
                file.write(json.dumps({"text": text, "embedding": vector}) + "\n")


def search(model: Any, args: argparse.Namespace, queries: Sequence[str]) -> Iterator[Row]:
    """Yield the nearest sentences of a corpus for each query."""
    with ExitStack() as stack:
        corpus = list(read_file(args.corpus, stack))
    if not corpus:
        raise ValueError(f"corpus={str(args.corpus)!r}: the file is empty")
    known = embed(model, args, corpus).to(model.device)
    asked = embed(model, args, queries)
    try:
        hits = semantic_search(asked, known, top_k=args.top_k, backend=args.backend)
    except ImportError as error:
        raise ValueError(str(error)) from None
    for query, scores, places in zip(queries, *map(Tensor.tolist, hits), strict=True):
        for rank, (score, place) in enumerate(zip(scores, places, strict=True), start=1):
            line = {"line": place + 1, "text": corpus[place]}
            yield {"query": query, "rank": rank, "score": score, **line}


def find_pairs(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> Iterator[Row]:
    """Yield the most similar pairs."""
    vectors = embed(model, args, texts).to(model.device)
    pairs = paraphrase_mining(vectors, max_pairs=args.pairs)
    for score, first, second in zip(*map(Tensor.tolist, pairs), strict=True):
        lines = {"line1": first + 1, "line2": second + 1}
        yield {"score": score, **lines, "text1": texts[first], "text2": texts[second]}


def find_clusters(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> Iterator[Row]:
    """Yield sentences by cluster, the largest first; those in no community come last."""
    vectors = embed(model, args, texts)
    clusters: list[int | None] = [None] * len(texts)
    if args.clusters == "communities":
        threshold = 0.75 if args.threshold is None else args.threshold
        groups = community_detection(vectors, threshold=threshold, min_size=args.min_size)
        for number, members in enumerate(groups):
            for member in members:
                clusters[member] = number
    elif args.clusters == "kmeans":
        if args.num_clusters is None:
            raise ValueError("--clusters kmeans needs --num_clusters")
        clusters = [*kmeans_clusters(vectors, args.num_clusters)]
    else:
        clusters = [*agglomerative_clusters(vectors, args.num_clusters, threshold=args.threshold)]
    by_cluster = [(cluster is None, cluster or 0, line) for line, cluster in enumerate(clusters)]
    for _, _, line in sorted(by_cluster):
        yield {"cluster": clusters[line], "line": line + 1, "text": texts[line]}


def find(model: Any, args: argparse.Namespace, stack: ExitStack) -> Iterator[Row]:
    """Return the rows of results that the command line asks for."""
    if args.query is not None:
        if args.corpus is None:
            raise ValueError("--query needs --corpus, the file to search")
        if args.texts or args.file:
            raise ValueError("--query replaces the texts; leave out texts and --file")
        return search(model, args, check_texts(args.query))
    texts = read_texts(args, stack)
    if args.corpus is not None:
        return search(model, args, list(texts))
    if args.pairs is not None:
        return find_pairs(model, args, list(texts))
    if args.clusters is not None:
        return find_clusters(model, args, list(texts))
    return predict(model, args, texts)


def load_model(args: argparse.Namespace) -> Any:
    """Load the checkpoint on the device.

    Raises:
        ValueError: If either cannot be used.
    """
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model: Any = load_encoder(args.checkpoint)
    try:
        model.to(device)
    except (AssertionError, RuntimeError) as error:  # torch has no error class for this
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={device!r} cannot be used: {reason}; try --device cpu") from None
    return model


def run(args: argparse.Namespace) -> None:
    """Load the model, compute what the command line asks for, and write it.

    Raises:
        ValueError: If an argument or an input is invalid.
    """
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    if args.embed is not None and args.embed.suffix not in (".npy", ".jsonl"):
        raise ValueError(f"embed={str(args.embed)!r}: name a file that ends in .npy or .jsonl")
    model = load_model(args)
    suffix = "" if args.output is None else args.output.suffix
    output_format = args.format or ("jsonl" if suffix == ".jsonl" else "tsv")
    with ExitStack() as stack:
        if args.embed is not None:
            write_vectors(model, args, list(read_texts(args, stack)))
            return
        rows = find(model, args, stack)
        if output_format == "tsv":
            rows = split_tags(rows)
        if args.output is None:
            write_rows(rows, sys.stdout, output_format)
            return
        with replaced_when_done(args.output) as path, path.open("w", encoding="utf-8") as file:
            write_rows(rows, file, output_format)
