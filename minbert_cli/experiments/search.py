"""Searches: rows whose trials optuna chooses.

The trials of a row are an optuna study in a journal, which optuna's own tools read, too::

    optuna.load_study(study_name="minbert", storage=JournalStorage(JournalFileBackend(path)))
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from tqdm.auto import tqdm

from minbert_cli.recipe import read_recipe
from trainers.reports.results import read_metrics

from .campaign import States, do_runs, order_runs
from .plan import ExperimentArguments, PlannedRun, Point, Row, RowPlan, Search, show

NAME = "minbert"


class RunningSearch:
    """The trials of a row; nothing is written before ``start``.

    Args:
        plan: The row.
        overwrite: Whether trials with other settings may be deleted.

    Attributes:
        search: The search of the row.
        path: The journal of its study.
        study: The study of optuna; None before the first trial.
        rows: Rows of the trials that were begun, by name.

    Raises:
        ValueError: If optuna is not installed, or the journal cannot be read or has trials with
            other settings.
    """

    def __init__(self, plan: RowPlan, *, overwrite: bool = False) -> None:
        if plan.search is None:
            raise ValueError(f"row {plan.name!r} has no search")
        try:
            import optuna
        except ImportError:
            raise ValueError(
                f"row {plan.name!r}: search needs optuna: pip install 'minbert[search]'"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.plan, self.search, self.optuna = plan, plan.search, optuna
        self.path = plan.folder.with_name(f"{plan.folder.name}.study.jsonl")
        self.study: Any = None
        self.rows: dict[str, Row] = {}
        if not self.path.is_file() or b"\n" not in self.path.read_bytes():
            return
        study, settings = open_study(self.path), self._describe_settings()
        before = study.user_attrs
        if before == settings:
            self.study = study
        elif before and ended_trials(study) and not overwrite:
            names = sorted({*before, *settings})
            changed = [name for name in names if before.get(name) != settings.get(name)]
            raise ValueError(
                f"{str(self.path)!r} has trials with other settings than this search: "
                f"{', '.join(changed)}. Restore them, give the row another name, or use "
                "--overwrite_output_dir true, which deletes these trials"
            )
        for trial in study.trials if self.study is not None else ():
            # a killed process may have left out values
            if trial.params.keys() == self.search.fields.keys():
                row = plan.at(find_point(self.search, trial), trial.number)
                self.rows.setdefault(row.name, row)  # an equal trial has no runs

    def _describe_settings(self) -> dict[str, str]:
        """Describe what all trials have in common; trials may be added."""
        search, plan = self.search, self.plan
        settings: dict[str, Any] = {
            "fields": search.fields,
            "method": search.method,
            "seed": search.seed,
            "objective": search.objective,
            "direction": search.direction,
            "flags": plan.flags,
            "seeds": list(plan.seeds),
            "recipe": read_recipe(plan.base),
        }
        if plan.after is not None:
            base, *words = plan.after.words
            settings["pretrain"] = [read_recipe(Path(base)), words]
        return {name: json.dumps(value, default=str) for name, value in settings.items()}

    @property
    def left(self) -> int:
        """Number of trials to do."""
        ended = 0 if self.study is None else len(ended_trials(self.study))
        return max(0, self.search.size - ended)

    def describe(self) -> str:
        """Describe the trials to do in a line."""
        ended = 0 if self.study is None else len(ended_trials(self.study))
        total = max(self.search.size, ended)
        how = ", chosen by the results of earlier ones" if self.search.method == "tpe" else ""
        seeds = f", {len(self.plan.seeds)} seeds each" if len(self.plan.seeds) > 1 else ""
        return f"to do    {self.plan.name}: {self.left} of {total} trials{seeds}{how}"

    def start(self, *, restart: bool = False) -> None:
        """Open the study to write, or create it; ``restart`` deletes its trials."""
        if self.study is not None and not restart:
            content = self.path.read_bytes()
            if not content.endswith(b"\n"):
                # a line that a process could not write to its end would spoil the next one
                self.path.write_bytes(content[: content.rfind(b"\n") + 1])
            self.study = open_study(self.path)
            return
        self.rows.clear()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")
        self.study = open_study(self.path, self.search.direction)
        for name, value in self._describe_settings().items():
            self.study.set_user_attr(name, value)

    def ask(self, failed: set[int]) -> Any:
        """Return a trial that is not done, a new one if there is none; None after the last.

        A new trial is a function of the seed and of the trials before it. Those that ``failed`` are
        passed over: the next command resumes them.
        """
        fields, samplers = self.search.fields, self.optuna.samplers
        unfinished = [trial for trial in self.study.trials if trial.state.name == "RUNNING"]
        begun = [trial for trial in unfinished if trial.number not in failed]
        if self.search.method == "grid":
            choices = {name: [json.dumps(value) for value in fields[name]] for name in fields}
            self.study.sampler = samplers.GridSampler(choices, seed=self.search.seed)
        else:
            kind = samplers.TPESampler if self.search.method == "tpe" else samplers.RandomSampler
            number = begun[0].number if begun else len(self.study.trials)
            self.study.sampler = kind(seed=self.search.seed + number)
        if begun:
            # a killed process may have left out values, which are drawn now
            trial = self.optuna.trial.Trial(self.study, begun[0]._trial_id)
        elif len(ended_trials(self.study)) + len(unfinished) >= self.search.size:
            return None
        else:
            trial = self.study.ask()
        for name, values in fields.items():
            if isinstance(values, dict):
                ((scale, (low, high)),) = values.items()
                trial.suggest_float(name, float(low), float(high), log=scale == "loguniform")
            else:
                trial.suggest_categorical(name, [json.dumps(value) for value in values])
        self.study.sampler = samplers.RandomSampler(seed=0)  # that of a grid ends loops of optuna
        return trial

    def do(
        self, states: States, arguments: ExperimentArguments, bar: tqdm
    ) -> Iterator[tuple[PlannedRun, str | None]]:
        """Do the trials as ``do_runs`` does runs; the next command resumes those that failed."""
        failed: set[int] = set()
        while (trial := self.ask(failed)) is not None:
            equal = [done for done in ended_trials(self.study) if done.params == trial.params]
            if equal:
                self.study.tell(trial.number, equal[0].value)  # a run would have the same result
                continue
            row = self.plan.at(find_point(self.search, trial), trial.number)
            self.rows[row.name] = row
            yield from do_runs(order_runs([row]), states, arguments, bar)
            runs = list(row.runs.values())
            if any(states[run.folder] != "done" for run in runs):
                failed.add(trial.number)
                continue
            metrics = [read_metrics(run.folder)["validation"]["metrics"] for run in runs]
            values = [measured.get(self.search.objective) for measured in metrics]
            if all(value is not None and math.isfinite(value) for value in values):
                self.study.tell(trial.number, mean(values))
            else:
                failed.add(trial.number)
                shown = ", ".join(map(str, values))
                name = self.search.objective
                yield runs[-1], f"{row.name} failed: {name} is {shown}; expected a number"

    def conclude(self) -> str:
        """Describe the trials in a line below the table."""
        line = f"Search {self.plan.name}: {len(ended_trials(self.study))} trials"
        if not ended_trials(self.study):
            return f"{line}."
        best = self.study.best_trial
        point = find_point(self.search, best).items()
        return (
            f"{line}; the best {self.search.objective} is {best.value:.4f}, with "
            f"{', '.join(f'{name}={show(value)}' for name, value in point)}. "
            "It was chosen by these numbers, so repeat it with other seeds."
        )


def open_study(path: Path, direction: Literal["maximize", "minimize"] | None = None) -> Any:
    """Open the study of a file, or create it with a direction.

    Raises:
        ValueError: If the file cannot be read.
    """
    import optuna
    from optuna.storages import journal as backend

    try:
        # the other kind of lock needs symbolic links, which not every file system has
        lock = backend.JournalFileOpenLock(str(path))
        file = backend.JournalFileBackend(str(path), lock_obj=lock)
        storage = optuna.storages.JournalStorage(file)
        if direction is None:
            return optuna.load_study(study_name=NAME, storage=storage)
        return optuna.create_study(study_name=NAME, storage=storage, direction=direction)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as a study ({error}); delete it to start again"
        ) from None


def ended_trials(study: Any) -> list[Any]:
    """Return the trials that have a result."""
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def find_point(search: Search, trial: Any) -> Point:
    """Return the values of a trial; choices are JSON in a study, since optuna mixes no types."""
    return {
        name: trial.params[name] if isinstance(values, dict) else json.loads(trial.params[name])
        for name, values in search.fields.items()
    }
