"""The sampler and the collator of a run."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import TrainingArguments

from modeling_minbert import TASKS
from trainers.data.collate import TaskCollator
from trainers.data.rows import count_tokens, read_lengths
from trainers.data.sampling import StepsPerEpoch, TaskBatchSampler, TaskSampling
from trainers.files import find_inner
from trainers.task import Task, find_rows

if TYPE_CHECKING:
    from trainers.data.masking import TextTask


def find_texts(tasks: Mapping[str, Task]) -> dict[str, "TextTask"]:
    """List the tasks that train on text without labels."""
    texts = {}
    for position, (name, task) in enumerate(tasks.items()):
        kind = TASKS[task.problem_type]
        if kind.is_pretraining:
            from trainers.data.masking import TextTask  # few runs have text

            masking = task.masking if kind.predicts_masked_tokens else None
            texts[name] = TextTask(masking, kind.predicts_next_sentence, position)
    return texts


def make_sampler(
    tasks: Mapping[str, Task],
    args: TrainingArguments,
    sampling: TaskSampling,
    steps_per_epoch: StepsPerEpoch,
    max_tokens_per_batch: int | None,
) -> TaskBatchSampler:
    """Build the sampler of tasks with training rows; see ``MultiTaskTrainer``."""
    devices = max(1, args.n_gpu)
    rows = find_rows(tasks.values())
    batch_sizes, budgets = {}, {}
    for name, task in tasks.items():
        budget = task.training.max_tokens_per_batch
        if budget is None and task.training.batch_size is None:
            budget = max_tokens_per_batch
        if budget is None:
            size = task.training.batch_size or args.per_device_train_batch_size
            batch_sizes[name] = size * devices
        else:
            budgets[name] = budget * devices
    lengths = None
    if args.train_sampling_strategy == "group_by_length":
        lengths = {name: read_lengths(name, rows[name], args.length_column_name) for name in rows}
    sampler = TaskBatchSampler(
        {name: len(rows[name]) for name in tasks},
        batch_sizes,
        num_replicas=args.world_size,
        seed=args.seed if args.data_seed is None else args.data_seed,
        steps_per_epoch=steps_per_epoch,
        sampling=sampling,
        lengths=lengths,
        token_budgets=budgets,
        tokens={name: count_tokens(rows[name]) for name in budgets},
        changing=find_texts(tasks),
    )
    sampler.epochs = count_epochs(args, sampler.steps)
    return sampler


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
) -> TaskCollator:
    """Build the collator of a run: packed if the model supports it."""
    padding = getattr(tokenizer, "pad_token_id", None)
    if padding is None:
        padding = getattr(getattr(find_inner(model), "config", None), "pad_token_id", None)
    texts = find_texts(tasks)
    # DataParallel would split the single row of a packed batch
    supports = getattr(model, "supports_packed_input", lambda _: False)
    packed = args.n_gpu <= 1 and supports(args.device)
    return TaskCollator(padding or 0, packed=packed, texts=texts)
