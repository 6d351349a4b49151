"""Train on a CSV file, with the defaults, evaluation and report of `minbert finetune`.

python examples/own_file.py [--model sentence-transformers/all-MiniLM-L6-v2]
"""

import argparse
import csv
from pathlib import Path

import minbert

NORMAL = ("is running", "is closed", "is warm", "is full", "was cleaned", "works well")
ALARM = ("leaks", "burns", "is broken", "has stopped", "smokes", "fell down")
THINGS = ("pump", "valve", "motor", "tank")


def write_rows(path: Path) -> None:
    """Write sentences of a machine's log, each with its kind."""
    rows = [(f"The {thing} {what}.", "normal") for thing in THINGS for what in NORMAL]
    rows += [(f"The {thing} {what}.", "alarm") for thing in THINGS for what in ALARM]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence", "kind"), *rows])


def main() -> None:
    """Write a file, train on it, and predict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/own_file"))
    args = parser.parse_args()

    args.output_dir.parent.mkdir(parents=True, exist_ok=True)
    path = args.output_dir.parent / "log.csv"
    write_rows(path)
    task = {"problem_type": "classification", "train_file": str(path)}
    task |= {"text_columns": ["sentence"], "label_column": "kind"}
    trainer = minbert.finetune(
        {
            "tasks": {"log": task},
            "model_name_or_path": args.model,
            "output_dir": str(args.output_dir),
            "num_train_epochs": 3,
        }
    )
    print(trainer.model.predict("log", ["The pump is burning."]))
    print(f"open {args.output_dir / 'report.html'}")


if __name__ == "__main__":
    main()
