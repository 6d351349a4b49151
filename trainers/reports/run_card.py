"""The model card of a run: what it read, how it was trained, and what it found."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainers.data.task_dataset import Rows
from trainers.metrics.answers import QUESTION_ANSWERING
from trainers.training.multitask import MultiTaskTrainer

from .model_card import HUB_TASKS, write_model_card
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
        facts: What else the card says.
    """
    folder = Path(str(trainer.args.output_dir))
    start = facts.model_name_or_path
    tasks = describe_training(trainer)["tasks"]
    write_model_card(
        template_path,
        folder / "README.md",
        model_name=name_run(folder),
        metrics={f"eval_{name}": value for name, value in results["validation"].metrics.items()},
        problem_types=trainer.problem_types,
        chosen=trainer.metrics,
        dataset_names=_tell_apart(facts.data),
        card_data={
            "library_name": "transformers",
            "pipeline_tag": _pipeline_tag(tasks, trainer),
            # The Hub knows its own models, not the folders of this machine.
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
            "problem_type": next(iter(trainer.problem_types.values())),
            # the Trainer asks the Hub for the owner where only a name, or nothing, was given
            "path": getattr(trainer, "hub_model_id", None)
            or trainer.args.hub_model_id
            or trainer.args.output_dir,
            "results": "\n\n".join(
                f"{split}:\n\n{found.table(trainer.problem_types, trainer.metrics)}"
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
    """Read metadata that are one text or several."""
    found = card.get(key) or []
    return [found] if isinstance(found, str) else list(found)


def _pipeline_tag(tasks: Mapping[str, Any], trainer: MultiTaskTrainer) -> str:
    """Name what the Hub can do with a checkpoint: tags or answers if there is nothing else."""
    kinds = set(trainer.problem_types.values())
    for kind in ("token_classification", QUESTION_ANSWERING):
        if tasks and kinds == {kind}:
            return HUB_TASKS[kind]
    return "text-classification" if tasks else "fill-mask"


def _tell_apart(data: Mapping[str, str]) -> dict[str, str]:
    """Add the task where two have the same data: a model index merges results of one data set."""
    names = list(data.values())
    return {
        task: name if names.count(name) == 1 else f"{name} ({task})" for task, name in data.items()
    }
