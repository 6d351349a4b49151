"""What a trainer makes of its tasks for a model and the arguments of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transformers import TrainingArguments

from trainers.data.sampling.task_batch_sampler import TaskBatchSampler
from trainers.data.sampling.task_sampling import StepsPerEpoch, TaskSampling
from trainers.data.task_dataset import TaskDataset
from trainers.hub_token import HubToken
from trainers.methods.base import Method
from trainers.problems.base import Problem
from trainers.task import Task
from trainers.training.evaluation import ComputeMetrics, TaskEvaluator
from trainers.training.shared_steps import check_groups, merge_rows
from trainers.wrapped_models import takes_task

from .batches import make_collator, make_sampler
from .checks import (
    check_arguments,
    check_compute_metrics,
    check_sampling,
    check_tasks,
    follows_metric,
)


class Parts(NamedTuple):
    """What depends on the model or on the arguments of a run."""

    tasks: dict[str, Task]
    problems: dict[str, Problem[Any]]
    evaluator: TaskEvaluator
    train_sampler: TaskBatchSampler | None  # None without training rows, as the next
    train_dataset: TaskDataset | None
    data_collator: Callable[..., Any]


@dataclass(frozen=True)
class Setup:
    """Arguments of a ``MultiTaskTrainer``, from which it makes the parts of every run."""

    tasks: Sequence[Task]
    sampling: TaskSampling
    steps_per_epoch: StepsPerEpoch
    max_tokens_per_batch: int | None
    compute_metrics: ComputeMetrics | Mapping[str, ComputeMetrics] | None
    data_collator: Callable[..., Any] | None
    tokenizer: Any

    def fit(self, model: Any, args: TrainingArguments, methods: Sequence[Method]) -> Parts:
        """Check tasks, arguments and methods, and make the parts. Nothing is written.

        Raises:
            ValueError: If they do not fit each other or the model.
        """
        tasks, problems = check_tasks(self.tasks, model)
        own_metrics = check_compute_metrics(self.compute_metrics, problems)
        in_glue = [task.name for task in self.tasks if task.in_glue]
        check_arguments(args, problems, in_glue, own_metrics)
        check_sampling(args, self.sampling, methods)
        _set_defaults(args, has_task_argument=takes_task(model))
        check_groups(tasks, model, args, self.data_collator)
        (rows, shared), sampler = merge_rows(tasks), None
        if rows:
            sizes = (self.steps_per_epoch, self.max_tokens_per_batch)
            sampler = make_sampler(tasks, rows, problems, args, *sizes, self.sampling)
        collator = self.data_collator
        if collator is None:
            collator = make_collator(model, args, self.tokenizer, tasks, rows, sampler)
        for method in methods:
            method.prepare(model, args)
        evaluator = TaskEvaluator(tasks, problems, model, own_metrics)
        labels = {name: own.labels for name, own in shared.items()}
        dataset = TaskDataset(rows, sampler, labels) if rows else None
        return Parts(tasks, problems, evaluator, sampler, dataset, collator)


def _set_defaults(args: TrainingArguments, *, has_task_argument: bool) -> None:
    """Set the arguments that the trainer depends on."""
    if args.ddp_find_unused_parameters is None and has_task_argument:
        # only one head has a gradient at a step, also with activation checkpointing, for which the
        # Trainer would turn this off
        args.ddp_find_unused_parameters = True
    if follows_metric(args):  # by default a plateau is one of a metric that should fall
        mode = "max" if args.greater_is_better else "min"
        options: Any = args.lr_scheduler_kwargs or {}
        args.lr_scheduler_kwargs = {"mode": mode, **options}
    args.restore_callback_states_from_checkpoint = True
    # the filter waits for the device twice at every step, and hides what DivergenceCheck reports
    args.logging_nan_inf_filter = False
    if args.hub_token is not None:
        args.hub_token = HubToken(args.hub_token)
