"""The model card of a run: its data, its training and its results."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.data.dataset import Rows
from trainers.files import write_text
from trainers.problems.base import Problem
from trainers.training.multitask import MultiTaskTrainer

from .results import Results, RunFacts, describe_training, name_run
from .texts import code_block, code_span, count, plain, printable


def write_card(
    template_path: str | os.PathLike[str],
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    results: Mapping[str, Results],
    facts: RunFacts,
) -> None:
    """Fill the model card with the data, the recipe and the numbers of a run.

    Args:
        template_path: Jinja template of the card.
        trainer: The trainer; the card goes to its output folder as ``README.md``.
        encoded: By task and split, the encoded rows.
        results: Results by split.
        facts: Other facts for the card.
    """
    folder, training = Path(str(trainer.args.output_dir)), describe_training(trainer)
    name = {"model_name": name_run(folder)}
    metadata = _collect_metadata(trainer.problems, facts, is_multi_task=bool(training["tasks"]))
    write_model_card(
        template_path,
        folder / "README.md",
        metrics=results["validation"].metrics,
        problems=trainer.problems,
        dataset_names=_distinct_names(facts.data),
        card_data=name | metadata,
        template_values={
            **name,
            **asdict(facts),
            **training,
            "problems": trainer.problems,
            # the Trainer asks the Hub for the owner if the name has none
            "path": getattr(trainer, "hub_model_id", None)
            or trainer.args.hub_model_id
            or trainer.args.output_dir,
            "headlines": _list_headlines(trainer.problems, results["validation"]),
            "results": "\n\n".join(
                f"{split}:\n\n{found.table(trainer.problems)}"
                for split, found in sorted(results.items(), key=lambda pair: pair[0] == "train")
            ),
            "rows": {
                task: {split: len(rows) for split, rows in splits.items()}
                for task, splits in encoded.items()
            },
        },
    )


def _list_headlines(problems: Mapping[str, Problem[Any]], found: Results) -> list[dict[str, Any]]:
    """List the headline metric of each task."""
    return [
        {
            "task": task,
            "metric": problem.headline[0],
            "value": found.metrics[f"{task}_{problem.headline[0]}"],
            "error": found.standard_errors.get(task),
            "rows": found.rows[task],
        }
        for task, problem in problems.items()
        if f"{task}_{problem.headline[0]}" in found.metrics
    ]


def _collect_metadata(
    problems: Mapping[str, Problem[Any]], facts: RunFacts, *, is_multi_task: bool
) -> dict[str, Any]:
    pipelines = {problem.pipeline_tag for problem in problems.values()}
    served = pipelines.pop() if len(pipelines) == 1 else Problem.pipeline_tag  # of all tasks
    start, tags = facts.model_name_or_path, facts.card.get("tags") or []
    kind = "multi-task" if is_multi_task else "pre-training"
    return {
        "library_name": "transformers",
        "pipeline_tag": served if is_multi_task else "fill-mask",
        # a folder of this machine is not on the Hub
        "base_model": start if start is not None and not Path(start).exists() else None,
        **facts.card,
        "tags": list(
            dict.fromkeys(["minbert", kind, *([tags] if isinstance(tags, str) else tags)])
        ),
    }


def _distinct_names(data: Mapping[str, str]) -> dict[str, str]:
    """Add the task to equal names: a model index merges the results of one data set."""
    names = list(data.values())
    return {
        task: name if names.count(name) == 1 else f"{name} ({task})" for task, name in data.items()
    }


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
