"""The model card of a run: its data, its training and its results."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from trainers.files import write_text
from trainers.problems.base import AnyProblem, Problem

from .results import FinishedRun, Results, describe_training, name_run
from .texts import code_block, code_span, count, plain, printable


def write_card(template_path: str | os.PathLike[str], run: FinishedRun) -> None:
    """Fill the model card with the data, the recipe and the numbers of a run.

    The card goes to the output folder as ``README.md``. Its Jinja template can call ``plain``,
    ``code_span``, ``code_block`` and ``quoted`` to escape texts, and ``count`` for numbers with
    their nouns.
    """
    trainer, results, facts = run.trainer, run.results, run.facts
    folder, training = Path(str(trainer.args.output_dir)), describe_training(trainer)
    problems, measured, name = trainer.problems, results["validation"], name_run(folder)
    scores = list(_list_scores(problems, measured, facts.data))
    values = {
        "model_name": name,
        **asdict(facts),
        **training,
        "problems": problems,
        # the Trainer asks the Hub for the owner if the name has none
        "path": getattr(trainer, "hub_model_id", None)
        or trainer.args.hub_model_id
        or trainer.args.output_dir,
        "results": "\n\n".join(
            f"{split}:\n\n{found.table(problems)}"
            for split, found in sorted(results.items(), key=lambda pair: pair[0] == "train")
        ),
        "rows": {
            task: {split: len(rows) for split, rows in splits.items()}
            for task, splits in run.encoded.items()
        },
        "plain": plain,
        "code_span": code_span,
        "code_block": code_block,
        "count": count,
        # a text as a string of Python
        "quoted": lambda text: json.dumps(printable(text), ensure_ascii=False),
    }
    pipelines = {problem.pipeline_tag for problem in problems.values()}
    served = pipelines.pop() if len(pipelines) == 1 else Problem.pipeline_tag  # of all tasks
    start, tags = facts.model_name_or_path, facts.card.get("tags") or []
    kind = "multi-task" if training["tasks"] else "pre-training"
    tags = ["minbert", kind, *([tags] if isinstance(tags, str) else tags)]
    metadata = {
        "model_name": name,
        "library_name": "transformers",
        "pipeline_tag": served if training["tasks"] else "fill-mask",
        # a folder of this machine is not on the Hub
        "base_model": start if start is not None and not Path(start).exists() else None,
        **facts.card,
        "tags": list(dict.fromkeys(tags)),
    }
    metrics = sorted({score.metric_type for score in scores}) or None
    metadata = printable(metadata) | {"eval_results": scores, "metrics": metrics}
    card = ModelCard.from_template(ModelCardData(**metadata), str(template_path), **values)
    write_text(folder / "README.md", str(card))


def _list_scores(
    problems: Mapping[str, AnyProblem], measured: Results, data: Mapping[str, str]
) -> Iterator[EvalResult]:
    # a model index merges the results of one data set, so equal names have their tasks
    names = list(data.values())
    distinct = {
        task: name if names.count(name) == 1 else f"{name} ({task})" for task, name in data.items()
    }
    for task, problem in problems.items():
        name = printable(distinct.get(task, task))
        for metric in problem.reported:
            value, _ = measured.find_score(problem, metric.name)
            if value is not None:
                yield EvalResult(
                    task_type=problem.hub_task,
                    task_name=task,
                    dataset_type=name,
                    dataset_name=name,
                    dataset_split="validation",
                    metric_type=metric.name,
                    metric_name=metric.name,
                    metric_value=value,
                )
