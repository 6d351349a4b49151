"""``report.html``: one self-contained page about a run; ``report.json`` has the same as data.

Figures are drawn as SVG by matplotlib. The four colors of their series have the hues of Okabe and
Ito (2008, "Color Universal Design"), which color-blind readers can tell apart: as published on a
dark page, and darker on a white one, where the published ones are too pale to read. Dashes and
marks differ too, so color is never alone.
"""

import io
import json
import logging
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, cycle
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from transformers import TrainingArguments

from trainers.data.rows import Rows, spread_numbers
from trainers.files import find_inner, write_text
from trainers.problems.base import AnyProblem, Evaluated
from trainers.problems.blocks import MOST_CLASSES, Block, Cell, Code, Figure, Points, Table
from trainers.problems.metrics import AGGREGATES, Described
from trainers.training.callbacks import find_kept_step
from trainers.training.multitask import MultiTaskTrainer

from .results import FinishedRun, Results, RunFacts, name_run
from .texts import LEGEND, PRECISIONS, color_words, count, printable

# By the name of the variable in the style sheet, which also has those of a dark page: ``dev`` is
# held out, ``train`` is training.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1d21",
    "quiet": "#565b63",
    "line": "#c9cdd3",
    "dev": "#0067a5",
    "train": "#b84a00",
    "third": "#00805d",
    "fourth": "#a8487f",
    "link": "#0059a8",
}
MOST_POINTS = 200
COUNTED = ("optimizer steps", "row")  # what the axis of a figure counts


def draw_curves(
    history: Sequence[Mapping[str, float]], problem: AnyProblem, kept: int | None = None
) -> list[Figure]:
    """Draw the losses and the metrics of a task in the log of a Trainer, with long series thinned.

    ``kept`` is the step whose weights were kept, which is marked; None for the last one.
    """
    figures = []
    plots = dict(problem.loss_curves)
    # the metrics that are not plotted are in the table
    shown = [metric for metric in problem.reported if metric.is_plotted and not metric.is_loss]
    for title, lower in (("Metrics on held-out rows", False), ("Lower is better", True)):
        names = [metric.name for metric in shown if metric.lower_is_better == lower]
        plots[title] = {name: f"eval_{problem.task}_{name}" for name in names}
    for title, keys in plots.items():
        series: dict[str, Points] = {}
        notes = []
        if kept is not None:
            notes.append(f"The vertical line marks step {kept:,}, whose weights were evaluated.")
        for name, key in keys.items():
            points = [[entry["step"], entry[key]] for entry in history if key in entry]
            if not points:
                continue
            chosen = spread_numbers(len(points), MOST_POINTS)
            series[name] = [points[place] for place in chosen]
            if len(chosen) < len(points):
                notes.append(f"{name}: {len(chosen)} of {len(points):,} points, evenly spread.")
        if series:
            figures.append(Figure(title, "optimizer steps", "", series, " ".join(notes), mark=kept))
    return figures


# Of the lines of a figure, one after the other; ``training`` and ``held out`` have theirs.
STYLES: list[dict[str, Any]] = [
    {"color": LIGHT["dev"], "marker": "o"},
    {"color": LIGHT["train"], "marker": "s", "linestyle": "--"},
    {"color": LIGHT["third"], "marker": "^", "linestyle": "-."},
    {"color": LIGHT["fourth"], "marker": "D", "linestyle": ":"},
]
MOST_MARKS = 40  # a series with more points than this is drawn without marks
GUIDE = {"color": LIGHT["quiet"], "linestyle": (0, (5, 4)), "linewidth": 1.2}
# What a picture within a page does not need.
UNUSED = re.compile(
    r'\s*<(metadata|style)\b.*?</\1>|\s*<!--.*?-->| xmlns(:xlink)?="[^"]*"', re.DOTALL
)


