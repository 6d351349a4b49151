"""Measure minBERT and its peers on a GPU: one process, bf16, times from CUDA events.

python benchmarks/run_cuda.py --data_dir ~/data --minutes 9     # then again with --resume
python benchmarks/run_cuda.py --device cpu --tiny               # smoke test
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.block import be_quiet, run_spec  # noqa: E402
from benchmarks.flops import SPEC_TFLOPS, Ceilings, flops_per_token, measure_ceilings  # noqa: E402
from benchmarks.machine import Snapshot, count_cores, describe_machine  # noqa: E402
from benchmarks.measure import Campaign  # noqa: E402
from benchmarks.records import Log, Race, Record, Settings  # noqa: E402
from benchmarks.report import show_command, table, write_report  # noqa: E402
from benchmarks.summary import summarize  # noqa: E402
from benchmarks.tasks import WORKLOADS  # noqa: E402
from benchmarks.workloads import Rows, prepare  # noqa: E402

BATCHES = 8  # few, so that all shapes are compiled in the warmup
PASSES = 3  # of the warmup: compile for one shape, for all shapes, record the graphs
SMALL = (
    "minbert", "minbert+compile", "minbert+graphs", "trainer", "trainer+compile", "minbert-again",
)  # fmt: skip
PAIRS = ("minbert", "minbert+compile", "minbert+graphs", "trainer", "trainer+compile")
LARGE = ("minbert", "minbert+compile", "trainer", "trainer+compile")
PLAN: dict[str, tuple[str, ...]] = {
    "sst": SMALL,
    "quora": (*PAIRS, "sentence-transformers"),
    "sts": (*PAIRS, "sentence-transformers"),
    "mixed": PAIRS,
    "sst_large": LARGE,
    "mlm128_large": (*LARGE, "minbert-again"),
    "mlm512_large": LARGE,
    "encode": ("minbert", "sentence-transformers"),
}


class TimeIsUpError(Exception):
    """Raised when no further block may start."""


@dataclass
class InProcess:
    """Runs blocks in this process, one after the other.

    Args:
        device: ``cuda`` or ``cpu``.
        deadline: Clock after which no block is started, in seconds.
    """

    device: str
    deadline: float = float("inf")
    walls: list[float] = field(default_factory=list)

    def __call__(self, spec: Record, _folder: Path) -> Record:
        """Run a block; see ``measure.run_block``."""
        if time.monotonic() > self.deadline:
            raise TimeIsUpError
        on_gpu = self.device == "cuda"
        before = Snapshot.take()
        half = on_gpu and (spec["do"] == "measure" or "half" in spec)
        spec["job"] |= {"device": self.device, "bf16": half}
        outcome: Record
        try:
            outcome = run_spec(spec)
        except Exception as error:  # any error of a peer (memory, compiler) voids only its block
            outcome = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        if "+" in spec["peer"]:
            # programs of earlier blocks would count towards the limit of recompilations
            torch._dynamo.reset()
        if on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
        after = Snapshot.take()
        return {"wall": after.wall - before.wall, **before.until(after), **outcome}


class CudaCampaign(Campaign):
    """A campaign whose gate checks fp32 as on a CPU, and the error in bf16."""

    def gate(self, race: Race) -> None:
        """Check the peers of a race against the reference, compiled ones in bf16 only."""
        if race.workload == "encode" or self.settings.cycle is None:
            super().gate(race)
            return
        own, exact, half = (
            str(self.settings.folder / f"gate-{name}") for name in ("own", "reference", "half")
        )
        known = {record["peer"] for record in self._find(race, "gate")}
        peers = [peer for peer in race.peers if not peer.endswith("-again") and peer not in known]
        if not peers:
            return
        job = self._job(
            race, steps=self.settings.gate_steps, rows=self.settings.gate_rows, dropout=False
        )
        self._run("gate", "bare", job, file=exact, reference=exact)
        # "half" runs in bf16; the record of the reference itself is not compared
        self._run("gate", "bare", job, file=half, reference=half, half=half)
        for peer in peers:
            record: Record = {"errors": {}, "reason": None}
            if "+" not in peer:
                record = self._run("gate", peer, job, file=own, reference=exact)
            if not (record.get("error") or record.get("reason")):
                errors = record["errors"]
                record = self._run("gate", peer, job, file=own, reference=exact, half=half)
                record["errors"] = errors | record.get("errors", {})
            self._add(race, "gate", peer, record)


def describe_ceilings(ceilings: Ceilings, device: str) -> str:
    """Format the throughput of the GPU."""
    name = torch.cuda.get_device_name() if device == "cuda" else "this processor"
    lines = [(key, f"{rate:,.0f}") for key, rate in ceilings.small.items()]
    return (
        f"## Ceilings\n\n{name}: {ceilings.tflops:,.0f} TFLOP/s in a matrix product of 8192, "
        f"{ceilings.copy:.2f} TB/s in a copy. The products of one layer, forward, which bound "
        "fine-tuning with few tokens:\n\n" + table(("model and tokens", "TFLOP/s"), lines)
    )


def describe_use(log: Log, races: Sequence[Race], settings: Settings, ceilings: Ceilings) -> str:
    """Return a table of GPU utilization by workload and peer."""
    header = ("workload", "model", "peer", "tokens/s", "TFLOP/s", "of measured", "of data sheet")
    lines = []
    for row in summarize(log, races, settings):
        tasks = WORKLOADS[row.race.workload]
        if row.ratio is None or row.ours != "minbert" or len(tasks) != 1:
            continue
        rows = Rows.load(settings.folder / f"{tasks[0]}.npz")
        rate = row.rate * flops_per_token(rows, tasks[0], row.race.size) / 1e12
        shares = (f"{rate / ceilings.tflops:.1%}", f"{rate / SPEC_TFLOPS:.1%}")
        start = (row.race.workload, row.race.size, row.peer, f"{row.rate:,.0f}", f"{rate:,.1f}")
        lines.append((*start, *shares))
    text = (
        "Operations that real tokens need, at masked tokens only in the head of the vocabulary, "
        "over the rate of a large product, measured in this run, and by data sheet."
    )
    return f"## Use of the GPU\n\n{text}\n\n" + table(header, lines)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data_dir", type=Path, help="folder with real texts; without it lengths are drawn")
    add("--workloads", default=",".join(PLAN), help="comma-separated")
    add("--models", default="minilm,base", help="comma-separated")
    add("--peers", default="", help="comma-separated; default: those of the plan")
    add("--rounds", type=int, default=7)
    add("--seconds", type=float, default=2.0, help="length of a block of the slowest usual peer")
    add("--minutes", type=float, default=float("inf"), help="start no block after that")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--tiny", action="store_true", help="tiny models and batches, one short round")
    add("--resume", action="store_true", help="keep the blocks that are finished")
    add("--work_dir", type=Path, default=Path(tempfile.gettempdir()) / "minbert-benchmarks-cuda")
    add("--output", type=Path, default=ROOT / "benchmarks" / "RESULTS_CUDA.md")
    args = parser.parse_args(argv)
    if args.tiny:
        args.models, args.rounds, args.seconds = "tiny", 1, 0.05
    return args


def plan(args: argparse.Namespace) -> list[Race]:
    """Return the races to measure; nothing is compiled without a GPU."""
    races = []
    for size in args.models.split(","):
        for workload in args.workloads.split(","):
            peers = tuple(args.peers.split(",")) if args.peers else PLAN.get(workload, LARGE)
            kept = [peer for peer in peers if args.device == "cuda" or "+" not in peer]
            races.append(Race(workload, size, tuple(kept)))
    return races


def main(argv: Sequence[str] | None = None) -> Path:
    """Measure, write the report, and return its path."""
    args = parse(argv)
    deadline = time.monotonic() + 60 * args.minutes
    races = plan(args)
    sentences = 100 if args.tiny else 10_000
    tasks = {task for race in races for task in WORKLOADS[race.workload]}
    workloads = prepare(
        args.work_dir, tasks, args.models.split(","), args.data_dir, BATCHES, sentences
    )
    settings = Settings(
        folder=args.work_dir, results=args.work_dir / "blocks.jsonl", rounds=args.rounds,
        seconds=args.seconds, threads=count_cores(), max_foreign=float("inf"), gate_rows=8,
        max_steal=float("inf"), sentences=sentences,
        warmup=2 if args.tiny else PASSES * BATCHES, cycle=BATCHES, isolated=False,
        gate_steps=3 if args.tiny else 20,
    )  # fmt: skip
    log = Log.open(settings.results, resume=args.resume)
    ceilings = measure_ceilings(
        args.models.split(","), args.device, 8192 if args.device == "cuda" else 64
    )
    try:
        CudaCampaign(settings, races, log, InProcess(args.device, deadline)).run()
    except TimeIsUpError:
        print("time is up; the same command with --resume goes on")
    facts: dict[str, Any] = {
        "command": show_command("benchmarks/run_cuda.py", argv or sys.argv[1:]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "workloads": workloads,
    }
    more = [
        describe_use(log, races, settings, ceilings),
        describe_ceilings(ceilings, args.device),
    ]
    # the targets are for a CPU
    write_report(args.output, log, races, settings, facts, more, targets={})
    print(f"wrote {args.output}")
    return Path(args.output)


if __name__ == "__main__":
    be_quiet()
    main()
