"""``report.html``: one self-contained page about a run, made from the files in its folder.

``report.json`` has what the page needs beside ``metrics.json``: the blocks of every task.
"""

import json
import logging
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import torch

from trainers.data.dataset import Rows
from trainers.files import write_text
from trainers.problems import read_problems
from trainers.problems.base import Evaluated, Problem
from trainers.problems.blocks import Block, Cell, Code, Figure, Number, Numbers, Table
from trainers.problems.metrics import AGGREGATES
from trainers.training.multitask import MultiTaskTrainer

from .figures import DARK, LIGHT, draw_curves, draw_figure
from .results import name_run, read_metrics
from .texts import count, printable

logger = logging.getLogger(__name__)

REPORT_FILE, EVIDENCE_FILE = "report.html", "report.json"
# The most important split comes first, where a phone shows it.
SPLITS = {"validation": "validation rows", "test": "test rows", "train": "training rows"}
KINDS = tuple(SPLITS)
MOST_BAD_ROWS = 50
FIRST_EXAMPLES = 5  # the others are collapsed
# What the section of a task says about its head.
HEAD_KEYS = ("pair_encoding", "pooling", "head", "loss")


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    title: str
    notes: list[str] = field(default_factory=list)  # paragraphs below the title
    blocks: list[Any] = field(default_factory=list)  # blocks, or what JSON makes of them


def report_run(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Any],
    texts: Mapping[str, datasets.Dataset] | None = None,
    examples: int = 20,
) -> Path | None:
    """Write ``report.json`` and ``report.html`` of a run whose results are already written.

    A failure must not cost the run: it is logged with its traceback, and None is returned.

    Args:
        trainer: The trainer, for its history and its output folder.
        encoded: By task and split, the encoded rows with their ids.
        outputs: By task and split, from ``evaluate_run``.
        texts: By task, the validation rows before they were encoded; None if they may not be shown.
        examples: Number of rows in each list of a task.
    """
    folder = Path(str(trainer.args.output_dir))
    try:
        write_evidence(trainer, encoded, outputs, texts, examples)
        return write_report(folder)
    except Exception:
        logger.exception(
            "%s could not be written; the results of the run are complete; continuing without it",
            folder / REPORT_FILE,
        )
        return None


def write_evidence(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Any],
    texts: Mapping[str, datasets.Dataset] | None = None,
    examples: int = 20,
) -> None:
    """Write ``report.json``; the arguments are those of ``report_run``."""
    blocks: dict[str, list[Block]] = {}
    for task, problem in trainer.problems.items():
        splits, quoted = encoded[task], (texts or {}).get(task)
        held_out = {
            split: output
            for (name, split), output in outputs.items()
            if name == task and split != "train" and problem.is_labelled(splits[split])
        }
        if "validation" not in held_out:
            continue
        output: Any = held_out["validation"]
        rows: Any = splits["validation"]
        labelled = problem.find_labelled(output)
        if labelled is not None:
            output, rows = problem.keep_rows(output, labelled), rows.select(labelled)
            quoted = None if quoted is None else quoted.select(labelled)
        blocks[task] = problem.describe(Evaluated(output, rows, quoted, examples, held_out))
    content = {
        "problem_types": {name: task.problem_type for name, task in trainer.tasks.items()},
        **_describe_training(trainer),
        **_describe_shares(trainer),
        "splits": {
            task: {split: len(rows) for split, rows in splits.items()}
            for task, splits in encoded.items()
        },
        "environment": describe_environment(trainer.args),
        "blocks": {task: list(map(asdict, parts)) for task, parts in blocks.items()},
    }
    write_text(Path(str(trainer.args.output_dir)) / EVIDENCE_FILE, json.dumps(content) + "\n")


