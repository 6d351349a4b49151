"""The sampler and the collator of a run."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from transformers import TrainingArguments

from .collators import TaskCollator
from .samplers import TaskBatchSampler
from .shapes import FixedShapes
from .streams import counts_of
from .task_dataset import Rows, read_lengths, token_counts
from .task_orders import StepsPerEpoch
from .task_sampling import TaskSampling
from .tasks import TaskTraining
from .text import TextTask


def make_sampler(
    train_dataset: Mapping[str, Rows],
    args: TrainingArguments,
    task_training: Mapping[str, TaskTraining],
    steps_per_epoch: StepsPerEpoch,
    max_tokens_per_batch: int | None,
    texts: Mapping[str, TextTask],
    sampling: TaskSampling | None = None,
) -> TaskBatchSampler:
    """Build the sampler of a run.

    Args:
        train_dataset: Encoded rows of each task.
        args: Arguments of the Trainer.
        task_training: Settings of each task, which override the defaults.
        steps_per_epoch: When an epoch ends.
        max_tokens_per_batch: Default tokens per process and step; None takes
            ``per_device_train_batch_size`` rows.
        texts: The tasks that learn from text, whose rows or masks differ in every pass.
        sampling: How the task of a step is chosen; None for one after the other.

    Raises:
        ValueError: If the sampler refuses a value, or a column that it needs is missing.
    """
    own = {task: task_training[task] for task in train_dataset}
    batch_sizes, budgets = _batch_sizes(own, args, max_tokens_per_batch)
    lengths = None
    if args.train_sampling_strategy == "group_by_length":
        lengths = {
            task: read_lengths(task, dataset, args.length_column_name)
            for task, dataset in train_dataset.items()
        }
    sampler = TaskBatchSampler(
        {task: len(dataset) for task, dataset in train_dataset.items()},
        batch_sizes,
        num_replicas=args.world_size,
        seed=args.seed if args.data_seed is None else args.data_seed,
        steps_per_epoch=steps_per_epoch,
        sampling=sampling,
        lengths=lengths,
        token_budgets=budgets,
        tokens={task: token_counts(train_dataset[task]) for task in budgets},
        changing=texts,
    )
    sampler.epochs = count_epochs(args, sampler.steps)
    return sampler


def _batch_sizes(
    task_training: Mapping[str, TaskTraining],
    args: TrainingArguments,
    max_tokens_per_batch: int | None,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the rows, or the token budget, of a batch of each task on all devices of a process."""
    devices = max(1, args.n_gpu)
    batch_sizes, budgets = {}, {}
    for task, own in task_training.items():
        budget = own.max_tokens_per_batch
        if budget is None and own.batch_size is None:
            budget = max_tokens_per_batch
        if budget is None:
            batch_sizes[task] = (own.batch_size or args.per_device_train_batch_size) * devices
        else:
            budgets[task] = budget * devices
    return batch_sizes, budgets


def count_epochs(args: TrainingArguments, steps: int) -> int:
    """Count the epochs of a run, including a partial last one.

    Args:
        args: Arguments of the Trainer.
        steps: Micro-steps of an epoch.
    """
    if args.max_steps > 0:
        return math.ceil(args.max_steps / math.ceil(steps / args.gradient_accumulation_steps))
    return math.ceil(args.num_train_epochs)


def make_collator(
    model: nn.Module,
    args: TrainingArguments,
    tokenizer: Any,
    train_dataset: Mapping[str, Rows] | None,
    sampler: TaskBatchSampler | None,
    texts: Mapping[str, TextTask],
) -> TaskCollator:
    """Build the collator of a run: packed if the model supports it, in fixed shapes if compiled.

    Args:
        model: ``supports_packed_input(device)`` tells whether packed batches are efficient.
        args: Arguments of the Trainer.
        tokenizer: Has the padding token; None takes that of the model's configuration.
        train_dataset: Encoded rows of each task; None without training.
        sampler: Sampler of the training rows.
        texts: The tasks that learn from text.
    """
    pad_token_id = _pad_token_id(model, tokenizer)
    # DataParallel would split the single row of a packed batch
    supports = getattr(model, "supports_packed_input", lambda _: False)
    packed = args.n_gpu <= 1 and supports(args.device)
    if not packed or not args.torch_compile or train_dataset is None or sampler is None:
        return TaskCollator(pad_token_id, packed=packed, texts=texts)
    most = {task: _most_tokens(task, rows, sampler) for task, rows in train_dataset.items()}
    return TaskCollator(pad_token_id, packed=True, fixed_shapes=FixedShapes(most), texts=texts)


def _pad_token_id(model: nn.Module, tokenizer: Any) -> int:
    token = getattr(tokenizer, "pad_token_id", None)
    if token is None:
        token = getattr(getattr(model, "config", None), "pad_token_id", None)
    return token or 0


def _most_tokens(task: str, rows: Rows, sampler: TaskBatchSampler) -> int:
    """Return an upper bound for the tokens of a batch: its budget, or the longest rows."""
    if task in sampler.token_budgets:
        return sampler.token_budgets[task]
    longest = np.sort(counts_of(token_counts(rows), 0))[-sampler.batch_sizes[task] :]
    return int(longest.mean() * sampler.batch_sizes[task])
