"""Train three tasks on the same rows in one pass of the encoder, and with the tasks taking turns.

    python benchmarks/run_shared_rows.py

The model has random weights, 6 layers of width 384; the texts are random tokens, as many as
sentences of SST have. Both ways see every row with the labels of all three tasks once a round, and
alternate. Both the time on the clock and that of the processor are printed: where other programs
run, only the second one can be compared.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import datasets  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import PrinterCallback, TrainingArguments  # noqa: E402
from transformers.utils import logging  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.run_predict_all import CLASSES, SIZES, TOPICS, measure  # noqa: E402
from modeling_minbert import MinBertConfig, MinBertForMultiTask  # noqa: E402
from trainers import MultiTaskTrainer, Task, readable_errors  # noqa: E402

HEADS: dict[str, dict[str, Any]] = {
    "classes": {**CLASSES, "pooling": "mean"},
    "topics": {**TOPICS, "pooling": "mean"},
    "number": {"problem_type": "regression", "pooling": "mean"},
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        "run_shared_rows.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=int, default=640, help="rows of each task (640)")
    add("--batch_size", type=int, default=32, help="rows of a batch (32)")
    add("--rounds", type=int, default=5, help="alternating measurements of each way (5)")
    add("--bf16", action="store_true", help="train in bfloat16")
    return parser.parse_args(argv)


def make_tasks(count: int, *, is_shared: bool) -> list[Task]:
    """Make three tasks with the same rows, whose lengths have the median and spread of SST."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(np.log(22), 0.5, count).clip(3, 120).astype(int)
    ids = [random.integers(5, SIZES["vocab_size"], length).tolist() for length in lengths]
    labels = {
        "classes": random.integers(0, 3, count).tolist(),
        "topics": random.integers(0, 2, (count, 4)).astype(float).tolist(),
        "number": random.normal(size=count).tolist(),
    }
    columns = {"input_ids": ids, "token_type_ids": [[0] * len(row) for row in ids]}
    vector = datasets.List(datasets.Value("float32"), length=4)
    tasks = []
    for name, values in labels.items():
        rows = datasets.Dataset.from_dict({**columns, "labels": values})
        rows = rows.cast_column("labels", vector) if name == "topics" else rows
        leader = "classes" if is_shared and name != "classes" else None
        kind: Any = HEADS[name]["problem_type"]
        tasks.append(Task.from_dataset(name, kind, rows, shares_rows_with=leader))
    return tasks


def make_trainer(args: argparse.Namespace, folder: str, *, is_shared: bool) -> MultiTaskTrainer:
    """Make the trainer of one way."""
    torch.manual_seed(0)
    config: Any = MinBertConfig(**SIZES, tasks=HEADS)
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=args.batch_size,
        num_train_epochs=1,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        bf16=args.bf16,
    )
    tasks = make_tasks(args.rows, is_shared=is_shared)
    trainer = MultiTaskTrainer(MinBertForMultiTask(config), arguments, tasks)
    trainer.remove_callback(PrinterCallback)
    return trainer


def run(args: argparse.Namespace) -> None:
    """Measure both ways, and print a line of a table."""
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    if args.rounds < 1 or args.rows < args.batch_size:
        raise ValueError(
            f"rounds={args.rounds}, rows={args.rows}; expected at least 1, and a batch"
        )
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()))
    seconds: list[list[tuple[float, float]]] = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        ways = [make_trainer(args, folder, is_shared=is_shared) for is_shared in (True, False)]
        for _ in range(args.rounds + 1):
            for trainer, found in zip(ways, seconds, strict=True):
                found.append(measure(trainer.train)[0])
    cells = []
    for place in range(2):
        one, three = ([times[place] for times in way[1:]] for way in seconds)
        ratio = median(b / a for a, b in zip(one, three, strict=True))
        cells += [f"{median(one):.3f}", f"{median(three):.3f}", f"{ratio:.2f}"]
    print(f"{args.rows:,} rows, batches of {args.batch_size}, medians of {args.rounds} rounds\n")
    print("| one pass, s | taking turns, s | ratio | its processor | processor | ratio |")
    print("|---|---|---|---|---|---|")
    print(f"| {' | '.join(cells)} |")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    args = parse(sys.argv[1:] if argv is None else argv)
    with readable_errors("run_shared_rows.py"):
        run(args)


if __name__ == "__main__":
    main()
