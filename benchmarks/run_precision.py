"""Measure precisions on the CPU: speed, latency, share of the matrix rate, memory and quality.

    python benchmarks/run_precision.py --data_dir <folder> --encoder <model> --peer_python <python>
    python benchmarks/run_precision.py --quick          # smoke test

Stop it at any time; the same command with ``--resume`` goes on. The interpreter of
``--peer_python`` has sentence-transformers with its extras onnx and openvino, and datasets.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.block import be_quiet  # noqa: E402
from benchmarks.machine import (  # noqa: E402
    count_cores,
    describe_machine,
    find_instruction_sets,
)
from benchmarks.precision.campaign import Options, PrecisionCampaign, plan  # noqa: E402
from benchmarks.precision.prepare import SST_STEPS, prepare_all  # noqa: E402
from benchmarks.precision.report import write_report  # noqa: E402
from benchmarks.records import Log, Settings  # noqa: E402
from benchmarks.report import show_command  # noqa: E402

PARTS = ("encode", "predict", "train")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data_dir", type=Path, help="folder with real texts; without it there is no quality")
    add("--encoder", type=Path, help="folder of a bert encoder; random weights otherwise")
    add("--encoder_name", help="its name in the report; default: that of the folder")
    add("--peer_python", help="interpreter with ONNX and OpenVINO; without it they are left out")
    add("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=4.0, help="length of a block of the Trainer")
    add("--threads", type=int, default=count_cores())
    add("--sentences", type=int, default=1500, help="sentences of a call, up to 9000")
    add("--singles", type=int, default=300, help="sentences that are timed one at a time")
    add("--epoch_steps", type=int, default=SST_STEPS, help="batches of 32 of an epoch of SST")
    add("--all_epochs", action="store_true", help="accuracy of every trainer; minutes each")
    add("--max_foreign", type=float, default=0.15, help="processors others may use in a block")
    add("--max_steal", type=float, default=0.02, help="processors the host may take in a block")
    add("--quick", action="store_true", help="one short round on a tiny model")
    add("--resume", action="store_true", help="keep the blocks that are finished")
    add("--report_only", action="store_true", help="write the report of the finished blocks")
    add("--work_dir", type=Path, help="for models and blocks; default: a temporary folder")
    add("--output", type=Path, help="default: benchmarks/RESULTS_PRECISION.md")
    args = parser.parse_args(argv)
    args.parts = args.parts.split(",")
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if args.quick:
        args.rounds, args.seconds, args.sentences, args.singles = 1, 0.2, 100, 20
        args.epoch_steps = 4
        args.max_foreign = args.max_steal = float("inf")
    return args


def main(argv: Sequence[str] | None = None) -> Path:
    """Measure, write the report, and return its path."""
    args = parse(argv)
    be_quiet()
    name = f"minbert-precision-{os.getuid()}-{'quick' if args.quick else 'full'}"
    folder = args.work_dir or Path(tempfile.gettempdir()) / name
    prepare_all(folder, args.data_dir, args.encoder, quick=args.quick)
    settings = Settings(
        folder=folder, results=folder / "blocks.jsonl", rounds=args.rounds, seconds=args.seconds,
        threads=args.threads, max_foreign=args.max_foreign, max_steal=args.max_steal,
        sentences=args.sentences, gate_steps=3 if args.quick else 20,
    )  # fmt: skip
    races = plan(args.parts, elsewhere=args.peer_python is not None)
    log = Log.open(settings.results, resume=args.resume or args.report_only)
    options = Options(
        peer_python=args.peer_python, singles=args.singles, all_epochs=args.all_epochs,
        epoch_steps=args.epoch_steps,
    )  # fmt: skip
    if not args.report_only:
        PrecisionCampaign(settings, races, log, options).run()
    default = (folder if args.quick else ROOT / "benchmarks") / "RESULTS_PRECISION.md"
    output: Path = args.output or default
    facts = {
        "command": show_command("benchmarks/run_precision.py", argv or sys.argv[1:]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "instructions": ", ".join(find_instruction_sets()),
        "encoder": args.encoder_name
        or (args.encoder.resolve().name if args.encoder else "random weights"),
    }
    write_report(output, log, races, settings, facts)
    print(f"wrote {output}")
    return output


if __name__ == "__main__":
    main()
