"""What ``minbert predict`` computes: predictions, and vectors."""

import csv
import html
import json
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
from tqdm import tqdm
from transformers.utils import logging

from minbert_cli.checkpoints import load_encoder, set_precision
from modeling_minbert import MinBertForMultiTask, MinBertModel, MinBertTask
from trainers import named_writes, replaced_when_done

Row = dict[str, Any]
Model = MinBertModel | MinBertForMultiTask
TextRow = Any  # texts of a row: one, two, or words

# What a task says of its vectors.
OF_VECTORS = ("pooling", "pooling_layer", "truncation", "max_length", "normalizes_vectors")
ENDS = ("Cc", "Zl", "Zp")  # control characters, and separators of lines and paragraphs
# The start of a page with explained predictions.
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Why these predictions</title>
<style>
body {font: 16px/1.7 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em}
section {border-top: 1px solid #ccc; padding: .6em 0}
p {margin: .3em 0}
span {border-radius: .2em; padding: .1em 0}
.quiet {color: #555}
</style>
<h1>Why these predictions</h1>
<p class="quiet">LEGEND The shares of all words, which appear under the
pointer, add up to the difference from the decision about the same text with every word masked.</p>
"""


class Source:
    """Where texts come from: a file, the command line, or the standard input."""

    def __init__(self, args: SimpleNamespace) -> None:
        self.columns = tuple(args.text_columns or ())  # of a table, that a flag names
        self.is_given = bool(args.texts)  # whether the lines are words of the command line
        # whether each line is a text, whatever it looks like
        self.is_checked = self.is_given or args.lines
        self.lines: list[str] | None = None  # None for a table
        self.has_words = False  # whether a table has lists of words
        if args.texts:
            self.name, self.lines = "command line", []
            for number, text in enumerate(args.texts, start=1):
                if not text.strip():
                    raise ValueError(f"text {number} is empty")
                try:
                    # what Python has not read as UTF-8, since the locale is another one
                    self.lines.append(text.encode("utf-8", "surrogateescape").decode("utf-8"))
                except UnicodeError:
                    raise ValueError(f"text {number}, {text!r}, is not UTF-8") from None
            return
        from datasets_scripts.readers import find_suffix, open_bytes
        from minbert_cli.texts import CONLL, SUFFIXES, decode_lines

        if args.file is None:
            if sys.stdin.isatty():
                raise ValueError(
                    "no sentences: give texts or --file, or pipe lines to the standard input"
                )
            self.name = "standard input"
            self.lines = decode_lines(sys.stdin.buffer, self.name)
        else:
            self.name = str(args.file)
            if not args.lines and find_suffix(self.name) in SUFFIXES:
                self.has_words = find_suffix(self.name) in CONLL
                return
            if self.columns:
                raise ValueError(
                    f"--text_columns {' '.join(self.columns)}: {self.name} is no table; tables end "
                    f"in {', '.join(SUFFIXES)}, or these and the suffix of a compressed file"
                )
            with open_bytes(self.name) as file:
                self.lines = decode_lines(file, self.name)
        if not self.lines:
            raise ValueError(f"no sentences: {self.name} is empty")

    def rows(self, task: MinBertTask | None, *, is_single: bool = False) -> list[TextRow]:
        """Return the rows of a task, or single texts, of which it may know the column."""
        has_pairs = task is not None and not is_single and task.num_texts > 1
        if self.lines is None:
            from minbert_cli.texts import read_table

            return read_table(self.name, self.columns, task, is_single=is_single)
        if not self.is_checked:
            from datasets_scripts.readers import shorten
            from minbert_cli.texts import looks_like_table

            if looks_like_table(self.lines, stored_columns(task), has_pairs=has_pairs):
                raise ValueError(
                    f"{self.name}: the first line, {shorten(self.lines[0])!r}, looks like that of "
                    "a table, whose rows are no texts: give --file with a name that ends in .csv, "
                    ".tsv or .jsonl, so that it is read as a table; or --lines, if each line is a "
                    "text"
                )
            if is_single and task is not None and task.num_texts > 1:
                for number, line in enumerate(self.lines, start=1):
                    if "\t" in line:
                        raise ValueError(
                            f"{self.name}:{number}: the line has a tab, as between the texts of a "
                            "row, but a vector is of one text: write each on a line of its own; "
                            "or give --lines, if each line is a text"
                        )
        if task is None or not has_pairs:
            return self.lines
        pairs = []
        rest = iter(self.lines)
        for number, line in enumerate(rest, start=1):
            columns = line.split("\t")
            if len(columns) == 1 and self.is_given:  # two texts of a command line are a row
                columns += islice(rest, 1)
            if len(columns) != task.num_texts or not all(map(str.strip, columns)):
                raise ValueError(
                    f"row {number} has {len(columns)} text(s), but the task takes a pair: two "
                    "columns separated by a tab, or two texts on the command line"
                )
            pairs.append(tuple(columns))
        return pairs


def stored_columns(task: MinBertTask | None) -> tuple[str, ...]:
    """Return the columns of the texts that a task was trained on; none if they are unknown."""
    return tuple((getattr(task, "data_keys", None) or {}).get("text_columns", ()))


def run(args: SimpleNamespace) -> None:
    """Load the model, compute the requested results, and write them."""
    is_terminal = sys.stderr.isatty()
    if not is_terminal:
        logging.disable_progress_bar()
    # None shows a bar after a while; it must not mix with results
    is_apart = args.output or args.embed or not sys.stdout.isatty()
    args.show_progress = None if is_terminal and is_apart else False
    model = load_encoder(args.checkpoint, args.device)
    set_precision(model, args.precision)
    if not args.embed:
        write_results(predict(model, args), args)
        return
    if not args.task and not args.pooling:
        check_vectors(model, args.checkpoint, ", or give --pooling")
    # the column of the task whose vectors these are; a pair has two
    config = model.config
    name = args.task or config.vectors_task
    task = None if name is None else config.task(name)
    if args.task is None and len(stored_columns(task)) != 1 and config.default_task is not None:
        task = config.task(config.default_task)
    vectors = model.encode(
        Source(args).rows(task, is_single=True),
        task=args.task,
        pooling=args.pooling,
        truncation=args.truncation,
        show_progress=args.show_progress,
    )
    with replaced_when_done(args.embed) as path:
        np.save(path, vectors.numpy())


def predict(model: Model, args: SimpleNamespace) -> Iterator[Row]:
    """Read the rows of a task, or of several, and predict them row by row."""
    where = f"checkpoint={args.checkpoint!r}"
    if not isinstance(model, MinBertForMultiTask):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{where} has no tasks to predict; it has vectors: give --embed"
        )
    source = Source(args)
    names = parse_names(args.task, model.config.tasks or {})
    if not args.explain and args.format == "html":
        raise ValueError(
            f"--output {args.output}: a page has explained predictions; give --explain"
        )
    if names is not None:
        if args.explain:
            raise ValueError("--explain takes one task at a time: name it with --task")
        return predict_several(model, args, source, names)
    known = [args.task] if args.task else model.choose_tasks([]) or list(model.config.tasks or ())
    if len(known) > 1:
        raise ValueError(
            f"{where} has several tasks, {', '.join(known)}: name one or several with --task, or "
            "--task all for those that take the texts"
        )
    (task,) = known
    rows = source.rows(model.config.task(task))
    predictions: Iterable[Any]
    if args.explain:
        bar = tqdm(rows, unit="row", disable=args.show_progress is False)
        predictions = (found for row in bar for found in model.explain(task, [row]))
    else:
        predictions = model.predict_stream(task, rows, show_progress=args.show_progress)
    return (
        (row if isinstance(row, dict) else {"labels": row}) | name_texts(texts)
        for row, texts in zip(predictions, rows, strict=True)
    )


def parse_names(task: str | None, known: Collection[str]) -> list[str] | None:
    """Return the tasks that ``--task`` names; None for one, which is predicted alone.

    ``all`` is an empty list, unless a task has this name.
    """
    if task is None or task in known:
        return None
    if task == "all":
        return []
    names = [name.strip() for name in task.split(",")]
    return list(dict.fromkeys(names)) if len(names) > 1 else None


def predict_several(
    model: MinBertForMultiTask, args: SimpleNamespace, source: Source, names: Sequence[str]
) -> Iterator[Row]:
    """Read the rows of several tasks, and predict them; without names all that take the texts."""
    known = (
        names or model.choose_tasks([]) or model.choose_tasks([], list(model.config.tasks or {}))
    )
    specs = {name: model.config.task(name) for name in known}
    if source.has_words and not all(spec.is_token_level for spec in specs.values()):
        tagged = [name for name, spec in specs.items() if spec.is_token_level]
        advice = f"give --task {','.join(tagged)}" if tagged else "give a file of texts"
        raise ValueError(f"{source.name} has lists of words, which only tags are for: {advice}")
    rows = source.rows(choose_reader([*specs.values()], source))
    chosen = model.choose_tasks(rows[:1], names or None)
    if not names:
        others = [name for name in specs if name not in chosen]
        kinds = " or ".join(dict.fromkeys(specs[name].row_kind for name in others))
        take = "takes" if len(others) == 1 else "take"
        left_out = f"; not {', '.join(others)}, which {take} {kinds}" if others else ""
        print(f"predicting {', '.join(chosen)}{left_out}", file=sys.stderr)
    predictions = model.predict_all_stream(rows, chosen, show_progress=args.show_progress)
    return join(predictions, map(name_texts, rows), nested=args.format == "jsonl")


def choose_reader(specs: Sequence[MinBertTask], source: Source) -> MinBertTask:
    """Return the task that says how lines or the rows of a table become rows.

    Rows are pairs if all tasks take them, or if any does and a tab is there, or two columns are
    named.

    Raises:
        ValueError: If the tasks were trained on different columns, and none are named.
    """
    if source.lines is None and not source.columns:
        trained = {stored_columns(spec) for spec in specs}
        if len(trained) > 1:
            raise ValueError(
                f"{source.name}: the tasks were trained on different columns, "
                f"{' and '.join(map(str, map(list, sorted(trained))))}; give --text_columns"
            )
    has_pairs = len(source.columns) > 1 if source.lines is None else "\t" in "".join(source.lines)
    singles = [spec for spec in specs if spec.num_texts == 1]
    others = [spec for spec in specs if spec.num_texts > 1]
    return others[0] if others and (has_pairs or not singles) else singles[0]


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


def name_texts(row: TextRow) -> Row:
    """Name the texts of a row."""
    if isinstance(row, str):
        return {"text": row}
    if isinstance(row, list):  # words, which are part of the prediction
        return {}
    return {f"text{number}": text for number, text in enumerate(row, start=1)}


def check_vectors(model: Any, checkpoint: str, other_way: str = "") -> None:
    """Refuse to choose among tasks whose vectors differ, if nobody has said which."""
    config = model.config
    if config.vectors_task is None:
        return
    made: dict[str, list[object]] = {}
    for name in config.tasks or {}:
        task: Any = config.task(name)
        if task.is_separate:
            made[name] = [getattr(task, key) for key in OF_VECTORS]
            # a pooling of windows belongs to its task alone
            made[name] += [name] if task.has_windows else []
    if any(how != next(iter(made.values())) for how in made.values()):
        raise ValueError(
            f"checkpoint={checkpoint!r} has several tasks that make different vectors, "
            f"{', '.join(made)}: name one with --task{other_way}"
        )


def write_results(rows: Iterable[Row], args: SimpleNamespace) -> None:
    """Write results to the standard output, or to a file, completely or not at all."""
    if args.output is None:
        if isinstance(sys.stdout, TextIOWrapper) and not sys.stdout.isatty():
            sys.stdout.reconfigure(encoding="utf-8")  # as a file, also where a console is not
        with named_writes("/dev/stdout"):
            write_rows(rows, sys.stdout, args.format)
            sys.stdout.flush()
        return
    with replaced_when_done(args.output) as path, path.open("w", encoding="utf-8") as file:
        write_rows(rows, file, args.format)


def write_rows(rows: Iterable[Row], file: IO[str], form: str) -> None:
    """Write rows one at a time; the first row sets the columns of a table."""
    if form == "jsonl":
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    if form == "html":
        file.writelines(write_page(rows))
        return
    columns: list[str] = []
    table = csv.writer(file, delimiter="," if form == "csv" else "\t", lineterminator="\n")
    for row in split_tags(rows):
        cells = spread_scores(row)
        if not columns:
            columns = list(cells)
            table.writerow(to_cell(name, form) for name in columns)
        table.writerow(to_cell(cells.get(column), form) for column in columns)
    if not columns:  # no text has an entity
        table.writerow(("line", "label", "text", "start", "end", "score"))


def write_page(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the page of explained rows, part by part."""
    from trainers.reports.texts import LEGEND, color_words  # few results are pages

    yield PAGE.replace("LEGEND", LEGEND)
    for row in rows:
        what = row.get("explained", "the score")
        decision = f"decision {row['decision']:.2f}, without words {row['baseline']:.2f}"
        # a label, several ones, or numbers
        if "scores" in row:
            found = [f"{name} {score:.3f}" for name, score in row["scores"].items()]
        else:
            labels = row.get("labels", [row])
            found = [f"{each.get('label', '')} {each['score']:.3f}".strip() for each in labels]
        yield f"<section><p><b>{html.escape(', '.join(found) or 'no label')}</b> "
        yield f'<span class="quiet">for {html.escape(str(what))}: {decision}</span></p>\n'
        texts = [row[name] for name in ("text", "text1", "text2") if name in row]
        for number, text in enumerate(texts, start=1):
            yield f"<p>{color_words(text, row['words'], number)}</p>\n"
        yield "</section>\n"


def spread_scores(row: Row) -> Row:
    """Return a row whose scores or labels by name, if it has any, are columns."""
    scores = row.get("scores")
    rest = {name: value for name, value in row.items() if name not in ("scores", "labels")}
    if isinstance(row.get("labels"), dict):
        scores = {name: found["label"] for name, found in row["labels"].items()}
        rest = {f"{name}_score": found["score"] for name, found in row["labels"].items()} | rest
    if not isinstance(scores, dict):
        return row
    if shared := sorted(scores.keys() & rest.keys()):
        raise ValueError(
            f"the output {shared[0]!r} has the name of another column of the table; give --format "
            "jsonl"
        )
    return {**scores, **rest}


def split_tags(rows: Iterable[Row]) -> Iterator[Row]:
    """Return a row for each entity, or for each word if the tags do not mark entities.

    The words of an explained row become one text.
    """
    for number, row in enumerate(rows, start=1):
        if "entities" in row:
            yield from ({"line": number, **entity} for entity in row["entities"])
        elif "baseline" in row:
            shares = [f"{word['word']}:{word['share']:+.3f}" for word in row["words"]]
            yield {**row, "words": " ".join(shares)}
        elif "tags" in row:
            for word, tag, score in zip(row["words"], row["tags"], row["scores"], strict=True):
                yield {"line": number, "word": word, "tag": tag, "score": score}
        else:
            yield row


def to_cell(value: object, form: str) -> str:
    """Format a value as a cell; control characters become spaces, but for those that CSV keeps.

    CSV encloses line breaks and tabs in quotes; in TSV a line is a row. Format characters, such as
    those that join letters in Persian and Hindi, are part of a text.
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1 else f"{value:.6f}".rstrip("0").rstrip(".")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    kept = "\n\t" if form == "csv" else ""
    return "".join(
        " " if unicodedata.category(letter) in ENDS and letter not in kept else letter
        for letter in text
    )