def _describe_training(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Describe the curves, the step whose weights were evaluated, and how long training took."""
    history, last = trainer.state.log_history, trainer.state.global_step
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    evaluated = int(best or last)
    # the evaluated step is marked if it is not the last
    kept = evaluated if evaluated != last else None
    pace = (trainer.state.epoch or 0.0) / max(1, last)
    seconds = [entry["train_runtime"] for entry in history if "train_runtime" in entry]
    curves = {
        task: list(map(asdict, draw_curves(history, problem, kept, pace)))
        for task, problem in trainer.problems.items()
    }
    return {
        "curves": curves,
        "evaluated_step": evaluated,
        "train_seconds": seconds[-1] if seconds else None,
    }


def _describe_shares(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Describe each task's share of an epoch, or of the whole run if epochs differ."""
    sampler = trainer.train_sampler
    if sampler is None:
        return {"shares": {}, "shares_of": "an epoch", "oversampling": {}}
    epochs = trainer.state.epoch or 0.0
    whole, name = None, "an epoch"
    if sampler.is_drawn and epochs >= 1 and math.isclose(epochs, round(epochs)):
        whole = round(epochs)
        name = "the only epoch" if whole == 1 else f"all {whole} epochs"
    elif sampler.is_drawn:
        name = f"epoch {sampler.epoch + 1} if it were whole"
    return {
        "shares": {task: share._asdict() for task, share in sampler.shares(whole).items()},
        "shares_of": name,
        "oversampling": {
            task: [classes._asdict() for classes in plan.describe_classes()]
            for task, plan in sampler.oversampling.items()
        },
    }


def describe_environment(args: Any) -> dict[str, str]:
    """Describe the date, the machine and the software of a run, but no person."""
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": name_device(args.device),
        "processes": str(args.world_size),
        "precision": precision,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
    }


def name_device(device: torch.device) -> str:
    """Return the name of a GPU, or the kind of processor and its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {count(torch.get_num_threads(), 'thread')})"


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write ``report.html`` of a finished run.

    Args:
        folder: Folder of the run, with its ``metrics.json`` and ``report.json``.

    Returns:
        The page.

    Raises:
        ValueError: If the folder lacks one of these files, or one of them is not JSON.
    """
    metrics = printable(read_metrics(folder))
    evidence = printable(read_metrics(folder, EVIDENCE_FILE))
    problems = read_problems(metrics, evidence["problem_types"])
    environment = {**evidence["environment"], **metrics["versions"]}
    facts = [[key, value] for key, value in environment.items()]
    steps, epochs = count(int(metrics["steps"]), "optimizer step"), metrics["epochs"] or 0
    sections = [
        _make_results(metrics, evidence, problems),
        *(_make_task(problem, metrics, evidence) for problem in problems.values()),
        _make_training(metrics, evidence),
        _make_data(metrics, evidence, problems),
        Section("Environment", blocks=[Table("", [("", ""), ("", "")], facts)]),
    ]
    name, date = printable(name_run(folder)), evidence["environment"]["date"]
    subtitle = f"{steps}, {count(epochs, 'epoch')}, seed {metrics['seed']}, {date}"
    path = Path(folder) / REPORT_FILE
    write_page(path, f"{name}: report of a run", [name], subtitle, sections)
    return path


def write_page(
    path: str | os.PathLike[str],
    title: str,
    names: Sequence[str],
    subtitle: str,
    sections: Sequence[Section],
) -> None:
    """Write a page of sections, in which every value is escaped.

    Args:
        path: The page.
        title: Of the window.
        names: Of the runs.
        subtitle: Below the names.
        sections: The sections.
    """
    # a run that only trains saves the memory of this import
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trainers.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = iter(range(1, 1000))

    def draw(block: Any, section: str) -> str:
        figure = block if isinstance(block, Figure) else Figure(**block)
        title = f"{figure.title} of {section}" if section else figure.title
        return draw_figure(figure, next(numbers), title)

    values = {"light": LIGHT, "dark": DARK, "title": title, "names": names, "subtitle": subtitle}
    template = environment.get_template("page.html")
    text = template.render(
        **values, sections=sections, draw=draw, show=_show_cell, first=FIRST_EXAMPLES
    )
    write_text(path, text)


def _show_cell(value: Cell, number_format: str) -> str:
    """Format a cell of a table; a number in a column of texts is shown as it is."""
    if value is None:
        return "–"  # noqa: RUF001
    return str(value) if isinstance(value, str) else format(value, number_format)


def _find_splits(metrics: Mapping[str, Any]) -> list[str]:
    """List the measured splits, each with its other sets, such as ``validation_hard``."""
    found = [split for split in metrics if split.partition("_")[0] in KINDS]
    return sorted(found, key=lambda split: (KINDS.index(split.partition("_")[0]), split))


