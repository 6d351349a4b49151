"""The table, the plot and the model card of a run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.files import replaced_when_done, write_text
from trainers.problems.aggregates import AGGREGATES
from trainers.problems.problem import Problem

from .curves import Points, find_points

MEAN = "mean of all tasks"
HELD_OUT = " (held out)"


def results_table(
    metrics: Mapping[str, float],
    problems: Mapping[str, Problem[Any]],
    *,
    standard_errors: Mapping[str, float] | None = None,
    rows: Mapping[str, int] | None = None,
) -> str:
    """Format the metrics of every task, the headline first, and the aggregates in Markdown."""
    lines = [("task", "metric", "value", "standard error", "rows")]
    for task, problem in problems.items():
        for metric in problem.reported:
            name = metric.name
            if f"eval_{task}_{name}" in metrics:
                error = (standard_errors or {}).get(task) if name == problem.headline[0] else None
                count = (rows or {}).get(task)
                texts = (
                    "" if error is None else f"{error:.4f}",
                    "" if count is None else f"{count:,}",
                )
                lines.append((task, name, f"{metrics[f'eval_{task}_{name}']:.4f}", *texts))
    lines += [
        ("all", name, f"{metrics[f'eval_{name}']:.4f}", "", "")
        for name in AGGREGATES
        if f"eval_{name}" in metrics
    ]
    return markdown_table(lines)


def markdown_table(lines: Sequence[Sequence[str]], text_columns: int = 2) -> str:
    """Align a table whose first line is the header; columns after ``text_columns`` are numbers."""
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


def has_history(
    log_history: Sequence[Mapping[str, float]], problems: Mapping[str, Problem[Any]]
) -> bool:
    """Return whether a log has anything to plot."""
    return any(any(series.values()) for series in _find_series(log_history, problems))


def plot_history(
    log_history: Sequence[Mapping[str, float]],
    problems: Mapping[str, Problem[Any]],
    path: str | os.PathLike[str],
) -> None:
    """Plot the losses and the headline metric of each task over the steps to a PNG file."""
    if not has_history(log_history, problems):
        raise ValueError("the log has no loss and no evaluation to plot; log at least once")
    # a run that only trains saves the memory of this import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
    model_name: str,
    metrics: Mapping[str, float],
    problems: Mapping[str, Problem[Any]],
    dataset_names: Mapping[str, str] | None = None,
    card_data: Mapping[str, Any] | None = None,
    template_values: Mapping[str, Any] | None = None,
) -> None:
    """Fill the Jinja template of a card with the numbers of a run, which its metadata get, too."""
    if not Path(template_path).is_file():
        raise ValueError(f"the template {str(template_path)!r} of the model card is not a file")
    results = _eval_results(metrics, problems, dataset_names or {})
    measured = sorted({result.metric_type for result in results})
    data = ModelCardData(
        **{"model_name": model_name, "eval_results": results, "metrics": measured or None}
        | dict(card_data or {})
    )
    card = ModelCard.from_template(
        data, template_path=str(template_path), model_name=model_name, **(template_values or {})
    )
    read_back: Any = ModelCard(str(card)).data
    if _keys(read_back.eval_results or []) != _keys(results):
        raise ValueError(f"{template_path}: the metadata of the card does not read back; check it")
    write_text(path, str(card))


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
            metric_value=metrics[f"eval_{task}_{metric.name}"],
        )
        for task, problem in problems.items()
        for metric in problem.reported
        if f"eval_{task}_{metric.name}" in metrics
    ]


def _keys(results: Sequence[EvalResult]) -> set[tuple[Any, ...]]:
    return {(one.dataset_name, one.task_name, one.metric_type, one.metric_value) for one in results}
