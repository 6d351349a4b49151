"""One block: one contender on one job, in its own process (``python -m benchmarks.block SPEC``).

At its top this file imports only numpy and torch, since contenders whose versions clash with
minBERT's run in another environment.
"""

import json
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .contenders import WORKLOADS
from .machine import Memory

PRECISIONS = ("float32", "bfloat16", "int8")
AGAIN = "again"
CHECK_SEED = 0


class Name(NamedTuple):
    """What the name of a contender says, such as ``minbert bfloat16 again``.

    Args:
        peer: Its key in the table of its workload.
        precision: One of ``PRECISIONS``.
        is_again: Whether it is measured a second time, for the noise.
    """

    peer: str
    precision: str
    is_again: bool

    @classmethod
    def parse(cls, name: str) -> "Name":
        """Split a name."""
        words = name.split(" ")
        is_again = words[-1] == AGAIN
        words = words[:-1] if is_again else words
        precision = words.pop() if words[-1] in PRECISIONS else "float32"
        return cls(" ".join(words), precision, is_again)


@dataclass(frozen=True)
class Job:
    """What a contender does in a block.

    Args:
        folder: The files of the benchmark; see ``workloads.prepare``.
        workload: Key of ``WORKLOADS``.
        size: Name of the model.
        contender: Its name; see ``Name``.
        units: Measured units of work: training steps, calls, or passes over a text.
        warmup: Units before them, which do not count.
        first: Batch of training to begin with; batches come round again.
        rows: Rows that are taken of each batch; None takes all.
        sentences: Sentences of a call.
        is_check: Whether outputs are recorded for the check, without dropout, and not the time.
        device: ``cpu`` or ``cuda``.
        threads: Threads of torch.
        seed: Of dropout and the like.
        seconds: Length of what is measured by time: reading text, and bare matrix products.
    """

    folder: Path
    workload: str
    size: str
    contender: str
    units: int
    warmup: int = 0
    first: int = 0
    rows: int | None = None
    sentences: int = 2000
    is_check: bool = False
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    seconds: float = 1.0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Job":
        """Read the job of a spec."""
        return cls(**{**fields, "folder": Path(fields["folder"])})

    def to_json(self) -> dict[str, Any]:
        """Describe the job for a spec."""
        return {**asdict(self), "folder": str(self.folder)}

    @property
    def name(self) -> Name:
        """What the name of the contender says."""
        return Name.parse(self.contender)

    @property
    def dtype(self) -> torch.dtype:
        """Type of computations; that of int8 is float32, whose weights are quantized."""
        return torch.bfloat16 if self.name.precision == "bfloat16" else torch.float32

    @property
    def model_dir(self) -> Path:
        """Folder of the plain encoder with its tokenizer."""
        return self.folder / "models" / self.size

    def read_sentences(self) -> list[str]:
        """Read all sentences."""
        return (self.folder / "sentences.txt").read_text(encoding="utf-8").splitlines()


class Meter:
    """Clock and memory of a block. A contender calls ``ready`` once, then ``unit`` for each unit.

    ``extra`` takes further numbers for the record of the block. On a GPU its clock is one of
    events, so that no step waits for the device.

    Args:
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.on_gpu = device == "cuda"
        self.ends: list[Any] = []
        self.items: list[int] = []
        self.extra: dict[str, Any] = {}
        self.memory: Any = None

    def ready(self) -> None:
        """Start: all is loaded."""
        self.memory = CudaMemory() if self.on_gpu else Memory()
        self._stop()

    def unit(self, items: int) -> None:
        """End a unit of work of so many items."""
        self._stop()
        self.items.append(items)

    def result(self, warmup: int) -> dict[str, Any]:
        """Return seconds, items, milliseconds of each unit and memory, after the warm-up."""
        if len(self.items) <= warmup:
            raise ValueError(f"{len(self.items)} units were done, of which {warmup} are a warm-up")
        ends = self._read()[warmup:]
        return {
            "seconds": ends[-1] - ends[0],
            "items": sum(self.items[warmup:]),
            "ms": [1000 * (end - start) for start, end in pairwise(ends)],
            **self.memory.used(),
            **self.extra,
        }

    def _stop(self) -> None:
        self.ends.append(_record_event() if self.on_gpu else time.perf_counter())

    def _read(self) -> list[float]:
        if not self.on_gpu:
            return self.ends
        torch.cuda.synchronize()
        return [self.ends[0].elapsed_time(event) / 1000 for event in self.ends]


def _record_event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class CudaMemory:
    """GPU memory since the start of a measurement."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def used(self) -> dict[str, float]:
        """Return the peak of reserved memory, and the increase by tensors, in MiB."""
        added = torch.cuda.max_memory_allocated() - self.before
        return {"peak_mib": torch.cuda.max_memory_reserved() / 2**20, "added_mib": added / 2**20}


def find(target: str) -> Any:
    """Import ``module:attribute`` of this package."""
    module, attribute = target.split(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def run_block(job: Job) -> dict[str, Any]:
    """Run a job: measure it, or record its outputs into ``output_file``."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(CHECK_SEED if job.is_check else job.seed)
    workload = WORKLOADS[job.workload]
    target = find(workload.contenders[job.name.peer].target)
    meter = Meter(job.device)
    runner = find(workload.runner) if workload.runner else None
    outputs = runner(job, meter, target) if runner else target(job, meter)
    if not job.is_check:
        return meter.result(job.warmup)
    arrays = {name: to_array(value) for name, value in outputs.items()}
    np.savez(output_file(job), **arrays)
    return dict(meter.extra)


def output_file(job: Job) -> Path:
    """Return where a job writes the outputs of its check."""
    name = f"{job.workload}-{job.size}-{job.contender}".replace(" ", "-")
    return job.folder / f"check-{name}.npz"


def to_array(value: Any) -> Any:
    """Convert a tensor or a list to an array."""
    if isinstance(value, Tensor):
        value = value.detach().float().cpu().numpy()
    return np.asarray(value)


def prepare_contender(job: Job) -> dict[str, Any]:
    """Write the files that a contender loads instead of the plain encoder."""
    torch.set_num_threads(job.threads)
    target = WORKLOADS[job.workload].contenders[job.name.peer].prepare
    assert target is not None  # noqa: S101  (only those with one are prepared)
    find(target)(job)
    return {}


def be_quiet() -> None:
    """Hide all messages but errors."""
    import logging

    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


def main() -> None:
    """Run a spec file, and write the result to the file it names."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    be_quiet()
    do = prepare_contender if spec["do"] == "prepare" else run_block
    result = do(Job.from_json(spec["job"]))
    Path(spec["result"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
