"""Do words with large shares decide? Delete them, or as many random ones, from SST's dev set.

    python benchmarks/deletion.py <run> --data_dir <folder with ids-sst-dev.csv>

Prints how much the decision about the predicted label falls, and how often the label changes.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tqdm import tqdm

import minbert
from benchmarks.workloads import FILES, read_labelled


def delete(text: str, words: Collection[tuple[int, int]]) -> str:
    """Delete words, by their characters."""
    for start, end in sorted(words, reverse=True):
        text = text[:start] + text[end:]
    return " ".join(text.split())


def describe(values: list[float]) -> str:
    """Return a mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.3f} ({error:.3f})"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--task", default="sst")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.2, help="share of the words to delete")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model: Any = minbert.load(args.run)
    draw = random.Random(args.seed)
    falls: dict[str, list[float]] = {"largest shares": [], "random": [], "smallest shares": []}
    flips: dict[str, list[float]] = {name: [] for name in falls}
    sums: list[float] = []
    rows = read_labelled(args.data_dir, "ids-sst-dev.csv", *FILES["sst"][1:])
    texts = [text.strip() for _, (text,) in rows if len(text.split()) >= 6]
    for text in tqdm(texts[: args.rows]):
        (row,) = model.explain(args.task, [text])
        difference = row["decision"] - row["baseline"]
        sums.append(abs(sum(word["share"] for word in row["words"]) - difference))
        ranked = sorted(row["words"], key=lambda word: -word["share"])
        count = max(1, round(args.share * len(ranked)))
        chosen = {
            "largest shares": ranked[:count],
            "random": draw.sample(ranked, count),
            "smallest shares": ranked[-count:],
        }
        for name, words in chosen.items():
            left = delete(text, [(word["start"], word["end"]) for word in words])
            (after,) = model.explain(args.task, [left], label=row["explained"])
            falls[name].append(row["decision"] - after["decision"])
            flips[name].append(float(after["label"] != row["label"]))
    print(f"{len(sums)} sentences; shares miss the difference by at most {max(sums):.3f}")
    print("| deleted words | fall of the decision | share of changed labels |\n| --- | --- | --- |")
    for name in falls:
        print(f"| {name} | {describe(falls[name])} | {describe(flips[name])} |")


if __name__ == "__main__":
    main()
