"""What a loss that compares the rows of a batch needs of rows, batches and models."""

from typing import Any

import datasets
import torch

from trainers.data.rows import IGNORED_LABEL, LABELS
from trainers.files import find_inner
from trainers.methods.base import OwnTrainer, check_dropout

from .checks import needs_rows


def check_comparisons(trainer: OwnTrainer) -> None:
    """Refuse batches, rows and models that leave a loss nothing to compare; it would be 0."""
    model = find_inner(trainer.model)
    for name, task in trainer.tasks.items():
        is_replaced = any(method.replaces_loss(name) for method in trainer.methods)
        if is_replaced or not needs_rows(trainer.problems[name]):
            continue
        spec = model.config.task(name)
        where = f"task {name!r}: its loss, {spec.loss}, compares the rows of"
        if task.train is not None:
            _check_labels(where, model, name, task.train)
            sampler: Any = trainer.train_sampler
            if sampler.count_batch_rows(name) // max(1, trainer.args.n_gpu) < 2:
                raise ValueError(
                    f"{where} a batch with each other, but every batch has a single row, and the "
                    "loss would be 0; give a larger batch_size (per_device_train_batch_size for "
                    "all tasks). Gradient accumulation does not help: it adds batches up"
                )
        if task.evaluation is not None and trainer.args.per_device_eval_batch_size < 2:
            raise ValueError(
                f"{where} a batch with each other, and would be 0 in every evaluation; give "
                "per_device_eval_batch_size 2 or more"
            )
        if getattr(spec, "num_sentences", None) == 1:
            check_dropout(model, name, "SimCSE learns from two vectors of a text")


def _check_labels(where: str, model: Any, task: str, rows: datasets.Dataset) -> None:
    """Check that some training rows differ in what the loss compares."""
    if len(rows) < 2:
        raise ValueError(f"{where} a batch, but there is only one training row; give it more")
    if LABELS not in rows.column_names:
        return
    labels = torch.as_tensor(rows.with_format(None)[LABELS][:])
    labels = labels[labels != IGNORED_LABEL]
    if not len(labels):  # a teacher teaches the task
        return
    if model.config.task(task).loss != "cosent":
        if not model.heads[task].is_positive(labels).any():
            raise ValueError(
                f"{where} positive pairs with others, but no training row is positive; give rows "
                "that are, or another loss"
            )
    elif len(labels.unique()) < 2:
        raise ValueError(
            f"{where} different scores, but all training rows have the score {labels[0]:g}; give "
            "rows with other scores, or another loss"
        )
