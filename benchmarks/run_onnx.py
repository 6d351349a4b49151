"""Compare ONNX folders of one encoder: size, Spearman correlation on STS, cosines and speed.

    minbert export <weights> --format onnx --output_dir onnx
    minbert export <weights> --format onnx --precision int8 --output_dir onnx_int8
    python benchmarks/run_onnx.py onnx onnx_int8 --data_dir <folder with the course's files>

Vectors are means over the tokens of a text, of batches of similar lengths. The cosine is that of
the vectors of a text from a folder and from the first folder. Times are medians of alternating
rounds in ONNX Runtime.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from scipy.stats import spearmanr  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from datasets_scripts import TaskData, load_task  # noqa: E402
from trainers import readable_errors  # noqa: E402

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SHAPES = ((1, 16), (1, 128), (32, 32))
BATCH = 32


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        "run_onnx.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folders", nargs="+", type=Path, help="folders with a model.onnx and its tokenizer")
    add("--data_dir", required=True, help="folder with the course's files")
    add("--rounds", type=int, default=20, help="measurements of each time (20)")
    add("--threads", type=int, default=1, help="threads of ONNX Runtime (1)")
    return parser.parse_args(argv)


def open_model(folder: Path, threads: int) -> Any:
    """Open the encoder of a folder."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    path = folder / "model.onnx"
    if not path.exists():
        raise ValueError(f"{path} does not exist; minbert export --format onnx writes it")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def encode(session: Any, tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Return the unit vectors of texts."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    parts = []
    for start in range(0, len(order), BATCH):
        batch = [texts[place] for place in order[start : start + BATCH]]
        tokens = dict(tokenizer(batch, padding=True, truncation=True, return_tensors="np"))
        (states,) = session.run(["last_hidden_state"], {name: tokens[name] for name in INPUTS})
        mask = tokens["attention_mask"][..., None]
        parts.append((states * mask).sum(1) / mask.sum(1))
    vectors = np.empty_like(np.concatenate(parts))
    vectors[order] = np.concatenate(parts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(sessions: Sequence[Any], shape: tuple[int, int], rounds: int) -> list[float]:
    """Return the median milliseconds of a batch of each session, in alternating rounds."""
    inputs = dict.fromkeys(INPUTS, np.ones(shape, np.int64))
    inputs["token_type_ids"] = np.zeros(shape, np.int64)
    times: list[list[float]] = [[] for _ in sessions]
    for number in range(rounds + 1):
        for session, found in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(None, inputs)
            if number:  # the first round warms up
                found.append(1000 * (time.perf_counter() - start))
    return [float(np.median(found)) for found in times]


def run(args: argparse.Namespace) -> None:
    """Measure and print a table."""
    import onnxruntime

    rows = load_task(TaskData.from_recipe("sts", {"dataset": "sts"}, args.data_dir))
    split = rows.splits["validation"]
    texts = [*split["sentence1"], *split["sentence2"]]
    sessions = [open_model(folder, args.threads) for folder in args.folders]
    times = [measure(sessions, shape, args.rounds) for shape in SHAPES]
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    print(f"onnxruntime {onnxruntime.__version__}, {machine}, {len(split)} pairs")
    columns = [f"ms of {rows} x {length} tokens" for rows, length in SHAPES]
    print(" | ".join(["folder", "MB", "Spearman", "lowest, mean cosine", *columns]))
    first = None
    for number, (folder, session) in enumerate(zip(args.folders, sessions, strict=True)):
        vectors = encode(session, AutoTokenizer.from_pretrained(folder), texts)
        first = vectors if first is None else first
        left, right = np.split(vectors, 2)
        spearman = spearmanr((left * right).sum(1), split["label"]).statistic
        cosines = (vectors * first).sum(1)
        megabytes = (folder / "model.onnx").stat().st_size / 1e6
        values = [
            f"{megabytes:.1f}",
            f"{spearman:.4f}",
            f"{cosines.min():.3f}, {cosines.mean():.3f}",
        ]
        print(" | ".join([str(folder), *values, *(f"{found[number]:.1f}" for found in times)]))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    args = parse(sys.argv[1:] if argv is None else argv)
    with readable_errors("run_onnx.py"):
        run(args)


if __name__ == "__main__":
    main()
