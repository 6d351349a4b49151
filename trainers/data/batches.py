"""What makes the batches of a run: its sampler and its collator."""

import math
from collections.abc import Mapping

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
        task_training: Settings of each task; what it says itself wins over the defaults.
        steps_per_epoch: When an epoch ends.
        max_tokens_per_batch: Tokens per process and step of the tasks that say nothing; None takes
            ``per_device_train_batch_size`` rows.
        texts: The tasks that learn from text, whose rows or masks are other ones in every pass.
        sampling: How the task of a step is chosen; None for one after the other.

    Raises:
        ValueError: If the sampler refuses a value, or a column that it needs is missing.
    """
    devices = max(1, args.n_gpu)
    batch_sizes, budgets = {}, {}
    for task in train_dataset:
        own = task_training[task]
        budget = own.max_tokens_per_batch
        if budget is None and own.batch_size is None:
            budget = max_tokens_per_batch
        if budget is None:
            batch_sizes[task] = (own.batch_size or args.per_device_train_batch_size) * devices
        else:
            budgets[task] = budget * devices
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


def count_epochs(args: TrainingArguments, steps: int) -> int:
    """Count the epochs of a run, a last one that is cut included.

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
    pad_token_id: int,
    train_dataset: Mapping[str, Rows] | None,
    sampler: TaskBatchSampler | None,
    texts: Mapping[str, TextTask],
) -> TaskCollator:
    """Build the collator of a run: packed if the model can, in fixed shapes if it is compiled.

    Args:
        model: Says by ``supports_packed_input(device)`` whether it computes packed batches well.
        args: Arguments of the Trainer.
        pad_token_id: Token of padding.
        train_dataset: Encoded rows of each task; None without training.
        sampler: That of the training rows.
        texts: The tasks that learn from text.
    """
    # DataParallel would cut the one row of a packed batch
    supports = getattr(model, "supports_packed_input", lambda _: False)
    packed = args.n_gpu <= 1 and supports(args.device)
    if not packed or not args.torch_compile or train_dataset is None or sampler is None:
        return TaskCollator(pad_token_id, packed=packed, texts=texts)
    most = {task: _most_tokens(task, rows, sampler) for task, rows in train_dataset.items()}
    return TaskCollator(pad_token_id, packed=True, fixed_shapes=FixedShapes(most), texts=texts)


def _most_tokens(task: str, rows: Rows, sampler: TaskBatchSampler) -> int:
    """Bound the tokens of a batch, by its budget or by the longest rows."""
    if task in sampler.token_budgets:
        return sampler.token_budgets[task]
    longest = np.sort(counts_of(token_counts(rows), 0))[-sampler.batch_sizes[task] :]
    return int(longest.mean() * sampler.batch_sizes[task])
