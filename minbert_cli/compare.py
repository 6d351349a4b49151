"""``minbert experiments compare``: two runs by a paired bootstrap over the rows of both."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.problems import read_problems
from trainers.problems.base import AnyProblem
from trainers.problems.metrics import aggregates
from trainers.problems.text import Contrastive
from trainers.reports.results import read_metrics
from trainers.reports.texts import markdown_table

ALL = "all tasks"
LEVEL = 0.95
RESAMPLES = 10_000
SEED = 0
# Differences are rounded to this many decimals, so that ties are found despite rounding errors.
DIGITS = 12


@dataclass(frozen=True)
class PairedDifference:
    """Second minus first run on the same validation rows."""

    task: str  # or ``all tasks``
    metric: str
    rows: int
    first: float
    second: float
    low: float  # of the 95 % interval of the difference
    high: float
    p_value: float  # two-sided

    def list_cells(self) -> list[str]:
        """List the cells of a row of the table."""
        ends = f"[{self.low:+.4f}, {self.high:+.4f}]"
        values = f"{self.first:.4f}", f"{self.second:.4f}", f"{self.second - self.first:+.4f}"
        return [self.task, self.metric, f"{self.rows:,}", *values, ends, f"{self.p_value:.4f}"]


@dataclass(frozen=True)
class ScoredRows:
    """Predictions of a run for the rows of a task, N."""

    problem: AnyProblem
    ids: list[str]  # (N,)
    values: NDArray[Any]  # the values to resample, (N, ...); see ``Problem.sample``
    labels: NDArray[Any]  # (N, ...)
    texts: str = ""  # hash of the texts

    def score(self, rows: Any = slice(None)) -> float:
        """Compute the headline metric of some of the rows, or of all."""
        return self.problem.score(self.values[rows], self.labels[rows])


def compare(first: Path, second: Path) -> str:
    """Compare two runs of the same validation rows; return a text with a table."""
    if first.resolve() == second.resolve():
        raise ValueError(f"compare needs two runs, but both are {str(first)!r}")
    differences = compare_runs(*map(read_scored_rows, (first, second)))
    # a mean of a run also counts such tasks, whose predictions it does not write
    vectors = {
        task
        for results in map(read_metrics, (first, second))
        for task, problem in read_problems(results).items()
        if isinstance(problem, Contrastive)
        and f"{task}_{problem.headline[0]}" in results["validation"]["metrics"]
    }
    note = ""
    if vectors:
        differences = [difference for difference in differences if difference.task != ALL]
        note = f" Vectors are not compared, and so no means: {', '.join(sorted(vectors))}."
    head = ["task", "metric", "rows", "first", "second", "difference", "95 % interval", "p"]
    return "\n\n".join(
        [
            f"first: {first}\nsecond: {second}",
            markdown_table([head, *(difference.list_cells() for difference in differences)]),
            "Difference of the second to the first on the same validation rows, with interval and "
            f"p of a paired bootstrap ({RESAMPLES:,} resamples; those for which "
            f"a metric is undefined do not count). It does not cover other seeds.{note}",
        ]
    )


def read_scored_rows(folder: Path) -> dict[str, ScoredRows]:
    """Read the predictions of a run for its validation rows; none of auxiliary tasks.

    Raises:
        ValueError: If the folder has none.
    """
    scored = {}
    for task, problem in read_problems(read_metrics(folder)).items():
        path = folder / "predictions" / f"{task}-dev.npz"
        if path.is_file():
            with np.load(path) as content:
                ids, values, labels = (content[name] for name in ("ids", "values", "labels"))
                texts = str(content["texts"])
            scored[task] = ScoredRows(problem, ids.tolist(), values, labels, texts)
    if not scored:
        raise ValueError(
            f"{str(folder)!r} has no predictions of a task with labels (predictions/*.npz); "
            "expected runs of minbert finetune"
        )
    return scored


def compare_runs(
    first: Mapping[str, ScoredRows], second: Mapping[str, ScoredRows], *, resamples: int = RESAMPLES
) -> list[PairedDifference]:
    """Compare two runs by a paired bootstrap: second minus first, by task, and the aggregates.

    Both get the same rows; p is twice the smaller share of differences on one side of 0 (Efron and
    Tibshirani 1993, sections 13.3 and 15.4; Koehn 2004). The variance of seeds is not included.

    Returns:
        A difference for every task of both runs, and for the mean and the leaderboard if the runs
        have the same tasks, and more than one.

    Raises:
        ValueError: If the runs share no task, or have other rows or labels of one.
    """
    shared = [task for task in first if task in second]
    if not shared:
        raise ValueError(
            f"the runs have no task in common: {', '.join(first)}; {', '.join(second)}"
        )
    differences, changes, rescaled = [], [], []
    for number, task in enumerate(shared):
        left, right = first[task], second[task]
        _check_same_rows(task, left, right)
        metric, count = left.problem.reported[0], len(left.ids)
        generator, drawn = np.random.default_rng([SEED, number]), np.empty(resamples)
        for place in range(resamples):
            rows = generator.integers(count, size=count)
            drawn[place] = right.score(rows) - left.score(rows)
        # as in the results, what is undefined counts as 0
        values = float(np.nan_to_num(left.score())), float(np.nan_to_num(right.score()))
        differences.append(_judge(task, left.problem.headline[0], count, values, drawn))
        changes.append(-drawn if metric.lower_is_better else drawn)
        # (r + 1) / 2 halves a difference of correlations
        rescaled.append(0.5 * changes[-1] if metric.is_rescaled else changes[-1])
    if first.keys() == second.keys() and len(shared) > 1:
        # the rows of each task were drawn independently
        count = sum(len(scored.ids) for scored in first.values())
        old, new = (
            aggregates(
                {
                    task: (scored.problem, float(np.nan_to_num(scored.score())))
                    for task, scored in run.items()
                }
            )
            for run in (first, second)
        )
        for name, tasks in (("mean", changes), ("leaderboard", rescaled)):
            drawn = np.mean(tasks, axis=0)
            differences.append(_judge(ALL, name, count, (old[name], new[name]), drawn))
    return differences


def _check_same_rows(task: str, left: ScoredRows, right: ScoredRows) -> None:
    kinds = type(left.problem), type(right.problem)
    names = left.problem.headline[0], right.problem.headline[0]
    problem = ""
    # a type that refines the other one predicts the same labels
    if not (issubclass(*kinds) or issubclass(*kinds[::-1])) or left.ids != right.ids:
        problem = (
            f"the runs were evaluated on different rows ({len(left.ids)} and {len(right.ids)}); "
            "compare runs with the same validation rows"
        )
    elif names[0] != names[1]:
        problem = (
            f"the headline metric is {names[0]} in one run and {names[1]} in the other; repeat one "
            "with the metric of the other"
        )
    elif not np.array_equal(left.labels, right.labels):
        problem = "the labels of the runs differ; compare runs with the same labels"
    elif left.texts != right.texts:
        problem = "the texts of the runs differ; compare runs with the same validation rows"
    elif len(left.ids) < 2:
        problem = "a bootstrap needs at least two rows"
    if problem:
        raise ValueError(f"task {task!r}: {problem}")


def _judge(
    task: str, metric: str, rows: int, values: tuple[float, float], drawn: NDArray[np.float64]
) -> PairedDifference:
    drawn = drawn[np.isfinite(drawn)].round(DIGITS)  # p counts ties on both sides
    if not len(drawn):
        raise ValueError(f"task {task!r}: {metric} is undefined for these rows")
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside]).tolist()
    # the difference itself counts as a draw, so that p is never 0
    sides = ((drawn <= 0).sum() + 1, (drawn >= 0).sum() + 1)
    p_value = min(1.0, 2 * min(sides) / (len(drawn) + 1))
    return PairedDifference(task, metric, rows, *values, low, high, float(p_value))
