"""Where a training step on the CPU goes, and how near it comes to the rate of matrix products.

    python benchmarks/profile_training.py --data_dir <folder>            # one thread; 10 minutes
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/profile_training.py ...   # without AMX

Everything runs in one process: blocks of minBERT and of transformers' Trainer in turn, in the
opposite order every other round. Then the products of a layer alone, in the shapes of the batches,
and minBERT once more under torch's profiler.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from benchmarks.block import Clock, be_quiet  # noqa: E402
from benchmarks.flops import flops_per_token  # noqa: E402
from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.peers import Job, make_peer  # noqa: E402
from benchmarks.report import table  # noqa: E402
from benchmarks.summary import Spread  # noqa: E402
from benchmarks.workloads import SIZES, prepare  # noqa: E402

WORKLOADS = ("sst", "sst_grouped")
PEERS = ("minbert", "trainer")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
WARMUP = 5  # steps
# part of a step -> beginnings of the names of operators; the innermost that is listed counts,
# except that all within attention, the optimizer and the loader is theirs
WHOLE = {
    "attention": ("_BucketAttention", "autograd::engine::evaluate_function: _BucketAttention"),
    "optimizer": ("Optimizer.step",),
    "data": ("enumerate(DataLoader)",),
}
PARTS = {
    "matrix products": ("aten::addmm", "aten::mm", "aten::linear", "_Linear"),
    "clipping": ("aten::_foreach_norm", "aten::_foreach_mul", "aten::linalg_vector_norm"),
    "casts": ("aten::to", "aten::_to_copy", "ToCopyBackward0", "aten::_foreach_copy"),
    "dropout, residual, norm": ("_Dropout", "_AddNorm", "aten::layer_norm", "aten::native_layer"),
    "GELU": ("aten::gelu", "GeluBackward0", "_Gelu"),
    "embedding": ("_Lookup", "aten::embedding", "Embedding"),
    "loss": ("aten::cross_entropy", "aten::nll_loss", "aten::log_softmax", "NllLoss", "LogSoftmax"),
    "sums of gradients": ("aten::sum", "autograd::engine::evaluate_function: torch::autograd::Acc"),
    "residual": ("aten::add", "AddBackward0"),
}


class Processor(Clock):
    """Records the processor time of this process at the end of every step."""

    def on_step(self) -> None:
        """Record the time."""
        self.ends.append(process_time())


class Block(NamedTuple):
    """A block of training steps.

    Args:
        ms: Mean milliseconds of a step.
        tokens: Mean real tokens of a step.
        flops: Mean operations of the matrix products of a step.
    """

    ms: float
    tokens: float
    flops: float


def train_block(peer: str, job: Job) -> Block:
    """Train on the batches of a job, and measure the steps after the warmup."""
    torch.manual_seed(job.first)
    runner, clock = make_peer(peer, job), Processor()
    runner.train(clock)
    ends = clock.read()[WARMUP - 1 :]
    rows = job.data[job.workload]
    steps = [job.batch(step)[1] for step in range(WARMUP, job.steps)]
    tokens = sum(int(rows.lengths[batch].sum()) for batch in steps) / len(steps)
    ms = 1000 * (ends[-1] - ends[0]) / len(steps)
    return Block(ms, tokens, tokens * flops_per_token(rows, job.workload, job.size))


def matrix_rate(size: str, tokens: int, dtype: torch.dtype) -> float:
    """Measure the products of a layer, forward and backward, in operations per second."""
    width = SIZES[size]["hidden_size"]
    total = operations = 0.0
    for inner, outer, count in ((width, width, 4), (width, 4 * width, 1), (4 * width, width, 1)):
        x, g, w, b = (
            torch.randn(shape, dtype=dtype)
            for shape in ((tokens, inner), (tokens, outer), (outer, inner), (outer,))
        )
        products: tuple[Callable[[], Any], ...] = (
            partial(torch.addmm, b, x, w.t()),
            partial(torch.mm, g, w),
            partial(torch.mm, g.t(), x),
        )
        total += count * sum(map(_seconds, products))
        operations += count * 6.0 * tokens * inner * outer
    return operations / total


def _seconds(work: Callable[[], Any], repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        start = process_time()
        work()
        times.append(process_time() - start)
    return median(times)


def profile_steps(job: Job) -> Counter[str]:
    """Return the share of each part in minBERT's steps; what is in no operator is Python."""
    runner = make_peer("minbert", job)
    clock = Clock()
    recorder = profile(activities=[ProfilerActivity.CPU])

    class Window(Clock):
        def on_step(self) -> None:
            clock.on_step()
            if len(clock.ends) == WARMUP:
                recorder.start()
            elif len(clock.ends) == job.steps:
                recorder.stop()

    runner.train(Window())
    wall = 1e6 * (clock.ends[-1] - clock.ends[WARMUP - 1])
    events: Any = recorder.events()
    spent = Counter[str]()
    for event in events:
        spent[_part(event)] += event.self_cpu_time_total / wall
    spent["Python"] = 1 - spent.total()
    return spent


