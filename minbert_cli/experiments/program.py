"""Run many recipes with several seeds, and put their results into one table.

    minbert experiments [FILE] [--flag value ...]
    minbert experiments compare FIRST_RUN SECOND_RUN [--html PAGE]

FILE is a YAML file or the name of a packaged one, such as report/table; the default is a small
example. Flags are the fields of `ExperimentArguments`; any other flag is one of `minbert finetune`,
as in `--tasks.sts.loss mse`, and goes to all runs.

Every run is a separate process with a log: its memory is freed at the end, and a crash fails one
row only. Finished runs are skipped and interrupted ones resumed, so repeating the command does the
rest. `--dry_run` checks and lists the runs.

A row can search over the keys of its recipe with optuna: by a grid, random draws, or TPE. Unlike
the Trainer's `hyperparameter_search`, it may change every key (also of tasks), runs each trial in
its own process or processes, and resumes. Its trials are an optuna study in a journal, which
optuna's own tools read, too:

    optuna.load_study(study_name="minbert", storage=JournalStorage(JournalFileBackend(path)))
"""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from tqdm.auto import tqdm

from datasets_scripts import load_task
from minbert_cli import pretrain
from minbert_cli.arguments import KINDS, PretrainArguments
from minbert_cli.checkpoints import load_config
from minbert_cli.recipe import parse_recipe, read_recipe
from minbert_cli.recipes import HOME, IS_INSTALLED, RECIPES, check_program, with_recipe
from minbert_cli.run_folder import (
    check_data,
    check_same_run,
    check_tables,
    delete_checkpoints,
    describe_settings,
    fingerprint_start,
    is_finished,
    is_free,
    read_fingerprints,
    sole_writer,
)
from minbert_cli.training import recipe_tasks
from modeling_minbert import unknown
from trainers import INPUT_ERRORS, readable_errors, reason_of
from trainers.problems.metrics import AGGREGATES
from trainers.reports.results import read_metrics

from .compare import compare
from .plan import (
    TABLES,
    ExperimentArguments,
    PlannedRun,
    Point,
    Row,
    RowPlan,
    Search,
    State,
    States,
    list_labeled,
    read_file,
    show,
)
from .table import ExperimentTable

PROGRAM = "minbert experiments"
QUICKSTART = RECIPES / "experiments" / "quickstart.yaml"
INTERRUPTED = 130  # exit status of a shell after Ctrl-C
WORDS = {"new": "to do", "unfinished": "resumes", "changed": "repeats", "done": "done"}
TAIL = 5  # lines of a log that are shown
STUDY = "minbert"  # name of the study of optuna


def check_runs(runs: Sequence[PlannedRun], processes: int) -> list[dict[str, Any]]:
    """Read and check the command lines of runs; return the settings for ``run.json`` of each.

    Raises:
        ValueError: If a run cannot start, with its name.
    """
    settings: list[dict[str, Any]] = []
    for run in runs:
        try:
            settings.append(_check_run(run) | {"processes": processes})
        except INPUT_ERRORS as error:
            reason = reason_of(error)
            message = reason if reason.startswith(run.name) else f"{run.name}: {reason}"
            raise ValueError(message) from None
    return settings


def _check_run(run: PlannedRun) -> dict[str, Any]:
    arguments: Any
    arguments, args = parse_recipe(KINDS[run.program], run.words)
    if pushed := [name for name in ("push_to_hub", "hub_model_id") if getattr(args, name)]:
        raise ValueError(
            f"{pushed[0]} would send every row and seed to one repository; turn it off with "
            f"`--{pushed[0]} null`, and push the run you choose with model.push_to_hub"
        )
    if args.hub_token is not None:
        raise ValueError("hub_token would be written to the log of every run; leave it out")
    path = arguments.model_name_or_path
    # that of a pre-training may not exist yet; one on the Hub would be asked for every run
    is_local = path is None or (run.after is None and Path(path).is_dir())
    if isinstance(arguments, PretrainArguments):
        start = load_config(arguments, pretrain.find_sizes(arguments)) if is_local else None
        pretrain.check_recipe(arguments, args, start)
    else:
        start = load_config(arguments, arguments.model_config) if is_local else None
        recipe_tasks.check_recipe(arguments, args, start)
        results = recipe_tasks.list_results(arguments)
        if run.objective is not None and run.objective not in results:
            raise ValueError(f"search: {unknown('objective', run.objective, results)}")
        for name in run.expected:
            if name not in (names := [*arguments.tasks, *AGGREGATES]):
                raise ValueError(f"reference: {unknown('name', name, names)}")
    return describe_settings(args, asdict(arguments))


def find_states(runs: Sequence[PlannedRun], processes: int, *, overwrite: bool) -> States:
    """Check runs, and look up how far each is.

    Raises:
        ValueError: If a run cannot start, or its folder has a different run.
    """
    # in another process, since reading the arguments allocates memory of a GPU
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        settings = pool.submit(check_runs, runs, processes).result()
    hashes: dict[str, str] = {}
    return {
        run.folder: find_state(run, expected, hashes, overwrite=overwrite)
        for run, expected in zip(runs, settings, strict=True)
    }