def _name_split(split: str) -> str:
    kind, _, name = split.partition("_")
    return f"{SPLITS[kind]} ({name})" if name else SPLITS[kind]


def list_results(
    metrics: Mapping[str, Any], problems: Mapping[str, Problem[Any]]
) -> list[dict[str, Any]]:
    """List every metric, a row each, with its values and standard errors by split."""
    splits = [metrics[split] for split in _find_splits(metrics)]
    keys = {
        (task, metric.name): (f"{task}_{metric.name}", metric.name == problem.headline[0])
        for task, problem in problems.items()
        for metric in problem.reported
    }
    # of one task, the mean would only repeat its metric
    shown = AGGREGATES if len(problems) > 1 else ("glue",)
    keys |= {("all tasks", name): (name, False) for name in shown}
    rows = []
    for (task, metric), (key, is_headline) in keys.items():
        cells = [
            (found["metrics"].get(key), found["standard_errors"].get(task) if is_headline else None)
            for found in splits
        ]
        if any(value is not None for value, _ in cells):
            rows.append({"task": task, "metric": metric, "cells": cells})
    return rows


def show_value(value: float | None, error: float | None = None) -> str | None:
    """Format a metric, with its standard error if there is one."""
    if value is None:
        return None
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _make_results(
    metrics: Mapping[str, Any], evidence: Mapping[str, Any], problems: Mapping[str, Problem[Any]]
) -> Section:
    numbers = []
    for task, problem in problems.items():
        metric, shown = problem.headline[0], {}
        for split in _find_splits(metrics):
            value = metrics[split]["metrics"].get(f"{task}_{metric}")
            error = metrics[split]["standard_errors"].get(task)
            if value is not None:
                text = f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")
                shown[split] = (value, text, count(metrics[split]["rows"][task], "row"))
        if "validation" in shown:
            value, text, size = shown["validation"]
            note = f"on {size.replace('row', 'validation row')}"
            if "train" in shown:
                trained, trained_text, size = shown["train"]
                size = size.replace("row", "training row")
                note += f"; {trained_text} on {size}: gap {trained - value:+.3f}"
            number, _, error = text.partition(" ")
            numbers.append(Number(task, number, f"{error} {metric}".strip(), note))
    note = (
        "After ± is the standard error over the choice of rows, for one run with one seed; it does "
        "not cover the variation between seeds."
    )
    if "train" in metrics:
        note += (
            " The training rows are a fixed, evenly spread sample, at most as large as the "
            "validation rows, evaluated at the end without dropout. The further their score lies "
            "above that of the validation rows, the stronger the overfitting."
        )
    evaluated, best = evidence["evaluated_step"], ""
    if evaluated != metrics["steps"]:
        epochs = metrics["epochs"] or 0
        reached = f"{evaluated * epochs / max(1, metrics['steps']):.3g}"
        best = (
            f"Evaluated at step {evaluated:,}, whose weights were the best. That was after "
            f"{reached} of {count(epochs, 'epoch')}."
        )
    splits = [(_name_split(split), ".4f") for split in _find_splits(metrics)]
    rows = [
        [row["task"], row["metric"], *(show_value(*cell) for cell in row["cells"])]
        for row in list_results(metrics, problems)
    ]
    table = Table("All metrics", [("task", ""), ("metric", ""), *splits], rows, best)
    return Section("Results", blocks=[Numbers(numbers, note), table])


def _make_task(
    problem: Problem[Any], metrics: Mapping[str, Any], evidence: Mapping[str, Any]
) -> Section:
    task, known = problem.task, {key: getattr(problem.spec, key, None) for key in HEAD_KEYS}
    facts = [f"{key.replace('_', ' ')} {value}" for key, value in known.items() if value]
    kind = ", ".join([problem.problem_type, *facts])
    notes = [f"{kind}; data: {metrics['data'].get(task, '')}", problem.caution]
    curves = evidence["curves"][task]
    if not curves:
        notes.append("Nothing was logged.")
    elif not problem.kind.is_pretraining:
        notes.append(
            "The training loss is the mean over the steps since the previous point, with dropout; "
            "the held-out loss is without dropout."
        )
    blocks = [*curves, *evidence["blocks"].get(task, [])]
    return Section(task, [note for note in notes if note], blocks)


