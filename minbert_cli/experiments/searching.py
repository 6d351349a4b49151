"""Rows of the table whose points a study chooses, one after the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from minbert_cli.run_folder import delete_checkpoints
from modeling_minbert import unknown
from trainers.files import reason_of
from trainers.reports.results import read_metrics

from .campaign import Campaign, Failure, State, order_runs
from .planning import PRETRAIN, PlannedRun, Row, RowPlan
from .search.points import Search
from .search.study import Study, Trial

# Returns the state of runs whose folders exist, by folder.
FindStates = Callable[[Sequence[PlannedRun]], Mapping[Path, State]]
Done = tuple[PlannedRun, Failure | None]


def sample_rows(plan: RowPlan) -> list[Row]:
    """Plan rows that together have every choice and both ends of every range, to check them."""
    search = _search(plan)
    return [plan.at(point) for point in search.extremes()]


def finished_rows(plan: RowPlan) -> list[Row]:
    """Plan the rows of the trials of a row that was not selected, to show them."""
    rows: list[Row] = []
    with suppress(ValueError):  # an invalid row matters only if it was selected
        rows = [plan.at(trial.point) for trial in ended_trials(plan) if trial.state == "complete"]
    return [row for row in rows if row.runs]


def expect_rows(plan: RowPlan) -> list[Row]:
    """Plan random rows in place of the trials to do, to estimate their time."""
    points = _search(plan).points()
    return [plan.at(point) for point in points[len(ended_trials(plan)) :]]


def ended_trials(plan: RowPlan) -> list[Trial]:
    """Return the trials of a row that were done before, without writing anything."""
    path = study_file(plan)
    trials = Study(path, _search(plan), None).trials if path.is_file() else []
    return [trial for trial in trials if trial.state != "running"]


def describe(plan: RowPlan) -> str:
    """Describe the trials to do of a row in a line."""
    search, ended = _search(plan), len(ended_trials(plan))
    total = search.trials or len(search.points())
    left = max(0, total - ended)
    how = ", chosen by the results of earlier ones" if search.method == "tpe" else ""
    how += ", stopped early below their median" if search.prune else ""
    seeds = f", {len(plan.seeds)} seeds each" if len(plan.seeds) > 1 else ""
    return f"to do    {plan.name}: {left} of {max(total, ended)} trials{seeds}{how}"


def study_file(plan: RowPlan) -> Path:
    """Return the path of the study of a row."""
    return plan.root / f"{plan.slug}.study.jsonl"


def _search(plan: RowPlan) -> Search:
    if plan.search is None:
        raise ValueError(f"{plan.where} has no search")
    return plan.search


def describe_settings(plan: RowPlan) -> dict[str, Any]:
    """Return what all trials of a row have in common: their recipes without what is searched."""
    fields = _search(plan).fields
    (run, *_) = plan.at(_search(plan).extremes()[0]).runs.values()
    own = [path for path in fields if not path.startswith(PRETRAIN)]
    # a pre-training has a folder for each of its recipes
    own += ["output_dir", "seed", *([] if run.after is None else ["model_name_or_path"])]
    settings = _without(run.recipe, own)
    if run.after is not None:
        theirs = [path.removeprefix(PRETRAIN) for path in fields if path.startswith(PRETRAIN)]
        before = _without(run.after.recipe, [*theirs, "output_dir"])
        settings |= {f"{PRETRAIN}{key}": value for key, value in before.items()}
    return settings | {"seeds": list(plan.seeds)}


def _without(recipe: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return a recipe without the values of dotted paths."""
    kept = deepcopy(dict(recipe))
    for path in paths:
        *parents, last = path.split(".")
        owner: Any = kept
        for name in parents:
            owner = owner.get(name) if isinstance(owner, dict) else None
        if isinstance(owner, dict):
            owner.pop(last, None)
    return kept


