"""Interleaved rounds: checks, then blocks of all contenders in an order that balances drift."""

import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from . import check
from .block import AGAIN, Job, Name, output_file, prepare_contender, run_block
from .contenders import WORKLOADS
from .machine import Snapshot
from .workloads import ROOT, find_tasks

Record = dict[str, Any]
RunBlock = Callable[[str, Job, float], Record]
PROBED = 2  # units that determine the length of a block
MOST_UNITS = 60
LOOP = "bare"  # what training is checked against


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Args:
        folder: The workloads.
        rounds: Blocks of every contender that count.
        seconds: Length of a training block of the baseline.
        threads: Threads of torch.
        max_foreign: Processors used by others, above which a round is void.
        max_steal: Processors taken by the host, above which a round is void.
        sentences: Sentences of a call.
        singles: Sentences that are timed one at a time.
        rows: Rows of each batch that training takes; None takes all.
        check_rows: Rows of each batch in the check.
        check_steps: Optimizer steps of the check.
        device: ``cpu``, with a process for each block, or ``cuda``, all in one process.
        cycle: Training blocks are whole rounds of so many batches and all begin with the first;
            None for other batches in every round.
        peer_python: Interpreter of the contenders of another environment.
    """

    folder: Path
    rounds: int = 5
    seconds: float = 4.0
    threads: int = 1
    max_foreign: float = 0.15
    max_steal: float = 0.02
    sentences: int = 2000
    singles: int = 300
    rows: int | None = None
    check_rows: int = 4
    check_steps: int = 20
    device: str = "cpu"
    cycle: int | None = None
    peer_python: str | None = None


@dataclass(frozen=True)
class Race:
    """Contenders on one workload with one size of model; the first one is the baseline."""

    workload: str
    size: str
    contenders: tuple[str, ...]

    def find_tasks(self) -> set[str]:
        """Return the tasks whose rows are needed, those of the check included."""
        equal = WORKLOADS[self.workload].check or self.workload
        return {*find_tasks(self.workload), *find_tasks(equal)}


@dataclass
class Log:
    """Records of prepared files, checks and blocks, in memory and as JSON lines."""

    file: Path
    records: list[Record] = field(default_factory=list)

    @classmethod
    def open(cls, file: Path, *, resume: bool) -> "Log":
        """Open a file of records; without ``resume`` start a new one and keep the old one."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if not resume and file.exists():
            file.replace(file.with_suffix(".old.jsonl"))
        lines = file.read_text().splitlines() if file.exists() else []
        return cls(file, [json.loads(line) for line in lines if line])

    def add(self, **record: Any) -> Record:
        """Append a record."""
        self.records.append(record)
        with self.file.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        return record

    def find(self, **fields: Any) -> list[Record]:
        """Return the records with these fields."""
        return [
            record
            for record in self.records
            if all(record.get(name) == value for name, value in fields.items())
        ]

    def find_failures(self, race: Race) -> dict[str, str]:
        """Return the contenders of a race that cannot run at all, with their errors."""
        tried = self.find(kind="calibration", workload=race.workload, size=race.size)
        return {record["contender"]: record["error"] for record in tried if "error" in record}

    def without_failures(self, race: Race) -> Race:
        """Return a race of those that run; the first of them is the baseline."""
        failures = self.find_failures(race)
        return replace(race, contenders=tuple(x for x in race.contenders if x not in failures))

    def valid_rounds(self, race: Race, settings: Settings) -> Iterator[dict[str, Record]]:
        """Return, by contender, the complete rounds in which nothing else ran."""
        blocks = self.find(kind="block", workload=race.workload, size=race.size)
        for number in sorted({block["round"] for block in blocks}):
            by_name = {block["contender"]: block for block in blocks if block["round"] == number}
            if not set(race.contenders) <= set(by_name):
                continue
            blocks_of_race = {name: by_name[name] for name in race.contenders}
            if all(
                block["foreign"] <= settings.max_foreign and block["steal"] <= settings.max_steal
                for block in blocks_of_race.values()
            ):
                yield blocks_of_race


class TimeIsUpError(Exception):
    """Raised when no further block may start."""


