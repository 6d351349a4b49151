"""The sampler, the collator and the loaders of a run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from modeling_minbert import TASKS
from trainers.data.collate import FixedShapes, TaskCollator, collate_rows
from trainers.data.dataset import Rows, TaskDataset, count_tokens, read_lengths
from trainers.data.masking import TextTask
from trainers.data.sampling.batches import TaskBatchSampler
from trainers.data.sampling.streams import ClassShares, counts_of
from trainers.data.sampling.task_sampling import StepsPerEpoch, TaskSampling
from trainers.files import HubToken, find_inner, takes_task
from trainers.methods.base import Method
from trainers.problems.base import Problem
from trainers.task import Task, find_rows
from trainers.training.evaluation import ComputeMetrics, TaskEvaluator

from .checks import (
    check_arguments,
    check_compute_metrics,
    check_sampling,
    check_tasks,
    follows_metric,
)


def find_texts(tasks: Mapping[str, Task]) -> dict[str, TextTask]:
    """List the tasks that train on text without labels."""
    kinds = [TASKS[task.problem_type] for task in tasks.values()]
    return {
        name: TextTask(
            task.masking if kind.predicts_masked_tokens else None,
            kind.predicts_next_sentence,
            position,
        )
        for position, ((name, task), kind) in enumerate(zip(tasks.items(), kinds, strict=True))
        if kind.is_pretraining
    }


def make_sampler(
    tasks: Mapping[str, Task],
    rows: Mapping[str, Rows],
    problems: Mapping[str, Problem[Any]],
    args: TrainingArguments,
    steps_per_epoch: StepsPerEpoch,
    max_tokens_per_batch: int | None,
    sampling: TaskSampling,
) -> TaskBatchSampler:
    """Build the sampler; see ``MultiTaskTrainer`` for the arguments."""
    shares = {name: find_shares(task, problems[name]) for name, task in tasks.items()}
    batch_sizes, budgets = _batch_sizes(tasks, args, max_tokens_per_batch)
    lengths = None
    if args.train_sampling_strategy == "group_by_length":
        lengths = {name: read_lengths(name, rows[name], args.length_column_name) for name in rows}
    sampler = TaskBatchSampler(
        {name: len(own) for name, own in rows.items()},
        batch_sizes,
        num_replicas=args.world_size,
        seed=args.seed if args.data_seed is None else args.data_seed,
        steps_per_epoch=steps_per_epoch,
        sampling=sampling,
        lengths=lengths,
        token_budgets=budgets,
        tokens={name: count_tokens(rows[name]) for name in budgets},
        changing=find_texts(tasks),
        oversampled={name: own for name, own in shares.items() if own is not None},
    )
    sampler.epochs = count_epochs(args, sampler.steps)
    return sampler


def find_shares(task: Task, problem: Problem[Any]) -> ClassShares | None:
    """Return the classes of the training rows of a task, and their shares; None for those given."""
    wanted = task.training.oversample
    if wanted is None:
        return None
    rows: Any = task.train
    classes = np.asarray(rows["labels"][:]).astype(np.int64)
    count = int(classes.max(initial=0)) + 1
    names = tuple(getattr(problem.spec, "labels", None) or map(str, range(count)))
    return ClassShares(f"task {task.name!r}", classes, names, wanted)


def _batch_sizes(
    tasks: Mapping[str, Task], args: TrainingArguments, max_tokens_per_batch: int | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the rows, or the token budget, of a batch of each task on all devices of a process."""
    devices = max(1, args.n_gpu)
    batch_sizes, budgets = {}, {}
    for name, task in tasks.items():
        own = task.training
        budget = own.max_tokens_per_batch
        if budget is None and own.batch_size is None:
            budget = max_tokens_per_batch
        if budget is None:
            batch_sizes[name] = (own.batch_size or args.per_device_train_batch_size) * devices
        else:
            budgets[name] = budget * devices
    return batch_sizes, budgets


def count_epochs(args: TrainingArguments, steps: int) -> int:
    """Count the epochs of a run with so many micro-steps each, including a partial last one."""
    if args.max_steps > 0:
        return math.ceil(args.max_steps / math.ceil(steps / args.gradient_accumulation_steps))
    return math.ceil(args.num_train_epochs)


def make_collator(
    model: nn.Module,
    args: TrainingArguments,
    tokenizer: Any,
    tasks: Mapping[str, Task],
    rows: Mapping[str, Rows],
    sampler: TaskBatchSampler | None,
) -> TaskCollator:
    """Build the collator of a run: packed if the model supports it, in fixed shapes if compiled."""
    pad_token_id, texts = _pad_token_id(model, tokenizer), find_texts(tasks)
    # DataParallel would split the single row of a packed batch
    supports = getattr(model, "supports_packed_input", lambda _: False)
    packed = args.n_gpu <= 1 and supports(args.device)
    if not packed or not args.torch_compile or sampler is None:
        return TaskCollator(pad_token_id, packed=packed, texts=texts)
    most = {name: most_tokens(name, own, sampler) for name, own in rows.items()}
    return TaskCollator(pad_token_id, packed=True, fixed_shapes=FixedShapes(most), texts=texts)


def _pad_token_id(model: nn.Module, tokenizer: Any) -> int:
    token = getattr(tokenizer, "pad_token_id", None)
    if token is None:
        token = getattr(getattr(find_inner(model), "config", None), "pad_token_id", None)
    return token or 0


def most_tokens(task: str, rows: Rows, sampler: TaskBatchSampler) -> int:
    """Return an upper bound for the tokens of a batch: its budget, or the longest rows."""
    if task in sampler.token_budgets:
        return sampler.token_budgets[task]
    counts = counts_of(count_tokens(rows), 0)
    if task in sampler.oversampling:
        counts = np.repeat(counts, sampler.oversampling[task].most_repeats)
    longest = np.sort(counts)[-sampler.batch_sizes[task] :]
    return int(longest.mean() * sampler.batch_sizes[task])


def make_loader(trainer: Any, rows: Any, **options: Any) -> DataLoader[Any]:
    """Build a loader with the settings and the collator of a trainer; ``options`` win."""
    args: TrainingArguments = trainer.args
    defaults = {
        "num_workers": args.dataloader_num_workers,
        # without an accelerator pinning only warns
        "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
        "prefetch_factor": args.dataloader_prefetch_factor,
        "persistent_workers": args.dataloader_persistent_workers,
    }
    collate = partial(collate_rows, trainer.data_collator)
    return DataLoader(rows, collate_fn=collate, **(defaults | options))


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
        rows, sampler = find_rows(self.tasks), None
        if rows:
            sizes = (self.steps_per_epoch, self.max_tokens_per_batch)
            sampler = make_sampler(tasks, rows, problems, args, *sizes, self.sampling)
        collator = self.data_collator
        if collator is None:
            collator = make_collator(model, args, self.tokenizer, tasks, rows, sampler)
        for method in methods:
            method.prepare(model, args)
        evaluator = TaskEvaluator(tasks, problems, model, own_metrics)
        dataset = TaskDataset(rows, sampler) if rows else None
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
