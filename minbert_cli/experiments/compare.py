"""``minbert experiments compare``: two runs by a paired bootstrap over the rows of both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets_scripts import load_task
from minbert_cli.command_line import expand_path
from minbert_cli.recipe import parse_recipe
from minbert_cli.run_folder import FREE_SETTINGS, read_settings
from trainers import UsageError
from trainers.problems import read_problems
from trainers.problems.base import Problem
from trainers.problems.metrics import aggregates
from trainers.reports.comparison import ALL, PairedDifference, write_comparison
from trainers.reports.results import file_split, read_metrics
from trainers.reports.texts import markdown_table

from .campaign import list_labeled

LEVEL = 0.95
# Maximum size of an array in a batch of resamples.
ELEMENTS = 4_000_000
# Differences are rounded to this many decimals, so that ties are found despite rounding errors.
DIGITS = 12
# Prediction files are float32; metrics.json has the metrics of the original predictions.
ROUNDING = 1e-4
Labels = dict[str, tuple[list[str], NDArray[Any]]]  # ids and labels, (N,), by task


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

    @property
    def metric(self) -> float:
        """The headline metric."""
        return float(self.score(np.arange(len(self.ids))))

    def score(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the headline metric of draws of rows, (..., N) -> (...)."""
        return self.problem.score(self.values[rows], self.labels[rows])


def read_scored_rows(folder: Path, labels: Labels) -> dict[str, ScoredRows]:
    """Read and check the predictions for the validation rows."""
    content = read_metrics(folder)
    problems = read_problems(content)
    scored = {}
    for task, (ids, references) in labels.items():
        problem, stem = problems[task], f"{task}-{file_split('validation')}"
        outputs = problem.read(folder / "predictions", stem, ids, references)
        rows = ScoredRows(problem, ids, problem.sample(outputs)[0], references)
        recorded = content["validation"]["metrics"][f"{task}_{rows.metric_name}"]
        if not math.isclose(rows.metric, recorded, abs_tol=ROUNDING):
            file = problem.find_file(folder / "predictions", stem)
            raise ValueError(
                f"{str(file)!r}: with the current labels the {rows.metric_name} is "
                f"{rows.metric:.4f}, but metrics.json has {recorded:.4f}; the labels have changed, "
                "repeat the run"
            )
        scored[task] = rows
    return scored


RowsByTask = Mapping[str, ScoredRows]


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


def load_labels(folder: Path) -> Labels:
    """Load ids and labels of the validation rows by task, without auxiliary tasks."""
    labels: Labels = {}
    for name, described in list_labeled(read_settings(folder)).items():
        if not described.training.auxiliary:
            references = load_task(described.data).references("validation")
            if references is not None:
                labels[name] = references
    if not labels:
        raise ValueError(
            f"{str(folder)!r} has no task with labels; expected runs of minbert finetune"
        )
    return labels


def parse_folders(argv: Sequence[str]) -> list[Path]:
    """Return the two folders at the start of a command line."""
    folders = [Path(expand_path(word)) for word in argv[:2] if not word.startswith("--")]
    if len(folders) != 2:
        raise UsageError("expected two folders of runs: compare FIRST_RUN SECOND_RUN")
    if folders[0].resolve() == folders[1].resolve():
        raise ValueError(f"compare needs two runs, but both are {str(folders[0])!r}")
    return folders


def compare(argv: Sequence[str]) -> str:
    """Compare two runs of the same validation rows: ``FIRST_RUN SECOND_RUN [--flag value ...]``.

    With ``--html`` a page shows both runs. It is also written if they cannot be compared row by
    row, as after different validation rows, and then says why.
    """
    folders = parse_folders(argv)
    (arguments,) = parse_recipe((ComparisonArguments,), list(argv[2:]))
    if arguments.html is None:
        return describe(folders, compare_rows(folders, arguments), arguments.resamples)
    settings = differing_settings(*map(read_settings, folders))
    differences: list[Difference] = []
    try:
        differences = compare_rows(folders, arguments)
        text = describe(folders, differences, arguments.resamples)
        note = text.rpartition("\n")[2]
    except (ValueError, OSError) as error:
        text = note = f"No paired difference: {error}"
    paired = [
        PairedDifference(
            ALL if one.task == "all" else one.task, one.metric, one.low, one.high, one.p_value
        )
        for one in differences
    ]
    path = Path(expand_path(arguments.html))
    write_comparison(folders, path, settings=settings, differences=paired, note=note)
    return f"{text}\n\npage: {path}"


def compare_rows(folders: Sequence[Path], arguments: ComparisonArguments) -> list[Difference]:
    """Compare two runs by their predictions."""
    first, second = (read_scored_rows(folder, load_labels(folder)) for folder in folders)
    return compare_runs(first, second, resamples=arguments.resamples, seed=arguments.seed)


def describe(folders: Sequence[Path], differences: list[Difference], resamples: int) -> str:
    """Format a comparison as text."""
    return (
        f"first: {folders[0]}\nsecond: {folders[1]}\n\n{describe_differences(differences)}\n\n"
        f"Difference of the second to the first on the same validation rows, with interval and p "
        f"of a paired bootstrap ({resamples:,} resamples). It does not cover other seeds."
    )


def differing_settings(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """List the settings with different values that can affect results, keys with dots."""
    left, right = (_flatten(one) for one in (first, second))
    return [
        (key, left.get(key), right.get(key))
        for key in dict.fromkeys((*left, *right))
        if key.partition(".")[0] not in FREE_SETTINGS and left.get(key) != right.get(key)
    ]


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        flat |= _flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