@dataclass
class SearchedRow:
    """A row with a study.

    Args:
        plan: The row.
        study: Its trials.
        find_states: Looks up the runs whose folders exist.
        rows: Rows of the trials whose results are there or are being made.
        waiting: Folders of runs of these rows that have not ended.
    """

    plan: RowPlan
    study: Study
    find_states: FindStates
    rows: list[Row] = field(default_factory=list)
    waiting: set[Path] = field(default_factory=set)

    @classmethod
    def open(cls, plan: RowPlan, find_states: FindStates, *, overwrite: bool) -> "SearchedRow":
        """Open or create the study.

        Raises:
            ValueError: As for `Study`; or trials were done with other settings or data.
        """
        study = Study(study_file(plan), _search(plan), describe_settings(plan), overwrite=overwrite)
        search = cls(plan, study, find_states)
        known = [plan.at(trial.point) for trial in study.trials if trial.state == "complete"]
        used = [run for row in known for run in row.runs.values() if run.folder.exists()]
        states = search._states(used)
        if overwrite and "new" in states.values():
            study.restart()
            return search
        is_done = {folder for folder, state in states.items() if state == "done"}
        search.rows = [row for row in known if is_done.issuperset(_folders(row))]
        return search

    @property
    def left(self) -> int:
        """Number of runs to do, if no trial is pruned."""
        ended = [trial for trial in self.study.trials if trial.state != "running"]
        return max(0, self.study.size - len(ended)) * len(self.plan.seeds)

    def do(self, campaign: Campaign, announce: Callable[[PlannedRun], None]) -> Iterator[Done]:
        """Do the trials; the next command resumes those that failed."""
        failed: set[int] = set()
        while (trial := self.study.ask(failed)) is not None:
            row = self.plan.at(trial.point)
            try:
                for run, failure in self._try(trial, row, campaign, announce):
                    if failure is not None:
                        failed.add(trial.number)
                    yield run, failure
                if trial.number not in failed and not self.study.is_pruned(trial):
                    self.study.complete(trial, self._measure(row))
            except ValueError as error:
                failed.add(trial.number)
                yield next(iter(row.runs.values())), Failure(f"failed: {reason_of(error)}")

    def _try(
        self, trial: Trial, row: Row, campaign: Campaign, announce: Callable[[PlannedRun], None]
    ) -> Iterator[Done]:
        """Do the runs of a trial until it is stopped."""
        self.rows.append(row)
        self.waiting |= _folders(row)
        runs = self._watch(order_runs([row]), trial)
        part = replace(campaign, runs=runs, states=self._states(runs))
        for run, failure in part.do(announce):
            self.waiting.discard(run.folder)
            if failure is not None and self.study.is_pruned(trial):
                delete_checkpoints(run.folder)
                self.rows.remove(row)
                yield run, None
                break
            yield run, failure

    def _watch(self, runs: Sequence[PlannedRun], trial: Trial) -> list[PlannedRun]:
        """Let the run of the first seed be pruned."""
        first = self.plan.seeds[0]
        given = (str(self.study.path), str(trial.number))
        is_watched = self.study.search.prune
        return [
            replace(run, trial=given) if is_watched and run.recipe.get("seed") == first else run
            for run in runs
        ]

    def _states(self, runs: Sequence[PlannedRun]) -> dict[Path, State]:
        used = [run for run in runs if run.folder.exists()]
        states: dict[Path, State] = {run.folder: "new" for run in runs}
        return states | dict(self.find_states(used) if used else {})

    def _measure(self, row: Row) -> float:
        """Average the objective over the seeds."""
        name, values = self.study.search.objective, []
        for run in row.runs.values():
            metrics: dict[str, Any] = read_metrics(run.folder)["validation"]["metrics"]
            if name not in metrics:
                raise ValueError(
                    f"{self.plan.where}: search: {unknown('objective', name, metrics)}"
                )
            values.append(float(metrics[name]))
        return mean(values)

    def describe(self) -> str:
        """Describe the trials in a line below the table."""
        trials, best = self.study.trials, self.study.best
        pruned = sum(trial.state == "pruned" for trial in trials)
        done = [trial for trial in trials if trial.state == "complete"]
        shown = {folder for row in self.rows for folder in _folders(row)}
        lost = [one for one in done if not shown.issuperset(_folders(self.plan.at(one.point)))]
        line = f"Search {self.plan.name}: {len(done)} trials"
        line += f", {pruned} more stopped early" if pruned else ""
        if lost:
            line += f" ({len(lost)} without results in the folder are not in the table)"
        if best is None:
            return f"{line}."
        point = ", ".join(f"{name}={value}" for name, value in best.point.items())
        return (
            f"{line}; the best {self.study.search.objective} is {best.value:.4f}, with {point}. "
            "It was chosen by these numbers, so repeat it with other seeds."
        )


def _folders(row: Row) -> set[Path]:
    return {run.folder for run in row.runs.values()}
