"""Transfer: logistic regression on frozen vectors, by the protocol of SentEval.

Source: Conneau and Kiela 2018, sections 3.1 and 4; folds, seed and values of C as in their code for
scikit-learn's logistic regression.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from .senteval import TransferTask
from .vectors import unit_vectors

# Sentences to (n, D).
Embedder = Callable[[Sequence[str]], Any]
Floats = NDArray[np.float64]
Classes = NDArray[np.int64]

SEED = 1111
# Values of C, the inverse regularization strength, for tasks with nested folds, with training rows
# only, and with development rows.
NESTED_CHOICES = tuple(2.0**power for power in range(-2, 4))
FOLD_CHOICES = tuple(2.0**power for power in range(-1, 6))
DEV_CHOICES = NESTED_CHOICES
ITERATIONS = 1000  # limit of the solver


@dataclass(frozen=True)
class Score:
    """Result of a task, in percent."""

    accuracy: float  # on the test rows, or by cross-validation on all rows
    f1: float | None = None  # of class 1, for pairs


def evaluate_transfer(
    task: TransferTask, embed: Embedder, *, folds: int = 10, jobs: int = 1
) -> Score:
    """Measure a classifier on vectors; a pair is the vector (|u - v|, u * v).

    C is chosen by nested cross-validation without official splits, by cross-validation with a
    training split only, else on the development rows. `jobs` is -1 for all cores.
    """
    features = _make_features(task, embed)
    labels = {split: np.asarray(found) for split, found in task.labels.items()}
    if "all" in features:
        return Score(_cross_validate(features["all"], labels["all"], folds, jobs))
    train, known = features["train"], labels["train"]
    if "dev" in features:
        found = _fit_all(train, known, features["dev"], DEV_CHOICES)
        accuracies = [float((classes == labels["dev"]).mean()) for classes in found]
        choice = DEV_CHOICES[int(np.argmax(accuracies))]
    else:
        choice = _choose(train, known, FOLD_CHOICES, folds, jobs)
    (classes,) = _fit_all(train, known, features["test"], (choice,))
    right = classes == labels["test"]
    is_pair = len(task.texts["test"][0]) == 2
    return Score(100 * float(right.mean()), _f1(classes, labels["test"]) if is_pair else None)


def check_folds(task: TransferTask, folds: int) -> None:
    """Check that a task has enough rows for its folds, also the nested ones."""
    if "dev" in task.labels:
        return  # nothing is split
    split = "all" if "all" in task.labels else "train"
    labels = np.asarray(task.labels[split])
    rows = labels[:, None]
    try:
        parts = _split(rows, labels, folds)
        for train, _ in parts if split == "all" else ():
            _split(rows[train], labels[train], folds)
    except ValueError:
        raise ValueError(
            f"task {task.name}: the largest class has {np.bincount(labels).max()} rows, too few "
            f"for folds={folds}; give fewer --folds or more rows"
        ) from None


def evaluate_similarity(
    pairs: Sequence[tuple[str, str]], scores: Sequence[float], embed: Embedder
) -> dict[str, float]:
    """Correlate cosines with judgments, in percent (Reimers and Gurevych 2019, section 4.1)."""
    first = unit_vectors(embed([pair[0] for pair in pairs]))
    second = unit_vectors(embed([pair[1] for pair in pairs]))
    cosines = (first * second).sum(dim=1).double().cpu().numpy()
    known = np.asarray(scores, dtype=np.float64)
    if np.ptp(cosines) == 0 or np.ptp(known) == 0:
        warnings.warn(
            "all cosines or all scores are equal: their correlation counts as 0", stacklevel=2
        )
        return {"spearman": 0.0, "pearson": 0.0}
    return {
        "spearman": 100 * float(spearmanr(cosines, known).statistic),
        "pearson": 100 * float(pearsonr(cosines, known).statistic),
    }


def _make_features(task: TransferTask, embed: Embedder) -> dict[str, Floats]:
    features = {}
    for split, rows in task.texts.items():
        columns = [
            torch.as_tensor(embed(list(texts))).double().cpu().numpy()
            for texts in zip(*rows, strict=True)
        ]
        features[split] = columns[0]
        if len(columns) == 2:
            u, v = columns
            features[split] = np.hstack([np.abs(u - v), u * v])
    return features


def _cross_validate(features: Floats, labels: Classes, folds: int, jobs: int) -> float:
    from joblib import Parallel, delayed

    parts = _split(features, labels, folds)
    found = Parallel(n_jobs=jobs)(
        delayed(_score_fold)(features, labels, train, test, folds) for train, test in parts
    )
    return float(np.mean(found))


def _score_fold(
    features: Floats, labels: Classes, train: Classes, test: Classes, folds: int
) -> float:
    """Choose C on the other folds, and return the accuracy on this one, in percent."""
    choice = _choose(features[train], labels[train], NESTED_CHOICES, folds, jobs=1)
    (classes,) = _fit_all(features[train], labels[train], features[test], (choice,))
    return 100 * float((classes == labels[test]).mean())


def _choose(
    features: Floats, labels: Classes, choices: Sequence[float], folds: int, jobs: int
) -> float:
    """Return the C with the best mean accuracy over folds; ties by stronger regularization."""
    from joblib import Parallel, delayed

    parts = _split(features, labels, folds)
    found = Parallel(n_jobs=jobs)(
        delayed(_fit_all)(features[train], labels[train], features[test], choices)
        for train, test in parts
    )
    accuracies = [
        [(classes == labels[test]).mean() for classes in fold]
        for fold, (_, test) in zip(found, parts, strict=True)
    ]
    return choices[int(np.mean(accuracies, axis=0).argmax())]


def _split(features: Floats, labels: Classes, folds: int) -> list[tuple[Classes, Classes]]:
    from sklearn.model_selection import StratifiedKFold

    parts = StratifiedKFold(folds, shuffle=True, random_state=SEED)
    return list(parts.split(features, labels))


def _fit_all(
    features: Floats, labels: Classes, asked: Floats, choices: Sequence[float]
) -> list[Classes]:
    """Predict the classes of rows with every C, each fit starting from the previous one."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(warm_start=True, max_iter=ITERATIONS, random_state=SEED)
    return [model.set_params(C=choice).fit(features, labels).predict(asked) for choice in choices]


def _f1(classes: Classes, labels: Classes) -> float:
    """Return F1 of class 1 in percent; 0 if the class neither occurs nor is predicted."""
    right = int(((classes == 1) & (labels == 1)).sum())
    all_of_it = int((classes == 1).sum() + (labels == 1).sum())
    return 100 * 2 * right / all_of_it if all_of_it else 0.0
