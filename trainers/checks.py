"""What is refused before training starts."""

from collections.abc import Mapping
from typing import Any

import datasets
from transformers import TrainingArguments

from .metrics import AGGREGATES, METRIC_NAMES
from .tasks import TaskTraining


def check_tasks(
    problem_types: Mapping[str, str],
    given: Mapping[str, Mapping[str, datasets.Dataset] | None],
    task_training: Mapping[str, TaskTraining],
) -> None:
    """Check that all mappings name the same tasks and that each task has labelled rows.

    Args:
        problem_types: Problem type of each task.
        given: Data of each task by what it is for; None where there is none.
        task_training: Settings of some tasks.

    Raises:
        ValueError: If names do not match, or a data set is empty or has no labels.
    """
    known = ", ".join(problem_types)
    for what, tasks in given.items():
        if tasks is None:
            continue
        if set(tasks) != set(problem_types):
            raise ValueError(f"{what} data is for {', '.join(tasks)}; expected the tasks {known}")
        for task, dataset in tasks.items():
            if not len(dataset):
                raise ValueError(f"the {what} set of task {task!r} is empty; give it rows")
            if "labels" not in dataset.column_names:
                raise ValueError(f"the {what} set of task {task!r} has no labels")
    if unknown := sorted(set(task_training) - set(problem_types)):
        raise ValueError(f"task_training names {', '.join(unknown)}; known tasks: {known}")


def check_arguments(args: TrainingArguments, problem_types: Mapping[str, str]) -> None:
    """Refuse arguments that would be ignored or would go wrong.

    Args:
        args: Arguments of the Trainer.
        problem_types: Problem type of each task.

    Raises:
        ValueError: If an argument does not go with several tasks.
    """
    refused = {
        "train_sampling_strategy": args.train_sampling_strategy
        not in ("random", "group_by_length"),
        "label_smoothing_factor": args.label_smoothing_factor != 0,
        "auto_find_batch_size": args.auto_find_batch_size,
        "batch_eval_metrics": args.batch_eval_metrics,
        "prediction_loss_only": args.prediction_loss_only,
        # its noise is scaled by the length of the padded row
        "neftune_noise_alpha": args.neftune_noise_alpha is not None,
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise ValueError(
                f"{name}={getattr(args, name)!r} is not supported with several tasks; leave it out"
                + (" or use 'random' or 'group_by_length'" if "strategy" in name else "")
            )
    if args.torch_compile_mode == "reduce-overhead" and args.gradient_accumulation_steps > 1:
        raise ValueError(
            "torch_compile_mode='reduce-overhead' replays CUDA graphs, whose gradients do not "
            "outlive a step: use it with gradient_accumulation_steps=1"
        )
    config: Any = args.accelerator_config
    if config.split_batches or config.dispatch_batches:
        raise ValueError(
            "accelerator_config: split_batches and dispatch_batches would mix tasks; leave them out"
        )
    known = list(AGGREGATES)
    for task, kind in problem_types.items():
        known += [f"{task}_{name}" for name in (*METRIC_NAMES.get(kind, ()), "loss")]
    best = args.metric_for_best_model
    if best is not None and best.removeprefix("eval_") not in known:
        raise ValueError(f"metric_for_best_model={best!r}; expected one of {', '.join(known)}")
