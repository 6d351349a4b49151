"""Sums of losses, counts of tokens and of operations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.data.collating import list_batches
from trainers.methods.base import Method, StepLoss
from trainers.problems.base import Problem


class FlopCounter:
    """Counts floating point operations by tokens; ``count``, for one batch, is called once."""

    def __init__(self, count: Callable[[dict[str, Any]], int]) -> None:
        self._count = count
        self._per_token: int | None = None

    def __call__(self, inputs: dict[str, Any]) -> int:
        """Count the operations of a step."""
        batches = list_batches(inputs)
        tokens = [_tokens_of(batch) for batch in batches]
        total = sum(ids.numel() for ids in tokens)
        if self._per_token is None and tokens[0].numel():
            counted = self._count({**batches[0], "input_ids": tokens[0]})
            self._per_token = counted // tokens[0].numel()
        return (self._per_token or 0) * total


def _tokens_of(batch: dict[str, Any]) -> Tensor:
    """Return a tensor with an element for each token; an empty one if tokens are not known."""
    if batch.get("input_ids") is not None:
        return batch["input_ids"]
    embeddings = batch.get("inputs_embeds")
    return torch.empty(0) if embeddings is None else embeddings[..., 0]


class LossLog:
    """Adds up, on the device, the unweighted losses of each task, their parts, and facts."""

    def __init__(
        self, problems: Mapping[str, Problem[Any]], methods: Sequence[Method], device: torch.device
    ) -> None:
        self._parts = {
            task: {part: (f"loss_{task}_{part}", key) for part, key in problem.part_losses.items()}
            for task, problem in problems.items()
        }
        self._names = {
            task: [
                f"loss_{task}",
                *(name for name, _ in parts.values()),
                *(f"{name}_{task}" for method in methods for name in method.fact_names(task)),
            ]
            for task, parts in self._parts.items()
        }
        names = [name for task_names in self._names.values() for name in task_names]
        self._sums = dict.fromkeys(names, torch.zeros((), device=device))
        self._counts = dict.fromkeys(problems, 0)

    def add(self, task: str, step: StepLoss | None) -> None:
        """Add the loss of a batch; None for one of tasks that share rows, without a label of it."""
        self._counts[task] += 1
        if step is None:
            return
        values = {f"loss_{task}": step.plain}
        for part, (name, key) in self._parts[task].items():
            values[name] = step.outputs[key] * step.weigh(part)
        values |= {f"{name}_{task}": fact for name, fact in step.facts.items()}
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value.detach().mean()

    def flush(self, reduce: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return the mean of each loss since the last call, over batches and (``reduce``) ranks."""
        sums = torch.stack(list(self._sums.values()))
        # ranks differ in their batches of tasks that share rows, of which some have no label
        counts = torch.tensor(list(self._counts.values()), dtype=sums.dtype, device=sums.device)
        values = reduce(torch.cat([sums, counts])).tolist()
        totals = dict(zip(self._sums, values[: len(sums)], strict=True))
        means = {
            name: totals[name] / count
            for task, count in zip(self._counts, values[len(sums) :], strict=True)
            if count
            for name in self._names[task]
        }
        self._sums = dict.fromkeys(self._sums, torch.zeros_like(sums[0]))
        self._counts = dict.fromkeys(self._counts, 0)
        return means
