"""One block of one contender, in its own process: ``python -m benchmarks.precision.block FILE``.

Imports at its top only what both environments have.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import Memory

from .contenders import Apply, Contender, export, load
from .quality import measure_quality

Spec = Mapping[str, Any]
WARMUP = 64  # sentences
SINGLES_WARMUP = 20
BATCH = 32  # sentences whose tokens are one batch of the matrix products
LIBRARIES = (
    "torch", "transformers", "sentence-transformers", "optimum", "optimum-onnx", "optimum-intel",
    "onnxruntime", "openvino", "nncf",
)  # fmt: skip


def apply_block(spec: Spec) -> dict[str, Any]:
    """Measure ``encode`` or ``predict``: many sentences in a call, then one at a time.

    Returns:
        ``seconds``, ``items`` (sentences) and memory of the call; ``p50`` and ``p99`` in ms;
        ``flops`` and ``products``, operations per second; ``quality`` if asked for.
    """
    folder, count = Path(spec["folder"]), spec["sentences"]
    apply = load(spec["do"], spec["peer"], folder, spec["threads"])
    sentences = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    texts, rest = sentences[:count], sentences[count:]
    apply(texts[:WARMUP])
    memory = Memory()
    start = time.perf_counter()
    apply(texts)
    seconds = time.perf_counter() - start
    record = {"seconds": seconds, "items": len(texts), "ms": [1000 * seconds], **memory.used()}
    record |= time_singles(apply, rest, spec["singles"])
    if spec["do"] == "encode" and spec["products"]:
        record |= compare_with_products(spec, len(texts), seconds)
    if spec["quality"]:
        record |= measure_quality(spec["do"], apply, folder, spec["peer"])
    return record


def time_singles(apply: Apply, sentences: Sequence[str], count: int) -> dict[str, float]:
    """Time calls with one sentence each, all different.

    Raises:
        ValueError: If there are too few sentences.
    """
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) < count + SINGLES_WARMUP:
        raise ValueError(f"{len(distinct)} different sentences are left, {count} are needed")
    for sentence in distinct[:SINGLES_WARMUP]:
        apply(sentence)
    times = []
    for sentence in distinct[SINGLES_WARMUP : SINGLES_WARMUP + count]:
        start = time.perf_counter()
        apply(sentence)
        times.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


def compare_with_products(spec: Spec, count: int, seconds: float) -> dict[str, float]:
    """Return the operations per second of a call and of the same matrix products."""
    from benchmarks.flops import forward_flops

    from .products import measure_products

    folder = Path(spec["folder"])
    lengths = np.array(json.loads((folder / "lengths.json").read_text())[:count])
    shape = json.loads((folder / "models" / "encoder" / "config.json").read_text())
    tokens = round(float(lengths.mean()) * BATCH)
    precision = Contender.parse(spec["peer"]).precision
    return {
        "flops": forward_flops(lengths, shape) * float(lengths.sum()) / seconds,
        "products": measure_products(shape, tokens, precision, backward=False),
    }


def train_block(spec: Spec) -> dict[str, Any]:
    """Train as ``benchmarks.block`` does, then measure the products of the same batches."""
    from benchmarks.block import run_spec
    from benchmarks.flops import forward_flops
    from benchmarks.peers import Job

    from .products import measure_products

    record = run_spec(spec)
    if spec["do"] != "measure":
        return record
    job = Job(**dict(spec["job"]) | {"folder": Path(spec["job"]["folder"])})
    steps = [job.batch(step) for step in range(spec["warmup"], job.steps)]
    lengths = np.concatenate([job.data[task].lengths[rows].ravel() for task, rows in steps])
    shape = json.loads((job.model_dir / "config.json").read_text())
    precision = "bfloat16" if job.bf16 else "float32"
    tokens = round(lengths.sum() / len(steps))
    record["flops"] = 3 * forward_flops(lengths, shape) * record["items"] / record["seconds"]
    record["products"] = measure_products(shape, tokens, precision, backward=True)
    return record


def export_block(spec: Spec) -> dict[str, Any]:
    """Export the files of a peer."""
    export(spec["peer"], Path(spec["folder"]), spec["threads"])
    return {}


def epoch_block(spec: Spec) -> dict[str, Any]:
    """Train an epoch and measure the accuracy; see ``epoch``."""
    from .epoch import train_epoch

    return train_epoch(spec)


def list_versions(_spec: Spec) -> dict[str, Any]:
    """Return the versions of the libraries of this environment."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"versions": found}


BLOCKS: dict[str, Callable[[Spec], dict[str, Any]]] = {
    "encode": apply_block,
    "predict": apply_block,
    "measure": train_block,
    "gate": train_block,
    "export": export_block,
    "epoch": epoch_block,
    "versions": list_versions,
}


def main() -> None:
    """Run a spec file, and write the result to the file it names."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    warnings.simplefilter("ignore")
    torch.set_num_threads(spec["threads"])
    torch.manual_seed(spec["seed"])
    Path(spec["result"]).write_text(json.dumps(BLOCKS[spec["do"]](spec)))


if __name__ == "__main__":
    main()
