"""The runs of an experiments file: checked, then done one after the other, each in a process."""

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
from typing import Any, Literal

from tqdm.auto import tqdm

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

from .plan import ExperimentArguments, PlannedRun, Row

# "changed": has other settings or data, and may be overwritten
State = Literal["new", "unfinished", "changed", "done", "failed"]
States = dict[Path, State]  # by the folder of the run
WORDS = {"new": "to do", "unfinished": "resumes", "changed": "repeats", "done": "done"}
TAIL = 5  # lines of a log that are shown


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


def list_labeled(settings: Mapping[str, Any]) -> dict[str, recipe_tasks.RecipeTask]:
    """Return the labeled tasks of the settings of a run, in their order."""
    tasks: dict[str, Any] = settings.get("tasks") or {}
    ordered = {name: tasks[name] for name in settings.get("task_order", tasks)}  # JSON sorts them
    return recipe_tasks.parse_labeled(ordered, settings["data_dir"])


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
    # a smoke test begins again every time; the program itself guards its folder
    overwrite = arguments.overwrite_output_dir and not arguments.smoke_test
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
