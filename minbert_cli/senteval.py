"""Sentence vectors measured on other tasks: classifications of SentEval, and scored pairs.

A logistic regression is trained on frozen vectors. Source: Conneau and Kiela 2018, sections 3.1 and
4; folds, seed and values of C as in their code for scikit-learn.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from torch import Tensor
from torch.nn import functional as F

# Sentences to (n, D).
Embedder = Callable[[Sequence[str]], Tensor]

SEED = 1111
# The files of each task: one for each class, or for TREC training and test rows with labels.
FILES: dict[str, tuple[str, str]] = {
    "MR": ("MR/rt-polarity.neg", "MR/rt-polarity.pos"),
    "CR": ("CR/custrev.neg", "CR/custrev.pos"),
    "SUBJ": ("SUBJ/subj.subjective", "SUBJ/subj.objective"),
    "MPQA": ("MPQA/mpqa.neg", "MPQA/mpqa.pos"),
    "TREC": ("TREC/train_5500.label", "TREC/TREC_10.label"),
}
# Values of C, the inverse regularization strength; others for the task with test rows.
CHOICES = [2.0**power for power in range(-2, 4)]
CHOICES_FOR_TREC = [2.0**power for power in range(-1, 6)]


def evaluate_transfer(
    folder: Path, embed: Embedder, *, tasks: Iterable[str] = tuple(FILES), folds: int = 10
) -> dict[str, float]:
    """Measure a logistic regression on vectors of SentEval's tasks.

    The accuracy is that of a cross-validation, for TREC that on its test rows; C is chosen by
    another cross-validation within the training rows.

    Args:
        folder: Contains the folders of the tasks, with SentEval's file names.
        embed: Computes the vectors.
        tasks: Names of tasks.
        folds: Number of folds.

    Returns:
        The accuracies in percent, by task.

    Raises:
        ValueError: If a file is wrong; before any vector is computed. Or if there are too few rows
            for the folds.
        OSError: If a file is missing.
    """
    from joblib import Parallel, delayed
    from sklearn.model_selection import StratifiedKFold

    parts = StratifiedKFold(folds, shuffle=True, random_state=SEED)
    rows = {name: _read_rows(name, folder) for name in tasks}
    accuracies = {}
    for name, (texts, labels, test_rows) in rows.items():
        features = check_vectors(embed(texts)).double().cpu().numpy()
        choices = CHOICES_FOR_TREC if name == "TREC" else CHOICES
        splits = parts.split(features, labels)
        if test_rows:
            splits = [np.split(np.arange(len(labels)), [-test_rows])]
        scores = []
        for train, test in splits:
            inner = Parallel(n_jobs=-1)(
                delayed(_measure)(features, labels, train[part], train[rest], choices)
                for part, rest in parts.split(train, labels[train])
            )
            # of equal ones the first, which regularizes most
            best = choices[int(np.mean(inner, axis=0).argmax())]
            scores += _measure(features, labels, train, test, [best])
        accuracies[name] = 100 * float(np.mean(scores))
    return accuracies


def evaluate_similarity(
    pairs: Sequence[tuple[str, str]], scores: Sequence[float], embed: Embedder
) -> dict[str, float]:
    """Correlate cosines with judgments, in percent (Reimers and Gurevych 2019, section 4.1)."""
    vectors = (check_vectors(embed(list(texts))) for texts in zip(*pairs, strict=True))
    first, second = (F.normalize(each, dim=1) for each in vectors)
    cosines = (first * second).sum(dim=1).double().cpu().numpy()
    judgments = np.asarray(scores, dtype=np.float64)
    return {
        "spearman": 100 * float(spearmanr(cosines, judgments).statistic),
        "pearson": 100 * float(pearsonr(cosines, judgments).statistic),
    }


def check_vectors(vectors: Tensor) -> Tensor:
    """Return vectors, (n, D), all of which must be finite."""
    bad = (~vectors.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"vectors: vector {int(bad[0])} has values that are not finite")
    return vectors


def _measure(
    features: NDArray[np.float64],
    labels: NDArray[np.str_],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    choices: Sequence[float],
) -> list[float]:
    """Return the accuracy with every C, each fit starting from the previous one."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(warm_start=True, max_iter=1000, random_state=SEED)
    trained, classes, asked, answers = features[train], labels[train], features[test], labels[test]
    return [
        model.set_params(C=choice).fit(trained, classes).score(asked, answers) for choice in choices
    ]


def _read_rows(name: str, folder: Path) -> tuple[list[str], NDArray[np.str_], int]:
    """Read the texts and labels of a task, and how many of the last rows are for tests."""
    texts, labels = [], []
    for place, path in enumerate(folder / file for file in FILES[name]):
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        if not content.strip():
            raise ValueError(f"{path}: the file has no sentences; download it again")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:  # some files are in Latin-1
            text = content.decode("latin-1")
        lines = text.removesuffix("\n").split("\n")
        if name != "TREC":
            texts += [line.strip() or "." for line in lines]  # as SentEval replaces empty lines
            labels += [str(place)] * len(lines)
            continue
        for number, line in enumerate(lines, start=1):
            row = re.fullmatch(r"\s*([^\s:]*):\S* (.+)", line.rstrip())
            if row is None:
                raise ValueError(
                    f"{path}:{number}: expected COARSE:fine and a question, got {line[:60]!r}"
                )
            labels.append(row[1])
            texts.append(row[2])
    return texts, np.asarray(labels), len(lines) if name == "TREC" else 0
