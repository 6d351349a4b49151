"""Predict three tasks for the same texts in one call of `predict_all`, and in three of `predict`.

    python benchmarks/run_predict_all.py
    python benchmarks/run_predict_all.py --model <weights> --data_dir <folder>    # of the course

Without a model the weights are random, 6 layers of width 384, and the texts are made of random
words, as long as sentences of SST. The two ways alternate. Both the time on the clock and that of
the processor are printed: where other programs run, only the second one can be compared.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import BertTokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.run_pairs import read_sentences  # noqa: E402
from modeling_minbert import MinBertConfig, MinBertForMultiTask  # noqa: E402
from trainers import readable_errors  # noqa: E402

CLASSES = {"problem_type": "classification", "labels": ["no", "maybe", "yes"]}
TOPICS = {"problem_type": "multi_label_classification", "labels": ["a", "b", "c", "d"]}
TAGS = {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]}
# Three tasks of each case.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "equal pooling": {"one": CLASSES, "two": CLASSES, "topics": TOPICS},
    "cls, mean and max": {
        "one": {**CLASSES, "pooling": "cls"},
        "two": {**CLASSES, "pooling": "mean"},
        "topics": {**TOPICS, "pooling": "max"},
    },
    "different layers": {
        "one": {**CLASSES, "pooling": "mean"},
        "two": {**CLASSES, "pooling": "mean", "pooling_layer": -2},
        "topics": {**TOPICS, "pooling": "mean", "pooling_layer": -3},
    },
    "with tags": {"one": CLASSES, "topics": TOPICS, "tags": TAGS},
}
SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30_000,
}
WORDS = [f"word{number}" for number in range(SIZES["vocab_size"] - 5)]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        "run_predict_all.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", help="checkpoint of the encoder: a folder or Hub id; random weights otherwise")
    add("--data_dir", help="folder with the course's files; random words otherwise")
    add("--sentences", type=int, default=1_000, help="number of texts (1,000)")
    add("--rounds", type=int, default=5, help="alternating measurements of each way (5)")
    add("--precision", default="float32", help="float32, bfloat16 or int8")
    add("--cases", nargs="+", choices=CASES, default=[*CASES], help="which tasks")
    return parser.parse_args(argv)


def make_texts(count: int) -> list[str]:
    """Make texts of random words, whose lengths have the median and spread of SST."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(np.log(19), 0.55, count).clip(1, 100).astype(int)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


def make_model(checkpoint: str | None, tasks: dict[str, Any]) -> Any:
    """Load a checkpoint with new heads, or make a model of random weights."""
    torch.manual_seed(0)
    if checkpoint is not None:
        return MinBertForMultiTask.from_pretrained(
            checkpoint, tasks=tasks, dtype=torch.float32
        ).eval()
    model: Any = MinBertForMultiTask(MinBertConfig(**SIZES, tasks=tasks)).eval()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    model.tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    return model


def measure(do: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the seconds of a call on the clock and of the processor, and its result."""
    start, used = time.perf_counter(), time.process_time()
    found = do()
    return (time.perf_counter() - start, time.process_time() - used), found


def compare(model: Any, texts: Sequence[str], rounds: int, precision: str) -> str:
    """Measure both ways in alternation, and describe the seconds and their ratio.

    Raises:
        ValueError: If the predictions differ.
    """
    names = list(model.config.tasks)
    options = {"precision": precision, "show_progress": False}

    def apart() -> dict[str, Any]:
        return {name: model.predict(name, texts, **options) for name in names}

    together = partial(model.predict_all, texts, names, **options)
    if together() != apart():
        raise ValueError("the predictions of predict_all and predict differ")
    ways: tuple[Callable[[], Any], ...] = (together, apart)
    seconds: list[list[tuple[float, float]]] = [[], []]
    for _ in range(rounds):
        for way, found in zip(ways, seconds, strict=True):
            found.append(measure(way)[0])
    cells = []
    for place in range(2):
        one, three = ([times[place] for times in way] for way in seconds)
        ratio = median(b / a for a, b in zip(one, three, strict=True))
        cells += [f"{median(one):.3f}", f"{median(three):.3f}", f"{ratio:.2f}"]
    return " | ".join(cells)


def run(args: argparse.Namespace) -> None:
    """Measure every case, and print a table."""
    logging.disable_progress_bar()
    if args.rounds < 1 or args.sentences < 1:
        raise ValueError(f"rounds={args.rounds} and sentences={args.sentences} must be at least 1")
    texts = (
        make_texts(args.sentences)
        if args.data_dir is None
        else read_sentences(args.data_dir, args.sentences)
    )
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()))
    print(f"{len(texts):,} texts, {args.precision}, medians of {args.rounds} rounds, in seconds\n")
    print("| three tasks | predict_all | predict | ratio | its processor | processor | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in args.cases:
        model = make_model(args.model, CASES[name])
        print(f"| {name} | {compare(model, texts, args.rounds, args.precision)} |", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    args = parse(sys.argv[1:] if argv is None else argv)
    with readable_errors("run_predict_all.py"):
        run(args)


if __name__ == "__main__":
    main()
