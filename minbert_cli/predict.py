"""Predict, embed, search, or find similar sentences and clusters, from the shell.

    python predict.py CHECKPOINT --task sst "a text" "another one"
    python predict.py CHECKPOINT --task quora < pairs.tsv                  # two columns
    python predict.py CHECKPOINT --embed vectors.npy --file sentences.txt
    python predict.py CHECKPOINT --corpus sentences.txt --query "what is wanted"
    python predict.py CHECKPOINT --pairs 10 --file sentences.txt           # the most similar pairs
    python predict.py CHECKPOINT --clusters kmeans --num_clusters 8 --file sentences.txt

Texts come from the command line, a file, or the standard input: one a line, a pair as two columns
that a tab parts. What is found goes to the standard output as tab-separated columns (of tags a line
for each entity), or as JSON lines. The checkpoint is a folder or a Hub id of minBERT, BERT or
sentence-transformers.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice, tee
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from minbert_cli.texts import load_encoder
from modeling_minbert import MinBertForMultiTask
from sentence_vectors import (
    agglomerative_clusters,
    community_detection,
    kmeans_clusters,
    paraphrase_mining,
    semantic_search,
)
from trainers import readable_errors, replaced_when_done

PROGRAM = "predict.py"
CLUSTERINGS = ("communities", "kmeans", "agglomerative")
Row = dict[str, Any]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("checkpoint", help="folder or Hub id")
    add("texts", nargs="*", help="texts; of a task of pairs the first and second in turn")
    add("--file", type=Path, help="file with a text, or a pair, on each line")
    add(
        "--task", help="task to predict, or whose vectors are compared; the default one if there is"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--embed", type=Path, help="write vectors: .npy, or .jsonl with the texts")
    what.add_argument("--corpus", type=Path, help="search in the lines of this file")
    what.add_argument("--pairs", type=int, help="find so many most similar pairs")
    what.add_argument("--clusters", choices=CLUSTERINGS, help="group what is similar")
    add("--query", action="append", help="what to search for; again for more; else the texts")
    add("--top_k", type=int, default=5, help="hits of a query (5)")
    add("--backend", choices=("torch", "faiss"), default="torch", help="engine of the search")
    add("--num_clusters", type=int, help="for kmeans and agglomerative")
    add("--threshold", type=float, help="lowest cosine in a cluster (communities: 0.75)")
    add("--min_size", type=int, default=2, help="sentences of a community at least (2)")
    add("--pooling", choices=("cls", "mean", "max"), help="pooling of vectors")
    add("--format", choices=("tsv", "jsonl"), help="of what is found; tsv, or by --output")
    add("--output", type=Path, help="file for what is found")
    add("--device", help="cpu or cuda; by default what there is")
    # texts may stand behind flags, as in `--task sst "a text"`
    return parser.parse_intermixed_args(argv)


def read_lines(source: IO[bytes], name: str) -> Iterator[str]:
    r"""Read the lines of a file in UTF-8; only \n and \r\n end one.

    Raises:
        ValueError: If one is empty or not UTF-8; the message names it.
    """
    for number, line in enumerate(source, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: not UTF-8 ({error.reason})") from error
        if not text.strip():
            raise ValueError(f"{name}:{number}: the line is empty; take it out")
        yield text


def read_file(path: Path, stack: ExitStack) -> Iterator[str]:
    """Read the lines of a file, which the stack closes."""
    return read_lines(stack.enter_context(path.open("rb")), str(path))


def read_texts(args: argparse.Namespace, stack: ExitStack) -> Iterator[str]:
    """Find the texts: of the command line, of a file, or of the standard input.

    Raises:
        ValueError: If there are none, there are two sources of them, or one cannot be read.
    """
    if args.texts and args.file:
        raise ValueError(f"texts are given, and --file {args.file}; leave one out")
    if args.texts:
        lines = iter(check_texts(args.texts))
    elif args.file:
        lines = read_file(args.file, stack)
    elif sys.stdin.isatty():
        raise ValueError("no sentences: give texts, --file, or send lines to the standard input")
    else:
        lines = read_lines(sys.stdin.buffer, "standard input")
    first = list(islice(lines, 1))
    if not first:
        raise ValueError("no sentences: the input is empty")
    return chain(first, lines)


def check_texts(texts: Sequence[str]) -> Sequence[str]:
    """Refuse texts of the command line that are empty or no Unicode."""
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise ValueError(f"text {number} is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"text {number}, {text!r}, is not UTF-8")
    return texts


def make_rows(texts: Iterator[str], given: int, *, pairs: bool) -> Iterator[Any]:
    """Make rows of a task of texts: as they are, or pairs.

    Args:
        texts: Texts; a pair is a line with a tab, or two texts of the command line.
        given: How many texts the command line has.
        pairs: Whether the task takes pairs.

    Raises:
        ValueError: If a row is no pair.
    """
    if not pairs:
        yield from texts
        return
    for number, text in enumerate(texts, start=1):
        columns = text.split("\t")
        if len(columns) == 1 and given:
            columns += list(islice(texts, 1))
        if len(columns) != 2 or not all(map(str.strip, columns)):
            raise ValueError(
                f"row {number} has {len(columns)} text(s), but the task takes a pair: two columns "
                "that a tab parts, or two texts of the command line"
            )
        yield tuple(columns)


def predict(model: Any, args: argparse.Namespace, texts: Iterator[str]) -> Iterator[Row]:
    """Predict a task, a row at a time."""
    if not isinstance(model, MinBertForMultiTask):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"checkpoint={args.checkpoint!r} has no tasks to predict; it has vectors: give "
            "--embed, --corpus, --pairs or --clusters"
        )
    task = args.task or str(model.config.default_task)
    pairs = model.config.task(task).num_texts == 2
    rows, shown = tee(make_rows(texts, len(args.texts), pairs=pairs))
    found = model.predict_stream(task, rows, show_progress=show_progress(args))
    for prediction, row in zip(found, shown, strict=True):
        columns = {"text1": row[0], "text2": row[1]} if pairs else {"text": row}
        yield prediction | columns


def show_progress(args: argparse.Namespace) -> bool | None:
    """Show a bar on a terminal alone, and not between the lines that are found."""
    apart = args.output or args.embed or not sys.stdout.isatty()
    return None if sys.stderr.isatty() and apart else False


def embed(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> Tensor:
    """Make the vectors of all texts."""
    vectors: Tensor = model.encode(
        texts, task=args.task, pooling=args.pooling, show_progress=show_progress(args)
    )
    return vectors


def write_vectors(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> None:
    """Write vectors to a file, or nothing."""
    vectors = embed(model, args, texts).numpy()
    with replaced_when_done(args.embed) as path:
        if args.embed.suffix == ".npy":
            np.save(path, vectors)
            return
        with path.open("w", encoding="utf-8") as file:
            for text, vector in zip(texts, vectors.tolist(), strict=True):
                file.write(json.dumps({"text": text, "embedding": vector}) + "\n")


def search(model: Any, args: argparse.Namespace, queries: Sequence[str]) -> Iterator[Row]:
    """Find the sentences of a corpus that are nearest to each query."""
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
    """Find the most similar pairs."""
    vectors = embed(model, args, texts).to(model.device)
    pairs = paraphrase_mining(vectors, max_pairs=args.pairs)
    for score, first, second in zip(*map(Tensor.tolist, pairs), strict=True):
        lines = {"line1": first + 1, "line2": second + 1}
        yield {"score": score, **lines, "text1": texts[first], "text2": texts[second]}


def find_clusters(model: Any, args: argparse.Namespace, texts: Sequence[str]) -> Iterator[Row]:
    """Group sentences, the largest group first; those of no community come last."""
    vectors = embed(model, args, texts)
    numbers: list[int | None] = [None] * len(texts)
    if args.clusters == "communities":
        threshold = 0.75 if args.threshold is None else args.threshold
        groups = community_detection(vectors, threshold=threshold, min_size=args.min_size)
        for number, members in enumerate(groups):
            for member in members:
                numbers[member] = number
    elif args.clusters == "kmeans":
        if args.num_clusters is None:
            raise ValueError("--clusters kmeans needs --num_clusters")
        numbers = [*kmeans_clusters(vectors, args.num_clusters)]
    else:
        numbers = [*agglomerative_clusters(vectors, args.num_clusters, threshold=args.threshold)]
    order = sorted(
        range(len(texts)), key=lambda place: (numbers[place] is None, numbers[place] or 0)
    )
    for place in order:
        yield {"cluster": numbers[place], "line": place + 1, "text": texts[place]}


def write_rows(rows: Iterable[Row], file: IO[str], form: str) -> None:
    """Write what was found, row by row; the columns of a table are those of the first row."""
    columns: list[str] = []
    for row in rows:
        if form == "jsonl":
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            continue
        if not columns:
            columns = list(row)
            file.write("\t".join(columns) + "\n")
        file.write("\t".join(to_cell(row.get(column)) for column in columns) + "\n")


def part_tags(rows: Iterable[Row]) -> Iterator[Row]:
    """Make a row of each entity of a text, or of each word if its tags mark none."""
    for number, row in enumerate(rows, start=1):
        if "entities" in row:
            yield from ({"line": number, **entity} for entity in row["entities"])
        elif "tags" in row:
            for word, tag, score in zip(row["words"], row["tags"], row["scores"], strict=True):
                yield {"line": number, "word": word, "tag": tag, "score": score}
        else:
            yield row


def to_cell(value: Any) -> str:
    """Write a value as a cell of a table; what would end a cell or a line becomes a space."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def find(model: Any, args: argparse.Namespace, stack: ExitStack) -> Iterator[Row]:
    """Do what is asked for; what reads all texts reads them before the first row."""
    if args.query is not None:
        if args.corpus is None:
            raise ValueError("--query needs --corpus, the file to be searched")
        if args.texts or args.file:
            raise ValueError("--query says what to search for; leave out texts and --file")
        return search(model, args, check_texts(args.query))
    texts = read_texts(args, stack)
    if args.corpus is not None:
        return search(model, args, list(texts))
    if args.pairs is not None:
        return find_pairs(model, args, list(texts))
    if args.clusters is not None:
        return find_clusters(model, args, list(texts))
    return predict(model, args, texts)