def find_state(
    run: PlannedRun, settings: Mapping[str, Any], hashes: dict[str, str], *, overwrite: bool
) -> State:
    """Return the state of a run by its folder; ``hashes`` keeps the fingerprints of data."""
    folder = run.folder
    try:
        check_same_run(folder, settings)
        if before := read_fingerprints(folder):
            # pre-training again need not give bit-identical weights
            start = {} if run.after is None else {"model_name_or_path": None}
            now = find_fingerprints({**settings, **start}, hashes)
            check_data(folder, {**before, **now}, resume=True, overwrite=False)
    except INPUT_ERRORS as error:
        if not overwrite:
            raise ValueError(f"{run.name}: {reason_of(error)}") from None
        return "changed"
    if is_free(folder):
        return "new"
    with suppress(ValueError):
        read_metrics(folder)
        return "done" if is_finished(folder) else "unfinished"
    return "unfinished"


def find_fingerprints(settings: Mapping[str, Any], hashes: dict[str, str]) -> dict[str, str]:
    """Return the fingerprints of labeled rows and of initial weights."""
    fingerprints = {}
    for name, task in list_labeled(settings).items():
        description = repr(task.data)
        if description not in hashes:
            hashes[description] = load_task(task.data).fingerprint
        fingerprints[name] = hashes[description]
    path = settings["model_name_or_path"]
    if (start := f"model_name_or_path={path!r}") not in hashes:
        hashes[start] = fingerprint_start(path).get("model_name_or_path", "")
    return fingerprints | ({"model_name_or_path": hashes[start]} if hashes[start] else {})


def order_runs(rows: Sequence[Row]) -> list[PlannedRun]:
    """Order runs by seed, then row; a pre-training comes right before its first run."""
    ordered: dict[Path, PlannedRun] = {}
    for run in filter(None, chain(*zip_longest(*(row.runs.values() for row in rows)))):
        if run.after is not None:
            ordered.setdefault(run.after.folder, run.after)
        ordered.setdefault(run.folder, run)
    return list(ordered.values())


def remaining_runs(runs: Sequence[PlannedRun], states: States) -> list[PlannedRun]:
    """Return the runs to do; a pre-training is one of them only if another run needs it."""
    left = [run for run in runs if states.get(run.folder) not in ("done", "failed")]
    needed = {run.after.folder for run in left if run.after is not None}
    return [run for run in left if run.program != "pretrain" or run.folder in needed]


def describe_runs(runs: Sequence[PlannedRun], states: States) -> str:
    """Return the list of the runs that are done or to do, with their states."""
    needed = {run.folder for run in remaining_runs(runs, states)}
    return "\n".join(
        f"{WORDS[states[run.folder]]:<7}  {run.name}"
        for run in runs
        if run.folder in needed or states[run.folder] == "done"
    )


def do_runs(
    runs: Sequence[PlannedRun], states: States, arguments: ExperimentArguments, bar: tqdm
) -> Iterator[tuple[PlannedRun, str | None]]:
    """Do the remaining runs, and note their states; a failure does not stop the others.

    Args:
        runs: The runs, a pre-training before those that start from it.
        states: Their states. A run without one is new.
        arguments: How to do them.
        bar: Shows the name of the current run.

    Yields:
        Each run when it has ended, with a message if it has failed.
    """
    overwrite = arguments.overwrite_output_dir
    for run in () if arguments.keep_checkpoints else runs:
        if states.get(run.folder) == "done":
            delete_checkpoints(run.folder)
    for run in remaining_runs(runs, states):
        bar.set_description(run.name)
        resume = states.get(run.folder) == "unfinished"
        flags = {"resume_from_checkpoint": resume, "overwrite_output_dir": overwrite and not resume}
        words = [*run.words, *(f"--{key}={str(flags[key]).lower()}" for key in flags)]
        command = [*program_command(run.program, arguments.processes), *words]
        if run.after is not None and states.get(run.after.folder) == "failed":
            reason: str | None = f"not started: {run.after.name} failed"
        else:
            try:
                reason = _run_logged([*command, "--disable_tqdm=true"], run.folder)
            except OSError as error:
                reason = f"not started: {reason_of(error)}"
        states[run.folder] = "done" if reason is None else "failed"
        if reason is None and not arguments.keep_checkpoints:  # at once, since they are large
            delete_checkpoints(run.folder)
        yield run, None if reason is None else f"{run.name} {reason}"


