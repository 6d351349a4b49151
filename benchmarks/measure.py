"""Measure blocks in separate processes, in an order that balances drift of the machine."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .machine import Snapshot
from .peers import Job
from .records import Log, Race, Record, Settings, valid_rounds

ROOT = Path(__file__).resolve().parents[1]
PROBED = 2  # steps that determine the length of a block
MOST_STEPS = 60


def run_block(spec: Record, folder: Path) -> Record:
    """Run a block in a fresh process.

    Args:
        spec: See ``block.run_spec``; ``module`` and ``python`` name another program and
            interpreter.
        folder: For the files that are passed to and fro.

    Returns:
        What it measured and what the machine did meanwhile; ``error`` where it failed.
    """
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    file = folder / "spec.json"
    file.write_text(json.dumps({**spec, "result": str(result)}))
    before = Snapshot.take()
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec["threads"])}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    program = spec.get("module", "benchmarks.block")
    done = subprocess.run(  # noqa: S603  (our own module)
        [spec.get("python", sys.executable), "-m", program, str(file)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = Snapshot.take()
    outcome = {"wall": after.wall - before.wall, **before.until(after)}
    if done.returncode or not result.exists():
        lines = done.stderr.strip().splitlines()
        return {**outcome, "error": lines[-1] if lines else f"exit status {done.returncode}"}
    return {**outcome, **json.loads(result.read_text())}


class Campaign:
    """Run all races: gate, calibration, rounds.

    Args:
        settings: How to measure.
        races: What to measure.
        log: Where the records go.
        run_block: Runs a spec, with files in a folder.
    """

    def __init__(
        self,
        settings: Settings,
        races: Sequence[Race],
        log: Log,
        run_block: Callable[[Record, Path], Record] = run_block,
    ) -> None:
        self.run_block = run_block
        self.settings = settings
        self.races = races
        self.log = log

    def run(self) -> None:
        """Do what the log lacks."""
        for race in self.races:
            self.gate(race)
        for race in self.races:
            self.calibrate(race)
        minutes = self.estimate() / 60
        tqdm.write(f"about {minutes:.0f} minutes for {self.settings.rounds} rounds")
        total = sum(self._missing(race) * len(race.peers) for race in self.races)
        with tqdm(total=total, unit="block", smoothing=0) as bar:
            for number in range(2 * self.settings.rounds):
                for race in self.races:
                    if self._missing(race):
                        self.round(race, number, bar)

    def gate(self, race: Race) -> None:
        """Check the peers of a race against the reference."""
        own, reference = (self.settings.folder / f"gate-{name}" for name in ("own", "reference"))
        peers = [peer for peer in race.peers if not peer.endswith("-again")]
        known = self._find(race, "gate")
        missing = [peer for peer in peers if peer not in {record["peer"] for record in known}]
        if not missing:
            return
        rows = self.settings.gate_rows if race.workload != "encode" else 100
        job = self._job(race, steps=self.settings.gate_steps, rows=rows, dropout=False)
        if race.workload != "encode":
            self._run("gate", "bare", job, file=str(reference), reference=str(reference))
        for peer in tqdm(missing, desc=f"gate {race.workload} {race.size}", leave=False):
            record = self._run("gate", peer, job, file=str(own), reference=str(reference))
            self._add(race, "gate", peer, record)

    def calibrate(self, race: Race) -> None:
        """Return the number of steps of a block."""
        if self._find(race, "calibration"):
            return
        job = self._job(race, steps=self.settings.warmup + PROBED, rows=self._rows(race))
        record = self._run("measure", race.yardstick, job)
        if "error" not in record:
            per_step = record["seconds"] / PROBED
            steps = max(2, round(self.settings.seconds / per_step))
            cycle = self.settings.cycle
            steps = math.ceil(steps / cycle) * cycle if cycle else min(steps, MOST_STEPS)
            record |= {"steps": steps, "per_step": per_step}
        self._add(race, "calibration", race.yardstick, record)

    def estimate(self) -> float:
        """Estimate the seconds that the missing rounds take."""
        total = 0.0
        for race in self.races:
            for record in self._find(race, "calibration"):
                if "error" in record:
                    continue
                start = record["wall"] - record["seconds"]
                steps = 0 if race.workload == "encode" else record["steps"] - PROBED
                block = start + record["seconds"] + steps * record["per_step"]
                # other peers are faster than the pace setter; 0.8 fits the usual mix
                total += 0.8 * block * len(race.peers) * self._missing(race)
        return total

    def round(self, race: Race, number: int, bar: "tqdm[Any]") -> None:
        """Run one block of every peer; every other round in the opposite order."""
        steps = self._find(race, "calibration")[0].get("steps")
        if steps is None:
            bar.update(len(race.peers))
            return
        order = race.peers if number % 2 == 0 else race.peers[::-1]
        for peer in order:
            bar.set_description(f"{race.workload} {race.size} {peer}")
            if not self._find(race, "block", peer=peer, round=number):
                first = 0 if self.settings.cycle else number * steps
                steps_all = self.settings.warmup + steps
                job = self._job(race, steps=steps_all, first=first, rows=self._rows(race))
                record = self._run("measure", peer, job, seed=number)
                self._add(race, "block", peer, {"round": number, **record})
            bar.update()

    def _rows(self, race: Race) -> int | None:
        return self.settings.sentences if race.workload == "encode" else None

    def _missing(self, race: Race) -> int:
        """Return the number of remaining rounds."""
        valid = list(valid_rounds(self.log, race, self.settings))
        return max(0, self.settings.rounds - len(valid))

    def _job(self, race: Race, **options: Any) -> Job:
        return Job(self.settings.folder, race.workload, race.size, **options)

    def _run(self, do: str, peer: str, job: Job, **more: Any) -> Record:
        fields = asdict(job) | {"folder": str(job.folder)}
        spec: Record = {"do": do, "peer": peer, "job": fields}
        spec |= {
            "threads": self.settings.threads,
            "warmup": self.settings.warmup,
            "seed": 0,
            **more,
        }
        return self.run_block(spec, self.settings.folder)

    def _find(self, race: Race, kind: str, **fields: Any) -> list[Record]:
        return self.log.find(kind=kind, workload=race.workload, size=race.size, **fields)

    def _add(self, race: Race, kind: str, peer: str, record: Record) -> None:
        own = {"kind": kind, "workload": race.workload, "size": race.size, "peer": peer}
        self.log.add({**own, "time": time.time(), **record})
