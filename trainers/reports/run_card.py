"""The model card of a run: its data, its training and its results."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainers.data.task_dataset import Rows
from trainers.problems.problem import Problem
from trainers.training.multitask import MultiTaskTrainer

from .model_card import write_model_card
from .results import Results, RunFacts, describe_training, name_run


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
    folder = Path(str(trainer.args.output_dir))
    start = facts.model_name_or_path
    tasks = describe_training(trainer)["tasks"]
    write_model_card(
        template_path,
        folder / "README.md",
        model_name=name_run(folder),
        metrics={f"eval_{name}": value for name, value in results["validation"].metrics.items()},
        problems=trainer.problems,
        dataset_names=_distinct_names(facts.data),
        card_data={
            "library_name": "transformers",
            "pipeline_tag": _pipeline_tag(trainer.problems.values()) if tasks else "fill-mask",
            # a folder of this machine is not on the Hub
            "base_model": start if start is not None and not Path(start).exists() else None,
            **facts.card,
            "tags": list(
                dict.fromkeys(
                    [
                        "minbert",
                        "multi-task" if tasks else "pre-training",
                        *_texts(facts.card, "tags"),
                    ]
                )
            ),
        },
        template_values={
            **asdict(facts),
            **describe_training(trainer),
            "problems": trainer.problems,
            # the Trainer asks the Hub for the owner if the name has none
            "path": getattr(trainer, "hub_model_id", None)
            or trainer.args.hub_model_id
            or trainer.args.output_dir,
            "results": "\n\n".join(
                f"{split}:\n\n{found.table(trainer.problems)}"
                + (f"\n\n{found.type_table()}" if found.types else "")
                for split, found in results.items()
            ),
            "rows": {
                task: {split: len(rows) for split, rows in splits.items()}
                for task, splits in encoded.items()
            },
        },
    )


def _texts(card: Mapping[str, Any], key: str) -> list[str]:
    """Return metadata that can be one string or several as a list."""
    value = card.get(key) or []
    return [value] if isinstance(value, str) else list(value)


def _pipeline_tag(problems: Iterable[Problem[Any]]) -> str:
    """Return the pipeline of the Hub that serves all tasks of a model."""
    tags = {problem.pipeline_tag for problem in problems}
    return tags.pop() if len(tags) == 1 else Problem.pipeline_tag


def _distinct_names(data: Mapping[str, str]) -> dict[str, str]:
    """Add the task to equal names: a model index merges the results of one data set."""
    names = list(data.values())
    return {
        task: name if names.count(name) == 1 else f"{name} ({task})" for task, name in data.items()
    }
