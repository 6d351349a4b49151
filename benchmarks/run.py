"""Measure minBERT and its peers, and write a table, a picture and the raw numbers.

    python benchmarks/run.py training encode --data_dir <folder>    # some suites, on the CPU
    python benchmarks/run.py --tiny                                 # all of them, in minutes
    python benchmarks/run.py cuda --device cuda --minutes 9         # one GPU, bfloat16

Stop it at any time; the same command with ``--resume`` goes on.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.block import Name, be_quiet
from benchmarks.contenders import METHOD_NAMES, STARTS, WORKLOADS
from benchmarks.flops import measure_ceilings
from benchmarks.machine import count_cores, describe_machine, find_instruction_sets
from benchmarks.report import show_command, write_report
from benchmarks.rounds import Campaign, Log, Race, Settings, TimeIsUpError, run_here, run_in_child
from benchmarks.workloads import ENCODER, Sources, prepare

AGAIN = "minbert again"
COMPILED = "minbert compiled"
BOTH = ("trainer", "minbert")
PAIRS = ("trainer", "sentence-transformers", "bare", "minbert")
HALF = ("trainer bfloat16", "minbert bfloat16")
ENCODERS = (
    "sentence-transformers", "sentence-transformers bfloat16", "transformers", "minbert",
    "minbert bfloat16", "minbert int8", "minbert onnx", "minbert onnx int8", "onnx", "onnx int8",
    "openvino", "openvino bfloat16", "openvino int8", AGAIN,
)  # fmt: skip
BATCHED = ("sentence-transformers", "transformers", "minbert")
INT8 = ("minbert int8", "minbert words int8")  # with word embeddings in int8, and in float32
CLASSIFIERS = (
    "transformers", "transformers bfloat16", "minbert", "minbert bfloat16", "minbert int8",
)  # fmt: skip
# suite -> workload, size of the model, contenders; the first one is the baseline
SUITES: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "training": (
        ("sst", "minilm", ("trainer", "bare", "minbert", "minbert padded", AGAIN)),
        ("sst_grouped", "minilm", BOTH),
        ("quora", "minilm", PAIRS),
        ("sts", "minilm", PAIRS),
        ("mixed", "minilm", BOTH),
        ("sst", "base", BOTH),
    ),
    "pretraining": (
        ("mlm128", "minilm", ("trainer", "minbert", "minbert padded", AGAIN)),
        ("mlm128_full", "minilm", BOTH),
        ("mlm512", "minilm", BOTH),
        ("mlm128", "base", BOTH),
    ),
    "bfloat16": (("sst", "minilm", HALF), ("sst_grouped", "minilm", HALF)),
    "encode": (("encode", "minilm", ENCODERS), ("encode_one", "minilm", ENCODERS)),
    "predict": (
        ("predict", "minilm", CLASSIFIERS),
        ("predict_one", "minilm", CLASSIFIERS),
        ("three_tasks", "minilm", ("predict", "predict_all")),
        ("three_tasks_one", "minilm", ("pipelines", "predict", "predict_all")),
    ),
    "pairs": (("most_similar", "minilm", ("joint", "vectors")),),
    "methods": (("methods", "minilm", METHOD_NAMES),),
    "parts": (("parts", "minilm", BOTH), ("parts", "minilm", HALF)),
    "corpus": (
        ("corpus_build", "minilm", ("datasets", "minbert")),
        ("corpus_read", "minilm", ("DataCollatorForLanguageModeling", "minbert")),
    ),
    "startup": (("startup", "minilm", STARTS),),
    "encoders": (
        ("sst", "base-roberta", (*BOTH, AGAIN)),
        ("sst_grouped", "base-roberta", BOTH),
        ("mlm128", "base-roberta", BOTH),
        ("mlm128_grouped", "base-roberta", BOTH),
        ("sst", "base-mpnet", BOTH),
        ("sst_grouped", "base-mpnet", BOTH),
        ("sst", "base-modernbert", BOTH),
        ("sst_grouped", "base-modernbert", BOTH),
        *(("encode", f"base-{kind}", BATCHED) for kind in ("roberta", "mpnet", "modernbert")),
    ),
    "vocabulary": (
        ("mlm128", "base-xlm-roberta", (*BOTH, "minbert dense")),
        ("mlm128_grouped", "base-xlm-roberta", BOTH),
        ("encode", "base-xlm-roberta", (*BATCHED, *INT8)),
    ),
    "compiled": (
        ("sst", "minilm", ("trainer", "minbert", COMPILED)),
        ("encode", "minilm", ("minbert", COMPILED)),
        ("encode_one", "minilm", ("minbert", COMPILED)),
    ),
    "cuda": (
        ("sst", "base", (*HALF, "minbert bfloat16 again")),
        ("quora", "base", (*HALF, "sentence-transformers bfloat16")),
        ("sst_large", "base", HALF),
        ("mlm128_large", "base", HALF),
        ("mlm512_large", "base", HALF),
        ("encode", "minilm", ("sentence-transformers bfloat16", "minbert bfloat16")),
    ),
}  # fmt: skip


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    usual = [name for name in SUITES if name not in ("compiled", "cuda", "encoders", "vocabulary")]
    add("suites", nargs="*", help=f"some of {', '.join(SUITES)}; default: all of bert on the CPU")
    add("--workloads", help="only these of the suites, with commas")
    add("--contenders", help="only these, with commas; the first is the baseline")
    add("--sizes", help="models instead of the planned ones, of tiny, minilm and base")
    add("--data_dir", type=Path, help="folder with real texts; random ones otherwise")
    add("--encoder", type=Path, help="BERT encoder in place of minilm's random weights")
    add("--peer_python", help="interpreter with ONNX and OpenVINO of sentence-transformers")
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=4.0, help="length of a training block of the baseline")
    add("--threads", type=int, default=count_cores())
    add("--sentences", type=int, default=2000, help="sentences of a call, up to 10000")
    add("--singles", type=int, default=300, help="sentences that are timed one at a time")
    add("--kilobytes", type=int, default=20_000, help="size of the corpus")
    add("--max_foreign", type=float, default=0.15, help="processors others may use in a round")
    add("--max_steal", type=float, default=0.02, help="processors the host may take in a round")
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add("--here", action="store_true", help="all blocks in this process, as on a GPU")
    add("--minutes", type=float, default=float("inf"), help="start no block after that")
    add("--tiny", action="store_true", help="one short round on tiny models, whatever else runs")
    add("--resume", action="store_true", help="keep the blocks that are finished")
    add("--report_only", action="store_true", help="write the report of the finished blocks")
    add("--work_dir", type=Path, help="for models, rows and blocks; default: a temporary folder")
    add("--output", type=Path, help="report, with .png and .json beside it; default: in work_dir")
    args = parser.parse_args(argv)
    args.suites = args.suites or usual
    if unknown := [name for name in args.suites if name not in SUITES]:
        parser.error(f"unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU; leave it out to measure the CPU")
    args.here = args.here or args.device == "cuda"
    if args.tiny:
        args.sizes = args.sizes or "tiny"
        args.rounds, args.seconds, args.sentences, args.singles = 1, 0.05, 80, 5
        args.kilobytes = 100
        args.max_foreign = args.max_steal = float("inf")
    return args


def plan(args: argparse.Namespace) -> tuple[list[Race], list[str]]:
    """Return the races, and the contenders that are left out with the reason.

    Raises:
        ValueError: If a name is unknown.
    """
    wanted = args.workloads.split(",") if args.workloads else None
    if unknown := [name for name in wanted or () if name not in WORKLOADS]:
        raise ValueError(f"unknown workload {unknown[0]!r}; known: {', '.join(WORKLOADS)}")
    chosen = args.contenders.split(",") if args.contenders else None
    races: list[Race] = []
    skipped: dict[str, None] = {}
    for workload, planned, usual in (race for suite in args.suites for race in SUITES[suite]):
        if wanted and workload not in wanted:
            continue
        contenders = WORKLOADS[workload].contenders
        names = []
        for name in chosen or usual:
            parsed = Name.parse(name)
            if parsed.peer not in contenders:
                raise ValueError(
                    f"unknown contender {name!r} of {workload}; known: {', '.join(contenders)}, "
                    "with a precision"
                )
            reason = contenders[parsed.peer].reason_to_skip(args.peer_python)
            if reason:
                skipped[f"{name} in {workload}: {reason}"] = None
            else:
                names.append(name)
        size = ENCODER if args.encoder and planned == "minilm" else planned
        kind = size[size.find("-") :] if "-" in size else ""  # of other model types
        for each in [f"{x}{kind}" for x in args.sizes.split(",")] if args.sizes else [size]:
            race = Race(workload, each, tuple(names))
            repeats = any(
                (other.workload, other.size) == (workload, each)
                and set(names) <= set(other.contenders)
                for other in races
            )
            if len(names) > 1 and not repeats:
                races.append(race)
    return races, [*skipped]


def main(argv: Sequence[str] | None = None) -> Path:
    """Measure, write the report, and return its path."""
    args = parse(argv)
    be_quiet()
    deadline = time.monotonic() + 60 * args.minutes
    races, skipped = plan(args)
    for line in skipped:
        print(f"left out: {line}")
    default = Path(tempfile.gettempdir()) / f"minbert-benchmarks-{os.getuid()}"
    folder = args.work_dir or default.with_name(default.name + ("-tiny" if args.tiny else ""))
    output: Path = args.output or folder / "RESULTS.md"
    output.parent.mkdir(parents=True, exist_ok=True)
    on_gpu = args.device == "cuda"
    batches = 8 if args.tiny or on_gpu else 64  # few, so that all shapes are met in the warmup
    sources = Sources(
        args.data_dir, args.encoder, batches, 300 if args.tiny else 10_000, args.kilobytes
    )
    tasks = {task for race in races for task in race.find_tasks()}
    workloads = prepare(folder, tasks, {race.size for race in races}, sources)
    infinite = float("inf") if on_gpu else None
    settings = Settings(
        folder=folder, rounds=args.rounds, seconds=args.seconds, threads=args.threads,
        max_foreign=infinite or args.max_foreign, max_steal=infinite or args.max_steal,
        sentences=args.sentences, singles=args.singles, check_steps=2 if args.tiny else 20,
        rows=4 if args.tiny else None,
        device=args.device, cycle=batches if on_gpu else None, peer_python=args.peer_python,
    )  # fmt: skip
    facts: dict[str, Any] = {
        "command": show_command("benchmarks/run.py", argv or sys.argv[1:]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "instructions": find_instruction_sets(),
        "workloads": workloads,
    }
    if on_gpu:
        facts |= {"device": torch.cuda.get_device_name(), "ceilings": measure_ceilings("cuda")}
    log = Log.open(folder / "blocks.jsonl", resume=args.resume or args.report_only)
    if not args.report_only:
        run_block = run_here if args.here else run_in_child(settings)
        try:
            Campaign(settings, races, log, run_block, deadline).run()
        except TimeIsUpError:
            print("time is up; the same command with --resume goes on")
    write_report(output, log, races, settings, facts, skipped)
    print(f"wrote {output}")
    return output


if __name__ == "__main__":
    main()
