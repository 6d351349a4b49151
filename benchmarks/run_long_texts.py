"""Head, tail, both, or windows of long texts: is a film review positive?

    python benchmarks/run_long_texts.py --encoder <folder> --reviews imdb.csv

The file has the columns `text` and `label`, such as the training split of IMDB (Maas et al. 2011).
Of its reviews of 300 to 500 words, some are for training and some for validation. The last
weights are measured, so that no validation row chooses anything.
"""

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.report import table  # noqa: E402
from minbert_cli.finetune import finetune  # noqa: E402
from trainers import readable_errors  # noqa: E402

WINDOWS = {"truncation": "windows", "window_overlap": 16}
WAYS: dict[str, dict[str, Any]] = {
    "head": {},
    "tail": {"truncation": "tail"},
    "head and tail": {"truncation": "head_tail"},
    "windows, mean": {**WINDOWS, "window_pooling": "mean"},
    "windows, max": {**WINDOWS, "window_pooling": "max"},
    "windows, attention": {**WINDOWS, "window_pooling": "attention"},
}
COLUMNS = ("text", "label")
WORDS = (300, 500)  # the fewest and the most of a review
ROWS = {"train": 400, "dev": 500}
RUN = {
    "num_train_epochs": 2,
    "learning_rate": 1e-4,
    "eval_strategy": "no",
    "save_strategy": "no",
    "evaluate_train": False,
    "report_to": "none",
    "overwrite_output_dir": True,
}


def write_reviews(path: Path, folder: Path) -> float:
    """Draw long reviews and write them by split; return their mean number of words."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["text"].replace("<br />", " "), row["label"]) for row in csv.DictReader(file)]
    # a text may be there twice
    found = dict(row for row in rows if WORDS[0] <= len(row[0].split()) <= WORDS[1])
    if len(found) < sum(ROWS.values()):
        raise ValueError(
            f"{path} has {len(found):,} reviews of {WORDS[0]} to {WORDS[1]:,} words; "
            f"{sum(ROWS.values()):,} are needed"
        )
    drawn = random.Random(0).sample(sorted(found.items()), sum(ROWS.values()))
    parts = iter(drawn)
    for split, count in ROWS.items():
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *islice(parts, count)])
    return mean(len(text.split()) for text, _ in drawn)


def measure(args: argparse.Namespace, folder: Path, way: str, seed: int) -> float:
    """Train, and return the accuracy on the validation rows."""
    task = {
        "problem_type": "classification",
        "train_file": str(folder / "train.csv"),
        "validation_file": str(folder / "dev.csv"),
        "text_columns": ["text"],
        "label_column": "label",
        "pooling": "mean",
        "batch_size": 8,
        **WAYS[way],
    }
    recipe = {
        "tasks": {"mood": task},
        "model_name_or_path": args.encoder,
        "max_length": args.max_length,
        "bf16": args.bf16,
        "seed": seed,
        "output_dir": str(folder / "run"),
        **RUN,
    }
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        metrics: dict[str, float] = finetune(recipe).evaluate()
    return metrics["eval_mood_accuracy"]


def run(args: argparse.Namespace) -> None:
    """Measure all ways, and print a table."""
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()))
    lines = []
    with tempfile.TemporaryDirectory() as name:
        words = write_reviews(Path(args.reviews), Path(name))
        print(f"{ROWS}, {words:.0f} words on average, windows of {args.max_length} tokens\n")
        for way in args.ways:
            scores = [measure(args, Path(name), way, seed) for seed in args.seeds]
            lines.append([way, *map("{:.3f}".format, scores), f"{mean(scores):.3f}"])
            lines[-1].append(f"{stdev(scores):.3f}" if len(scores) > 1 else "")
            print(lines[-1], file=sys.stderr, flush=True)
    seeds = [f"seed {seed}" for seed in args.seeds]
    print(table(["read", *seeds, "mean", "standard deviation"], lines))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    parser = argparse.ArgumentParser(
        "run_long_texts.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--encoder", required=True, help="checkpoint of the encoder: a folder or Hub id")
    add("--reviews", required=True, help="CSV file with the columns text and label")
    add("--max_length", type=int, default=128, help="tokens of a window (128)")
    add("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="what is read")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds (1 2 3)")
    add("--bf16", action="store_true", help="train in bfloat16")
    args = parser.parse_args(argv)
    with readable_errors("run_long_texts.py"):
        run(args)


if __name__ == "__main__":
    main()
