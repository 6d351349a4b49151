"""A search whose trials depend on earlier ones, kept in a file by optuna.

The file is an optuna journal, which optuna's own tools read, too::

    optuna.load_study(study_name="minbert", storage=JournalStorage(JournalFileBackend(path)))
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .points import Point, Search, round_value

NAME = "minbert"
STATES = ("COMPLETE", "PRUNED", "RUNNING")
MOST_REPEATS = 20  # proposals of points that are known, before one is drawn at random
INSTALL = "needs optuna: pip install 'minbert[search]'"


@dataclass(frozen=True)
class Trial:
    """A trial of a study.

    Args:
        number: From 0.
        point: Values of the fields.
        state: ``complete``, ``pruned``, or ``running`` for one that is not done.
        value: The objective; None until the trial is complete.
        reached: Objective by number of the evaluation, from 1, of the run that may be pruned.
    """

    number: int
    point: Point
    state: str
    value: float | None
    reached: dict[int, float]


def import_optuna(where: str) -> Any:
    """Import optuna without its messages; ValueError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise ValueError(f"{where} {INSTALL}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_storage(path: Path) -> Any:
    """Open the file of a study, which is created if it does not exist."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # the other kind of lock needs symbolic links, which not every file system has
    lock = JournalFileOpenLock(str(path))
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


class Study:
    """The trials of one search.

    Args:
        path: File of the study.
        search: The search.
        settings: What all trials have in common. A file with other settings is refused; None only
            reads the file.
        overwrite: Whether such a file is replaced.

    Raises:
        ValueError: If the file has other settings or cannot be read, or optuna is not installed.
    """

    def __init__(
        self,
        path: Path,
        search: Search,
        settings: Mapping[str, Any] | None,
        *,
        overwrite: bool = False,
    ) -> None:
        self.path, self.search = path, search
        self._optuna = import_optuna("a search with method tpe or prune")
        if settings is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_last_line(path)
        self._study = self._load()
        if settings is None:
            return
        self._described = _describe(search) | {"settings": json.dumps(settings, default=str)}
        known: dict[str, Any] = self._study.user_attrs
        if known == self._described:
            return
        if known and self._has_ended_trials() and not overwrite:
            raise ValueError(
                f"{str(path)!r} has trials with other settings than this search: "
                f"{', '.join(_differences(known, self._described))}. Restore them, give the row "
                "another name, or use --overwrite_output_dir true, which deletes these trials"
            )
        self.restart()

    def restart(self) -> None:
        """Begin again without the trials of the file."""
        self.path.unlink()
        self._study = self._load()
        for name, value in self._described.items():
            self._study.set_user_attr(name, value)

    def _has_ended_trials(self) -> bool:
        return any(trial.state != "running" for trial in self.trials)

    def _load(self) -> Any:
        try:
            storage = open_storage(self.path)
            if self.path.stat().st_size:
                # create_study would write, too
                return self._optuna.load_study(storage=storage, study_name=NAME)
            return self._optuna.create_study(
                storage=storage, study_name=NAME, direction=self.search.direction
            )
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"{str(self.path)!r} cannot be read as a study ({error}); delete it to start again"
            ) from None

    @property
    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return [
            Trial(
                trial.number,
                dict(trial.user_attrs["point"]),
                trial.state.name.lower(),
                trial.value if trial.state.name == "COMPLETE" else None,
                dict(trial.intermediate_values),
            )
            for trial in self._study.get_trials(deepcopy=False)
            # one without was begun by a process that ended before the point was known
            if "point" in trial.user_attrs and trial.state.name in STATES
        ]

    @property
    def size(self) -> int:
        """Number of trials in the end."""
        return self.search.trials or len(self.search.points())

    def ask(self, failed: Collection[int] = ()) -> Trial | None:
        """Return a trial that is not done, a new one if there is none; None after the last.

        A new trial is a function of the seed and of the trials before it. Those that ``failed`` are
        passed over: the next command resumes them.
        """
        known = self.trials
        running = [trial for trial in known if trial.state == "running"]
        if waiting := [trial for trial in running if trial.number not in failed]:
            return waiting[0]
        if len(known) >= self.size:
            return None
        if self.search.method == "tpe":
            return self._propose(known)
        point = self.search.points()[len(known)]
        return self._begin(point)

    def _propose(self, known: Sequence[Trial]) -> Trial:
        """Begin a trial at a new point that TPE proposes."""
        for _ in range(MOST_REPEATS):
            number = len(self._study.get_trials(deepcopy=False))
            self._study.sampler = self._optuna.samplers.TPESampler(seed=self.search.seed + number)
            trial = self._study.ask(_distributions(self._optuna, self.search))
            point = {
                name: _to_value(*self.search.kinds[name], trial.params[name])
                for name in self.search.fields
            }
            before = [each for each in known if each.point == point]
            if not before:
                trial.set_user_attr("point", point)
                return Trial(trial.number, point, "running", None, {})
            # a run would have the same result, which the next proposal should know
            value = before[0].value
            state = self._optuna.trial.TrialState.FAIL if value is None else None
            self._study.tell(trial, value, state=state)
        points = self.search.points(len(known) + 1)
        return self._begin(next(point for point in points if point not in self._points(known)))

    @staticmethod
    def _points(trials: Sequence[Trial]) -> list[Point]:
        return [trial.point for trial in trials]

    def _begin(self, point: Point) -> Trial:
        """Begin a trial at a point."""
        values = {
            name: json.dumps(value) if self.search.kinds[name][0] == "choice" else value
            for name, value in point.items()
        }
        # one that waits was enqueued by a process that ended right after
        self._study.enqueue_trial(values, user_attrs={"point": point}, skip_if_exists=True)
        trial = self._study.ask(_distributions(self._optuna, self.search))
        return Trial(trial.number, point, "running", None, {})

    def complete(self, trial: Trial, value: float) -> None:
        """Record the objective of a trial."""
        if not math.isfinite(value):
            raise ValueError(f"the objective of {trial.point} is {value}; expected a number")
        self._study.tell(trial.number, value)

    def is_pruned(self, trial: Trial) -> bool:
        """Return whether a trial was stopped."""
        return any(one.number == trial.number and one.state == "pruned" for one in self.trials)

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best objective; None if there is none."""
        done = [trial for trial in self.trials if trial.value is not None]
        sign = 1 if self.search.direction == "maximize" else -1
        return max(done, key=lambda trial: sign * float(trial.value or 0), default=None)

    def importances(self) -> dict[str, float]:
        """Return how much of the variance of the objective each field explains, by fANOVA.

        Empty with less than eight complete trials, which say little, or equal objectives. Source:
        Hutter et al. 2014.
        """
        values = {trial.value for trial in self.trials if trial.state == "complete"}
        if len([trial for trial in self.trials if trial.state == "complete"]) < 8:
            return {}
        if len(values) < 2 or len(self.search.fields) < 2:
            return {}
        evaluator = self._optuna.importance.FanovaImportanceEvaluator(seed=self.search.seed)
        found: dict[str, float] = self._optuna.importance.get_param_importances(
            self._study, evaluator=evaluator
        )
        return found


def _describe(search: Search) -> dict[str, Any]:
    """Describe a search; more trials continue the same one."""
    names = ("fields", "method", "seed", "prune", "objective", "direction")
    return {name: json.dumps(getattr(search, name), default=str) for name in names}


def _differences(known: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """List the names of settings that differ."""
    names = [name for name in given if name != "settings" and known.get(name) != given[name]]
    before, now = (json.loads(each.get("settings", "{}")) for each in (known, given))
    return names + sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )


def _cut_last_line(path: Path) -> None:
    """Cut a line that a process could not write to its end, before another one is appended."""
    if not path.is_file() or (content := path.read_bytes()).endswith(b"\n"):
        return
    with path.open("r+b") as file:
        file.truncate(content.rfind(b"\n") + 1)


def _distributions(optuna: Any, search: Search) -> dict[str, Any]:
    """Return the distributions of the fields; choices are JSON, since optuna takes no lists."""
    kinds: dict[str, Any] = {}
    for name, (kind, values) in search.kinds.items():
        if kind == "choice":
            kinds[name] = optuna.distributions.CategoricalDistribution(
                tuple(map(json.dumps, values))
            )
        else:
            low, high = map(float, values)
            kinds[name] = optuna.distributions.FloatDistribution(
                low, high, log=kind == "loguniform"
            )
    return kinds


def _to_value(kind: str, values: list[Any], given: Any) -> Any:
    return json.loads(given) if kind == "choice" else round_value(given, *map(float, values))
