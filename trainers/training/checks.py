"""Checks before training starts."""

from collections.abc import Collection, Mapping
from typing import Any

from transformers import TrainingArguments

from trainers.data.masking import Masking
from trainers.data.task_dataset import Rows
from trainers.data.tasks import TaskTraining
from trainers.data.text import TextTask
from trainers.problems.aggregates import AGGREGATES
from trainers.problems.problem import Metric, Problem


def check_tasks(
    problems: Mapping[str, Problem[Any]],
    given: Mapping[str, Mapping[str, Rows] | None],
    task_training: Mapping[str, TaskTraining],
) -> None:
    """Check that all mappings name the same tasks and that the rows of each are usable.

    Args:
        problems: Problem of each task.
        given: Rows of each task by split; None for a missing split.
        task_training: Settings of some tasks.

    Raises:
        ValueError: If names do not match, or a split is empty or does not fit its problem.
    """
    known = ", ".join(problems)
    for split, tasks in given.items():
        if tasks is None:
            continue
        if set(tasks) != set(problems):
            raise ValueError(f"{split} data is for {', '.join(tasks)}; expected the tasks {known}")
        for task, rows in tasks.items():
            where = f"the {split} set of task {task!r}"
            if not len(rows):
                raise ValueError(f"{where} is empty; give it rows")
            problems[task].check(where, rows)
    if unknown := sorted(set(task_training) - set(problems)):
        raise ValueError(f"task_training names {', '.join(unknown)}; known tasks: {known}")
    helpers = {task for task, training in task_training.items() if training.auxiliary}
    if helpers >= set(problems):
        raise ValueError(f"auxiliary: all tasks are ({known}); leave it out of those that count")


def find_texts(
    problems: Mapping[str, Problem[Any]], masking: Mapping[str, Masking]
) -> dict[str, TextTask]:
    """List the tasks that train on text without labels.

    Args:
        problems: Problem of each task.
        masking: Chooses the tokens to be predicted, by task.

    Raises:
        ValueError: If a task needs masks, but has no masking.
    """
    texts = {}
    for position, (task, problem) in enumerate(problems.items()):
        if problem.is_masked and task not in masking:
            raise ValueError(
                f"task {task!r} of problem_type {problem.problem_type!r} predicts masked tokens: "
                f"give masking={{{task!r}: Masking.from_tokenizer(tokenizer)}}"
            )
        if problem.is_text:
            chosen = masking[task] if problem.is_masked else None
            texts[task] = TextTask(chosen, problem.is_paired, position)
    return texts


def check_arguments(
    args: TrainingArguments,
    problems: Mapping[str, Problem[Any]],
    glue_tasks: Collection[str] = (),
) -> None:
    """Refuse arguments that would be ignored or would go wrong.

    Args:
        args: Arguments of the Trainer.
        problems: Problem of each task.
        glue_tasks: The tasks of GLUE.

    Raises:
        ValueError: If an argument does not work with several tasks.
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
    _check_best(args, problems, glue_tasks)


def _check_best(
    args: TrainingArguments, problems: Mapping[str, Problem[Any]], glue_tasks: Collection[str]
) -> None:
    """Check the metric that chooses the best checkpoint, and its direction."""
    if args.metric_for_best_model is None:
        return
    known = _list_metrics(problems, glue_tasks)
    name = args.metric_for_best_model.removeprefix("eval_")
    if name not in known:
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model!r}; expected one of "
            f"{', '.join(known)}"
        )
    metric = known[name]
    # the Trainer itself knows the direction of a loss
    if metric and metric.lower_is_better and not metric.is_loss and args.greater_is_better:
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model!r}: a lower {metric.name} is "
            "better; add greater_is_better: false"
        )


def _list_metrics(
    problems: Mapping[str, Problem[Any]], glue_tasks: Collection[str]
) -> dict[str, Metric | None]:
    """List what an evaluation reports; None for losses and aggregates."""
    known: dict[str, Metric | None] = {}
    if any(problem.is_defined(problem.reported[0]) for problem in problems.values()):
        known = dict.fromkeys(name for name in AGGREGATES if name != "glue" or glue_tasks)
    for task, problem in problems.items():
        defined = [metric for metric in problem.reported if problem.is_defined(metric)]
        known |= {f"{task}_{metric.name}": metric for metric in defined}
        known[f"{task}_loss"] = None
    return known


def check_mixed(args: TrainingArguments) -> None:
    """Refuse what does not outlive several backward passes before an optimizer step.

    Args:
        args: Arguments of the Trainer.

    Raises:
        ValueError: If an argument is such a one.
    """
    optimizer = str(getattr(args.optim, "value", args.optim))
    refused = {
        f"optim={optimizer!r}, which steps within the backward pass": steps_in_backward(args),
        "torch_compile_mode='reduce-overhead', whose gradients do not outlive a backward pass": (
            args.torch_compile_mode == "reduce-overhead"
        ),
        "DeepSpeed, which steps after each backward pass": args.deepspeed_plugin is not None,
    }
    for reason, is_there in refused.items():
        if is_there:
            raise ValueError(
                "task_sampling: mixed adds up the gradients of several backward passes and does "
                f"not go with {reason}; leave that out, or take another task_sampling"
            )


def steps_in_backward(args: TrainingArguments) -> bool:
    """Tell whether the optimizer takes gradients while they are computed, layer by layer."""
    return any(name in str(args.optim).lower() for name in ("layerwise", "lomo"))
