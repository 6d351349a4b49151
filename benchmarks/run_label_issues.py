"""How many wrong labels confident learning finds in real data.

    python benchmarks/run_label_issues.py --encoder <folder> --data_dir <SentEval folder>

For each seed, 5 % of the labels of the training rows (all rows of tasks without splits) are changed
to another class. The probabilities are those of a logistic regression on sentence vectors, from a
cross-validation with five folds. With --fine_tune they are those of encoders fine-tuned on the
folds: the list is the one of `minbert label-issues`. Wrong labels that were in the data before
count as false alarms.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import StratifiedKFold, cross_val_predict  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.report import table  # noqa: E402
from minbert_cli.label_folds import SUFFIX, list_label_issues  # noqa: E402
from modeling_minbert import MinBertModel  # noqa: E402
from sentence_vectors.senteval import load_transfer_task  # noqa: E402
from trainers import readable_errors  # noqa: E402
from trainers.problems.measures.label_issues import find_label_issues  # noqa: E402

NOISE, FOLDS = 0.05, 5
TASK = {"pooling": "mean", "batch_size": 32}
RUN = {"num_train_epochs": 2, "learning_rate": 1e-4, "bf16": True, "use_cpu": True}


class Found(NamedTuple):
    """Results of one seed."""

    recall: float  # share of the changed labels that are listed
    precision: float  # share of the listed labels that were changed


class Noisy(NamedTuple):
    """N rows of which some have a wrong label."""

    texts: list[str]
    labels: NDArray[np.int64]  # (N,)
    is_changed: NDArray[np.bool_]  # (N,)

    def score(self, listed: Sequence[int]) -> Found:
        """Compare a list of rows with those whose label was changed."""
        hits = int(self.is_changed[list(listed)].sum())
        return Found(hits / int(self.is_changed.sum()), hits / max(1, len(listed)))


def change_labels(texts: list[str], labels: NDArray[np.int64], seed: int) -> Noisy:
    """Change some labels, (N,), to another class."""
    generator = np.random.default_rng(seed)
    count = int(labels.max()) + 1
    is_changed = generator.random(len(labels)) < NOISE
    others = (labels + generator.integers(1, count, len(labels))) % count
    return Noisy(texts, np.where(is_changed, others, labels), is_changed)


def list_by_regression(vectors: NDArray[Any], noisy: Noisy, seed: int) -> list[int]:
    """List suspicious rows by a logistic regression on their vectors, (N, size)."""
    model = LogisticRegression(max_iter=2_000, C=3.0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scores = cross_val_predict(model, vectors, noisy.labels, cv=folds, method="predict_proba")
    rows: list[int] = find_label_issues(noisy.labels, scores).rows.tolist()
    return rows


def list_by_fine_tuning(encoder: str, noisy: Noisy, seed: int) -> list[int]:
    """List suspicious rows with `minbert label-issues`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = zip(noisy.texts, noisy.labels.tolist(), strict=True)
        lines = [
            json.dumps({"id": str(place), "text": text, "label": f"class {label}"}) + "\n"
            for place, (text, label) in enumerate(rows)
        ]
        for split, own in (("train", lines), ("validation", lines[:100])):
            (folder / f"{split}.jsonl").write_text("".join(own), encoding="utf-8")
        task = {
            "problem_type": "classification",
            "train_file": str(folder / "train.jsonl"),
            "validation_file": str(folder / "validation.jsonl"),  # label-issues does not read it
            "text_columns": ["text"],
            "label_column": "label",
            "id_column": "id",
            **TASK,
        }
        run = {"model_name_or_path": encoder, "seed": seed, "output_dir": str(folder / "run")}
        recipe = folder / "recipe.yaml"
        recipe.write_text(json.dumps({"tasks": {"task": task}, **run, **RUN}), encoding="utf-8")
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            list_label_issues(str(recipe), [], FOLDS)
        with (folder / f"run{SUFFIX}" / "task-train.csv").open(
            encoding="utf-8", newline=""
        ) as csv_:
            return [int(row["id"]) for row in csv.DictReader(csv_)]


def measure(args: argparse.Namespace, name: str) -> list[str]:
    """Measure a task with all seeds, and return its line of the table."""
    task = load_transfer_task(name, Path(args.data_dir))
    split = "train" if "train" in task.texts else "all"
    texts = [text for (text,) in task.texts[split]]
    labels = np.asarray(task.labels[split])
    vectors = None
    if not args.fine_tune:
        model: Any = MinBertModel.from_pretrained(args.encoder)
        vectors = np.asarray(model.encode(texts, show_progress=False))
    found = []
    for seed in args.seeds:
        noisy = change_labels(texts, labels, seed)
        if vectors is None:
            listed = list_by_fine_tuning(args.encoder, noisy, seed)
        else:
            listed = list_by_regression(vectors, noisy, seed)
        found.append(noisy.score(listed))
        print(name, seed, found[-1], file=sys.stderr, flush=True)
    cells = [[one[place] for one in found] for place in range(len(Found._fields))]
    described = [f"{mean(values):.3f} ± {stdev(values):.3f}" for values in cells]
    return [name, f"{len(labels):,}", str(labels.max() + 1), *described]


def run(args: argparse.Namespace) -> None:
    """Measure all tasks, and print a table."""
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()), "\n")
    lines = [measure(args, name) for name in args.tasks]
    print(table(["data", "rows", "classes", "found", "precision"], lines))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    parser = argparse.ArgumentParser(
        "run_label_issues.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--encoder", required=True, help="checkpoint of the sentence vectors: a folder or Hub id")
    add("--data_dir", required=True, help="folder with the folders of SentEval's tasks")
    add("--fine_tune", action="store_true", help="fine-tune the encoder, by minbert label-issues")
    add("--tasks", nargs="+", default=["SUBJ", "TREC", "CR"], help="tasks of single sentences")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], help="two or more (1 2 3)")
    args = parser.parse_args(argv)
    with readable_errors("run_label_issues.py"):
        run(args)


if __name__ == "__main__":
    main()
