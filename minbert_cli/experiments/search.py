"""Searches: rows whose trials optuna chooses, and the process of a trial that may be stopped.

The trials of a row are an optuna study in a journal, which optuna's own tools read, too::

    optuna.load_study(study_name="minbert", storage=JournalStorage(JournalFileBackend(path)))

A process of `minbert experiments` fine-tunes a trial that may be stopped::

    python -m minbert_cli.experiments.search STUDY NUMBER RECIPE [--flag value ...]
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from minbert_cli import finetune
from minbert_cli.recipe import read_recipe
from minbert_cli.run_folder import delete_checkpoints
from modeling_minbert import unknown
from trainers import reason_of
from trainers.reports.figures import LIGHT, new_figure, style_axes
from trainers.reports.results import read_metrics

from .campaign import Failure, States, order_runs
from .plan import PlannedRun, Point, Row, RowPlan, Search, show

NAME = "minbert"
INSTALL = "needs optuna: pip install 'minbert[search]'"
# Trials that are never stopped: a median of fewer says little.
FIRST_TRIALS = 5
MOST_COLUMNS = 3
MOST_FIELDS = 8  # panels of more fields would be too small

# Does runs, as ``do_runs`` with the settings of the campaign.
DoRuns = Callable[[Sequence[PlannedRun], States], Iterator[tuple[PlannedRun, Failure | None]]]


def import_optuna(where: str) -> Any:
    """Import optuna without its messages; ValueError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise ValueError(f"{where} {INSTALL}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_study(path: Path, search: Search | None = None) -> Any:
    """Open the study of a file, or create it for a search.

    Raises:
        ValueError: If the file cannot be read, or optuna is not installed.
    """
    optuna = import_optuna("a search")
    backend = optuna.storages.journal
    try:
        # the other kind of lock needs symbolic links, which not every file system has
        lock = backend.JournalFileOpenLock(str(path))
        storage = optuna.storages.JournalStorage(
            backend.JournalFileBackend(str(path), lock_obj=lock)
        )
        pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS)
        if search is None or path.stat().st_size:  # creating one would write, too
            return optuna.load_study(study_name=NAME, storage=storage, pruner=pruner)
        return optuna.create_study(
            study_name=NAME, storage=storage, pruner=pruner, direction=search.direction
        )
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as a study ({error}); delete it to start again"
        ) from None


def study_file(plan: RowPlan) -> Path:
    """Return the path of the study of a row."""
    return plan.folder.with_name(f"{plan.folder.name}.study.jsonl")


def ended_trials(study: Any, state: str | None = None) -> list[Any]:
    """Return the trials that are complete, pruned or repeats; or only those of one state."""
    trials = study.get_trials(deepcopy=False)
    return [
        trial
        for trial in trials
        if (trial.state.name == state if state else trial.state.name in ("COMPLETE", "PRUNED"))
    ]


def find_point(search: Search, trial: Any) -> Point:
    """Return the values of a trial; choices are JSON in a study, since optuna mixes no types."""
    return {
        name: trial.params[name] if isinstance(values, dict) else json.loads(trial.params[name])
        for name, values in search.fields.items()
    }


def finished_rows(plan: RowPlan) -> list[Row]:
    """Plan the rows of the complete trials of a search, without writing anything."""
    if plan.search is None or not study_file(plan).is_file():
        return []
    trials = ended_trials(open_study(study_file(plan)), "COMPLETE")
    rows = [plan.at(find_point(plan.search, trial), trial.number) for trial in trials]
    return [row for row in rows if any(run.folder.exists() for run in row.runs.values())]


def describe_search(plan: RowPlan) -> str:
    """Describe the trials to do of a row in a line."""
    search, path = plan.known_search, study_file(plan)
    ended = len(ended_trials(open_study(path))) if path.is_file() else 0
    how = ", chosen by the results of earlier ones" if search.method == "tpe" else ""
    how += ", stopped early below their median" if search.prune else ""
    seeds = f", {len(plan.seeds)} seeds each" if len(plan.seeds) > 1 else ""
    left, total = max(0, search.size - ended), max(search.size, ended)
    return f"to do    {plan.name}: {left} of {total} trials{seeds}{how}"