def run_in_child(settings: Settings) -> RunBlock:
    """Return a function that runs a block in a fresh process."""

    def run(do: str, job: Job, deadline: float) -> Record:
        if time.monotonic() > deadline:
            raise TimeIsUpError
        spec, result = settings.folder / "spec.json", settings.folder / "result.json"
        result.unlink(missing_ok=True)
        spec.write_text(json.dumps({"do": do, "job": job.to_json(), "result": str(result)}))
        environment = {**os.environ, "OMP_NUM_THREADS": str(job.threads), "HF_HUB_OFFLINE": "1"}
        environment["TOKENIZERS_PARALLELISM"] = "false"
        # other interpreters find minBERT's packages through neither their environment nor this
        contender = WORKLOADS[job.workload].contenders[job.name.peer]
        python = (contender.is_elsewhere and settings.peer_python) or sys.executable
        before = Snapshot.take()
        done = subprocess.run(  # noqa: S603  (our own module)
            [python, "-m", "benchmarks.block", str(spec)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        outcome = before.until(Snapshot.take())
        if done.returncode or not result.exists():
            lines = done.stderr.strip().splitlines()
            return {**outcome, "error": lines[-1] if lines else f"exit status {done.returncode}"}
        return {**outcome, **json.loads(result.read_text())}

    return run


def run_here(do: str, job: Job, deadline: float) -> Record:
    """Run a block in this process, where a GPU is warm."""
    if time.monotonic() > deadline:
        raise TimeIsUpError
    before = Snapshot.take()
    outcome: Record
    try:
        outcome = prepare_contender(job) if do == "prepare" else run_block(job)
    except Exception as error:  # an error (as of memory) voids only its block
        outcome = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    if job.device == "cuda":
        gc.collect()
        try:
            torch.cuda.empty_cache()
        except RuntimeError as error:  # after an assertion on the device, it does nothing more
            reason = outcome.get("error", error)
            raise RuntimeError(
                f"{job.contender} in {job.workload} stopped the GPU ({reason}); go on without it: "
                "--resume, and --contenders or --workloads"
            ) from error
    return {**before.until(Snapshot.take()), **outcome}


class Campaign:
    """Run all races: files, checks, calibration, rounds. What the log has is not repeated.

    Args:
        settings: How to measure.
        races: What to measure.
        log: Where the records go.
        run_block: Runs a block; ``run_in_child(settings)`` or ``run_here``.
        deadline: Of ``time.monotonic``, after which no block is started.
    """

    def __init__(
        self,
        settings: Settings,
        races: Sequence[Race],
        log: Log,
        run_block: RunBlock,
        deadline: float = float("inf"),
    ) -> None:
        self.settings, self.races, self.log = settings, races, log
        self.run_block, self.deadline = run_block, deadline

    def run(self) -> None:
        """Do what the log lacks.

        Raises:
            TimeIsUpError: If the deadline has passed.
        """
        for race in self.races:
            for contender in race.contenders:
                self.prepare(race, contender)
            self.check(race)
        calibrated = [(race, self.calibrate(race)) for race in self.races]
        units = {self.log.without_failures(race): count for race, count in calibrated}
        missing = {race: self._missing(race) for race, count in units.items() if count}
        total = sum(count * len(race.contenders) for race, count in missing.items())
        with tqdm(total=total, unit="block", smoothing=0, disable=None) as bar:
            for number in range(2 * self.settings.rounds):
                for race in missing:
                    if self._missing(race):
                        self.round(race, number, units[race] or 0, bar)

    def prepare(self, race: Race, contender: str) -> None:
        """Write the files that a contender loads."""
        name = Name.parse(contender)
        if WORKLOADS[race.workload].contenders[name.peer].prepare is None or name.is_again:
            return
        fields = {"kind": "prepare", "size": race.size, "contender": contender}
        fields["workload"] = race.workload.removesuffix("_one")
        if not self.log.find(**fields, error=None):
            record = self.run_block("prepare", self._job(race, contender, 0), self.deadline)
            self.log.add(**fields, **record)
            if "error" in record:
                tqdm.write(f"{race.workload}, {contender}: {record['error']}")

    def check(self, race: Race) -> None:
        """Compare the outputs of all contenders with those of the plain loop or the baseline."""
        equal = WORKLOADS[race.workload].check
        if equal is None:
            return
        fields = {"kind": "check", "workload": equal, "size": race.size}
        names = [name for name in race.contenders if not Name.parse(name).is_again]
        if all(self.log.find(**fields, contender=name) for name in names):
            return
        jobs = {
            name: replace(
                self._job(race, name, self.settings.check_steps),
                workload=equal, warmup=0, rows=self.settings.check_rows, is_check=True,
            )
            for name in names
        }  # fmt: skip
        is_training = bool(find_tasks(race.workload))
        # the baseline of inference is checked against itself
        reference = LOOP if is_training else names[0]
        if is_training:
            for name in (LOOP, f"{LOOP} bfloat16"):
                job = replace(next(iter(jobs.values())), contender=name)
                if name == LOOP or any("bfloat16" in contender for contender in names):
                    self._run_check(job)
        exact = replace(next(iter(jobs.values())), contender=reference)
        for name, job in jobs.items():
            if self.log.find(**fields, contender=name):
                continue
            record = self._run_check(job)
            outcome = {} if "error" in record else self._compare(job, exact, is_training)
            self.log.add(**fields, contender=name, **{**record, **outcome})

    def _run_check(self, job: Job) -> Record:
        output_file(job).unlink(missing_ok=True)  # of an earlier run
        return self.run_block("run", job, self.deadline)

    def _compare(self, job: Job, exact: Job, is_training: bool) -> Record:
        arrays, expected = (_read_outputs(each) for each in (job, exact))
        if expected is None or arrays is None:
            return {"reason": f"{exact.contender} has no outputs to compare with"}
        if not is_training:
            return check.compare_outputs(arrays, expected, job.name.precision)
        if job.name.precision == "float32":
            return check.compare_training(arrays, expected)
        half = _read_outputs(replace(exact, contender=f"{LOOP} bfloat16"))
        if half is None:
            return {"reason": f"{LOOP} bfloat16 has no outputs to compare with"}
        return check.compare_half(arrays, half, expected)

    def calibrate(self, race: Race) -> int | None:
        """Return the units of a block, by the first contender that runs; None if all fail."""
        workload = WORKLOADS[race.workload]
        if race.workload.endswith("_one"):
            return self.settings.singles
        if workload.units is not None:
            return workload.units
        for contender in race.contenders:
            fields = {"kind": "calibration", "workload": race.workload, "size": race.size}
            fields["contender"] = contender
            records = self.log.find(**fields)
            if not records:
                job = self._job(race, contender, PROBED)
                records = [self.log.add(**fields, **self.run_block("run", job, self.deadline))]
            if "error" not in records[0]:
                break
            tqdm.write(f"{race.workload}, {contender}: {records[0]['error']}")
        else:
            return None
        units = max(2, round(self.settings.seconds / (records[0]["seconds"] / PROBED)))
        cycle = self.settings.cycle
        return math.ceil(units / cycle) * cycle if cycle else min(units, MOST_UNITS)

    def round(self, race: Race, number: int, units: int, bar: "tqdm[Any]") -> None:
        """Run one block of every contender; every other round in the opposite order."""
        order = race.contenders if number % 2 == 0 else race.contenders[::-1]
        for name in order:
            bar.set_description(f"{race.workload} {race.size} {name}")
            fields: Record = {"kind": "block", "workload": race.workload, "size": race.size}
            fields |= {"contender": name, "round": number}
            if not self.log.find(**fields):
                first = 0 if self.settings.cycle else number * units
                job = replace(self._job(race, name, units), first=first, seed=number)
                self.log.add(**fields, **self.run_block("run", job, self.deadline))
            bar.update()

    def _job(self, race: Race, contender: str, units: int) -> Job:
        settings, workload = self.settings, WORKLOADS[race.workload]
        warmup = workload.warmup
        if settings.cycle and workload.units is None:  # meet all shapes
            warmup = max(warmup, 3 * settings.cycle)
        return Job(
            folder=settings.folder, workload=race.workload, size=race.size, contender=contender,
            units=units, warmup=warmup, sentences=settings.sentences, device=settings.device,
            threads=settings.threads, seconds=min(1.0, settings.seconds), rows=settings.rows,
        )  # fmt: skip

    def _missing(self, race: Race) -> int:
        """Return the number of remaining rounds."""
        valid = list(self.log.valid_rounds(race, self.settings))
        return max(0, self.settings.rounds - len(valid))


def _read_outputs(job: Job) -> check.Arrays | None:
    file = output_file(job)
    if not file.exists():
        return None
    with np.load(file) as stored:
        return {name: stored[name] for name in stored.files}


def strip_again(contender: str) -> str:
    """Return the name under which a contender was checked."""
    return contender.removesuffix(f" {AGAIN}")
