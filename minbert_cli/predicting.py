"""What ``minbert predict`` computes: predictions, vectors, and searches."""

import csv
import json
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import TextIOWrapper
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
from torch import Tensor
from transformers.utils import logging

from minbert_cli.checkpoints import load_encoder, set_precision
from minbert_cli.texts import Source, TextRow, check_texts, stored_keys
from modeling_minbert import MinBertForMultiTask, MinBertModel, MinBertTask
from trainers import named_writes, replaced_when_done

Row = dict[str, Any]
Model = MinBertModel | MinBertForMultiTask

# The name for all tasks that take the given texts.
ALL = "all"


def parse_names(task: str | None, known: Collection[str]) -> list[str] | None:
    """Return the tasks that ``--task`` names; None for one, which is predicted alone.

    ``all`` is an empty list, unless a task has this name.
    """
    if task is None or task in known:
        return None
    if task == ALL:
        return []
    names = [name.strip() for name in task.split(",")]
    return list(dict.fromkeys(names)) if len(names) > 1 else None


def choose_reader(specs: Sequence[MinBertTask], source: Source) -> MinBertTask:
    """Return the task that says how lines or the rows of a table become rows.

    Rows are pairs if all tasks take them, or if any does and a tab is there, or two columns are
    named. They are contexts with choices only if no task takes anything else.

    Raises:
        ValueError: If the tasks were trained on different columns, and none are named.
    """
    if source.lines is None and not source.columns:
        trained = {tuple(stored_keys(spec).get("text_columns", ())) for spec in specs}
        if len(trained) > 1:
            raise ValueError(
                f"{source.name}: the tasks were trained on different columns, "
                f"{' and '.join(map(str, map(list, sorted(trained))))}; give --text_columns"
            )
    has_pairs = len(source.columns) > 1 if source.lines is None else "\t" in source.lines[0]
    plain = [spec for spec in specs if not spec.offers_choices] or specs
    singles = [spec for spec in plain if spec.num_texts == 1]
    others = [spec for spec in plain if spec.num_texts > 1]
    if not singles or (others and has_pairs):
        return others[0]
    return singles[0]


def join(predictions: Iterator[Row], texts: Iterator[Row], *, nested: bool) -> Iterator[Row]:
    """Yield a row per text: a key per task if ``nested``, else a column per value."""
    for row, columns in zip(predictions, texts, strict=True):
        if not nested:
            cells = (cell for name, found in row.items() for cell in flatten(name, found))
            yield dict(cells) | columns
            continue
        for name in columns.keys() & row.keys():
            raise ValueError(
                f"task {name!r} has the name of a column of the texts: predict it alone"
            )
        yield row | columns


