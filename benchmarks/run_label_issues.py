"""How many wrong labels confident learning finds in real data.

    python benchmarks/run_label_issues.py --encoder <folder> --data_dir <SentEval folder>

For each seed, 5 % of the labels of the training rows (all rows of tasks without splits) are changed
to another class. The probabilities are those of a logistic regression on sentence vectors, from a
cross-validation with five folds. Wrong labels that were in the data before count as false alarms.
"""

import argparse
import sys
from collections.abc import Sequence
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
from modeling_minbert import MinBertModel  # noqa: E402
from sentence_vectors.senteval import load_transfer_task  # noqa: E402
from trainers import readable_errors  # noqa: E402
from trainers.problems.measures.label_issues import find_label_issues  # noqa: E402

NOISE, FOLDS = 0.05, 5


class Found(NamedTuple):
    """Results of one seed."""

    recall: float  # share of the changed labels that are listed
    precision: float  # share of the listed labels that were changed
    accuracy: float  # of the predictions, compared with the labels before the change


def measure(vectors: NDArray[Any], labels: NDArray[np.int64], seed: int) -> Found:
    """Change some labels, (N,), and look for them."""
    generator = np.random.default_rng(seed)
    count = int(labels.max()) + 1
    is_changed = generator.random(len(labels)) < NOISE
    others = (labels + generator.integers(1, count, len(labels))) % count
    noisy = np.where(is_changed, others, labels)
    model = LogisticRegression(max_iter=2_000, C=3.0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scores = cross_val_predict(model, vectors, noisy, cv=folds, method="predict_proba")
    listed = find_label_issues(noisy, scores).rows
    hits = int(is_changed[listed].sum())
    accuracy = float((scores.argmax(axis=1) == labels).mean())
    return Found(hits / int(is_changed.sum()), hits / max(1, len(listed)), accuracy)


def run(args: argparse.Namespace) -> None:
    """Measure all tasks, and print a table."""
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()), "\n")
    model: Any = MinBertModel.from_pretrained(args.encoder)
    lines = []
    for name in args.tasks:
        task = load_transfer_task(name, Path(args.data_dir))
        split = "train" if "train" in task.texts else "all"
        texts = [text for (text,) in task.texts[split]]
        vectors = np.asarray(model.encode(texts, show_progress=False))
        labels = np.asarray(task.labels[split])
        found = [measure(vectors, labels, seed) for seed in args.seeds]
        cells = [[one[place] for one in found] for place in range(len(Found._fields))]
        described = [f"{mean(values):.3f} ± {stdev(values):.3f}" for values in cells]
        lines.append([name, f"{len(labels):,}", str(labels.max() + 1), *described])
    print(table(["data", "rows", "classes", "found", "precision", "accuracy"], lines))


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
    add("--tasks", nargs="+", default=["SUBJ", "TREC", "CR"], help="tasks of single sentences")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], help="two or more (1 2 3)")
    args = parser.parse_args(argv)
    with readable_errors("run_label_issues.py"):
        run(args)


if __name__ == "__main__":
    main()
