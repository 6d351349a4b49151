"""What a run leaves for people: a table, plots and a model card."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.data.text import TEXT_TYPES
from trainers.files import replaced_when_done, write_text
from trainers.metrics.task_metrics import AGGREGATES, METRIC_NAMES, headline_metrics, metric_names

from .curves import Points, find_points

# Names of the Hub for what a task is: https://huggingface.co/tasks
HUB_TASKS = {
    "classification": "text-classification",
    "paraphrase": "text-classification",
    "similarity": "sentence-similarity",
    "contrastive": "sentence-similarity",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "masked_lm": "fill-mask",
    "next_sentence": "text-classification",
    "pretraining": "fill-mask",
}
# What is plotted of an evaluation, where it is not what stands for the task.
PLOTTED = {"pretraining": ("mlm_accuracy", "nsp_accuracy")}

MEAN = "mean of all tasks"
HELD_OUT = " (held out)"


def results_table(
    metrics: Mapping[str, float],
    problem_types: Mapping[str, str],
    *,
    standard_errors: Mapping[str, float] | None = None,
    rows: Mapping[str, int] | None = None,
    chosen: Mapping[str, Sequence[str]] | None = None,
    prefix: str = "eval",
) -> str:
    """Show the metrics of every task and the aggregates as a Markdown table.

    Args:
        metrics: What ``MultiTaskTrainer.evaluate`` returned.
        problem_types: Problem type of each task.
        standard_errors: Standard error of the primary metric of each task.
        rows: Number of evaluation rows of each task.
        chosen: The metrics that stand for a task, where they are not those of its problem type.
        prefix: Begins every name in ``metrics``.

    Returns:
        Lines of equal width; the primary metric of a task comes first.
    """
    lines = [("task", "metric", "value", "standard error", "rows")]
    for task, kind in problem_types.items():
        names = metric_names(kind, (chosen or {}).get(task, ()))
        for name in names:
            if f"{prefix}_{task}_{name}" not in metrics:
                continue
            error = (standard_errors or {}).get(task) if name == names[0] else None
            count = (rows or {}).get(task)
            lines.append(
                (
                    task,
                    name,
                    f"{metrics[f'{prefix}_{task}_{name}']:.4f}",
                    "" if error is None else f"{error:.4f}",
                    "" if count is None else f"{count:,}",
                )
            )
    lines += [
        ("all", name, f"{metrics[f'{prefix}_{name}']:.4f}", "", "")
        for name in AGGREGATES
        if f"{prefix}_{name}" in metrics
    ]
    return markdown_table(lines)


def markdown_table(lines: Sequence[Sequence[str]], text_columns: int = 2) -> str:
    """Align a table.

    Args:
        lines: The head and the rows.
        text_columns: How many columns are text; those after them are numbers.
    """
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
    log_history: Sequence[Mapping[str, float]], problem_types: Mapping[str, str]
) -> bool:
    """Tell whether a log has anything to plot."""
    return any(any(series.values()) for series in _find_series(log_history, problem_types))


def plot_history(
    log_history: Sequence[Mapping[str, float]],
    problem_types: Mapping[str, str],
    path: str | os.PathLike[str],
    *,
    chosen: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Plot the losses and the primary metric of each task over the steps.

    Args:
        log_history: ``trainer.state.log_history``.
        problem_types: Problem type of each task.
        path: PNG file to write.
        chosen: The metrics that stand for a task, where they are not those of its problem type.

    Raises:
        ValueError: If the history has neither a loss nor an evaluation.
    """
    if not has_history(log_history, problem_types):
        raise ValueError("the log has no loss and no evaluation to plot; log at least once")
    # importing it takes memory that a run which only trains can do without
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    losses, scores = _find_series(log_history, problem_types, chosen)
    of_text = all(kind in TEXT_TYPES for kind in problem_types.values())
    label = "accuracy" if of_text else "accuracy, F1 or Pearson correlation"
    if chosen:
        label = "metric"  # the legend says which
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
    history: Sequence[Mapping[str, float]],
    problem_types: Mapping[str, str],
    chosen: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Points], dict[str, Points]]:
    """Collect losses and scores as (step, value), by what they are called in the plot."""
    losses, scores = {}, {}
    for task, kind in problem_types.items():
        parts = ("mlm", "nsp") if kind == "pretraining" else ("",)
        for part in parts:
            name = f"{task} {part}".strip()
            losses[name] = find_points(history, "_".join(filter(None, ("loss", task, part))))
        for metric in METRIC_NAMES[kind]:
            if metric.endswith("_loss"):
                name = f"{task} {metric.removesuffix('_loss')}{HELD_OUT}"
                losses[name] = find_points(history, f"eval_{task}_{metric}")
        for metric in PLOTTED.get(kind, headline_metrics(kind, (chosen or {}).get(task, ()))[:1]):
            scores[f"{task} ({metric})"] = find_points(history, f"eval_{task}_{metric}")
    if len(problem_types) > 1:
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
    problem_types: Mapping[str, str],
    chosen: Mapping[str, Sequence[str]] | None = None,
    dataset_names: Mapping[str, str] | None = None,
    card_data: Mapping[str, Any] | None = None,
    template_values: Mapping[str, Any] | None = None,
) -> None:
    """Fill the template with the numbers of a run; the results go into the metadata too.

    Args:
        template_path: Jinja template of a model card with ``{{ card_data }}`` as its metadata.
        path: Card to write.
        model_name: Name in the ``model-index``.
        metrics: What ``MultiTaskTrainer.evaluate`` returned.
        problem_types: Problem type of each task.
        chosen: The metrics that stand for a task, where they are not those of its problem type.
        dataset_names: Data set of each task; a task that is not named counts as its own.
        card_data: Other metadata: language, license, base_model, tags and so on.
        template_values: Other names in the template.

    Raises:
        ValueError: If the template is missing or the card does not read back as it was written.
    """
    if not Path(template_path).is_file():
        raise ValueError(f"the template {str(template_path)!r} of the model card is not a file")
    results = _eval_results(metrics, problem_types, chosen or {}, dataset_names or {})
    measured = sorted({result.metric_type for result in results})
    data = ModelCardData(
        **{"model_name": model_name, "eval_results": results, "metrics": measured or None}
        | dict(card_data or {})
    )
    card = ModelCard.from_template(
        data, template_path=str(template_path), model_name=model_name, **(template_values or {})
    )
    read_back: Any = ModelCard(str(card)).data
    if {_key(result) for result in read_back.eval_results or []} != {
        _key(result) for result in results
    }:
        raise ValueError(f"{template_path}: the metadata of the card does not read back; check it")
    write_text(path, str(card))


def _eval_results(
    metrics: Mapping[str, float],
    problem_types: Mapping[str, str],
    chosen: Mapping[str, Sequence[str]],
    dataset_names: Mapping[str, str],
) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=HUB_TASKS[kind],
            task_name=task,
            dataset_type=dataset_names.get(task, task),
            dataset_name=dataset_names.get(task, task),
            dataset_split="validation",
            metric_type=name,
            metric_name=name,
            metric_value=metrics[f"eval_{task}_{name}"],
        )
        for task, kind in problem_types.items()
        for name in metric_names(kind, chosen.get(task, ()))
        if f"eval_{task}_{name}" in metrics
    ]


def _key(result: EvalResult) -> tuple[Any, ...]:
    return (result.dataset_name, result.task_name, result.metric_type, result.metric_value)
