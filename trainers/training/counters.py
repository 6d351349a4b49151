"""Sums of losses, counts of tokens and of operations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.data.collating import list_batches
from trainers.data.masking import IGNORED_LABEL
from trainers.methods.base import Method, StepLoss
from trainers.problems.base.problem import Problem

FEWEST = 1e-6  # labels of a batch on average, to divide by


def mean_targets(
    steps: Sequence[dict[str, Any]],
    problems: Mapping[str, Problem[Any]],
    groups: Mapping[str, Sequence[str]],
    device: torch.device,
    reduce: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """Count the labels of some tasks, as a mean over their batches and ranks.

    These are the labeled tokens of token-level tasks, and the labels of tasks that share rows, by
    ``groups``: batches have different numbers of them, so that the mean of the batches' means is
    not the mean over all of them.
    """
    counts: dict[str, list[Tensor]] = {}
    for batch in (batch for inputs in steps for batch in list_batches(inputs)):
        name, labels = batch["task"], batch.get("labels")
        if problems[name].predicts_tokens:
            count = (batch["labels"] != IGNORED_LABEL).sum().float()
            counts.setdefault(name, []).append(count.to(device))
        elif isinstance(labels, Mapping):
            for task in groups[name]:
                count = torch.tensor(float(len(labels.get(task, ()))), device=device)
                counts.setdefault(task, []).append(count)
    if not counts:
        return {}
    means = torch.stack([torch.stack(task_counts).mean() for task_counts in counts.values()])
    # the loss of no label at all is 0
    return dict(zip(counts, reduce(means).clamp(min=FEWEST), strict=True))


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
