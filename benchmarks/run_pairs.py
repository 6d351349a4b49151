"""Find the most similar of 10,000 sentences in two ways: the headline of Sentence-BERT.

    python benchmarks/run_pairs.py --model <weights> --data_dir <folder with the course's files>
    python benchmarks/run_pairs.py --model <weights> --data_dir <folder> --sentences 100 --pairs 20

The embedding way is measured in full: all sentence vectors, and the cosines of all pairs. The joint
way encodes both sentences of a pair together; random pairs are measured, and their mean is
extrapolated to all n (n - 1) / 2. Source: Reimers and Gurevych 2019, section 1.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers.utils import logging  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from datasets_scripts import TaskData, load_task  # noqa: E402
from minbert_cli.checkpoints import load_encoder  # noqa: E402
from modeling_minbert import MinBertForMultiTask  # noqa: E402
from sentence_vectors import most_similar_pair  # noqa: E402
from trainers import readable_errors  # noqa: E402

SOURCES = ("quora", "sst", "sts")
# The joint way with the smallest head: one number per pair.
JOINT = {"joint": {"problem_type": "paraphrase", "pair_encoding": "joint", "pooling": "cls"}}
DAY = 86_400  # seconds


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser("run_pairs.py", description=__doc__)
    add = parser.add_argument
    add("--model", required=True, help="checkpoint of both ways: a folder or Hub id")
    add("--data_dir", required=True, help="folder with the course's files")
    add("--sentences", type=int, default=10_000, help="number of distinct sentences (10,000)")
    add("--pairs", type=int, default=2_000, help="pairs of the joint way per round (2,000)")
    add("--rounds", type=int, default=3, help="alternating measurements of each way (3)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    return parser.parse_args(argv)


def read_sentences(data_dir: str, count: int) -> list[str]:
    """Draw distinct sentences from the training splits of the course's tasks.

    Raises:
        ValueError: If there are too few.
    """
    found: set[str] = set()
    for name in SOURCES:
        rows = load_task(TaskData.from_recipe(name, {"dataset": name}, data_dir)).splits["train"]
        for column in rows.column_names:
            if column.startswith("sentence"):
                found.update(rows[column][:])
    if not 2 <= count <= len(found):
        raise ValueError(f"sentences={count}; {data_dir} has {len(found)} distinct sentences")
    texts = sorted(found)
    chosen = np.random.default_rng(0).choice(len(texts), count, replace=False)
    return [texts[place] for place in chosen]


def measure(do: Callable[[], Any], device: str) -> tuple[float, Any]:
    """Return the seconds of a call, including work on the device, and its result."""
    start = time.perf_counter()
    found = do()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def describe(name: str, seconds: Sequence[float]) -> str:
    """Format mean and sample standard deviation over the rounds."""
    spread = f" ± {stdev(seconds):.3g}" if len(seconds) > 1 else ""
    return f"{name}: {mean(seconds):.4g}{spread} s"


def run(args: argparse.Namespace) -> None:
    """Measure both ways in alternation, and print the ratio.

    Raises:
        ValueError: If a number, the model or the sentences are invalid.
    """
    logging.disable_progress_bar()
    if args.rounds < 1 or args.pairs < 1:
        raise ValueError(f"rounds={args.rounds} and pairs={args.pairs} must be at least 1")
    texts = read_sentences(args.data_dir, args.sentences)
    encoder: Any = load_encoder(args.model, args.device)
    joint: Any = MinBertForMultiTask.from_pretrained(args.model, tasks=JOINT, dtype=torch.float32)
    joint.tokenizer = encoder.tokenizer
    joint.to(args.device).eval()
    generator = np.random.default_rng(1)
    encoding, comparing, reading = [], [], []
    warm = list(zip(texts[:64], reversed(texts[:64]), strict=True))
    encoder.encode(texts[:64])
    joint.predict("joint", warm)
    for _ in range(args.rounds):
        seconds, vectors = measure(lambda: encoder.encode(texts, show_progress=False), args.device)
        encoding.append(seconds)
        on_device = vectors.to(args.device)
        seconds, best = measure(partial(most_similar_pair, on_device), args.device)
        comparing.append(seconds)
        places = generator.integers(len(texts), size=(args.pairs, 2)).tolist()
        pairs = [(texts[first], texts[second]) for first, second in places]
        read = partial(joint.predict, "joint", pairs, show_progress=False)
        seconds, _ = measure(read, args.device)
        reading.append(seconds / args.pairs)
    _print(args, texts, best, encoding, comparing, reading)


def _print(
    args: argparse.Namespace,
    texts: Sequence[str],
    best: tuple[float, int, int],
    encoding: Sequence[float],
    comparing: Sequence[float],
    reading: Sequence[float],
) -> None:
    count = len(texts)
    pairs = count * (count - 1) // 2
    both = mean(encoding) + mean(comparing)
    joint = mean(reading) * pairs
    score, first, second = best
    print(f"{args.model} on {args.device}, {args.rounds} rounds, torch {torch.__version__}")
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()))
    print(f"{count:,} sentences, {pairs:,} pairs")
    print(f"most similar: {score:.4f}\n  {texts[first]}\n  {texts[second]}")
    print(describe("embedding way, vectors", encoding))
    print(describe("embedding way, all cosines", comparing))
    print(describe("joint way, one pair", reading), f"(mean of {args.pairs:,} random pairs)")
    print(f"joint way, all pairs, extrapolated: {joint:,.0f} s = {joint / DAY:,.2f} days")
    print(f"ratio: {joint / both:,.0f} times as long as the {both:,.1f} s of the embedding way")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    args = parse(sys.argv[1:] if argv is None else argv)
    with readable_errors("run_pairs.py"):
        run(args)


if __name__ == "__main__":
    main()
