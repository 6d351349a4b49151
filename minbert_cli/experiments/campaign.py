"""Do the unfinished runs of an experiments file, each in a separate process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

from minbert_cli.recipe import format_recipe
from minbert_cli.recipes import HOME, IS_INSTALLED
from minbert_cli.run_folder import (
    check_data,
    check_same_run,
    delete_checkpoints,
    is_finished,
    is_free,
    read_fingerprints,
)
from trainers.files import INPUT_ERRORS, reason_of, write_text
from trainers.reports.results import read_metrics

from .planning import PlannedRun, Row

State = Literal["new", "unfinished", "done"]
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
        if self.log is not None:
            lines.append(f"    full log: {self.log}")
        return "\n".join(lines)


def order_runs(rows: Sequence[Row]) -> list[PlannedRun]:
    """Order runs by seed, then row; a pre-training comes right before its first run."""
    ordered: dict[Path, PlannedRun] = {}
    for run in filter(None, chain(*zip_longest(*(row.runs.values() for row in rows)))):
        if run.after is not None and run.chosen:
            ordered.setdefault(run.after.folder, run.after)
        ordered.setdefault(run.folder, run)
    return list(ordered.values())


def find_state(
    run: PlannedRun,
    settings: Mapping[str, Any],
    *,
    overwrite: bool,
    read_data: Callable[[], Mapping[str, str]] = dict,
) -> State:
    """Return the state of a run by its folder; ValueError if the folder has a different run."""
    folder = run.folder
    try:
        check_same_run(folder, settings)
        if before := read_fingerprints(folder):
            check_data(folder, {**before, **read_data()}, resume=True, overwrite=False)
    except INPUT_ERRORS as error:
        if not overwrite:
            raise ValueError(f"{run.name}: {reason_of(error)}") from None
        return "new"
    if is_free(folder):
        return "new"
    with suppress(ValueError):
        read_metrics(folder)
        return "done" if is_finished(folder) else "unfinished"
    return "unfinished"


def drop_needless(runs: Sequence[PlannedRun], states: Mapping[Path, State]) -> list[PlannedRun]:
    """Leave out missing or unfinished pre-trainings that no remaining run needs."""
    after = [(run.after.folder, states[run.folder]) for run in runs if run.after is not None]
    needless = {folder for folder, _ in after}
    needless -= {folder for folder, state in after if state != "done"}
    return [run for run in runs if states[run.folder] == "done" or run.folder not in needless]


def leave_out(
    rows: Sequence[Row], states: Mapping[Path, State]
) -> tuple[list[Row], list[PlannedRun]]:
    """Leave out (and list) runs that are neither selected nor done, and rows without runs."""
    kept, left_out = [], []
    for row in rows:
        runs = {
            seed: run
            for seed, run in row.runs.items()
            if run.chosen or states[run.folder] == "done"
        }
        left_out += [run for seed, run in row.runs.items() if seed not in runs]
        if runs:
            kept.append(replace(row, runs=runs))
    return kept, left_out


@dataclass(frozen=True)
class Campaign:
    """Runs that are done one at a time."""

    runs: Sequence[PlannedRun]
    states: Mapping[Path, State]  # by folder
    programs: Mapping[str, Sequence[str]]  # command that starts a program, by name
    overwrite: bool = False  # whether folders may lose runs with different settings or data
    keep_checkpoints: bool = True  # of finished runs
    left_out: Sequence[PlannedRun] = ()  # unselected finished runs with changed settings or data

    def describe(self) -> str:
        """Return the list of runs with their states."""
        words = {"new": "to do", "unfinished": "resumes", "done": "done"}
        lines = [(words[self.states[run.folder]], run.name) for run in self.runs]
        lines += [("changed", f"{run.name} (not in the table)") for run in self.left_out]
        width = max(map(len, words.values()))
        return "\n".join(f"{word:<{width}}  {name}" for word, name in lines)

    def do(
        self, announce: Callable[[PlannedRun], None] = lambda _: None
    ) -> Iterator[tuple[PlannedRun, Failure | None]]:
        """Do the remaining runs; yield every run with its failure, which does not stop the rest."""
        failed: dict[Path, Failure] = {}
        for run in self.runs:
            failure = None
            if self.states[run.folder] != "done":
                if run.after is not None and run.after.folder in failed:
                    failure = Failure(f"not started: {run.after.name} failed")
                else:
                    announce(run)
                    try:
                        failure = self._start(run)
                    except OSError as error:
                        failure = Failure(f"not started: {reason_of(error)}")
            if failure is not None:
                failed[run.folder] = failure
            elif not self.keep_checkpoints:
                delete_checkpoints(run.folder)
            yield run, failure

    def _start(self, run: PlannedRun) -> Failure | None:
        """Run the program to its end."""
        recipe, log = (run.folder.with_name(f"{run.folder.name}.{end}") for end in ("yaml", "log"))
        write_text(recipe, f"# {run.name}\n{format_recipe(run.recipe)}")
        program = self.programs[run.program] if run.trial is None else self.programs["trial"]
        command = [*program, *(run.trial or ()), str(recipe), "--disable_tqdm", "true"]
        if self.states[run.folder] == "unfinished":
            command += ["--resume_from_checkpoint", "true"]
        elif self.overwrite:
            command += ["--overwrite_output_dir", "true"]
        return run_logged(command, log, lambda: is_finished(run.folder))


def run_logged(
    command: Sequence[str], log: Path, has_results: Callable[[], bool]
) -> Failure | None:
    """Run a program to its end, with its output at the end of a log."""
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as file:
        # unbuffered, so that the log has everything up to a crash
        status = subprocess.run(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=program_environment(),
            check=False,
        ).returncode
    if status == 0 and has_results():
        return None
    return Failure(_explain(status), log, _tail(log, before))


def _explain(status: int) -> str:
    if status == 0:
        return "failed: it ended without an error, but without results"
    if status > 0:
        return f"failed: exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    often = " (often out of memory)" if name == "SIGKILL" else ""
    return f"failed: ended by {name}{often}"


def _tail(log: Path, before: int) -> tuple[str, ...]:
    """Return the last lines after the first ``before`` bytes; progress bars overwrite theirs."""
    with log.open("rb") as file:
        file.seek(before)
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line for line in lines if line)[-TAIL:]


def program_command(module: str, processes: int) -> list[str]:
    """Return the command that starts the module of a program."""
    if processes == 1:
        return [sys.executable, "-m", module]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    return [*launcher, "--num_processes", str(processes), "-m", module]


def program_environment() -> dict[str, str]:
    """Return the environment in which ``-m`` finds this code, not files of the current folder."""
    # The folder of an installed package must not come before the standard library.
    own = [] if IS_INSTALLED else [str(HOME)]
    paths = [*own, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    return environment | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})