def start_search(plan: RowPlan, *, overwrite: bool, restart: bool = False) -> "RunningSearch":
    """Open or create the study of a row; ``restart`` deletes its trials.

    Raises:
        ValueError: If its trials have other settings than the search and must not be deleted.
    """
    path, search = study_file(plan), plan.known_search
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.is_file() else b""
    if not content.endswith(b"\n"):
        # a line that a process could not write to its end would spoil the next one
        path.write_bytes(content[: content.rfind(b"\n") + 1])
    names = ("fields", "method", "seed", "prune", "objective", "direction")  # trials may be added
    settings = {name: getattr(search, name) for name in names}
    settings |= {"flags": dict(plan.flags), "seeds": list(plan.seeds)}
    settings["recipe"] = read_recipe(plan.base)
    if plan.pretraining is not None:
        base, flags = plan.pretraining
        settings["pretrain"] = [read_recipe(base), dict(flags)]
    described = {name: json.dumps(value, default=str) for name, value in settings.items()}
    study = open_study(path, search)
    before = study.user_attrs
    if restart or before != described:
        changed = sorted(name for name in described if before.get(name) != described[name])
        if before and ended_trials(study) and not (overwrite or restart):
            raise ValueError(
                f"{str(path)!r} has trials with other settings than this search: "
                f"{', '.join(changed)}. Restore them, give the row another name, or use "
                "--overwrite_output_dir true, which deletes these trials"
            )
        path.write_bytes(b"")
        study = open_study(path, search)
        for name, value in described.items():
            study.set_user_attr(name, value)
    return RunningSearch(plan, search, study)