def flatten(task: str, prediction: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a prediction, as ``pandas.json_normalize`` names them."""
    if not isinstance(prediction, dict):
        prediction = {"labels": prediction}
    if "entities" in prediction:  # they contain what matters of the words
        prediction = {"entities": prediction["entities"]}
    for key, value in prediction.items():
        if isinstance(value, dict):
            yield from flatten(f"{task}.{key}", value)
        else:
            yield f"{task}.{key}", value


ENDS = ("Cc", "Zl", "Zp")  # control characters, and separators of lines and paragraphs


def predict(model: Model, args: SimpleNamespace) -> Iterator[Row]:
    """Read the rows of a task, or of several, and predict them row by row."""
    if not isinstance(model, MinBertForMultiTask):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"checkpoint={args.checkpoint!r} has no tasks to predict; it has vectors: give "
            "--embed or --corpus"
        )
    source = Source.open(args)
    names = parse_names(args.task, model.config.tasks or {})
    if names is not None:
        return predict_several(model, args, source, names)
    task = args.task or only_task(model, args.checkpoint)
    rows = source.rows(model.config.task(task))
    predictions = model.predict_stream(task, rows, show_progress=show_progress(args))
    return (
        (row if isinstance(row, dict) else {"labels": row}) | name_texts(texts)
        for row, texts in zip(predictions, rows, strict=True)
    )


def only_task(model: MinBertForMultiTask, checkpoint: str) -> str:
    """Return the task that predicts texts; if there are several, nobody has said which one."""
    names = model.choose_tasks([]) or list(model.config.tasks or ())
    if len(names) > 1:
        raise ValueError(
            f"checkpoint={checkpoint!r} has several tasks, {', '.join(names)}: name one or several "
            "with --task, or --task all for those that take the texts"
        )
    return names[0]


def predict_several(
    model: MinBertForMultiTask, args: SimpleNamespace, source: Source, names: Sequence[str]
) -> Iterator[Row]:
    """Read the rows of several tasks, and predict them; without names all that take the texts."""
    specs = {name: model.config.task(name) for name in names or model.choose_tasks([])}
    rows = source.rows(choose_reader([*specs.values()], source))
    chosen = model.choose_tasks(rows[:1], names or None)
    if not names:
        others = [name for name in specs if name not in chosen]
        kinds = " or ".join(dict.fromkeys(specs[name].row_kind for name in others))
        take = "takes" if len(others) == 1 else "take"
        left_out = f"; not {', '.join(others)}, which {take} {kinds}" if others else ""
        print(f"predicting {', '.join(chosen)}{left_out}", file=sys.stderr)
    predictions = model.predict_all_stream(rows, chosen, show_progress=show_progress(args))
    return join(predictions, map(name_texts, rows), nested=choose_format(args) == "jsonl")


def check_vectors(model: Model, args: SimpleNamespace) -> None:
    """Refuse to choose among tasks whose vectors differ, if nobody has said which."""
    config = model.config
    if args.pooling or config.sentence_embedding is not None:
        return
    tasks: dict[str, Any] = {name: config.task(name) for name in config.tasks or {}}
    made = {
        name: (
            task.pooling,
            task.pooling_layer,
            task.truncation,
            task.max_length,
            task.normalizes_vectors,
            # a projection or a pooling of windows belongs to its task alone
            name if task.keeps_projection or task.has_windows else None,
        )
        for name, task in tasks.items()
        if task.is_separate
    }
    if any(how != next(iter(made.values())) for how in made.values()):
        raise ValueError(
            f"checkpoint={args.checkpoint!r} has several tasks that make different vectors, "
            f"{', '.join(made)}: name one with --task, or give --pooling"
        )


def name_texts(row: TextRow) -> Row:
    """Name the texts of a row, and its choices if it has any."""
    if isinstance(row, str):
        return {"text": row}
    if isinstance(row, list):  # words, which are part of the prediction
        return {}
    return {
        f"text{number}" if isinstance(part, str) else "choices": part
        for number, part in enumerate(row, start=1)
    }


def show_progress(args: SimpleNamespace) -> bool | None:
    """Return None (the default) to show a progress bar that cannot mix with results, else False."""
    separate = args.output or args.embed or not sys.stdout.isatty()
    return None if sys.stderr.isatty() and separate else False


def search(model: Model, args: SimpleNamespace) -> list[Row]:
    """Return the nearest texts of a corpus for each query."""
    from sentence_vectors import semantic_search  # most calls predict

    columns = find_task(model, args)
    queries = check_texts(args.query) if args.query else Source.open(args).singles(columns)[0]
    corpus, lines = Source.open(args, args.corpus).singles(columns)
    options = {"task": args.task, "pooling": args.pooling, "truncation": args.truncation}
    options["show_progress"] = show_progress(args)
    known = model.encode_document(corpus, **options).to(model.device)
    asked = model.encode_query(queries, **options)
    # that of the checkpoint is for its own vectors, not for those of a task
    similarity: Any = "cosine" if args.task else model.similarity_fn_name
    hits = semantic_search(asked, known, top_k=args.top_k, similarity=similarity)
    rows = []
    for query, scores, places in zip(queries, *map(Tensor.tolist, hits), strict=True):
        for rank, (score, place) in enumerate(zip(scores, places, strict=True), start=1):
            line = {"line": lines[place], "text": corpus[place]}
            rows.append({"query": query, "rank": rank, "score": score, **line})
    return rows


def write_rows(rows: Iterable[Row], file: IO[str], form: str) -> None:
    """Write rows one at a time; the first row sets the columns of a table."""
    columns: list[str] = []
    table = csv.writer(file, lineterminator="\n")
    for row in rows:
        if form == "jsonl":
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            continue
        cells = spread_scores(row)
        lines = [] if columns else [[to_cell(name, form) for name in cells]]
        columns = columns or list(cells)
        lines.append([to_cell(cells.get(column), form) for column in columns])
        for line in lines:
            if form == "csv":
                table.writerow(line)
            else:
                file.write("\t".join(line) + "\n")


def spread_scores(row: Row) -> Row:
    """Return a row whose scores by name, if it has any, are columns."""
    rest = {name: value for name, value in row.items() if name != "scores"}
    scores = row.get("scores")
    if not isinstance(scores, dict):
        return row
    if shared := sorted(scores.keys() & rest.keys()):
        raise ValueError(
            f"the target {shared[0]!r} has the name of another column of the table; give --format "
            "jsonl"
        )
    return {**scores, **rest}


def split_tags(rows: Iterable[Row]) -> Iterator[Row]:
    """Return a row for each entity, or for each word if the tags do not mark entities."""
    for number, row in enumerate(rows, start=1):
        if "entities" in row:
            yield from ({"line": number, **entity} for entity in row["entities"])
        elif "tags" in row:
            for word, tag, score in zip(row["words"], row["tags"], row["scores"], strict=True):
                yield {"line": number, "word": word, "tag": tag, "score": score}
        else:
            yield row


def to_cell(value: object, form: str) -> str:
    """Format a value as a cell; characters that would end it become spaces.

    CSV encloses line breaks and tabs in quotes. Format characters, such as those that join letters
    in Persian and Hindi, are part of a text.
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    kept = "\n\t" if form == "csv" else ""
    return "".join(
        " " if unicodedata.category(letter) in ENDS and letter not in kept else letter
        for letter in text
    )


def find_task(model: Model, args: SimpleNamespace) -> MinBertTask | None:
    """Return the task whose columns tables have, for embeddings; None without one."""
    tasks = getattr(model.config, "tasks", None) or {}
    name = args.task or getattr(model.config, "default_task", None)
    return model.config.task(str(name)) if name in tasks else None


def choose_format(args: SimpleNamespace) -> str:
    """Return the format of the results: as requested, or by the name of the output file."""
    suffix = "" if args.output is None else args.output.suffix
    return args.format or {".jsonl": "jsonl", ".csv": "csv"}.get(suffix, "tsv")


def write_results(rows: Iterable[Row], args: SimpleNamespace) -> None:
    """Write results to the standard output, or to a file, completely or not at all."""
    output_format = choose_format(args)
    if output_format != "jsonl":
        rows = split_tags(rows)
    if args.output is None:
        if isinstance(sys.stdout, TextIOWrapper) and not sys.stdout.isatty():
            sys.stdout.reconfigure(encoding="utf-8")  # as a file, also where a console is not
        with named_writes("/dev/stdout"):
            write_rows(rows, sys.stdout, output_format)
            sys.stdout.flush()
        return
    with replaced_when_done(args.output) as path, path.open("w", encoding="utf-8") as file:
        write_rows(rows, file, output_format)


def run(args: SimpleNamespace) -> None:
    """Load the model, compute the requested results, and write them."""
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    model = load_encoder(args.checkpoint, args.device)
    set_precision(model, args.precision)
    if (args.embed or args.corpus) and not args.task:
        check_vectors(model, args)
    if args.embed:
        texts, _ = Source.open(args).singles(find_task(model, args))
        options = {"task": args.task, "pooling": args.pooling, "truncation": args.truncation}
        vectors = model.encode(texts, **options, show_progress=show_progress(args))
        with replaced_when_done(args.embed) as path:
            np.save(path, vectors.numpy())
    else:
        write_results(search(model, args) if args.corpus else predict(model, args), args)
