"""Sums of losses between two logs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.methods.base import Method, StepLoss
from trainers.problems.problem import Problem


class LossLog:
    """Adds up the unweighted losses of each task, and their parts, on the device.

    Args:
        problems: Problem of each task.
        methods: Methods whose facts are logged, too.
        device: Device of the sums.
    """

    def __init__(
        self, problems: Mapping[str, Problem[Any]], methods: Sequence[Method], device: torch.device
    ) -> None:
        self._parts = {
            task: {f"loss_{task}_{part}": key for part, key in problem.part_losses.items()}
            for task, problem in problems.items()
        }
        self._names = {
            task: [
                f"loss_{task}",
                *parts,
                *(f"{name}_{task}" for method in methods for name in method.fact_names(task)),
            ]
            for task, parts in self._parts.items()
        }
        names = [name for task_names in self._names.values() for name in task_names]
        self._sums = dict.fromkeys(names, torch.zeros((), device=device))
        self._counts = dict.fromkeys(problems, 0)

    def add(self, task: str, step: StepLoss) -> None:
        """Add the loss of a batch."""
        self._counts[task] += 1
        values = {f"loss_{task}": step.plain}
        values |= {name: step.outputs[key] for name, key in self._parts[task].items()}
        values |= {f"{name}_{task}": fact for name, fact in step.facts.items()}
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value.detach().mean()

    def flush(self, reduce: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return the mean of each loss since the last call, over ranks and batches.

        Args:
            reduce: Averages a tensor over ranks.
        """
        sums = torch.stack(list(self._sums.values()))
        totals = dict(zip(self._sums, reduce(sums).tolist(), strict=True))
        means = {
            name: totals[name] / count
            for task, count in self._counts.items()
            if count
            for name in self._names[task]
        }
        self._sums = dict.fromkeys(self._sums, torch.zeros_like(sums[0]))
        self._counts = dict.fromkeys(self._counts, 0)
        return means
