"""What evaluations need beside the Trainer: rows that count once, and events that are told once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import EvalPrediction, ProgressCallback
from transformers.trainer_callback import CallbackHandler

from trainers.data.rows import IGNORED_LABEL
from trainers.files import find_inner
from trainers.methods.base import Batch
from trainers.problems.base import AnyProblem

ComputeMetrics: TypeAlias = Callable[[EvalPrediction], Mapping[str, float]]


def add_metrics(task: str, metrics: dict[str, float], others: Any) -> dict[str, float]:
    """Add the metrics of a user's ``compute_metrics`` to those of a task."""
    if not isinstance(others, Mapping):
        raise TypeError(
            f"compute_metrics of task {task!r} returned a {type(others).__name__}; expected a "
            "mapping from names to numbers"
        )
    if both := sorted(metrics.keys() & others.keys()):
        raise ValueError(
            f"compute_metrics of task {task!r} returned {both[0]!r}, which is a metric of the task "
            "already; rename it"
        )
    return metrics | dict(others)


@contextmanager
def told_to_bars(handler: CallbackHandler) -> Iterator[None]:
    """Keep evaluations and predictions of one task from all callbacks but progress bars.

    Callbacks count evaluations of all tasks. Services for logs would log the loss of a prediction
    without the name of its task, and Trackio, which ends its run with the training, begin another.
    """
    if "on_evaluate" in vars(handler):  # a prediction within an evaluation
        yield
        return

    def tell(event: str, args: object, state: object, control: object, metrics: object) -> object:
        for callback in handler.callbacks:
            if isinstance(callback, ProgressCallback):
                getattr(callback, event)(args, state, control, metrics=metrics)
        return control

    vars(handler).update({event: partial(tell, event) for event in ("on_evaluate", "on_predict")})
    try:
        yield
    finally:
        del handler.on_evaluate, handler.on_predict


def hide_duplicates(
    model: nn.Module, accelerator: Any, problem: AnyProblem, inputs: Batch
) -> tuple[Batch, int | None]:
    """Take the labels from the rows that only fill the last batches of several processes.

    The predictions for these rows, which were evaluated before, are left out later. An unlabelled
    row becomes one of padding alone, which the model ignores. Also returns how many rows are
    real, if that cannot be told from their labels.
    """
    state, processes = accelerator.gradient_state, accelerator.num_processes
    if processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
        return inputs, None
    rows = state.active_dataloader.total_batch_size // processes
    real = min(max(state.remainder - accelerator.process_index * rows, 0), rows)
    names: list[str] = [name for name in ("labels", "next_sentence_label") if name in inputs]
    changed: Batch = {}
    config: Any = find_inner(model).config
    for name in names or ["input_ids"]:
        values, offsets = inputs[name], inputs.get("cu_seq_lens_q")
        filler = IGNORED_LABEL if names else config.pad_token_id
        if offsets is None or values.shape != inputs["input_ids"].shape:
            is_real = torch.arange(len(values), device=values.device) < real
            is_real = is_real.view(-1, *[1] * (values.dim() - 1))
        else:
            end = offsets[real * getattr(problem.spec, "num_sentences", 1)]
            is_real = torch.arange(values.shape[1], device=values.device) < end
        changed[name] = values.masked_fill(~is_real, filler)
    return {**inputs, **changed}, None if names else real
