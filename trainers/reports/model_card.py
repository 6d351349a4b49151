"""Tables, the plot and the model card of a run."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.files import replaced_when_done, write_text
from trainers.problems.problem import Problem

from .curves import Points, find_points
from .escaping import code_block, code_span, plain, printable

MEAN = "mean of all tasks"
HELD_OUT = " (held out)"


def markdown_table(lines: Sequence[Sequence[str]], text_columns: int = 2) -> str:
    """Align a table of texts, which are escaped.

    The first line is the header; columns after ``text_columns`` are numbers.
    """
    lines = [list(map(plain, line)) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = [
        "-" * width if column < text_columns else "-" * (width - 1) + ":"
        for column, width in enumerate(widths)
    ]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (lines[0], rule, *lines[1:])
    )


def plot_history(
    log_history: Sequence[Mapping[str, float]],
    problems: Mapping[str, Problem[Any]],
    path: str | os.PathLike[str],
) -> None:
    """Plot the losses and the headline metric of each task over the steps to a PNG file.

    Nothing is written for a log without losses or evaluations, such as of a very short run.
    """
    losses, scores = _find_series(log_history, problems)
    is_text = all(problem.is_text for problem in problems.values())
    label = "accuracy" if is_text else "accuracy, F1 or Pearson correlation"
    if any(problem.chosen for problem in problems.values()):
        label = "metric"  # the legend names it
    panels = (
        (losses, "Loss per task", "loss (unweighted)"),
        (scores, "Evaluation on held-out data", label),
    )
    drawn = [panel for panel in panels if any(panel[0].values())]
    if not drawn:
        return
    # a run that only trains saves the memory of this import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(drawn), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        _draw(axes, *panel)
    with replaced_when_done(Path(path).with_suffix(".png")) as temporary:
        figure.savefig(temporary, dpi=150)


def _find_series(
    history: Sequence[Mapping[str, float]], problems: Mapping[str, Problem[Any]]
) -> tuple[dict[str, Points], dict[str, Points]]:
    """Collect losses and scores as (step, value), by their names in the plot."""
    losses, scores = {}, {}
    for task, problem in problems.items():
        for part in problem.part_losses or ("",):
            name = f"{task} {part}".strip()
            losses[name] = find_points(history, "_".join(filter(None, ("loss", task, part))))
        for metric in problem.metrics:
            if metric.is_loss:
                name = f"{task} {metric.name.removesuffix('_loss')}{HELD_OUT}"
                losses[name] = find_points(history, f"eval_{task}_{metric.name}")
        for name in problem.plotted:
            scores[f"{task} ({name})"] = find_points(history, f"eval_{task}_{name}")
    if len(problems) > 1:
        scores[MEAN] = find_points(history, "eval_mean")
    return losses, scores


def _draw(axes: Any, series: Mapping[str, Points], title: str, label: str) -> None:
    for name, points in series.items():
        if points:
            steps, values = zip(*points, strict=True)
            (line,) = axes.plot(steps, values, label=name, marker="o", markersize=3)
            if name == MEAN:
                line.set(color="black", linestyle="--")
            elif name.endswith(HELD_OUT):
                line.set(linestyle="--")
    axes.set(title=title, xlabel="optimizer steps", ylabel=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()


def write_model_card(
    template_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    metrics: Mapping[str, float],
    problems: Mapping[str, Problem[Any]],
    dataset_names: Mapping[str, str],
    card_data: Mapping[str, Any],
    template_values: Mapping[str, Any],
) -> None:
    """Fill the Jinja template of a card, and its metadata, with the numbers of a run.

    The template can call ``plain``, ``code_span``, ``code_block`` and ``quoted`` to escape texts.
    """
    if not Path(template_path).is_file():
        raise ValueError(f"the template {str(template_path)!r} of the model card is not a file")
    results = _eval_results(metrics, problems, printable(dataset_names))
    measured = sorted({result.metric_type for result in results})
    known = {"eval_results": results, "metrics": measured or None}
    data = ModelCardData(**known | printable(dict(card_data)))
    escaping = {"plain": plain, "code_span": code_span, "code_block": code_block, "quoted": _quote}
    values = {**template_values, **escaping}
    card = ModelCard.from_template(data, template_path=str(template_path), **values)
    read_back: Any = ModelCard(str(card)).data
    if _keys(read_back.eval_results or []) != _keys(results):
        raise ValueError(f"{template_path}: the metadata of the card does not read back; check it")
    write_text(path, str(card))


def _quote(text: str) -> str:
    """Write a text as a string of Python."""
    return json.dumps(printable(text), ensure_ascii=False)


def _eval_results(
    metrics: Mapping[str, float],
    problems: Mapping[str, Problem[Any]],
    dataset_names: Mapping[str, str],
) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=problem.hub_task,
            task_name=task,
            dataset_type=dataset_names.get(task, task),
            dataset_name=dataset_names.get(task, task),
            dataset_split="validation",
            metric_type=metric.name,
            metric_name=metric.name,
            metric_value=metrics[f"{task}_{metric.name}"],
        )
        for task, problem in problems.items()
        for metric in problem.reported
        if f"{task}_{metric.name}" in metrics
    ]


def _keys(results: Sequence[EvalResult]) -> set[tuple[Any, ...]]:
    return {(one.dataset_name, one.task_name, one.metric_type, one.metric_value) for one in results}