@dataclass
class RunningSearch:
    """The trials of a row.

    Args:
        plan: The row.
        search: Its search.
        study: The study of optuna.
        rows: Rows of the trials whose results are there or are being made.
        waiting: Folders of runs of these rows that have not ended.
    """

    plan: RowPlan
    search: Search
    study: Any
    rows: list[Row] = field(default_factory=list)
    waiting: set[Path] = field(default_factory=set)

    @property
    def left(self) -> int:
        """Number of runs to do, if no trial is pruned."""
        return max(0, self.search.size - len(ended_trials(self.study))) * len(self.plan.seeds)

    def ask(self, failed: set[int]) -> Any:
        """Return a trial that is not done, a new one if there is none; None after the last.

        A new trial is a function of the seed and of the trials before it. Those that ``failed`` are
        passed over: the next command resumes them.
        """
        optuna, fields = import_optuna("a search"), self.search.fields
        trials = self.study.get_trials(deepcopy=False)
        unfinished = [trial for trial in trials if trial.state.name == "RUNNING"]
        begun = [trial for trial in unfinished if trial.number not in failed]
        samplers = optuna.samplers
        if self.search.method == "grid":
            choices = {name: [json.dumps(value) for value in fields[name]] for name in fields}
            self.study.sampler = samplers.GridSampler(choices, seed=self.search.seed)
        else:
            kind = samplers.TPESampler if self.search.method == "tpe" else samplers.RandomSampler
            number = begun[0].number if begun else len(trials)
            self.study.sampler = kind(seed=self.search.seed + number)
        if begun:
            # a killed process may have left out values, which are drawn now
            trial = optuna.trial.Trial(self.study, begun[0]._trial_id)
        elif len(ended_trials(self.study)) + len(unfinished) >= self.search.size:
            return None
        else:
            trial = self.study.ask()
        for name, values in fields.items():
            if isinstance(values, dict):
                ((kind, (low, high)),) = values.items()
                trial.suggest_float(name, float(low), float(high), log=kind == "loguniform")
            else:
                trial.suggest_categorical(name, [json.dumps(value) for value in values])
        self.study.sampler = samplers.RandomSampler(seed=0)  # that of a grid ends loops of optuna
        return trial

    def do(
        self, do_runs: DoRuns, find_states: Callable[[Sequence[PlannedRun]], States]
    ) -> Iterator[tuple[PlannedRun, Failure | None]]:
        """Do the trials; the next command resumes those that failed."""
        failed: set[int] = set()
        while (trial := self.ask(failed)) is not None:
            complete = ended_trials(self.study, "COMPLETE")
            if equal := [done for done in complete if done.params == trial.params]:
                self.study.tell(trial.number, equal[0].value)  # a run would have the same result
                continue
            row = self.plan.at(find_point(self.search, trial), trial.number)
            runs = order_runs([row])
            if self.search.prune:  # the run of the first seed can be stopped
                given = (str(study_file(self.plan)), str(trial.number))
                first = row.runs[self.plan.seeds[0]].folder
                runs = [replace(run, trial=given) if run.folder == first else run for run in runs]
            self.rows = [other for other in self.rows if other.name != row.name] + [row]
            self.waiting |= {run.folder for run in row.runs.values()}
            try:
                used = [run for run in runs if run.folder.exists()]
                states: States = {run.folder: "new" for run in runs}
                states |= find_states(used) if used else {}
                for run, failure in do_runs(runs, states):
                    self.waiting.discard(run.folder)
                    if self._is_pruned(trial.number):
                        delete_checkpoints(run.folder)
                        self.rows.remove(row)
                        yield run, None
                        break
                    if failure is not None:
                        failed.add(trial.number)
                    yield run, failure
                else:
                    if trial.number not in failed:
                        self.waiting -= {run.folder for run in row.runs.values()}
                        self.study.tell(trial.number, self._measure(row))
            except ValueError as error:
                failed.add(trial.number)
                yield next(iter(row.runs.values())), Failure(f"failed: {reason_of(error)}")

    def _is_pruned(self, number: int) -> bool:
        trial = self.study.get_trials(deepcopy=False)[number]
        return bool(trial.state.name == "PRUNED")

    def _measure(self, row: Row) -> float:
        """Average the objective over the seeds."""
        name, values = self.search.objective, []
        for seed in self.plan.seeds:
            metrics: dict[str, Any] = read_metrics(row.runs[seed].folder)["validation"]["metrics"]
            if name not in metrics:
                raise ValueError(f"{self.plan.name}: search: {unknown('objective', name, metrics)}")
            values.append(float(metrics[name]))
        value = mean(values)
        if not math.isfinite(value):
            raise ValueError(f"the objective of {row.name} is {value}; expected a number")
        return value

    def describe(self) -> str:
        """Describe the trials in a line below the table."""
        complete = ended_trials(self.study, "COMPLETE")
        pruned = len(ended_trials(self.study, "PRUNED"))
        lost = len({json.dumps(trial.params) for trial in complete}) - sum(
            self.waiting.isdisjoint(run.folder for run in row.runs.values()) for row in self.rows
        )
        line = f"Search {self.plan.name}: {len(complete)} trials"
        line += f", {pruned} more stopped early" if pruned else ""
        line += f" ({lost} without results in the folder are not in the table)" if lost > 0 else ""
        if not complete:
            return f"{line}."
        best = self.study.best_trial
        point = ", ".join(
            f"{name}={show(value)}" for name, value in find_point(self.search, best).items()
        )
        return (
            f"{line}; the best {self.search.objective} is {best.value:.4f}, with {point}. "
            "It was chosen by these numbers, so repeat it with other seeds."
        )

    def write(self, folder: Path) -> list[str]:
        """Write ``<row>.trials.csv`` and ``<row>.trials.png``; return their names."""
        table, picture = (f"{self.plan.folder.name}.trials.{end}" for end in ("csv", "png"))
        frame = self.study.trials_dataframe(("number", "state", "value", "params"))
        frame = frame.rename(columns={"number": "trial", "value": self.search.objective})
        frame.columns = [name.removeprefix("params_") for name in frame.columns]
        frame.to_csv(folder / table, index=False)
        (folder / picture).unlink(missing_ok=True)
        if not ended_trials(self.study, "COMPLETE"):
            return [table]
        names = list(self.search.fields)[:MOST_FIELDS]
        across = min(MOST_COLUMNS, 1 + len(names))
        down = -(-(1 + len(names)) // across)
        with new_figure(folder / picture, 4.2 * across, 0.8 + 2.9 * down) as figure:
            panels = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
            for axes, name in zip(panels, [None, *names], strict=False):
                self._draw(axes, name)
            for axes in panels[1 + len(names) :]:
                axes.set_visible(False)
            keys = {"loc": "outside upper left", "ncols": 3, "fontsize": 8, "frameon": False}
            figure.legend(*panels[0].get_legend_handles_labels(), **keys)
            figure.supylabel(self.search.objective, fontsize=9, color=LIGHT["ink"])
        return [table, picture]

    def _draw(self, axes: Any, name: str | None) -> None:
        """Draw the objective by the value of a field, or by trial."""
        done, pruned = (ended_trials(self.study, state) for state in ("COMPLETE", "PRUNED"))
        pruned = [trial for trial in pruned if trial.intermediate_values]
        style_axes(axes, name or "by trial")

        def places(trials: list[Any]) -> list[Any]:
            points = [find_point(self.search, trial) for trial in trials]
            if name is None:
                return [trial.number + 1 for trial in trials]
            values = self.search.fields[name]
            drawn = [point[name] for point in points]
            return drawn if isinstance(values, dict) else [values.index(value) for value in drawn]

        if name is None:
            pick = max if self.search.direction == "maximize" else min
            best = [pick(trial.value for trial in done[: end + 1]) for end in range(len(done))]
            steps = {"where": "post", "color": LIGHT["train"], "label": "best so far"}
            axes.step(places(done), best, **steps)
            axes.xaxis.get_major_locator().set_params(integer=True)
        elif isinstance(values := self.search.fields[name], dict):
            axes.set_xscale("log" if "loguniform" in values else "linear")
        else:
            axes.set_xticks(range(len(values)), list(map(show, values)), parse_math=False)
            axes.set_xlim(-0.5, len(values) - 0.5)
        reached = [list(trial.intermediate_values.values())[-1] for trial in pruned]
        values_of = [trial.value for trial in done]
        axes.plot(places(done), values_of, "o", ms=5, color=LIGHT["dev"], label="complete")
        if pruned:
            style = {"ms": 5, "mfc": "none", "color": LIGHT["quiet"]}
            axes.plot(places(pruned), reached, "o", label="stopped early, last evaluation", **style)


class Pruning(TrainerCallback):
    """Reports each evaluation to a trial, and stops the training if it should be pruned.

    Args:
        path: File of the study.
        number: Number of the trial.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.optuna = import_optuna("a trial")
        self.study = open_study(path)
        self.objective: str = json.loads(self.study.user_attrs["objective"])
        frozen = self.study.get_trials(deepcopy=False)[number]
        self.trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
        self.is_main = True

    def on_evaluate(self, *given: Any, **others: Any) -> None:
        """Report the objective; all processes stop together.

        Raises:
            ValueError: If the evaluation has no such objective.
            optuna.TrialPruned: If the trial should stop.
        """
        args, state, _ = given
        metrics: dict[str, Any] = others["metrics"]
        names = [name.removeprefix("eval_") for name in metrics if name.startswith("eval_")]
        if self.objective not in names:
            raise ValueError(f"search: {unknown('objective', self.objective, names)}")
        decision, self.is_main = [False], state.is_world_process_zero
        if self.is_main and state.global_step < state.max_steps:
            # the number of the evaluation, which is the same in every trial and after a restart
            number = sum(f"eval_{self.objective}" in entry for entry in state.log_history)
            self.trial.report(metrics[f"eval_{self.objective}"], number)
            decision = [bool(self.trial.should_prune())]
        if args.world_size > 1:
            broadcast_object_list(decision)
        if decision[0]:
            raise self.optuna.TrialPruned


def main(argv: Sequence[str] | None = None) -> None:
    """Fine-tune a trial; if it is stopped, record that, and end without an error."""
    path, number, *words = sys.argv[1:] if argv is None else argv
    pruning = Pruning(Path(path), int(number))
    callbacks: list[Any] = DEFAULT_CALLBACKS  # of every Trainer
    callbacks.append(pruning)
    try:
        finetune.main(words)
    except pruning.optuna.TrialPruned:
        if pruning.is_main:
            pruning.study.tell(pruning.trial.number, state=pruning.optuna.trial.TrialState.PRUNED)
            print("stopped: below the median of the earlier trials")


if __name__ == "__main__":
    main()
