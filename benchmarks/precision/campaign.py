"""Run the blocks of all contenders in rounds."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.measure import Campaign, run_block
from benchmarks.peers import Job
from benchmarks.records import Log, Race, Record, Settings

from .contenders import AGAIN, CONTENDERS, ELSEWHERE, EXPORTS, Contender
from .epoch import EPOCH
from .prepare import SIZE, SST_STEPS
from .quality import LIMITS, compare_outputs

TRAINING = ("sst float32", "sst bfloat16", "sst_grouped float32", "sst_grouped bfloat16")
TRAINERS = ("minbert", "trainer")
TRAINED = ("minbert float32", "minbert bfloat16", "trainer float32", "trainer bfloat16")
HEAD = "minbert float32"  # whose epoch gives the heads of predict
# The error of 20 losses of few rows was 0.96 to 1.35 times that of transformers with other rows of
# the same task, so its limit is wider than that of the gradients.
HALF_LIMITS = {"bf16 gradients": 1.2, "bf16 losses": 2.0}
TRIES = 2  # a block during which something else ran is repeated once
TORCH = ("minbert", "sentence-transformers", "transformers")


@dataclass(frozen=True)
class Options:
    """What the blocks get besides the settings.

    Args:
        peer_python: Interpreter of the peers of ``ELSEWHERE``; None leaves them out.
        singles: Sentences that are timed one at a time.
        epoch_steps: Batches of the epoch.
        all_epochs: Whether every trainer trains an epoch, not just the one of ``predict``.
    """

    peer_python: str | None = None
    singles: int = 300
    epoch_steps: int = SST_STEPS
    all_epochs: bool = False


def plan(parts: Sequence[str], *, elsewhere: bool, again: bool = True) -> list[Race]:
    """Return the races of some parts.

    Args:
        parts: Some of ``encode``, ``predict`` and ``train``.
        elsewhere: Whether peers of the other environment take part.
        again: Whether the noise is measured.
    """
    races = []
    for part in parts:
        if part == "train":
            races += [Race(workload, SIZE, TRAINERS) for workload in TRAINING]
            continue
        names = tuple(
            name
            for name in CONTENDERS[part]
            if (elsewhere or Contender.parse(name).peer not in ELSEWHERE)
            and (again or not name.endswith(AGAIN))
        )
        races.append(Race(part, SIZE, names))
    return races


class PrecisionCampaign(Campaign):
    """Exports and an epoch, then the rounds.

    Args:
        settings: How to measure.
        races: What to measure.
        log: Where the records go.
        options: What the blocks get besides.
        run_block: Runs a spec, with files in a folder.
    """

    def __init__(
        self,
        settings: Settings,
        races: Sequence[Race],
        log: Log,
        options: Options,
        run_block: Callable[[Record, Path], Record] = run_block,
    ) -> None:
        super().__init__(settings, races, log, run_block)
        self.options = options

    def run(self) -> None:
        """Do what the log lacks."""
        self.train_epochs()
        self.export()
        super().run()

    def train_epochs(self) -> None:
        """Train an epoch of SST: the heads of ``predict``, and quality of training."""
        wanted = [HEAD] if any(race.workload == "predict" for race in self.races) else []
        wanted = list(TRAINED) if self.options.all_epochs else wanted
        for name in wanted:
            if self.log.find(kind="epoch", peer=name, error=None):
                continue
            peer, precision = Contender.parse(name)
            tqdm.write(f"an epoch of {name}")
            folder = self.settings.folder / EPOCH
            steps = self.options.epoch_steps
            job = Job(folder, "sst", SIZE, steps=steps, bf16=precision == "bfloat16")
            record = self._run("epoch", peer, job, save=name == HEAD)
            self._record("epoch", name, record)

    def export(self) -> None:
        """Write the folders of int8 and of the other libraries."""
        names = {
            Contender.parse(name).peer
            for race in self.races
            if race.workload in CONTENDERS
            for name in race.peers
        }
        for peer in EXPORTS:
            if peer in names and not self.log.find(kind="export", peer=peer, error=None):
                tqdm.write(f"export for {peer}")
                self._record("export", peer, self.run_block(self._spec("export", peer), self._at))
        python = self.options.peer_python
        if python and not self.log.find(kind="versions", error=None):
            spec = self._spec("versions", "onnx")
            self._record("versions", "other", self.run_block(spec, self._at))

    def gate(self, race: Race) -> None:
        """Check the trainers, once for both ways of making batches; others as they run."""
        if race.workload in CONTENDERS:
            return
        plain = Race(race.workload.replace("_grouped", ""), race.size, race.peers)
        for peer in race.peers:
            known = self._find(plain, "gate", peer=peer)
            if not known:
                self._add(plain, "gate", peer, self._gate_trainer(plain, peer))
                known = self._find(plain, "gate", peer=peer)
            if race != plain and not self._find(race, "gate", peer=peer):
                self._add(race, "gate", peer, {key: known[-1].get(key) for key in KEPT})

    def _gate_trainer(self, race: Race, peer: str) -> Record:
        """Compare a trainer with a plain loop; in bfloat16, its error with that of the loop's."""
        own, exact, half = (str(self._at / f"gate-{name}") for name in ("own", "reference", "half"))
        settings = self.settings
        options: dict[str, Any] = {"steps": settings.gate_steps, "rows": settings.gate_rows}
        full = Job(self._at, "sst", SIZE, dropout=False, **options)
        self._run("gate", "bare", full, file=exact, reference=exact)
        if race.workload.endswith("float32"):
            return self._run("gate", peer, full, file=own, reference=exact)
        job = self._job(race, dropout=False, **options)
        self._run("gate", "bare", job, file=half, reference=half)
        return judge_half(self._run("gate", peer, job, file=own, reference=exact, half=half))

    def calibrate(self, race: Race) -> None:
        """Find the steps of a block; other races have none."""
        if race.workload not in CONTENDERS:
            super().calibrate(race)

    def estimate(self) -> float:
        """Estimate the seconds that the missing rounds take."""
        others = [race for race in self.races if race.workload in CONTENDERS]
        return super().estimate() + sum(
            SECONDS[race.workload] * len(race.peers) * self._missing(race) for race in others
        )

    def round(self, race: Race, number: int, bar: "tqdm[Any]") -> None:
        """Run one block of every contender; every other round in the opposite order."""
        if race.workload not in CONTENDERS:
            super().round(race, number, bar)
            return
        order = race.peers if number % 2 == 0 else race.peers[::-1]
        for peer in order:
            bar.set_description(f"{race.workload} {peer}")
            if not self._find(race, "block", peer=peer, round=number):
                for record in self._try(race, peer, number):
                    self._add(race, "block", peer, {"round": number, **record})
            bar.update()

    def _try(self, race: Race, peer: str, number: int) -> Iterator[Record]:
        """Run a block, and again if something else ran meanwhile."""
        name = peer.removesuffix(AGAIN)
        for _ in range(TRIES):
            gated = bool(self._find(race, "gate", peer=name, error=None))
            spec = self._spec(race.workload, peer) | {
                "sentences": self.settings.sentences,
                "singles": self.options.singles,
                "quality": not gated,
                "products": _has_products(name),
                "seed": number,
            }
            record = self.run_block(spec, self._at)
            if not gated:
                self._add(race, "gate", name, self._judge(race, name, record))
            yield record
            if (
                record["foreign"] <= self.settings.max_foreign
                and record["steal"] <= self.settings.max_steal
            ):
                return

    def _judge(self, race: Race, name: str, record: Record) -> Record:
        """Return the quality of a contender; one in float32 must compute what the first does."""
        if "error" in record:
            return {"error": record["error"]}
        errors = compare_outputs(self._at, race.workload, name, race.peers[0])
        exact = Contender.parse(name).precision == "float32"
        wrong = [
            f"{what}: {error:.1e}"
            for what, error in errors.items()
            if exact and not error <= LIMITS[race.workload]
        ]
        quality = record.get("quality")
        return {"errors": errors, "quality": quality, "reason": "; ".join(wrong) or None}

    def _spec(self, do: str, peer: str) -> Record:
        spec: Record = {
            "module": MODULE,
            "do": do,
            "peer": peer,
            "folder": str(self._at),
            "threads": self.settings.threads,
            "seed": 0,
        }
        elsewhere = peer.split(" ")[0] in ELSEWHERE and self.options.peer_python
        return spec | {"python": elsewhere or sys.executable}

    @property
    def _at(self) -> Path:
        return self.settings.folder

    def _job(self, race: Race, **options: Any) -> Job:
        workload, precision = race.workload.split(" ")
        return Job(self._at, workload, race.size, bf16=precision == "bfloat16", **options)

    def _run(self, do: str, peer: str, job: Job, **more: Any) -> Record:
        return super()._run(do, peer, job, module=MODULE, **more)

    def _record(self, kind: str, peer: str, record: Record) -> None:
        if "error" in record:
            tqdm.write(f"{kind} {peer}: {record['error']}")
        self.log.add({"kind": kind, "peer": peer, **record})


def judge_half(record: Record) -> Record:
    """Judge errors in bfloat16 (multiples of those of transformers) by ``HALF_LIMITS``."""
    if "error" in record:
        return record
    wrong = [
        f"{what}: {record['errors'][what]:.2f} times the error of transformers"
        for what, limit in HALF_LIMITS.items()
        if not record["errors"][what] <= limit
    ]
    return record | {"reason": "; ".join(wrong) or None}


MODULE = "benchmarks.precision.block"
SECONDS = {"encode": 20.0, "predict": 16.0}  # of a block, for the estimate
KEPT = ("errors", "reason", "error")  # of the record of a gate


def _has_products(name: str) -> bool:
    peer, precision = Contender.parse(name)
    return peer in TORCH and precision != "int8"
