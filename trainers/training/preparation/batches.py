"""The sampler, the collator and the loaders of a run."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from trainers.data.collating import collate_rows
from trainers.data.collators import TaskCollator
from trainers.data.masking import TextTask
from trainers.data.sampling.oversampling import ClassShares
from trainers.data.sampling.streams import counts_of
from trainers.data.sampling.task_batch_sampler import TaskBatchSampler
from trainers.data.sampling.task_sampling import StepsPerEpoch, TaskSampling
from trainers.data.shapes import FixedShapes
from trainers.data.task_dataset import Rows, count_tokens, read_lengths
from trainers.problems import PROBLEMS
from trainers.problems.base import Problem
from trainers.task import Task
from trainers.wrapped_models import find_inner


def find_texts(tasks: Mapping[str, Task]) -> dict[str, TextTask]:
    """List the tasks that train on text without labels."""
    kinds = [PROBLEMS[task.problem_type] for task in tasks.values()]
    return {
        name: TextTask(task.masking if kind.is_masked else None, kind.is_paired, position)
        for position, ((name, task), kind) in enumerate(zip(tasks.items(), kinds, strict=True))
        if kind.is_text
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
    """Build the sampler of the tasks that have rows of their own.

    See ``MultiTaskTrainer`` for the arguments.
    """
    owners = {name: tasks[name] for name in rows}
    shares = {name: find_shares(task, problems[name]) for name, task in owners.items()}
    batch_sizes, budgets = _batch_sizes(owners, args, max_tokens_per_batch)
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
    where, classes = f"task {task.name!r}", problem.find_classes(task.train)
    names = problem.name_classes(int(classes.max(initial=0)) + 1)
    return ClassShares(where, classes, names, wanted)


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
