r"""Head, tail, both, or windows of long texts: who wrote a passage of a novel?

    python benchmarks/run_long_texts.py --encoder <folder> --novels <folder>

The folder has files `Author_Title_Year.txt`. Of every author with several novels, passages of the
first one are for training and passages of the second one for validation. The last weights are
measured, so that no validation row chooses anything.
"""

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.report import table  # noqa: E402
from minbert_cli.finetune import finetune  # noqa: E402
from trainers import readable_errors  # noqa: E402

WAYS: dict[str, dict[str, Any]] = {
    "head": {},
    "tail": {"truncation": "tail"},
    "head and tail": {"truncation": "head_tail"},
    "windows, mean": {"truncation": "windows", "window_pooling": "mean"},
    "windows, max": {"truncation": "windows", "window_pooling": "max"},
    "windows, attention": {"truncation": "windows", "window_pooling": "attention"},
}
PASSAGES = {"train": 24, "dev": 30}  # of each author
SKIPPED = 4  # passages at both ends of a novel, such as its title page
RUN = {
    "num_train_epochs": 4,
    "learning_rate": 1e-4,
    "eval_strategy": "no",
    "save_strategy": "no",
    "evaluate_train": False,
    "report_to": "none",
    "overwrite_output_dir": True,
}


def find_novels(folder: Path) -> dict[str, list[Path]]:
    """List the novels of every author with several ones, from the oldest."""
    novels: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(folder.glob("*_*_*.txt")):
        author, _, year = path.stem.split("_")
        novels.setdefault(author, []).append((int(year), path))
    several = {name: sorted(own) for name, own in novels.items() if len(own) > 1}
    if len(several) < 2:
        raise ValueError(f"{folder} has no two authors with two files Author_Title_Year.txt each")
    return {name: [path for _, path in own] for name, own in several.items()}


def write_passages(novels: dict[str, list[Path]], words: int, folder: Path) -> None:
    """Write passages of so many words and their authors, by split."""
    generator = random.Random(0)
    for place, (split, count) in enumerate(PASSAGES.items()):
        rows = []
        for author, paths in novels.items():
            text = paths[place].read_text(encoding="utf-8-sig").split()
            places = list(range(SKIPPED, len(text) // words - SKIPPED))
            generator.shuffle(places)
            starts = [number * words for number in sorted(places[:count])]
            rows += [(" ".join(text[start : start + words]), author) for start in starts]
        generator.shuffle(rows)
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("passage", "author"), *rows])


def measure(args: argparse.Namespace, folder: Path, way: str, seed: int) -> float:
    """Train, and return the accuracy on the validation rows."""
    task = {
        "problem_type": "classification",
        "train_file": str(folder / "train.csv"),
        "validation_file": str(folder / "dev.csv"),
        "text_columns": ["passage"],
        "label_column": "author",
        "pooling": "mean",
        "batch_size": 8,
        **WAYS[way],
    }
    recipe = {
        "tasks": {"author": task},
        "model_name_or_path": args.encoder,
        "max_length": args.max_length,
        "bf16": args.bf16,
        "seed": seed,
        "output_dir": str(folder / "run"),
        **RUN,
    }
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        metrics: dict[str, float] = finetune(recipe).evaluate()
    return metrics["eval_author_accuracy"]


def run(args: argparse.Namespace) -> None:
    """Measure all ways, and print a table."""
    novels = find_novels(Path(args.novels))
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()))
    print(f"{len(novels)} authors, passages of {args.words} words, {args.max_length} tokens\n")
    lines = []
    with tempfile.TemporaryDirectory() as name:
        write_passages(novels, args.words, Path(name))
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
    add("--novels", required=True, help="folder with files Author_Title_Year.txt")
    add("--words", type=int, default=225, help="words of a passage (225)")
    add("--max_length", type=int, default=64, help="tokens of a window (64)")
    add("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="what is read")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds (1 2 3)")
    add("--bf16", action="store_true", help="train in bfloat16")
    args = parser.parse_args(argv)
    with readable_errors("run_long_texts.py"):
        run(args)


if __name__ == "__main__":
    main()
