"""The runs of an experiments file: checked, then done one after the other, each in a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from datasets_scripts import load_task
from minbert_cli import pretrain
from minbert_cli.arguments import KINDS, PretrainArguments
from minbert_cli.checkpoints import load_config
from minbert_cli.recipe import parse_recipe
from minbert_cli.recipes import HOME, IS_INSTALLED
from minbert_cli.run_folder import (
    check_data,
    check_same_run,
    delete_checkpoints,
    describe_settings,
    fingerprint_start,
    is_finished,
    is_free,
    read_fingerprints,
)
from minbert_cli.training import recipe_tasks
from modeling_minbert import unknown
from trainers import INPUT_ERRORS, reason_of
from trainers.problems.metrics import AGGREGATES
from trainers.reports.results import read_metrics

from .plan import PlannedRun, Row

# "changed": a finished run with other settings or data, which was not selected
State = Literal["new", "unfinished", "done", "changed"]
States = dict[Path, State]  # by the folder of the run
WORDS = {"new": "to do", "unfinished": "resumes", "done": "done", "changed": "changed"}
TAIL = 5  # lines of a log that are shown


@dataclass(frozen=True)
class Failure:
    """Why a run has no results."""

    reason: str
    log: Path | None = None  # None if the run was not started
    tail: tuple[str, ...] = ()  # last lines of the log

    def describe(self) -> str:
        """Return the message."""
        lines = [self.reason, *(f"    {line}" for line in self.tail)]
        return "\n".join(lines if self.log is None else [*lines, f"    full log: {self.log}"])


def check_runs(runs: Sequence[PlannedRun], processes: int) -> list[dict[str, Any]]:
    """Read and check the command lines of runs; return the settings for ``run.json`` of each.

    Raises:
        ValueError: If a selected run cannot start, with its name.
    """
    settings: list[dict[str, Any]] = []
    for run in runs:
        checked = {}  # of an invalid run that was not selected: equals no run, so it is not shown
        try:
            checked = _check_run(run)
        except INPUT_ERRORS as error:
            if run.chosen:
                reason = reason_of(error)
                message = reason if reason.startswith(run.name) else f"{run.name}: {reason}"
                raise ValueError(message) from None
        settings.append(checked | {"processes": processes})
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
        if not run.chosen:
            return "changed"
        if not overwrite:
            raise ValueError(f"{run.name}: {reason_of(error)}") from None
        return "new"
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


def list_labeled(settings: Mapping[str, Any]) -> dict[str, recipe_tasks.RecipeTask]:
    """Return the labeled tasks of the settings of a run, in their order."""
    tasks: dict[str, Any] = settings.get("tasks") or {}
    ordered = {name: tasks[name] for name in settings.get("task_order", tasks)}  # JSON sorts them
    return recipe_tasks.parse_labeled(ordered, settings["data_dir"])


def order_runs(rows: Sequence[Row]) -> list[PlannedRun]:
    """Order runs by seed, then row; a pre-training comes right before its first run."""
    ordered: dict[Path, PlannedRun] = {}
    for run in filter(None, chain(*zip_longest(*(row.runs.values() for row in rows)))):
        if run.after is not None and run.chosen:
            ordered.setdefault(run.after.folder, run.after)
        ordered.setdefault(run.folder, run)
    return list(ordered.values())


def remaining_runs(runs: Sequence[PlannedRun], states: States) -> list[PlannedRun]:
    """Return the selected runs that are not done, and the pre-trainings that these need."""
    left = [run for run in runs if run.chosen and states[run.folder] != "done"]
    needed = {run.after.folder for run in left if run.after is not None}
    return [run for run in left if run.program != "pretrain" or run.folder in needed]


def describe_runs(runs: Sequence[PlannedRun], states: States) -> str:
    """Return the list of selected and of changed runs with their states."""
    needed = {run.folder for run in remaining_runs(runs, states)}
    lines = []
    for run in runs:
        state = states[run.folder]
        if state == "changed":
            lines.append(f"{WORDS[state]:<7}  {run.name} (not in the table)")
        elif run.chosen and (state == "done" or run.folder in needed):
            lines.append(f"{WORDS[state]:<7}  {run.name}")
    return "\n".join(lines)


def do_runs(
    runs: Sequence[PlannedRun],
    states: States,
    *,
    processes: int = 1,
    overwrite: bool = False,
    keep_checkpoints: bool = True,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[PlannedRun, Failure | None]]:
    """Do the remaining runs; yield each with its failure, which does not stop the others."""
    failed: set[Path] = set()
    for run in () if keep_checkpoints else runs:
        if run.chosen and states[run.folder] == "done":
            delete_checkpoints(run.folder)
    for run in remaining_runs(runs, states):
        announce(run.name)
        log = run.folder.with_name(f"{run.folder.name}.log")
        resume = states[run.folder] == "unfinished"
        flags = {"resume_from_checkpoint": resume, "overwrite_output_dir": overwrite and not resume}
        words = [*run.words, *(f"--{key}={str(flags[key]).lower()}" for key in flags)]
        module, first = f"minbert_cli.{run.program}", list(run.trial or ())
        if run.trial is not None:
            module = "minbert_cli.experiments.search"
        command = [*program_command(module, processes), *first, *words, "--disable_tqdm=true"]
        failure = None
        if run.after is not None and run.after.folder in failed:
            failure = Failure(f"not started: {run.after.name} failed")
        else:
            try:
                failure = _run_logged(command, log, run.folder)
            except OSError as error:
                failure = Failure(f"not started: {reason_of(error)}")
        if failure is not None:
            failed.add(run.folder)
        elif not keep_checkpoints:  # at once, since they are large
            delete_checkpoints(run.folder)
        yield run, failure


def _run_logged(command: Sequence[str], log: Path, folder: Path) -> Failure | None:
    """Run a program to its end, with its output at the end of a log."""
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
    return Failure(reason, log, tuple(line for line in lines if line)[-TAIL:])


def program_command(module: str, processes: int) -> list[str]:
    """Return the command that starts the module of a program."""
    if processes == 1:
        return [sys.executable, "-m", module]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    return [*launcher, "--num_processes", str(processes), "-m", module]
