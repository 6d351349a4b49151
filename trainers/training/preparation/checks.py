"""Checks before training starts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType

from modeling_minbert import unknown
from trainers.data.sampling.task_sampling import TaskSampling
from trainers.methods.base import Method
from trainers.problems.base import LabelledProblem, Problem
from trainers.problems.metrics import AGGREGATES, Metric
from trainers.task import Task, find_rows
from trainers.training.label_smoothing import check_smoothing
from trainers.wrapped_models import find_inner, takes_task

from .argument_checks import check_numbers, check_schedules

# Names that Trainer adds to the metrics of an evaluation.
MEASURED_TIMES = (
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
)


def check_tasks(
    tasks: Sequence[Task], model: Any
) -> tuple[dict[str, Task], dict[str, Problem[Any]]]:
    """Check the names, heads and rows of tasks; return them and their problems by name."""
    by_name = {task.name: task for task in tasks}
    if len(by_name) < max(1, len(tasks)):
        names = ", ".join(task.name for task in tasks) or "none"
        raise ValueError(f"tasks: {names}; expected one or more with different names")
    heads = _find_heads(by_name, model)
    problems = {name: task.make_problem(heads.get(name)) for name, task in by_name.items()}
    _check_names(problems)
    for split in ("train", "evaluation"):
        _check_split(by_name, problems, split)
    if all(task.training.auxiliary for task in tasks):
        known = ", ".join(by_name)
        raise ValueError(f"auxiliary: all tasks are ({known}); leave it out of those that count")
    return by_name, problems


def _find_heads(tasks: Collection[str], model: Any) -> Mapping[str, Any]:
    """Return the descriptions of the heads of a model, which must have one for each task."""
    if len(tasks) > 1 and not takes_task(model):
        raise ValueError(
            f"{type(model).__name__}.forward has no argument task, so all of {', '.join(tasks)} "
            "would train one head; use MinBertForMultiTask, or one task"
        )
    config = getattr(find_inner(model), "config", None)
    return getattr(config, "tasks", None) or {}


def _check_names(problems: Mapping[str, Problem[Any]]) -> None:
    """Check that no two tasks have a metric, a logged loss or a file of the same name."""
    owners: dict[str, str] = {}
    for task, problem in problems.items():
        metrics = ("loss", *MEASURED_TIMES, *(metric.name for metric in problem.reported))
        names = {task.casefold(), *(f"eval_{task}_{metric}" for metric in metrics)}
        names |= {f"loss_{task}", *(f"loss_{task}_{part}" for part in problem.part_losses)}
        for name in sorted(names):
            if name in owners:
                raise ValueError(
                    f"tasks {owners[name]!r} and {task!r} would both have {name!r}; rename one"
                )
            owners[name] = task


def _check_split(
    tasks: Mapping[str, Task], problems: Mapping[str, Problem[Any]], split: str
) -> None:
    """Check that all tasks have usable rows, or none has any."""
    given, title = find_rows(tasks.values(), split), {"train": "training"}.get(split, split)
    if given and (lacking := tasks.keys() - given.keys()):
        raise ValueError(
            f"{', '.join(sorted(lacking))} without {title} rows: give them to all of "
            f"{', '.join(tasks)}, or to none"
        )
    for name, rows in given.items():
        where = f"the {title} set of task {name!r}"
        if not len(rows):
            raise ValueError(f"{where} is empty; give it rows")
        problems[name].check(where, rows)
        if problems[name].calibrates and tasks[name].evaluation is None:
            raise ValueError(
                f"task {name!r}: its temperature must be fitted to validation rows, and there are "
                "none; give it some, or leave calibrate out and set temperature to None"
            )


def check_compute_metrics(
    compute_metrics: Any, problems: Mapping[str, Problem[Any]]
) -> dict[str, Any]:
    """Return the user's ``compute_metrics`` by task: functions, or modules of evaluate."""
    if compute_metrics is None:
        return {}
    if not isinstance(compute_metrics, Mapping):
        compute_metrics = dict.fromkeys(problems, compute_metrics)
    for task, function in compute_metrics.items():
        if task not in problems:
            raise ValueError(f"compute_metrics: {unknown('task', task, problems)}")
        is_module = hasattr(function, "compute")
        if is_module and not isinstance(problems[task], LabelledProblem):
            raise TypeError(
                f"compute_metrics of task {task!r}: a module of evaluate measures tasks with a "
                f"label for each row, and this is a {problems[task].problem_type}; give a function"
            )
        if not (is_module or callable(function)):
            raise TypeError(f"compute_metrics of task {task!r} is not callable: {function!r}")
    return dict(compute_metrics)


