"""Metrics of each task, and of all of them together."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import EvalPrediction

from trainers.data.task_dataset import Rows
from trainers.problems.aggregates import aggregates, glue_score
from trainers.problems.problem import Decode, Problem
from trainers.task import Task
from trainers.wrapped_models import find_inner

ComputeMetrics = Callable[[EvalPrediction], Mapping[str, float]]


class TaskEvaluator:
    """Measures one task after the other, then all together, on decoded predictions if possible."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        problems: Mapping[str, Problem[Any]],
        model: Any,
        compute_metrics: Mapping[str, ComputeMetrics],
    ) -> None:
        self._counted = {
            name: problem
            for name, problem in problems.items()
            if not tasks[name].training.auxiliary
        }
        self._glue = {name: problems[name] for name, task in tasks.items() if task.in_glue}
        self._decode = getattr(find_inner(model), "decode", None)
        self._compute = compute_metrics

    def decoder(self, task: str) -> Decode | None:
        """Return the function of the model that decodes the logits of a task, if it has one."""
        return None if self._decode is None else partial(self._decode, task)

    def measure(
        self,
        problem: Problem[Any],
        rows: Rows,
        order: NDArray[np.int64],
        prediction: EvalPrediction,
    ) -> dict[str, float]:
        """Compute the metrics of a task from gathered values, whose rows are in ``order``."""
        values = np.asarray(prediction.predictions)
        if problem.joins_rows:
            values = values[np.argsort(order)]
        outputs = problem.collect(values, rows, prediction.label_ids, self.decoder(problem.task))
        metrics = problem.compute_metrics(outputs)
        if problem.task in self._compute:
            own = self._compute[problem.task](_sort(prediction, np.argsort(order)))
            metrics = _join(problem.task, metrics, own)
        return metrics

    def aggregate(self, metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
        """Average the headline metrics, ``<prefix><task>_<metric>``, of all but auxiliary tasks."""
        headlines = {
            name: (problem, metrics.get(f"{prefix}{name}_{problem.headline[0]}"))
            for name, problem in self._counted.items()
        }
        return {f"{prefix}{name}": value for name, value in aggregates(headlines).items()}

    def summarize(self, metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Compute the aggregates and, if there are tasks of GLUE, the GLUE score."""
        summary = self.aggregate(metrics, prefix)
        if self._glue:
            values = {
                name: [metrics[f"{prefix}{name}_{metric}"] for metric in problem.headline]
                for name, problem in self._glue.items()
            }
            summary[f"{prefix}glue"] = glue_score(values)
        return summary


def _sort(prediction: EvalPrediction, places: NDArray[np.int64]) -> EvalPrediction:
    """Return values and labels, if there are any, in another order."""
    labels: Any = prediction.label_ids
    values = np.asarray(prediction.predictions)[places]
    if labels is not None:
        labels = labels[places]
    return EvalPrediction(values, labels)


def _join(task: str, metrics: dict[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """Add the metrics of a user's ``compute_metrics`` to those of a task."""
    if not isinstance(own, Mapping):
        raise TypeError(
            f"compute_metrics of task {task!r} returned a {type(own).__name__}; expected a mapping "
            "from names to numbers"
        )
    if both := sorted(metrics.keys() & own.keys()):
        raise ValueError(
            f"compute_metrics of task {task!r} returned {both[0]!r}, which is a metric of the task "
            "already; rename it"
        )
    return metrics | dict(own)
