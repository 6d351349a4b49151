"""Tables and the model card of a run."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.files import write_text
from trainers.problems.base import Problem

from .escaping import code_block, code_span, plain, printable
from .wording import count


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

    The template can call ``plain``, ``code_span``, ``code_block`` and ``quoted`` to escape texts,
    and ``count`` for numbers with their nouns.
    """
    if not Path(template_path).is_file():
        raise ValueError(f"the template {str(template_path)!r} of the model card is not a file")
    results = _eval_results(metrics, problems, printable(dataset_names))
    measured = sorted({result.metric_type for result in results})
    known = {"eval_results": results, "metrics": measured or None}
    data = ModelCardData(**known | printable(dict(card_data)))
    functions = {"plain": plain, "code_span": code_span, "code_block": code_block}
    values = {**template_values, **functions, "quoted": _quote, "count": count}
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
