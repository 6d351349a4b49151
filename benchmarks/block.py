"""One block of one peer, in its own process: ``python -m benchmarks.block spec.json``.

Allocator, threads and imports of a peer are its own; what it measured it writes to a file.
"""

import json
import logging
import sys
import time
import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers

from . import gate
from .machine import Memory
from .peers import Job, Probe, make_encoder, make_peer


class Clock(Probe):
    """Records the end of every step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step(self) -> None:
        """Record the time."""
        self.ends.append(time.perf_counter())

    def read(self) -> list[float]:
        """Return the ends of all steps, in seconds from an arbitrary origin."""
        return self.ends


class CudaClock(Probe):
    """Records the end of every step on the GPU without synchronizing."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_step(self) -> None:
        """Record the time."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.events.append(event)

    def read(self) -> list[float]:
        """Return the ends of all steps, in seconds after the first."""
        torch.cuda.synchronize()
        return [self.events[0].elapsed_time(event) / 1000 for event in self.events]


class CudaMemory:
    """GPU memory use since the start of a measurement."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def used(self) -> dict[str, float]:
        """Return the peak of reserved memory, and the increase by tensors, in MiB."""
        added = torch.cuda.max_memory_allocated() - self.before
        return {
            "peak_mib": torch.cuda.max_memory_reserved() / 2**20,
            "step_mib": added / 2**20,
        }


def train_block(peer: str, job: Job, warmup: int) -> dict[str, Any]:
    """Train and measure the steps after the warmup.

    Args:
        peer: Name of the peer.
        job: What to do.
        warmup: Steps before the clock starts, at least 1.

    Returns:
        ``seconds`` and real tokens (``items``) of the measured steps, ``ms`` of each, and memory.
    """
    runner = make_peer(peer, job)
    on_gpu = job.device == "cuda"
    clock: Clock | CudaClock = CudaClock() if on_gpu else Clock()
    memory: Memory | CudaMemory = CudaMemory() if on_gpu else Memory()
    start = time.perf_counter()
    runner.train(clock)
    wall = time.perf_counter() - start
    measured = [job.batch(step) for step in range(warmup, job.steps)]
    ends = clock.read()[warmup - 1 :]
    return {
        "seconds": ends[-1] - ends[0],
        "items": sum(int(job.data[task].lengths[rows].sum()) for task, rows in measured),
        "ms": [1000 * (end - start) for start, end in pairwise(ends)],
        "train_wall": wall,
        **memory.used(),
    }


def encode_block(peer: str, job: Job) -> dict[str, Any]:
    """Encode all sentences in one call, tokenization included; ``items`` are sentences."""
    encode = make_encoder(peer, job)
    sentences = job.sentences()
    encode(sentences[:64])
    memory = CudaMemory() if job.device == "cuda" else Memory()
    start = time.perf_counter()
    encode(sentences)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "items": len(sentences),
        "ms": [1000 * seconds],
        **memory.used(),
    }


def run_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run a spec: record or compare for the gate, or measure.

    Args:
        spec: ``do``, ``peer``, ``job``, ``threads``, ``seed`` and what each needs.
    """
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(spec["seed"])
    job = Job(**dict(spec["job"]) | {"folder": Path(spec["job"]["folder"])})
    peer, is_encode = spec["peer"], job.workload == "encode"
    if spec["do"] == "gate":
        if is_encode:
            return gate.compare_encoders(peer, job)
        own, reference = Path(spec["file"]), Path(spec["reference"])
        gate.record(peer, job, own)
        if own == reference:
            return {"reason": None}
        if spec.get("half"):
            return gate.compare_half(own, Path(spec["half"]), reference)
        return gate.compare(own, reference, job)
    return encode_block(peer, job) if is_encode else train_block(peer, job, spec["warmup"])


def be_quiet() -> None:
    """Hide all messages but errors."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


def main() -> None:
    """Run a spec file, and write the result to the file it names."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    be_quiet()
    Path(spec["result"]).write_text(json.dumps(run_spec(spec)))


if __name__ == "__main__":
    main()
