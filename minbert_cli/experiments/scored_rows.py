"""Predictions of a run for its validation rows, read from its folder and scored again."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.problems import make_problems
from trainers.problems.base import Problem
from trainers.reports.results import file_split, read_metrics

# Prediction files are float32; metrics.json has the metrics of the original predictions.
ROUNDING = 1e-4


@dataclass(frozen=True)
class ScoredRows:
    """Predictions of a run for the rows of a task."""

    problem: Problem[Any]
    ids: list[str]  # (N,)
    values: NDArray[Any]  # the values to resample, (N, ...); see ``Problem.sample``
    labels: NDArray[Any]  # (N,); lists for questions and tagged sentences

    @property
    def metric_name(self) -> str:
        """Name of the headline metric."""
        return self.problem.headline[0]

    def by_metric(self) -> "list[ScoredRows]":
        """Return the rows once for every headline metric."""
        return [
            replace(self, problem=self.problem.with_headline(name))
            for name in self.problem.headline
        ]

    @property
    def metric(self) -> float:
        """The headline metric."""
        return float(self.score(np.arange(len(self.ids))))

    def score(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the headline metric of draws of rows, (..., N) -> (...)."""
        return self.problem.score(self.values[rows], self.labels[rows])


def read_scored_rows(
    folder: Path, labels: Mapping[str, tuple[list[str], NDArray[Any]]], split: str = "validation"
) -> dict[str, ScoredRows]:
    """Read and check the predictions for a held-out set; ``labels`` are ids and labels, (N,)."""
    content = read_metrics(folder)
    heads = {task: content["tasks"][task] for task in labels}
    problem_types = {task: head["problem_type"] for task, head in heads.items()}
    problems = make_problems(problem_types, heads, content.get("metrics"))
    scored = {}
    for task, (ids, references) in labels.items():
        problem, stem = problems[task], f"{task}-{file_split(split)}"
        outputs = problem.read(folder / "predictions", stem, ids, references)
        rows = ScoredRows(problem, ids, problem.sample(outputs)[0], references)
        recorded = content[split]["metrics"][f"{task}_{rows.metric_name}"]
        if not math.isclose(rows.metric, recorded, abs_tol=ROUNDING):
            file = problem.find_file(folder / "predictions", stem)
            raise ValueError(
                f"{str(file)!r}: with the current labels the {rows.metric_name} is "
                f"{rows.metric:.4f}, but metrics.json has {recorded:.4f}; the labels have changed, "
                "repeat the run"
            )
        scored[task] = rows
    return scored