def _make_training(metrics: Mapping[str, Any], evidence: Mapping[str, Any]) -> Section:
    start = f"Initial weights: {metrics['model_name_or_path'] or 'random'}."
    if (evidence["train_seconds"] or 0) >= 1:
        seconds = f"{evidence['train_seconds']:,.0f} seconds"
        start += f" {seconds} since the last start, including evaluations."
    blocks: list[Block] = [Code("Command", metrics["command"])]
    if evidence["shares"]:
        names = [("steps", ","), ("rows", ",")]
        names += [("epochs of its rows", ".3f"), ("share of steps", ".1%")]
        rows = [
            [task, share["steps"], share["rows"], share["passes"], share["share"]]
            for task, share in evidence["shares"].items()
        ]
        title = f"Share of each task in {evidence['shares_of']}"
        blocks.append(Table(title, [("task", ""), *names], rows))
    if evidence["oversampling"]:
        names = [("training rows", ","), ("rows of a pass", ","), ("share", ".1%")]
        rows = []
        for task, classes in evidence["oversampling"].items():
            total = sum(row["pass_rows"] for row in classes)
            rows += [
                [task, row["name"], row["rows"], row["pass_rows"], row["pass_rows"] / total]
                for row in classes
            ]
        note = "Rows of each class in a pass over a task whose rows are repeated."
        blocks.append(Table("Oversampling", [("task", ""), ("class", ""), *names], rows, note))
    if metrics["recipe"]:
        note = "The flags of the command override it."
        blocks.append(Code("Recipe", metrics["recipe"].strip(), note))
    return Section("Training", [start], blocks)


def _make_data(
    metrics: Mapping[str, Any], evidence: Mapping[str, Any], problems: Mapping[str, Problem[Any]]
) -> Section:
    usual, texts = ("train", "validation", "test"), metrics["text"]
    splits = [*usual, *sorted(set(chain(*evidence["splits"].values())) - {*usual})]
    bad_rows, rows = metrics["bad_rows"], []
    for task in problems:
        sizes = [evidence["splits"].get(task, {}).get(split) for split in splits]
        rows.append([task, metrics["data"].get(task, ""), *sizes, len(bad_rows.get(task, []))])
    names = [(name, ",") for name in (*splits, "skipped")]
    notes = [f"{task}: {note}" for task, found in metrics["notes"].items() for note in found]
    for task, found in metrics["splits"].items():
        for split, facts in found.items():
            if facts.get("training_rows"):
                notes.append(
                    f"{task}: {facts['training_rows']:,} of {facts['rows']:,} {split} rows "
                    f"({facts['training_rows'] / facts['rows']:.1%}) have the texts or tokens of a "
                    "training row."
                )
    valid = "Valid rows; for text, the evaluated ones." if texts else "Valid rows."
    blocks = [Table("Rows", [("task", ""), ("data", ""), *names], rows, valid)]
    for task, reasons in bad_rows.items():
        if reasons:
            title, note = f"Skipped in {task} ({len(reasons):,})", ""
            if len(reasons) > MOST_BAD_ROWS:
                note = f"The other {len(reasons) - MOST_BAD_ROWS:,} are in metrics.json."
            lines = [[reason] for reason in reasons[:MOST_BAD_ROWS]]
            blocks.append(Table(title, [("row", "")], lines, note, is_folded=True))
    if texts:
        blocks.append(_tabulate_texts(texts))
    return Section("Data", notes, blocks)


def _tabulate_texts(facts: Mapping[str, Any]) -> Table:
    """Tabulate the facts of texts, a row for each split; there may be several texts."""
    values = [fact for found in facts.values() for fact in found.values()]
    texts = {"": facts} if not any(isinstance(fact, Mapping) for fact in values) else facts
    found = {
        f"{name} {split}".strip(): row
        for name, splits in texts.items()
        for split, row in splits.items()
    }
    keys = list(next(iter(found.values())))
    rows = [
        [
            name,
            *(
                f"{value:.3f}" if isinstance(value := row.get(key), float) else value
                for key in keys
            ),
        ]
        for name, row in found.items()
    ]
    return Table("Texts", [("text", ""), *((key.replace("_", " "), ",") for key in keys)], rows)