def run(args: argparse.Namespace) -> None:
    """Load the model, do what is asked for, and write it.

    Raises:
        ValueError: If anything that was given is refused.
    """
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    if args.embed is not None and args.embed.suffix not in (".npy", ".jsonl"):
        raise ValueError(f"embed={str(args.embed)!r}: name a file that ends in .npy or .jsonl")
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model: Any = load_encoder(args.checkpoint)
    try:
        model.to(device)
    except (AssertionError, RuntimeError) as error:  # torch has no class of errors for it
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={device!r} cannot be used: {reason}; try --device cpu") from None
    with ExitStack() as stack:
        if args.embed is not None:
            write_vectors(model, args, list(read_texts(args, stack)))
            return
        by_suffix = args.output is not None and args.output.suffix == ".jsonl"
        form = args.format or ("jsonl" if by_suffix else "tsv")
        rows = find(model, args, stack)
        rows = part_tags(rows) if form == "tsv" else rows
        if args.output is None:
            write_rows(rows, sys.stdout, form)
            return
        with replaced_when_done(args.output) as path, path.open("w", encoding="utf-8") as file:
            write_rows(rows, file, form)


def main(argv: Sequence[str] | None = None) -> None:
    """Do what is asked for; a mistake of the user is one line and exit status 2."""
    args = parse(sys.argv[1:] if argv is None else argv)
    with readable_errors(PROGRAM):
        try:
            run(args)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever reads has seen enough, as `head` has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
