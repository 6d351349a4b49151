"""Measure the cost of each training method relative to the plain step, on the CPU.

    python benchmarks/run_methods.py            # about half an hour on two cores
    python benchmarks/run_methods.py --quick    # smoke test

All train on the same three tasks in turn, in equal batches of rows of one length, so that equal
steps are equal work for the plain way. A mixed step has the batches of three steps and counts as
three. Every block is a process of its own; every other round has them in the opposite order.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tqdm import tqdm  # noqa: E402
from transformers import PrinterCallback, set_seed  # noqa: E402

from benchmarks.block import Clock, be_quiet  # noqa: E402
from benchmarks.machine import Memory, Snapshot, count_cores, describe_machine  # noqa: E402
from benchmarks.peers.trainer_base import ProbeCallback  # noqa: E402
from benchmarks.report import show_command, table  # noqa: E402
from benchmarks.summary import Spread  # noqa: E402
from benchmarks.workloads import FIRST_WORD, SIZES, VOCABULARY  # noqa: E402
from modeling_minbert import MinBertConfig, MinBertForMultiTask  # noqa: E402
from trainers import (  # noqa: E402
    FastTrainingArguments,
    MultiTaskTrainer,
    ProblemType,
    Task,
    add_lora,
)
from trainers.data.sampling.task_sampling import SamplingArguments  # noqa: E402
from trainers.methods.method_arguments import MethodArguments  # noqa: E402

PLAIN = "plain"
MIXED = {"task_sampling": "mixed"}
SEPARATE = {"pair_encoding": "separate", "head": "cosine"}
# name -> keys of a recipe, and `heads`: changes of heads, by task
METHODS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "mixed": MIXED,
    "PCGrad": {**MIXED, "gradient_surgery": "pcgrad"},
    "GradVac": {**MIXED, "gradient_surgery": "gradvac"},
    "R-Drop": {"r_drop": 1.0},
    "SMART": {"smart": {"weight": 1.0}},
    "SMART (public code)": {"smart": {"weight": 1.0, "mode": "mtdnn"}},
    "SMART (proximal)": {"smart": {"weight": 1.0, "bregman_weight": 1.0}},
    "average (ema)": {"weight_averaging": "ema"},
    "average (swa)": {"weight_averaging": "swa"},
    "bfloat16 (autocast)": {"bf16": True},
    "rates by layer": {"layerwise_lr_decay": 0.95},
    "half the layers frozen": {"freeze_layers": 3},
    "LoRA": {"lora": {"r": 8}},
    "tasks drawn": {"task_sampling": "proportional"},
    "pairs separate": {"heads": {"quora": SEPARATE, "sts": SEPARATE}},
    "multiple negatives ranking": {
        "heads": {"quora": SEPARATE | {"loss": "multiple_negatives_ranking"}, "sts": SEPARATE}
    },
    "CoSENT": {"heads": {"quora": SEPARATE, "sts": SEPARATE | {"loss": "cosent"}}},
    "SimCSE": {"heads": {"sst": {"problem_type": "contrastive", "num_sentences": 1}}},
}
# task -> its head and tokens per row, about the means of SST, Quora and STS with joint pairs
TASKS: dict[str, tuple[dict[str, Any], int]] = {
    "sst": ({"problem_type": "classification", "labels": list("01234")}, 25),
    "quora": ({"problem_type": "paraphrase"}, 29),
    "sts": ({"problem_type": "similarity", "score_range": [0, 5]}, 27),
}
ROWS = 32  # per batch
WARMUP = 6  # steps


class Block(NamedTuple):
    """Result of a block.

    Args:
        ms: Median milliseconds of a batch of ``ROWS`` rows.
        peak_mib: Peak memory of the process, in MiB.
        step_mib: What training took above the model in memory, in MiB.
        foreign: Processors that others used meanwhile.
    """

    ms: float
    peak_mib: float
    step_mib: float
    foreign: float


def find_heads(method: str) -> dict[str, dict[str, Any]]:
    """Return the heads of the three tasks with a method."""
    changes = METHODS[method].get("heads", {})
    heads = {}
    for task, (head, _) in TASKS.items():
        change = changes.get(task, {})
        heads[task] = change if "problem_type" in change else head | change
    return heads


def make_rows(task: str, head: Mapping[str, Any], count: int) -> Dataset:
    """Draw rows of equal length; each sentence of a separate pair has half of it."""
    length, kind = TASKS[task][1], head["problem_type"]
    rng = np.random.default_rng(list(TASKS).index(task))
    shape: tuple[int, ...] = (count, length)
    if head.get("pair_encoding") == "separate":
        shape = (count, 2, -(-length // 2))
    elif kind == "contrastive":
        shape = (count, 1, length)
    ids = rng.integers(FIRST_WORD, VOCABULARY, shape)
    columns = {"input_ids": ids.tolist(), "token_type_ids": np.zeros_like(ids).tolist()}
    if kind != "contrastive":
        labels = rng.integers(0, 5 if kind == "classification" else 2, count)
        dtype = np.int64 if kind == "classification" else np.float32
        columns["labels"] = labels.astype(dtype).tolist()
    return Dataset.from_dict(columns)


def train_block(method: str, size: str, steps: int, threads: int) -> dict[str, float]:
    """Train with a method and time its steps.

    Args:
        method: Name of ``METHODS``.
        size: Name of ``SIZES``.
        steps: Steps of one task that are measured, a multiple of three.
        threads: Threads of torch.
    """
    torch.set_num_threads(threads)
    set_seed(0)
    keys = dict(METHODS[method])
    shape: dict[str, Any] = dict(SIZES[size])
    shape["intermediate_size"] = 4 * shape["hidden_size"]
    keys.pop("heads", None)
    heads = find_heads(method)
    model = MinBertForMultiTask(MinBertConfig(tasks=heads, **shape))
    if "freeze_layers" in keys:
        keys["freeze_layers"] = min(keys["freeze_layers"], shape["num_hidden_layers"] // 2)
    if lora := keys.get("lora"):
        add_lora(model, lora, trained=("heads.", "cls."))
    per_step = len(TASKS) if keys.get("task_sampling") == "mixed" else 1
    sampling = SamplingArguments(
        task_sampling=keys.pop("task_sampling", "round_robin")
    ).make_sampling()
    args = FastTrainingArguments(
        output_dir=tempfile.gettempdir(), max_steps=(WARMUP + steps) // per_step, use_cpu=True,
        per_device_train_batch_size=ROWS, save_strategy="no", disable_tqdm=True,
        learning_rate=2e-5, report_to="none", logging_strategy="no", bf16=keys.pop("bf16", False),
    )  # fmt: skip
    rows = ROWS * (WARMUP + steps)
    tasks = [
        Task(name, cast("ProblemType", head["problem_type"]), make_rows(name, head, rows))
        for name, head in heads.items()
    ]
    trainer = MultiTaskTrainer(
        model, args, tasks, sampling=sampling, methods=MethodArguments(**keys).make_methods(),
    )  # fmt: skip
    clock = Clock()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProbeCallback(clock))
    memory = Memory()
    trainer.train()
    ends = clock.read()[WARMUP // per_step - 1 :]
    # the three tasks together, per batch
    turn = len(TASKS) // per_step
    times = [(ends[at + turn] - ends[at]) / len(TASKS) for at in range(0, len(ends) - turn, turn)]
    return {"ms": 1000 * median(times), **memory.used()}


def run_block(method: str, args: argparse.Namespace) -> Block:
    """Run a block in its own process.

    Raises:
        RuntimeError: If it failed.
    """
    command = [sys.executable, __file__, "--block", method, "--size", args.size]
    command += ["--steps", str(args.steps), "--threads", str(args.threads)]
    before = Snapshot.take()
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    noise = before.until(Snapshot.take())["foreign"]
    if done.returncode:
        raise RuntimeError(f"{method}: {done.stderr.strip().splitlines()[-1]}")
    return Block(**json.loads(done.stdout.splitlines()[-1]), foreign=noise)


def summarize(blocks: Mapping[str, Sequence[Block]]) -> str:
    """Return a table of every method relative to the plain step of the same round."""
    rows = []
    plain = blocks[PLAIN]
    for method, found in blocks.items():
        ratios = [block.ms / other.ms for block, other in zip(found, plain, strict=True)]
        step, peak = (max(block[at] for block in found) for at in (2, 1))
        more = step / max(block.step_mib for block in plain)
        ms = median(block.ms for block in found)
        rows.append(
            [
                method,
                f"{ms:.0f}",
                str(Spread.of(ratios)),
                f"{step:.0f}",
                f"{more:.2f}",
                f"{peak:.0f}",
            ]
        )
    head = [
        "method",
        "ms per batch",
        "time, relative to plain",
        "training memory, MiB",
        "relative to plain",
        "process memory, MiB",
    ]
    return table(head, rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all methods, or a block of one, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--methods",
        default=",".join(METHODS),
        help="names, with commas; the plain step is always included",
    )
    add("--size", default="minilm", choices=SIZES)
    add("--rounds", type=int, default=3)
    add("--steps", type=int, default=24, help="batches of a block, a multiple of three")
    add("--threads", type=int, default=count_cores())
    add("--output", type=Path, default=ROOT / "benchmarks" / "METHODS.md")
    add(
        "--quick",
        action="store_true",
        help="one round of a few steps of a tiny model; writes nothing",
    )
    add("--block", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    be_quiet()
    if args.block:
        print(json.dumps(train_block(args.block, args.size, args.steps, args.threads)))
        return
    if args.quick:
        args.size, args.rounds, args.steps = "tiny", 1, 6
    names = [PLAIN, *(name for name in args.methods.split(",") if name != PLAIN)]
    if unknown := [name for name in names if name not in METHODS]:
        parser.error(f"unknown method {unknown[0]!r}; known: {', '.join(METHODS)}")
    blocks: dict[str, list[Block]] = {name: [] for name in names}
    with tqdm(total=len(names) * args.rounds, unit="block") as bar:
        for number in range(args.rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                bar.set_description(name)
                blocks[name].append(run_block(name, args))
                bar.update()
    found = summarize(blocks)
    print(found)
    if not args.quick:
        write(args, blocks, found, show_command("benchmarks/run_methods.py", argv or sys.argv[1:]))


def write(
    args: argparse.Namespace, blocks: Mapping[str, Sequence[Block]], found: str, command: str
) -> None:
    """Write the page of results."""
    machine = describe_machine()
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    noise = max(block.foreign for part in blocks.values() for block in part)
    tokens = ", ".join(f"{length} ({task})" for task, (_, length) in TASKS.items())
    text = f"""# Cost of each method

    {command}

{datetime.now(UTC).date().isoformat()}, {machine["cpu"]}, {args.threads} threads, float32 unless
stated otherwise; {versions}.

A model of size `{args.size}` with random weights; batches of {ROWS} rows of {tokens} tokens. Times
are per batch of one task, also for a mixed step, which has three: the median of {args.rounds}
rounds of {args.steps} batches. Ratios compare with the plain step of the same round, with minimum
and maximum. Memory is the maximum over all rounds: the memory of training beyond the loaded model,
and of the whole process. Other processes used at most {noise:.2f} processors.

{found}
"""
    args.output.write_text(text, encoding="utf-8")
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
