"""The one rule of all losses: a loss is a mean over its terms, in training and in evaluation.

Terms are rows, tokens or numbers with a label; the model says which (``count_terms``). Batches have
different numbers of them, so the mean of the batches' means is not the mean over all terms. A batch
therefore weighs as much as it has terms: among the batches of its task in an optimizer step, over
micro-batches and processes, and among those of an evaluation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.data.collating import list_batches
from trainers.data.masking import IGNORED_LABEL
from trainers.methods.base import Method, StepLoss, Terms
from trainers.problems.base import Problem
from trainers.wrapped_models import find_inner

TERMS = "terms"  # key of a batch: its terms by task and part
WHOLE = "loss"  # the part of a loss that has no others
FEWEST = 1e-6  # terms of a batch on average, to divide by


class TermCounter:
    """Counts the terms of batches.

    Args:
        model: The model. One without ``count_terms`` has a term for each label that is not -100.
        problems: Problem of each task.
        groups: The tasks whose labels are in the batches of each task.
        methods: The training methods.
    """

    def __init__(
        self,
        model: Any,
        problems: Mapping[str, Problem[Any]],
        groups: Mapping[str, Sequence[str]],
        methods: Sequence[Method],
    ) -> None:
        self._problems, self._groups, self._methods = problems, groups, methods
        inner: Any = find_inner(model)
        self._count: Callable[[str, Tensor], Tensor] = getattr(inner, "count_terms", count_labels)
        # losses of the rows of all processes, whose terms are theirs, too
        self._joint = {task for task in problems if _joins_processes(inner, task)}

    def count_parts(self, task: str, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Count the terms of each part of the loss of a batch."""
        problem = self._problems[task]
        if batch.get("labels") is None:
            rows = batch.get("num_rows")
            per_row = problem.head.get("num_sentences") or 1
            return {WHOLE: count_sequences(batch) / per_row if rows is None else rows}
        names = problem.part_labels or {WHOLE: "labels"}
        return {part: self._count(task, batch[name]) for part, name in names.items()}

    def mark(
        self,
        steps: Iterable[dict[str, Any]],
        device: torch.device,
        reduce: Callable[[Tensor], Tensor],
    ) -> None:
        """Put ``Terms`` into the batches of an optimizer step.

        Args:
            steps: The micro-batches.
            device: Where the counts are computed.
            reduce: Averages a tensor over the processes.
        """
        batches = [batch for inputs in steps for batch in list_batches(inputs)]
        entries: list[tuple[dict[str, Any], str, str]] = []
        counts: list[Tensor] = []
        for batch in batches:
            batch[TERMS] = {}
            for task, parts in self._count_all(batch).items():
                batch[TERMS][task] = {}
                for part, count in parts.items():
                    entries.append((batch, task, part))
                    counts.append(torch.as_tensor(count, dtype=torch.float32, device=device))
        if not counts:
            return
        everywhere = reduce(torch.stack(counts)).unbind()
        sums: dict[tuple[str, str], list[Tensor]] = {}
        for (_, task, part), number in zip(entries, everywhere, strict=True):
            sums.setdefault((task, part), []).append(number)
        # without any term the loss is 0
        means = {key: torch.stack(each).mean().clamp(min=FEWEST) for key, each in sums.items()}
        for (batch, task, part), own, shared in zip(entries, counts, everywhere, strict=True):
            count = shared if task in self._joint and part == WHOLE else own
            batch[TERMS][task][part] = Terms(count, means[task, part])

    def _count_all(self, batch: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Count the terms of a batch, by task and part; 0 for tasks without a label in it."""
        labels = batch.get("labels")
        found = {}
        for task in self._groups[batch["task"]]:
            inputs = {**batch, "task": task}
            if isinstance(labels, Mapping):
                inputs["labels"] = labels.get(task, torch.zeros(0))
            found[task] = self.count_parts(task, inputs)
            for method in self._methods:
                found[task] |= method.count_terms(task, inputs)
        return found


def count_sequences(inputs: Mapping[str, Any]) -> Any:
    """Count the sequences of a batch, padded or packed."""
    offsets = inputs.get("cu_seq_lens_q")
    if offsets is not None:
        return len(offsets) - 1
    mask = inputs.get("attention_mask")
    if mask is None:
        mask = next(value for value in inputs.values() if isinstance(value, Tensor))
    return mask.ne(0).any(dim=-1).sum()


def _joins_processes(model: Any, task: str) -> bool:
    if not (hasattr(model, "gather_rows") and hasattr(model.config, "task")):
        return False
    return getattr(getattr(model.config.task(task), "loss_function", None), "compares_rows", False)


def count_labels(task: str, labels: Tensor) -> Tensor:
    """Count the labels of a batch."""
    del task
    return (labels != IGNORED_LABEL).sum()


def split_loss(problem: Problem[Any], loss: Tensor, outputs: Any) -> dict[str, Tensor]:
    """Return the parts of a loss, each a mean over its own terms, by name."""
    return {part: outputs[key] for part, key in problem.part_losses.items()} or {WHOLE: loss}


def weigh_loss(
    problem: Problem[Any], loss: Tensor, outputs: Any, terms: Mapping[str, Terms]
) -> StepLoss:
    """Weigh the loss of a forward pass by its terms, if it is not the only one of its step."""
    if terms:
        parts = split_loss(problem, loss, outputs).items()
        weighted = [value * terms[part].weight for part, value in parts]
        loss = sum(weighted[1:], weighted[0])
    return StepLoss(loss, loss, outputs, terms=terms)


class LossMean:
    """The mean of a loss over all terms of an evaluation."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Tensor]] = {}

    def add(self, parts: Mapping[str, Tensor], counts: Mapping[str, Any]) -> None:
        """Add the parts of the loss of a batch, and their numbers of terms."""
        for part, value in parts.items():
            loss = value.detach().float().mean()
            count = torch.as_tensor(counts[part], dtype=torch.float32, device=loss.device)
            self._sums.setdefault(part, []).append(torch.stack([loss * count, count]))

    def compute(self, reduce: Callable[[Tensor], Tensor]) -> float | None:
        """Return the mean over all batches and, by ``reduce``, processes; None without a loss."""
        if not self._sums:
            return None
        sums = reduce(torch.stack([torch.stack(each).sum(dim=0) for each in self._sums.values()]))
        return float((sums[:, 0] / sums[:, 1].clamp(min=FEWEST)).sum())