def draw_figure(figure: Figure, number: int, title: str = "") -> str:
    """Draw a figure as SVG that is part of a page, in the colors of its style sheet.

    Its ``number`` on the page sets its names apart; screen readers read the ``title`` before the
    names of the series. Without a finite point nothing is drawn.
    """
    # a run that only trains saves the memory of this import
    from markupsafe import Markup
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import MaxNLocator

    series = {
        name: [point for point in points if isfinite(point[1])]
        for name, points in figure.series.items()
    }
    if not any(series.values()):
        return Markup("<p>No finite value was logged.</p>")
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": str(number), "text.parse_math": False}
    with rc_context(settings | {"axes.unicode_minus": False, "font.size": 9}):
        picture = Picture(figsize=(5, 3.2), layout="constrained")
        axes = picture.subplots()
        _draw_series(axes, figure, series)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(LIGHT["quiet"])
        axes.grid(axis="y", color=LIGHT["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8, labelcolor=LIGHT["quiet"], color=LIGHT["quiet"], length=3)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", pad=6)  # apart from the lowest tick of the other axis
        axes.set_xlabel(figure.x, color=LIGHT["quiet"])
        axes.set_ylabel(figure.y, color=LIGHT["quiet"])
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=figure.x in COUNTED))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if figure.style == "lines":
            picture.legend(
                *axes.get_legend_handles_labels(),
                loc="outside upper left",
                ncols=2,
                frameon=False,
                labelcolor=LIGHT["ink"],
            )
        file = io.StringIO()
        picture.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = UNUSED.sub("", text[text.index("<svg") :]).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    for name, color in LIGHT.items():
        text = re.sub(f"(fill|stroke): {color}", rf"\1: var(--{name})", text)
    label = f"{title}: {', '.join(series)}"  # for screen readers
    begin = Markup('<svg role="img" aria-label="{}" viewBox=').format(label)
    return begin + Markup(text[text.index("viewBox=") + len("viewBox=") :])  # noqa: S704


def _draw_series(axes: Any, figure: Figure, series: Mapping[str, Points]) -> None:
    styles = cycle(STYLES)
    fixed = {"held out": STYLES[0], "training": STYLES[1]}
    for name, points in series.items():
        style = {**(fixed.get(name) or next(styles)), "markersize": 4, "label": name}
        if len(points) > MOST_MARKS:
            style["marker"] = ""
        if figure.style == "points":
            style |= {"marker": "o", "linestyle": "", "alpha": 0.45}
        columns = list(zip(*points, strict=True)) or [(), ()]
        if len(columns) > 2:
            # an accuracy is never below 0 or above 1
            low = [min(error, value) for _, value, error in points]
            high = [min(error, 1 - value) for _, value, error in points]
            axes.errorbar(*columns[:2], yerr=[low, high], **style)
        else:
            axes.plot(*columns, **style)
    if figure.x == "optimizer steps":
        axes.set_xlim(left=0)
    if figure.has_diagonal:
        if figure.style == "lines":
            axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.axline((axes.get_xlim()[0],) * 2, slope=1, **GUIDE)
    if figure.mark is not None:
        axes.axvline(figure.mark, **GUIDE)


logger = logging.getLogger(__name__)

REPORT_FILE, DATA_FILE = "report.html", "report.json"
# The most important split comes first, where a phone shows it.
SPLITS = {"validation": "validation rows", "test": "test rows", "train": "training rows"}
MOST_BAD_ROWS = 50
FIRST_EXAMPLES = 5  # the others are collapsed
MOST_SECONDS, MOST_CHARACTERS = 3, 500  # to explain the errors of a task, and of an error
# What the section of a task says about its head.
HEAD_KEYS = ("pair_encoding", "pooling", "head", "loss")


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    title: str
    notes: list[str] = field(default_factory=list)  # paragraphs below the title
    blocks: Sequence[Block] = ()