def check_arguments(
    args: TrainingArguments,
    problems: Mapping[str, Problem[Any]],
    glue_tasks: Collection[str] = (),
    extended: Collection[str] = (),
) -> None:
    """Refuse arguments that would be ignored or would go wrong.

    Args:
        args: Arguments of the Trainer.
        problems: Problem of each task.
        glue_tasks: The tasks of GLUE.
        extended: The tasks with metrics of the user.

    Raises:
        ValueError: If an argument does not work with several tasks.
    """
    check_numbers(args)
    check_schedules(args)
    refused = {
        "train_sampling_strategy": args.train_sampling_strategy
        not in ("random", "group_by_length"),
        "use_liger_kernel": args.use_liger_kernel,
        # only the first machine writes weights
        "save_on_each_node": args.save_on_each_node,
        "auto_find_batch_size": args.auto_find_batch_size,
        "batch_eval_metrics": args.batch_eval_metrics,
        "prediction_loss_only": args.prediction_loss_only,
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
    check_smoothing(args, problems)
    _check_best(args, problems, glue_tasks, extended)


def _check_best(
    args: TrainingArguments,
    problems: Mapping[str, Problem[Any]],
    glue_tasks: Collection[str],
    extended: Collection[str],
) -> None:
    """Check the metric that chooses the best checkpoint, and its direction."""
    if args.metric_for_best_model is None:
        return
    known = list_metrics(problems, glue_tasks)
    name = args.metric_for_best_model.removeprefix("eval_")
    if name not in known and name.startswith(tuple(f"{task}_" for task in extended)):
        return  # it may be one of the user's, whose names are known after an evaluation
    if name not in known:
        raise ValueError(
            f"metric_for_best_model: {unknown('metric', args.metric_for_best_model, known)}"
        )
    metric = known[name]
    title = metric.name if metric else name.removeprefix(f"{name.rpartition('_')[0]}_")
    is_lower = metric.lower_is_better if metric else name.endswith("_loss")
    direction, mode = ("lower", "min") if is_lower else ("higher", "max")
    if args.greater_is_better is is_lower:
        # the Trainer itself knows the direction of what ends with loss
        remedy = (
            "add greater_is_better: false"
            if is_lower and not name.endswith("loss")
            else "leave greater_is_better out"
        )
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model!r}: a {direction} {title} is "
            f"better; {remedy}"
        )
    options: Any = args.lr_scheduler_kwargs or {}
    given = options.get("mode", mode)
    if follows_metric(args) and given != mode:
        raise ValueError(
            f"lr_scheduler_kwargs: mode={given!r}, but a {direction} {title} is better, which is "
            "metric_for_best_model; leave mode out"
        )


def follows_metric(args: TrainingArguments) -> bool:
    """Whether the learning rate depends on evaluations."""
    return args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


def list_metrics(
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


def check_sampling(
    args: TrainingArguments, sampling: TaskSampling, methods: Sequence[Method]
) -> None:
    """Refuse what does not work with the choice of tasks.

    With several backward passes before an optimizer step, gradients must outlive each of them.
    """
    optimizer = str(getattr(args.optim, "value", args.optim))
    refused = {
        f"optim={optimizer!r}, which steps within the backward pass": steps_in_backward(args),
        "torch_compile_mode='reduce-overhead', whose gradients do not outlive a backward pass": (
            args.torch_compile_mode == "reduce-overhead"
        ),
        "DeepSpeed, which steps after each backward pass": args.deepspeed_plugin is not None,
    }
    for reason, is_refused in refused.items():
        if sampling.mixes_tasks and is_refused:
            raise ValueError(
                "task_sampling: mixed adds up the gradients of several backward passes and does "
                f"not go with {reason}; leave that out, or take another task_sampling"
            )
    for method in methods:
        method.check_sampling(sampling)


def steps_in_backward(args: TrainingArguments) -> bool:
    """Tell whether the optimizer takes gradients while they are computed, layer by layer."""
    return any(name in str(args.optim).lower() for name in ("layerwise", "lomo"))
