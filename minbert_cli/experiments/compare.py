"""Compare two runs by a paired bootstrap over the rows that both predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.problems.base import Problem
from trainers.problems.metrics import aggregates, glue_score
from trainers.reports.texts import markdown_table

from .scored_rows import ScoredRows

LEVEL = 0.95
# Maximum size of an array in a batch of resamples.
ELEMENTS = 4_000_000
RowsByTask = Mapping[str, ScoredRows]
# Differences are rounded to this many decimals, so that ties are found despite rounding errors.
DIGITS = 12


@dataclass(kw_only=True)
class ComparisonArguments:
    """Flags of ``minbert experiments compare``."""

    resamples: int = field(default=10_000, metadata={"help": "Draws of the bootstrap."})
    seed: int = field(default=0, metadata={"help": "Random seed of the bootstrap."})
    html: str | None = field(
        default=None, metadata={"help": "Also write a page with the two runs side by side."}
    )


@dataclass(frozen=True)
class Difference:
    """The difference between two runs."""

    task: str  # or ``all``
    metric: str
    rows: int
    first: float
    second: float
    low: float  # of the 95 % interval of the difference
    high: float
    p_value: float  # two-sided


def compare_runs(
    first: RowsByTask, second: RowsByTask, *, resamples: int = 10_000, seed: int = 0
) -> list[Difference]:
    """Compare two runs by a paired bootstrap: second minus first, by task, and the aggregates.

    Both get the same rows; p is twice the smaller share of differences on one side of 0 (Efron and
    Tibshirani 1993, sections 13.3 and 15.4; Koehn 2004). The variance of seeds is not included.
    """
    shared = [task for task in first if task in second]
    if not shared:
        raise ValueError(
            f"the runs have no task in common: {', '.join(first)}; {', '.join(second)}"
        )
    if resamples < 1:
        raise ValueError(f"resamples={resamples}; expected 1 or more")
    drawn = {}
    differences = []
    for number, task in enumerate(shared):
        left, right = first[task], second[task]
        _check_same_rows(task, left, right)
        drawn[task] = _resample(left, right, resamples, np.random.default_rng([seed, number]))
        metric = left.metric_name
        differences.append(
            _judge(task, metric, len(left.ids), left.metric, right.metric, drawn[task])
        )
    if first.keys() == second.keys() and len(shared) > 1:
        differences += _compare_aggregates(first, second, drawn)
    return differences


def _check_same_rows(task: str, left: ScoredRows, right: ScoredRows) -> None:
    kinds = type(left.problem), type(right.problem)
    # a type that refines the other one predicts the same labels
    if not (issubclass(*kinds) or issubclass(*kinds[::-1])) or left.ids != right.ids:
        raise ValueError(
            f"task {task!r}: the runs were evaluated on different rows ({len(left.ids)} and "
            f"{len(right.ids)}); compare runs with the same validation rows"
        )
    if left.metric_name != right.metric_name:
        raise ValueError(
            f"task {task!r}: the headline metric is {left.metric_name} in one run and "
            f"{right.metric_name} in the other; repeat one with the metric of the other"
        )
    if not np.array_equal(left.labels, right.labels):
        raise ValueError(
            f"task {task!r}: the labels of the runs differ; compare runs with the same labels"
        )
    if len(left.ids) < 2:
        raise ValueError(f"task {task!r}: a bootstrap needs at least two rows")


def _resample(
    left: ScoredRows, right: ScoredRows, resamples: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draw rows, and compute the differences of the runs on them, (resamples,)."""
    # a run that only trains saves the memory of this import
    from scipy.stats import bootstrap

    def difference(rows: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        rows = np.moveaxis(rows, axis, -1)
        return right.score(rows) - left.score(rows)

    found = bootstrap(
        (np.arange(len(left.ids)),),
        difference,
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, ELEMENTS // left.values.size),
        method="percentile",
        rng=generator,
    )
    return found.bootstrap_distribution


def _judge(
    task: str, metric: str, rows: int, first: float, second: float, drawn: NDArray[np.float64]
) -> Difference:
    drawn = drawn.round(DIGITS)  # p counts ties on both sides
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside]).tolist()
    # the difference itself counts as a draw, so that p is never 0
    sides = ((drawn <= 0).sum() + 1, (drawn >= 0).sum() + 1)
    p_value = min(1.0, 2 * min(sides) / (len(drawn) + 1))
    return Difference(task, metric, rows, first, second, low, high, float(p_value))


def _compare_aggregates(
    first: RowsByTask, second: RowsByTask, drawn: Mapping[str, NDArray[np.float64]]
) -> list[Difference]:
    """Compare the aggregates; the rows of each task were drawn independently."""
    left, right = (
        aggregates({task: (rows.problem, rows.metric) for task, rows in run.items()})
        for run in (first, second)
    )
    changes = _change_aggregates({task: rows.problem for task, rows in first.items()}, drawn)
    count = sum(len(rows.ids) for rows in first.values())
    return [
        _judge("all", name, count, left[name], right[name], change)
        for name, change in changes.items()
    ]


def _change_aggregates(
    problems: Mapping[str, Problem[Any]], drawn: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Return the differences of the aggregates on all resamples, each (resamples,)."""
    mean, leaderboard = [], []
    for task, problem in problems.items():
        metric = problem.reported[0]
        change = -drawn[task] if metric.lower_is_better else drawn[task]
        mean.append(change)
        # (r + 1) / 2 halves a difference of correlations
        leaderboard.append(0.5 * change if metric.is_rescaled else change)
    return {"mean": np.mean(mean, axis=0), "leaderboard": np.mean(leaderboard, axis=0)}


def compare_glue(
    first: Mapping[str, Sequence[ScoredRows]],
    second: Mapping[str, Sequence[ScoredRows]],
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Compare the GLUE score of two runs by a paired bootstrap over all validation sets."""
    values: list[dict[str, list[float]]] = [{}, {}]
    changes, count = [], 0
    for number, (task, sets) in enumerate(first.items()):
        drawn = []
        for place, (left, right) in enumerate(zip(sets, second[task], strict=True)):
            _check_same_rows(task, left, right)
            count += len(left.ids)
            for pair in zip(left.by_metric(), right.by_metric(), strict=True):
                # the same rows for every metric of a set
                generator = np.random.default_rng([seed, number, place])
                drawn.append(_resample(*pair, resamples, generator))
                for found, rows in zip(values, pair, strict=True):
                    found.setdefault(task, []).append(rows.metric)
        changes.append(np.mean(drawn, axis=0))
    before, after = map(glue_score, values)
    return _judge("all", "glue", count, before, after, np.mean(changes, axis=0))


def describe_differences(differences: list[Difference]) -> str:
    """Format differences as a Markdown table."""
    lines = [["task", "metric", "rows", "first", "second", "difference", "95 % interval", "p"]]
    lines += [
        [
            found.task,
            found.metric,
            f"{found.rows:,}",
            f"{found.first:.4f}",
            f"{found.second:.4f}",
            f"{found.second - found.first:+.4f}",
            f"[{found.low:+.4f}, {found.high:+.4f}]",
            f"{found.p_value:.4f}",
        ]
        for found in differences
    ]
    return markdown_table(lines)
