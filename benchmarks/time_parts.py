"""Milliseconds of the parts of minBERT's training step on the CPU, by timers around functions.

    python benchmarks/time_parts.py --data_dir <folder>    # four minutes

A profiler would slow down the operators of oneDNN. The first steps, in which it compiles products,
are left out. Parts overlap: "forward" contains those of the forward pass.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from transformers import Trainer  # noqa: E402
from transformers.activations import GELUActivation  # noqa: E402

from benchmarks.block import Clock, be_quiet  # noqa: E402
from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.peers import Job, make_peer  # noqa: E402
from benchmarks.report import table  # noqa: E402
from benchmarks.summary import Spread  # noqa: E402
from benchmarks.workloads import SIZES, prepare  # noqa: E402
from modeling_minbert import attention, cpu  # noqa: E402
from trainers import MultiTaskTrainer  # noqa: E402

WARMUP = 60  # steps
# name of a part -> the class or module, and the name of its function
PARTS: dict[str, tuple[Any, str]] = {
    "forward, with loss": (MultiTaskTrainer, "compute_loss"),
    "- dense layers": (torch.nn.Linear, "forward"),
    "- attention": (attention._BucketAttention, "forward"),
    "- arrangement of attention": (attention, "_find_plan"),
    "- dropout": (cpu._Dropout, "forward"),
    "- GELU": (GELUActivation, "forward"),
    "- norms": (torch.nn.LayerNorm, "forward"),
    "backward": (Accelerator, "backward"),
    "- attention, backward": (attention._BucketAttention, "backward"),
    "- dropout, backward": (cpu._Dropout, "backward"),
    "- word embedding, backward": (cpu._Lookup, "backward"),
    "clipping": (Trainer, "_clip_grad_norm"),
    "AdamW": (torch.optim.AdamW, "step"),
}


def time_function(owner: Any, name: str, part: str, spent: dict[str, float]) -> None:
    """Replace a function by one that adds its seconds to `spent`."""
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[part] += perf_counter() - start

    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(timed) if is_static else timed)


def time_block(job: Job, spent: dict[str, float]) -> dict[str, float]:
    """Return milliseconds per step of a block, of all of it and of its parts."""
    torch.manual_seed(job.first)
    clock = Clock()

    class Window(Clock):
        def on_step(self) -> None:
            clock.on_step()
            if len(clock.ends) == WARMUP:
                spent.clear()

    make_peer("minbert", job).train(Window())
    steps = job.steps - WARMUP
    whole = (clock.ends[-1] - clock.ends[WARMUP - 1]) / steps
    parts = {part: spent[part] / steps for part in PARTS}
    return {part: 1000 * seconds for part, seconds in {"whole step": whole, **parts}.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data_dir", type=Path, help="folder with SST and vocab.txt; without it lengths are drawn")
    add("--size", default="minilm", choices=SIZES)
    add("--rounds", type=int, default=3)
    add("--steps", type=int, default=100, help="measured steps of a block")
    add("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    be_quiet()
    torch.set_num_threads(args.threads)
    machine, spent = describe_machine(), defaultdict[str, float](float)
    print(f"{machine['cpu']}, threads: {args.threads}; {machine['versions']}\n")
    for part, (owner, name) in PARTS.items():
        time_function(owner, name, part, spent)
    blocks: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), ["sst"], [args.size], args.data_dir, sentences=100)
        for index in range(args.rounds):
            for bf16 in blocks if index % 2 == 0 else reversed(blocks):
                job = Job(Path(folder), "sst", args.size, WARMUP + args.steps, index, bf16=bf16)
                blocks[bf16].append(time_block(job, spent))
    rows = [
        [part, *(str(Spread.of([block[part] for block in blocks[bf16]])) for bf16 in blocks)]
        for part in ("whole step", *PARTS)
    ]
    print(table(["part", "bf16, ms", "fp32, ms"], rows))


if __name__ == "__main__":
    main()
