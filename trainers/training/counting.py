"""Counts of tokens in the batches of a step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.data.collators import list_batches
from trainers.data.masking import IGNORED_LABEL
from trainers.problems.problem import Problem


def mean_targets(
    steps: Sequence[dict[str, Any]],
    problems: Mapping[str, Problem[Any]],
    device: torch.device,
    reduce: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """Count the labeled tokens of each token-level task, as a mean over batches and ranks.

    Batches and ranks have different numbers of them: the mean of their means is not the mean over
    all tokens of the step.

    Args:
        steps: Inputs of the micro-steps of an optimizer step.
        problems: Problem of each task.
        device: Device of the result.
        reduce: Averages a tensor over ranks.
    """
    counts: dict[str, list[Tensor]] = {}
    for batch in (batch for inputs in steps for batch in list_batches(inputs)):
        if problems[batch["task"]].predicts_tokens:
            count = (batch["labels"] != IGNORED_LABEL).sum().float()
            counts.setdefault(batch["task"], []).append(count.to(device))
    if not counts:
        return {}
    means = torch.stack([torch.stack(task_counts).mean() for task_counts in counts.values()])
    return dict(zip(counts, reduce(means).clamp(min=1), strict=True))


class FlopCounter:
    """Counts floating point operations by tokens.

    Args:
        count: Counts those of one batch; called once.
    """

    def __init__(self, count: Callable[[dict[str, Any]], int]) -> None:
        self._count = count
        self._per_token: int | None = None

    def __call__(self, inputs: dict[str, Any]) -> int:
        """Count the operations of a step."""
        batches = [batch for batch in list_batches(inputs) if "input_ids" in batch]
        tokens = sum(batch["input_ids"].numel() for batch in batches)
        if not tokens:
            return self._count(inputs)
        if self._per_token is None:
            first = batches[0]
            self._per_token = self._count(first) // first["input_ids"].numel()
        return tokens * self._per_token
