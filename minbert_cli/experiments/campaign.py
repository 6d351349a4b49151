"""Do the runs of an experiments file, each in a process of its own, and skip what is done."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainers.errors import INPUT_ERRORS, reason_of
from trainers.files import write_text
from trainers.reports.results import read_metrics
from trainers.runs.recipe_files import format_recipe
from trainers.runs.run_folder import (
    check_data,
    check_output_dir,
    is_finished,
    is_free,
    read_fingerprints,
)

from .planning import PlannedRun, Row

State = Literal["new", "unfinished", "done"]
TAIL = 5  # lines of a log that are shown


@dataclass(frozen=True)
class Failure:
    """Why there are no results of a run.

    Args:
        reason: How it ended.
        log: Its log; None if it was not begun.
        tail: The last lines of the log.
    """

    reason: str
    log: Path | None = None
    tail: tuple[str, ...] = ()

    def describe(self) -> str:
        """Write it as lines for people."""
        lines = [self.reason, *(f"    {line}" for line in self.tail)]
        if self.log is not None:
            lines.append(f"    the whole log: {self.log}")
        return "\n".join(lines)


def order_runs(rows: Sequence[Row]) -> list[PlannedRun]:
    """Put runs in an order in which every row has its first seed before any has its second.

    A run of pre-training comes once, right before the first run that begins with its weights; none
    comes for a run that was not chosen.
    """
    most = max((len(row.runs) for row in rows), default=0)
    ordered: dict[Path, PlannedRun] = {}
    for place in range(most):
        for row in rows:
            for run in list(row.runs.values())[place : place + 1]:
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
    """Look what is in the folder of a run.

    Args:
        run: The run.
        settings: What it is made from, as in its ``run.json``.
        overwrite: Whether a run with other settings or data may be overwritten.
        read_data: Gives the fingerprints of tasks as their data are today; of the others nothing is
            known before the run. Called if the folder has some.

    Raises:
        ValueError: If the folder holds a run with other settings or data, or files of no run.
    """
    folder = run.folder
    try:
        check_output_dir(folder, settings, resume=True, overwrite=False)
        if before := read_fingerprints(folder):
            check_data(folder, {**before, **read_data()}, resume=True, overwrite=False)
    except INPUT_ERRORS as error:
        if not overwrite:
            raise ValueError(f"{run.name}: {reason_of(error)}") from None
        return "new"
    if is_free(folder):
        return "new"
    try:
        read_metrics(folder)
    except ValueError:
        return "unfinished"
    return "done" if is_finished(folder) else "unfinished"


def drop_needless(runs: Sequence[PlannedRun], states: Mapping[Path, State]) -> list[PlannedRun]:
    """Leave out pre-training that was deleted or not finished, if all that need it are done."""
    needed = {
        run.after.folder for run in runs if run.after is not None and states[run.folder] != "done"
    }
    followed = {run.after.folder for run in runs if run.after is not None}
    needless = followed - needed
    return [run for run in runs if states[run.folder] == "done" or run.folder not in needless]


def leave_out(
    rows: Sequence[Row], states: Mapping[Path, State]
) -> tuple[list[Row], list[PlannedRun]]:
    """Leave out runs that were neither chosen nor done, and rows without any other.

    Returns:
        The rows, and the runs that were left out: finished ones of other settings or data.
    """
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
    """Runs that are done one after the other.

    Args:
        runs: The runs, in their order.
        states: What is in their folders, by folder.
        programs: By name of a program, the command that starts it.
        overwrite: Whether folders may lose runs with other settings or data.
        keep_checkpoints: Whether a finished run keeps its checkpoints.
        left_out: Finished runs of other settings or data than the file has today. They were not
            chosen, and stay as they are.
    """

    runs: Sequence[PlannedRun]
    states: Mapping[Path, State]
    programs: Mapping[str, Sequence[str]]
    overwrite: bool = False
    keep_checkpoints: bool = True
    left_out: Sequence[PlannedRun] = ()

    def describe(self) -> str:
        """List the runs with their states."""
        words = {"new": "to do", "unfinished": "goes on", "done": "done"}
        lines = [(words[self.states[run.folder]], run.name) for run in self.runs]
        lines += [("changed", f"{run.name} (not in the table)") for run in self.left_out]
        width = max(map(len, words.values()))
        return "\n".join(f"{word:<{width}}  {name}" for word, name in lines)

    def do(
        self, tell: Callable[[PlannedRun], None] = lambda _: None
    ) -> Iterator[tuple[PlannedRun, Failure | None]]:
        """Do what is not done; a run that fails leaves the others alone.

        Args:
            tell: Called with every run that is begun.

        Yields:
            Every run when it is done, or was found done, with its failure, if it failed.
        """
        failed: dict[Path, Failure] = {}
        for run in self.runs:
            failure = None
            if self.states[run.folder] != "done":
                if run.after is not None and run.after.folder in failed:
                    failure = Failure(f"not begun: {run.after.name} failed")
                else:
                    tell(run)
                    failure = self._start(run)
            if failure is not None:
                failed[run.folder] = failure
            elif not self.keep_checkpoints:
                for checkpoint in run.folder.glob("checkpoint-*"):
                    shutil.rmtree(checkpoint)
            yield run, failure

    def _start(self, run: PlannedRun) -> Failure | None:
        """Start the program and wait for its end."""
        recipe, log = (run.folder.with_name(f"{run.folder.name}.{end}") for end in ("yaml", "log"))
        write_text(recipe, f"# {run.name}\n{format_recipe(run.recipe)}")
        command = [*self.programs[run.program], str(recipe), "--disable_tqdm", "true"]
        if self.states[run.folder] == "unfinished":
            command += ["--resume_from_checkpoint", "true"]
        elif self.overwrite:
            command += ["--overwrite_output_dir", "true"]
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            # what it wrote up to a crash is to be in the log
            status = subprocess.run(  # noqa: S603  our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                check=False,
            ).returncode
        if status == 0 and is_finished(run.folder):
            return None
        return Failure(_explain(status), log, _tail(log, before))


def _explain(status: int) -> str:
    if status == 0:
        return "failed: it ended without an error, and without results"
    if status > 0:
        return f"failed: exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    often = " (often for want of memory)" if name == "SIGKILL" else ""
    return f"failed: ended by {name}{often}"


def _tail(log: Path, before: int) -> tuple[str, ...]:
    """Read the last lines that were written after so many bytes; bars overwrite their line."""
    with log.open("rb") as file:
        file.seek(before)
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line for line in lines if line)[-TAIL:]


def program_command(path: Path, processes: int) -> list[str]:
    """Write the command that starts a program in so many processes."""
    if processes == 1:
        return [sys.executable, str(path)]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    return [*launcher, "--num_processes", str(processes), str(path)]
