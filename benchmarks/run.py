"""Measure minBERT and its peers on the CPU.

    python benchmarks/run.py --data_dir ~/data            # everything, and benchmarks/RESULTS.md
    python benchmarks/run.py --quick                      # smoke test

Stop it at any time; the same command with ``--resume`` goes on.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import count_cores, describe_machine  # noqa: E402
from benchmarks.measure import Campaign  # noqa: E402
from benchmarks.peers import ENCODERS, PEERS  # noqa: E402
from benchmarks.records import Log, Race, Settings  # noqa: E402
from benchmarks.report import show_command, write_report  # noqa: E402
from benchmarks.tasks import WORKLOADS  # noqa: E402
from benchmarks.workloads import SIZES, prepare  # noqa: E402

AGAIN = "minbert-again"
PLAN: dict[str, tuple[str, ...]] = {
    "sst": ("minbert", "minbert-padded", "trainer", "bare", "reference", AGAIN),
    "sst_grouped": ("minbert", "trainer"),
    "quora": ("minbert", "trainer", "bare", "sentence-transformers"),
    "sts": ("minbert", "trainer", "sentence-transformers"),
    "mixed": ("minbert", "trainer"),
    "mlm128": ("minbert", "minbert-padded", "trainer", AGAIN),
    "mlm128_full": ("minbert", "trainer"),
    "mlm512": ("minbert", "trainer"),
    "encode": ("minbert", "sentence-transformers"),
}
# the large model takes ten times as long
PLAN_BASE: dict[str, tuple[str, ...]] = {
    "sst": ("minbert", "trainer"),
    "mlm128": ("minbert", "trainer"),
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data_dir", type=Path, help="folder with real texts; without it lengths are drawn")
    add("--workloads", default="", help=f"some of {','.join(WORKLOADS)}")
    add("--models", default="minilm,base", help=f"some of {','.join(SIZES)}")
    add("--peers", default="", help=f"some of {','.join(PEERS)}; minbert is always there")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=4.0, help="length of a block of the slowest usual peer")
    add("--threads", type=int, default=count_cores())
    add("--sentences", type=int, default=2000, help="sentences of a call of encode, up to 10000")
    add("--max_foreign", type=float, default=0.15, help="processors others may use in a round")
    add("--max_steal", type=float, default=0.02, help="processors the host may take in a round")
    add("--quick", action="store_true", help="two short rounds on tiny models")
    add("--resume", action="store_true", help="keep the blocks that are finished")
    add("--report_only", action="store_true", help="write the report of the finished blocks")
    add("--work_dir", type=Path, help="for batches, models and blocks; default: a temporary folder")
    add("--output", type=Path, help="default: benchmarks/RESULTS.md (with --quick in work_dir)")
    args = parser.parse_args(argv)
    if args.quick:
        args.models, args.rounds, args.seconds, args.sentences = "tiny", 2, 0.2, 100
        args.max_foreign = args.max_steal = float("inf")
    return args


def plan(workloads: str, models: str, peers: str) -> list[Race]:
    """Return the races to measure.

    Args:
        workloads: Names; empty for those of the plan.
        models: Names of sizes.
        peers: Names; empty for those of the plan.

    Raises:
        ValueError: If a name is unknown.
    """
    races = []
    wanted = [name for name in peers.split(",") if name]
    for size in models.split(","):
        _check("model", size, SIZES)
        table = PLAN_BASE if size == "base" else PLAN
        for name in workloads.split(",") if workloads else table:
            _check("workload", name, WORKLOADS)
            known = ENCODERS if name == "encode" else PEERS
            for peer in wanted:
                _check("peer", peer, PEERS)
            chosen = ["minbert", *(peer for peer in wanted if peer in known and peer != "minbert")]
            races.append(Race(name, size, tuple(chosen) if wanted else table.get(name, PLAN[name])))
    return races


def _check(what: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")


def main(argv: Sequence[str] | None = None) -> Path:
    """Measure, write the report, and return its path."""
    args = parse(argv)
    races = plan(args.workloads, args.models, args.peers)
    kind = "real" if args.data_dir else "drawn"
    default = Path(tempfile.gettempdir()) / f"minbert-benchmarks-{os.getuid()}-{kind}"
    folder = args.work_dir or default
    batches, sentences = (8, 200) if args.quick else (64, 10_000)
    tasks = {task for race in races for task in WORKLOADS[race.workload]}
    workloads = prepare(folder, tasks, args.models.split(","), args.data_dir, batches, sentences)
    settings = Settings(
        folder=folder, results=folder / "blocks.jsonl", rounds=args.rounds, seconds=args.seconds,
        threads=args.threads, max_foreign=args.max_foreign, max_steal=args.max_steal,
        sentences=args.sentences,
    )  # fmt: skip
    log = Log.open(settings.results, resume=args.resume or args.report_only)
    if not args.report_only:
        Campaign(settings, races, log).run()
    output = args.output or (folder if args.quick else ROOT / "benchmarks") / "RESULTS.md"
    facts = {
        "command": show_command("benchmarks/run.py", argv or sys.argv[1:]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "workloads": workloads,
    }
    write_report(output, log, races, settings, facts)
    print(f"wrote {output}")
    return output


if __name__ == "__main__":
    main()