def _run_logged(command: Sequence[str], folder: Path) -> str | None:
    """Run a program with its output at the end of a log; return why it failed, with the log."""
    log = folder.with_name(f"{folder.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    before = log.stat().st_size if log.exists() else 0
    # the folder of an installed package must not come before the standard library
    paths = [*([] if IS_INSTALLED else [str(HOME)]), os.environ.get("PYTHONPATH", "")]
    # unbuffered, so that the log has everything up to a crash; ``-m`` finds this code, not files
    # of the current folder
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    if path := os.pathsep.join(filter(None, paths)):
        environment["PYTHONPATH"] = path
    with log.open("ab") as file:
        status = subprocess.run(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        ).returncode
    if status == 0 and is_finished(folder):
        return None
    reason = f"failed: exit status {status}"
    if status == 0:
        reason = "failed: it ended without an error, but without results"
    elif status < 0:
        names = {number.value: number.name for number in signal.Signals}
        name = names.get(-status, f"signal {-status}")
        often = " (often out of memory)" if name == "SIGKILL" else ""
        reason = f"failed: ended by {name}{often}"
    text = log.read_bytes()[before:].decode("utf-8", errors="replace").replace("\r\n", "\n")
    # progress bars overwrite their line
    lines = [line.split("\r")[-1].rstrip() for line in text.split("\n")]
    tail = [line for line in lines if line][-TAIL:]
    return "\n    ".join([reason, *tail, f"full log: {log}"])


def program_command(program: str, processes: int) -> list[str]:
    """Return the command that starts ``finetune`` or ``pretrain``."""
    module = ["-m", f"minbert_cli.{program}"]
    if processes == 1:
        return [sys.executable, *module]
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu"]
    return [sys.executable, *launcher, "--num_processes", str(processes), *module]


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
            return optuna.load_study(study_name=STUDY, storage=storage)
        return optuna.create_study(study_name=STUDY, storage=storage, direction=direction)
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


class Campaign:
    """The rows of an experiments file, read and checked; nothing is written."""

    arguments: ExperimentArguments
    rows: list[Row]  # but for those of searches
    searches: list[RunningSearch]
    runs: list[PlannedRun]  # of the rows
    checked: list[PlannedRun]  # the runs, and those and examples of searches
    states: States

    def __init__(self, argv: Sequence[str]) -> None:
        argv = with_recipe(argv)
        check_program(argv, "experiments")
        self.arguments, plans = read_file(argv, QUICKSTART)
        arguments = self.arguments
        check_tables(arguments.output_dir, TABLES)
        overwrite = arguments.overwrite_output_dir
        self.rows, self.searches, searched = [], [], []
        for plan in plans:
            if plan.search is None:
                self.rows += plan.examples()
            else:
                search = RunningSearch(plan, overwrite=overwrite)
                self.searches.append(search)
                searched += [*search.rows.values(), *plan.examples()]
        self.runs = order_runs(self.rows)
        self.checked = [*self.runs, *order_runs(searched)]
        self.states = find_states(self.checked, arguments.processes, overwrite=overwrite)

    def describe(self) -> str:
        """Return the list of runs with their states, and of searches."""
        listed = describe_runs(self.runs, self.states)
        return "\n".join(filter(None, [listed, *(search.describe() for search in self.searches)]))

    def run(self) -> bool:
        """Do all runs and write the table after each; return whether all have results."""
        output_dir = Path(self.arguments.output_dir)
        for search in self.searches:
            old = [run.folder for row in search.rows.values() for run in row.runs.values()]
            # trials of other data than now tell nothing of the others
            is_old = any(self.states[folder] == "changed" for folder in old)
            search.start(restart=is_old)
            for folder in old if is_old else ():
                self.states[folder] = "new"
        total = len(remaining_runs(self.runs, self.states))
        total += sum(search.left * len(search.plan.seeds) for search in self.searches)
        failures = []
        with tqdm(total=total, unit="run") as bar:
            parts = [do_runs(self.runs, self.states, self.arguments, bar)]
            parts += [search.do(self.states, self.arguments, bar) for search in self.searches]
            for _, failure in chain.from_iterable(parts):
                if failure is not None:
                    failures.append(failure)
                    bar.write(failure, file=sys.stderr)
                self._make_table(failures).write(output_dir)
                bar.update()
        table = self._make_table(failures)
        table.write(output_dir)
        print(f"\n{table.markdown()}")
        table.write_page(output_dir / "table.html")
        print(f"{output_dir}: table.md, table.csv, table.html and runs.csv with every run")
        return not failures

    def _make_table(self, failures: Sequence[str]) -> ExperimentTable:
        """Make the table of what is done so far."""
        rows = [*self.rows, *chain(*(search.rows.values() for search in self.searches))]
        notes = [search.conclude() for search in self.searches]
        return ExperimentTable(rows, self.states, failures, notes)


def run(argv: Sequence[str]) -> int:
    """Do the runs, or compare two; return the exit status."""
    with readable_errors(PROGRAM):
        if argv[:1] == ["compare"]:
            print(compare(argv[1:]))
            return 0
        campaign = Campaign(argv)
        print(campaign.describe())
        if campaign.arguments.dry_run:
            return 0
    output_dir = campaign.arguments.output_dir
    try:
        with readable_errors(PROGRAM), sole_writer(output_dir):
            is_complete = campaign.run()
    except KeyboardInterrupt:
        print("interrupted; repeat the command to resume", file=sys.stderr)
        return INTERRUPTED
    return 0 if is_complete else 1


def main(argv: Sequence[str]) -> None:
    """Run the program; SIGTERM ends it and the current run, like Ctrl-C."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = run(argv)
    finally:
        # processes that are forked later by the same program must end on SIGTERM
        signal.signal(signal.SIGTERM, previous)
    sys.exit(status)
