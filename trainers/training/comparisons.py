"""Losses that compare the rows of a batch: batches must have rows to compare."""

import logging
from typing import Any

import torch
from torch import nn

from trainers.task import Task
from trainers.wrapped_models import find_inner

from .shared_steps import find_leaders

logger = logging.getLogger(__name__)


def check_comparisons(trainer: Any) -> None:
    """Refuse batches, rows and models that leave a loss nothing to compare; it would be 0.

    Raises:
        ValueError: Names the task, what its loss lacks, and what helps.
    """
    model: Any = find_inner(trainer.model)
    for name, task in trainer.tasks.items():
        if not compares_rows(model, name) or any(
            method.replaces_loss(name) for method in trainer.methods
        ):
            continue
        where = f"task {name!r}: its loss, {model.config.task(name).loss}, compares the rows of"
        if task.train is not None:
            _check_rows(where, model, task)
            _check_batches(where, trainer, find_leaders(trainer.tasks)[name])
        if task.evaluation is not None and trainer.args.per_device_eval_batch_size < 2:
            raise ValueError(
                f"{where} a batch with each other, and would be 0 in every evaluation; give "
                "per_device_eval_batch_size 2 or more"
            )
        if getattr(model.config.task(name), "num_sentences", None) == 1:
            _check_noise(name, model, trainer.args)


def compares_rows(model: Any, task: str) -> bool:
    """Whether the loss of a task is about several rows, and there is none of a single one."""
    config: Any = getattr(model, "config", None)
    if not getattr(config, "tasks", None) or task not in config.tasks:
        return False
    described = config.task(task)
    function = getattr(described, "loss_function", None)
    # a hard negative is in the row itself
    return getattr(function, "compares_rows", False) and (
        getattr(described, "num_sentences", None) != 3
    )


def _check_rows(where: str, model: Any, task: Task) -> None:
    """Check that some training rows differ in what the loss compares."""
    rows: Any = task.train
    if len(rows) < 2:
        raise ValueError(f"{where} a batch, but there is only one training row; give it more")
    if "labels" not in rows.column_names:
        return
    labels = torch.as_tensor(rows.with_format(None)["labels"][:])
    labels = labels[labels != -100]
    if model.config.task(task.name).loss == "cosent":
        if len(labels.unique()) < 2:
            raise ValueError(
                f"{where} different scores, but all training rows have the score {labels[0]:g}; "
                "give rows with other scores, or another loss"
            )
    elif not model.heads[task.name].is_positive(labels).any():
        raise ValueError(
            f"{where} positive pairs with others, but no training row is positive; give rows that "
            "are, or another loss"
        )


def _check_batches(where: str, trainer: Any, leader: str) -> None:
    """Check that the batches of a task have two rows, over all processes."""
    sampler, devices = trainer.train_sampler, max(1, trainer.args.n_gpu)
    counts = sampler.count_batch_rows(leader) // devices
    single = int((counts < 2).sum())
    if not single:
        return
    key = "max_tokens_per_batch" if leader in sampler.token_budgets else "batch_size"
    remedy = f"give a larger {key}" + (
        ", or batch_size" if key != "batch_size" else " (per_device_train_batch_size for all tasks)"
    )
    if single == len(counts):
        raise ValueError(
            f"{where} a batch with each other, but every batch has a single row, and the loss "
            f"would be 0; {remedy}. Gradient accumulation does not help: it adds batches up"
        )
    logger.warning(
        "%s a batch with each other, but %d of the %d batches of a pass over the rows have a "
        "single one, whose loss is 0; %s",
        where,
        single,
        len(counts),
        remedy,
    )


def _check_noise(name: str, model: Any, args: Any) -> None:
    """Check that the two vectors of a text differ in training, by dropout or noise."""
    others = tuple(f"heads.{task}." for task in model.heads if task != name)
    rates = [
        getattr(module, "p", 0)
        for path, module in model.named_modules()
        if isinstance(module, nn.Dropout) and not path.startswith((*others, "cls."))
    ]
    if not any(rates) and not args.neftune_noise_alpha:
        raise ValueError(
            f"task {name!r}: SimCSE learns from two vectors of a text, which differ by dropout, "
            "but the model has none (hidden_dropout_prob=0, attention_probs_dropout_prob=0): give "
            "the task a dropout such as 0.1, or neftune_noise_alpha, or take a model with dropout"
        )


def avoid_single_rows(rows: int, count: int) -> int:
    """Return about ``rows`` of a batch, so that the last of ``count`` rows is not alone."""
    fitting = (size for size in range(rows, 1, -1) if count % size != 1)
    return next(fitting, rows + 1)