def _part(event: Any) -> str:
    """Return the part of a step to which the own time of an event belongs."""
    names = []
    while event is not None:
        names.append(event.name.removeprefix("autograd::engine::evaluate_function: "))
        event = event.cpu_parent
    for part, starts in WHOLE.items():
        if any(name.startswith(starts) for name in names):
            return part
    for name in names:
        for part, starts in PARTS.items():
            if name.startswith(starts):
                return part
    return "rest"


def measure(args: argparse.Namespace, folder: Path) -> Iterable[str]:
    """Yield the tables of all precisions."""
    for precision in args.precisions:
        rows = []
        for workload in WORKLOADS:
            blocks: dict[str, list[Block]] = {peer: [] for peer in PEERS}
            for index in range(args.rounds):
                steps = WARMUP + args.steps
                job = Job(
                    folder, workload, args.size, steps, index * steps, bf16=precision == "bf16"
                )
                for peer in PEERS if index % 2 == 0 else PEERS[::-1]:
                    blocks[peer].append(train_block(peer, job))
            rows.append(_race(args, precision, workload, blocks))
        yield table(
            [
                "precision",
                "batches",
                "minBERT, ms",
                "Trainer, ms",
                "faster",
                "of the rate",
                "TFLOP/s",
            ],
            rows,
        )
        job = Job(folder, "sst", args.size, WARMUP + args.steps, bf16=precision == "bf16")
        parts = profile_steps(job)
        cells = [[part, f"{100 * share:.1f} %"] for part, share in parts.most_common()]
        yield table([f"part of a step, {precision}", "share"], cells)


def _race(
    args: argparse.Namespace,
    precision: str,
    workload: str,
    blocks: dict[str, list[Block]],
) -> list[str]:
    """Return the row of a workload."""
    ours, theirs = (blocks[peer] for peer in PEERS)
    rate = matrix_rate(args.size, round(ours[0].tokens), DTYPES[precision])
    shares = [1000 * block.flops / block.ms / rate for block in ours]
    ratios = [other.ms / own.ms for own, other in zip(ours, theirs, strict=True)]
    return [
        precision,
        workload,
        *(f"{median(block.ms for block in each):.1f}" for each in (ours, theirs)),
        str(Spread.of(ratios)),
        str(Spread.of(shares)),
        f"{rate / 1e12:.2f}",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data_dir", type=Path, help="folder with SST and vocab.txt; without it lengths are drawn")
    add("--size", default="minilm", choices=SIZES)
    add("--precisions", nargs="+", default=list(DTYPES), choices=DTYPES)
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=20, help="measured steps of a block")
    add("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    be_quiet()
    torch.set_num_threads(args.threads)
    machine = describe_machine()
    print(f"{machine['cpu']}, threads: {args.threads}; {machine['versions']}\n")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), WORKLOADS, [args.size], args.data_dir, sentences=100)
        for text in measure(args, Path(folder)):
            print(text, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