def report_run(run: FinishedRun) -> Path | None:
    """Write ``report.html`` and ``report.json`` of a run whose results are already written.

    A failure must not cost the run: it is logged with its traceback, and None is returned.
    """
    trainer, results, facts = run.trainer, run.results, run.facts
    folder = Path(str(trainer.args.output_dir))
    state, environment = trainer.state, describe_environment(trainer.args)
    steps, epochs = count(state.global_step, "optimizer step"), count(state.epoch or 0, "epoch")
    try:
        sections = [_make_results(trainer, results)]
        for task, problem in trainer.problems.items():
            blocks: list[Block] = [*draw_curves(state.log_history, problem, _find_kept(trainer))]
            if (evaluated := _select_rows(run, problem)) is not None:
                if types := results["validation"].types.get(task):
                    blocks.append(_tabulate_types(types))
                blocks += [explain(trainer, task, block) for block in problem.describe(evaluated)]
            known = {key: getattr(problem.spec, key, None) for key in HEAD_KEYS}
            head = [f"{key.replace('_', ' ')} {value}" for key, value in known.items() if value]
            kind = ", ".join([problem.problem_type, *head])
            notes = [f"{kind}; data: {facts.data.get(task, '')}"]
            notes += [f"{what}: {note}." for what, note in problem.notes.items()]
            sections.append(Section(task, [*notes, *filter(None, [problem.caution])], blocks))
        versions = list((environment | facts.versions).items())
        start = (
            f"Initial weights: {facts.model_name_or_path or 'random'}. The training loss is the "
            "mean over the steps since the previous point, with dropout; the held-out loss is "
            "without."
        )
        seconds = [log["train_runtime"] for log in state.log_history if "train_runtime" in log]
        if seconds and seconds[-1] >= 1:
            start += f" {seconds[-1]:,.0f} seconds since the last start, including evaluations."
        codes = [Code("Command", facts.command)]
        if facts.recipe:
            note = "The flags of the command override it."
            codes.append(Code("Recipe", facts.recipe.strip(), note))
        sections += [
            Section("Training", [start], codes),
            _make_data(run.encoded, facts),
            Section("Environment", blocks=[Table("", [("", "")] * 2, versions)]),
        ]
        name, path = printable(name_run(folder)), folder / REPORT_FILE
        subtitle = f"{steps}, {epochs}, seed {trainer.args.seed}, {environment['date']}"
        write_text(folder / DATA_FILE, json.dumps(list(map(asdict, sections))) + "\n")
        write_page(path, f"{name}: report of a run", name, subtitle, sections)
    except Exception:
        logger.exception(
            "%s could not be written; the results of the run are complete; continuing without it",
            folder / REPORT_FILE,
        )
        return None
    return path


def _select_rows(run: FinishedRun, problem: AnyProblem) -> Evaluated[Any] | None:
    """Select the labelled rows of a task that are not trained on; None without validation rows."""
    splits: Mapping[str, Any] = run.encoded[problem.task]
    held_out = {
        split: problem.keep_labelled(output)
        for (name, split), output in run.outputs.items()
        if name == problem.task and split != "train" and problem.is_labelled(splits[split])
    }
    if "validation" not in held_out:
        return None
    output, labelled = held_out.pop("validation")
    rows, texts = splits["validation"], run.texts.get(problem.task, {}).get("validation")
    if labelled is not None:
        rows, texts = rows.select(labelled), None if texts is None else texts.select(labelled)
    others = {split: other for split, (other, _) in held_out.items()}
    return Evaluated(output, rows, texts, run.most_quoted, others)


def explain(trainer: MultiTaskTrainer, task: str, block: Block) -> Block:
    """Add the shares of their words to listed errors, if there are a tokenizer and whole weights.

    Other blocks, and errors of a task that ``model.explain`` does not take, stay as they are. A
    failure must not cost the report: it is logged, and the page says so.
    """
    model: Any = find_inner(trainer.model)
    is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if block.kind != "examples" or trainer.processing_class is None or is_sharded:
        return block
    rows, note, end = list(block.rows), LEGEND, monotonic() + MOST_SECONDS
    try:
        model.tokenizer = trainer.processing_class
        try:
            model.explain(task, [])
        except (AttributeError, ValueError):  # of another model, of another task
            return block
        labels = getattr(model.config.task(task), "labels", None) or ["a higher number"]
        for place, row in enumerate(rows):
            if 0 < sum(map(len, row.texts)) <= MOST_CHARACTERS and monotonic() < end:
                (found,) = model.explain(task, [row.texts[0] if len(row.texts) == 1 else row.texts])
                decision = found.get("explained", labels[-1])
                rows[place] = replace(row, words=found["words"], decision=decision)
        if not all(row.words for row in rows):
            left_out = f"above {MOST_CHARACTERS} characters, and after {MOST_SECONDS} seconds"
            note += f" Without colors: rows {left_out} of computing."
    except Exception as error:
        logger.exception("task %r: the words that decided are not on the page", task)
        note = f"Which words decided could not be found: {error}"
    return replace(block, rows=rows, note=f"{block.note} {note}")


def _tabulate_types(types: Sequence[Described]) -> Table:
    note = ""
    if len(types) > MOST_CLASSES:
        note = f"The {MOST_CLASSES} most frequent of {len(types)}."
        types = sorted(types, key=lambda row: -row["labelled"])[:MOST_CLASSES]
    columns = [
        (key, "" if key == "name" else "," if isinstance(value, int) else ".4f")
        for key, value in types[0].items()
    ]
    return Table("Types", columns, [list(row.values()) for row in types], note)


def describe_environment(args: TrainingArguments) -> dict[str, str]:
    """Describe the date, the machine and the software of a run, but no person."""
    kind, threads = args.device.type, count(torch.get_num_threads(), "thread")
    device = f"{kind} ({platform.machine()}, {threads})"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": torch.cuda.get_device_name(args.device) if kind == "cuda" else device,
        "processes": str(args.world_size),
        "precision": PRECISIONS.get(args.mixed_precision, args.mixed_precision),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
    }


def write_page(
    path: str | os.PathLike[str], title: str, name: str, subtitle: str, sections: Sequence[Section]
) -> None:
    """Write a page of sections below a heading, ``name``, in which every value is escaped."""
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

    def draw(block: dict[str, Any], section: str) -> str:
        figure = Figure(**block)
        return draw_figure(figure, next(numbers), f"{figure.title} of {section}")

    texts = {"title": title, "name": name, "subtitle": subtitle}
    values = printable(texts | {"sections": list(map(asdict, sections))})
    template = environment.get_template("page.html")
    options = {"light": LIGHT, "first": FIRST_EXAMPLES, "color": color_words}
    write_text(path, template.render(**values, **options, draw=draw, show=_show_cell))


def _show_cell(value: Cell, number_format: str) -> str:
    """Format a cell of a table; a number in a column of texts is shown as it is."""
    if value is None:
        return "–"  # noqa: RUF001
    return str(value) if isinstance(value, str) else format(value, number_format)


def _show_score(value: float | None, error: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _make_results(trainer: MultiTaskTrainer, results: Mapping[str, Results]) -> Section:
    splits = sorted(results, key=lambda name: (list(SPLITS).index(name.partition("_")[0]), name))
    rows: list[list[Cell]] = []
    for task, problem in trainer.problems.items():
        for metric in problem.reported:
            scores = [results[split].find_score(problem, metric.name) for split in splits]
            rows.append([task, metric.name, *(_show_score(*score) for score in scores)])
    # of one task, the mean would only repeat its metric
    for name in AGGREGATES if len(trainer.problems) > 1 else ("glue",):
        means = [results[split].metrics.get(name) for split in splits]
        rows.append(["all tasks", name, *(_show_score(mean, None) for mean in means)])
    rows = [row for row in rows if any(row[2:])]
    titles = [("task", ""), ("metric", "")]
    for split in splits:
        kind, _, name = split.partition("_")
        titles.append((f"{SPLITS[kind]} ({name})" if name else SPLITS[kind], ".4f"))
    note = (
        "After ± is the standard error over the choice of rows, for one run with one seed; it does "
        "not cover the variation between seeds."
    )
    if "train" in results:
        note += (
            " The training rows are a fixed, evenly spread sample, at most as large as the "
            "validation rows, evaluated at the end without dropout. The further their score lies "
            "above that of the validation rows, the stronger the overfitting."
        )
    kept, best = _find_kept(trainer), ""
    if kept is not None:
        epochs = trainer.state.epoch or 0
        best = (
            f"Evaluated at step {kept:,}, whose weights were the best. That was after "
            f"{kept * epochs / trainer.state.global_step:.3g} of {count(epochs, 'epoch')}."
        )
    return Section("Results", [note], [Table("All metrics", titles, rows, best)])


def _find_kept(trainer: MultiTaskTrainer) -> int | None:
    """Return the step whose weights were kept; None for the last one."""
    best = find_kept_step(trainer.args, trainer.state)
    return None if best == trainer.state.global_step else best


def _make_data(encoded: Mapping[str, Mapping[str, Rows]], facts: RunFacts) -> Section:
    usual = ("train", "validation", "test")
    names = [*usual, *sorted(set(chain(*encoded.values())) - {*usual})]
    rows: list[list[Cell]] = []
    for task, splits in encoded.items():
        sizes = [len(splits[split]) if split in splits else None for split in names]
        rows.append([task, facts.data.get(task, ""), *sizes, len(facts.bad_rows.get(task, []))])
    columns = [("task", ""), ("data", ""), *((name, ",") for name in (*names, "skipped"))]
    valid = "Valid rows; for text, the evaluated ones." if facts.text else "Valid rows."
    blocks: list[Block] = [Table("Rows", columns, rows, valid)]
    for task, reasons in facts.bad_rows.items():
        if reasons:
            title, note = f"Skipped in {task} ({len(reasons):,})", ""
            if len(reasons) > MOST_BAD_ROWS:
                note = f"The other {len(reasons) - MOST_BAD_ROWS:,} are in metrics.json."
            lines = [[reason] for reason in reasons[:MOST_BAD_ROWS]]
            blocks.append(Table(title, [("row", "")], lines, note, is_folded=True))
    return Section("Data", facts.list_notes(), blocks)
