"""Sentence vectors measured on other tasks: SentEval's classifications, and scored pairs.

A logistic regression is trained on frozen vectors. Source: Conneau and Kiela 2018, sections 3.1 and
4; folds, seed and values of C as in their code for scikit-learn.
"""

import codecs
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr

from .vectors import unit_vectors

# Sentences to (n, D).
Embedder = Callable[[Sequence[str]], Any]

SEED = 1111
# Values of C, the inverse regularization strength; more for tasks with training rows alone.
CHOICES = tuple(2.0**power for power in range(-2, 4))
MORE_CHOICES = tuple(2.0**power for power in range(-1, 6))
# The files of each task by split. Lines of files for ``all`` are sentences, of one class a file.
SST: dict[str, tuple[str, ...]] = {
    split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")
}
FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "MR": {"all": ("MR/rt-polarity.neg", "MR/rt-polarity.pos")},
    "CR": {"all": ("CR/custrev.neg", "CR/custrev.pos")},
    "SUBJ": {"all": ("SUBJ/subj.subjective", "SUBJ/subj.objective")},
    "MPQA": {"all": ("MPQA/mpqa.neg", "MPQA/mpqa.pos")},
    "SST2": SST,
    "SST5": {split: (file.replace("binary", "fine"),) for split, (file,) in SST.items()},
    "TREC": {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
    "MRPC": {
        split: (f"MRPC/msr_paraphrase_{split}.txt",)  # with a header
        for split in ("train", "test")
    },
}


@dataclass(frozen=True)
class TransferTask:
    """Labelled sentences, or pairs. Splits: ``all``, or ``train``, ``test`` and perhaps ``dev``."""

    name: str
    texts: dict[str, list[tuple[str, ...]]]  # by split
    labels: dict[str, list[int]]  # by split


def missing_files(name: str, folder: Path) -> list[str]:
    """Return the files of a task that a folder lacks; ValueError if the task is unknown."""
    if name not in FILES:
        raise ValueError(f"unknown task {name!r}; known: {', '.join(FILES)}")
    return [
        file for files in FILES[name].values() for file in files if not (folder / file).exists()
    ]


def load_senteval_task(name: str, folder: Path, folds: int = 10) -> TransferTask:
    """Load a task; ValueError if a file is wrong or there are too few rows for the folds."""
    if missing := missing_files(name, folder):
        raise ValueError(f"task {name}: {folder / missing[0]} does not exist")
    rows = {split: list(_read_rows(name, folder, files)) for split, files in FILES[name].items()}
    names = sorted({label for examples in rows.values() for _, label in examples})
    if len(names) < 2 or not all(rows.values()):
        raise ValueError(f"task {name}: {folder} has no rows of two classes in every split")
    texts = {split: [row for row, _ in examples] for split, examples in rows.items()}
    classes = {split: [names.index(label) for _, label in part] for split, part in rows.items()}
    if "dev" not in classes:  # else nothing is split
        labels = np.asarray(classes["all" if "all" in classes else "train"])
        try:
            for train, _ in _make_folds(folds).split(labels, labels):
                if "all" in classes:
                    next(_make_folds(folds).split(train, labels[train]))
        except ValueError:
            raise ValueError(
                f"task {name}: the largest class has {np.bincount(labels).max()} rows, too few "
                f"for folds={folds}; give fewer --folds or more rows"
            ) from None
    return TransferTask(name, texts, classes)


def evaluate_transfer(
    task: TransferTask, embed: Embedder, *, folds: int = 10, jobs: int = 1
) -> dict[str, float]:
    """Measure a logistic regression on vectors; a pair is the vector (|u - v|, u * v).

    C is chosen on the development rows, else by cross-validation on the training rows; without
    official splits, the accuracy is that of a nested cross-validation.

    Args:
        task: The task.
        embed: Computes the vectors.
        folds: Number of folds.
        jobs: Number of processes; -1 for all cores.

    Returns:
        The accuracy in percent, by the name of the task, and for pairs F1 of class 1, too.
    """
    from joblib import Parallel, delayed
    from sklearn.metrics import f1_score

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
    labels = {split: np.asarray(classes) for split, classes in task.labels.items()}
    if "all" in features:
        parts = _make_folds(folds).split(features["all"], labels["all"])
        scores = Parallel(n_jobs=jobs)(
            delayed(_score_fold)(features["all"], labels["all"], train, test, folds)
            for train, test in parts
        )
        return {task.name: float(np.mean(scores))}
    if "dev" in features:
        found = _fit(features["train"], labels["train"], features["dev"], CHOICES)
        choice = CHOICES[int(np.argmax([(part == labels["dev"]).mean() for part in found]))]
    else:
        choice = _choose(features["train"], labels["train"], MORE_CHOICES, folds, jobs)
    (classes,) = _fit(features["train"], labels["train"], features["test"], (choice,))
    result = {task.name: 100 * float((classes == labels["test"]).mean())}
    if len(task.texts["test"][0]) == 2:
        f1 = f1_score(labels["test"], classes, zero_division=0)
        result[f"{task.name} F1"] = 100 * float(f1)
    return result


def evaluate_similarity(
    pairs: Sequence[tuple[str, str]], scores: Sequence[float], embed: Embedder
) -> dict[str, float]:
    """Correlate cosines with judgments, in percent (Reimers and Gurevych 2019, section 4.1)."""
    first, second = (unit_vectors(embed(list(texts))) for texts in zip(*pairs, strict=True))
    cosines = (first * second).sum(dim=1).double().cpu().numpy()
    judgments = np.asarray(scores, dtype=np.float64)
    if np.ptp(cosines) == 0 or np.ptp(judgments) == 0:
        warnings.warn(
            "all cosines or all scores are equal: their correlation counts as 0", stacklevel=2
        )
        return {"spearman": 0.0, "pearson": 0.0}
    return {
        "spearman": 100 * float(spearmanr(cosines, judgments).statistic),
        "pearson": 100 * float(pearsonr(cosines, judgments).statistic),
    }


def _score_fold(features: Any, labels: Any, train: Any, test: Any, folds: int) -> float:
    """Choose C on the other folds, and return the accuracy on this one, in percent."""
    choice = _choose(features[train], labels[train], CHOICES, folds)
    (classes,) = _fit(features[train], labels[train], features[test], (choice,))
    return 100 * float((classes == labels[test]).mean())


def _choose(
    features: Any, labels: Any, choices: Sequence[float], folds: int, jobs: int = 1
) -> float:
    """Return the C with the best mean accuracy over folds; ties by stronger regularization."""
    from joblib import Parallel, delayed

    parts = list(_make_folds(folds).split(features, labels))
    found = Parallel(n_jobs=jobs)(
        delayed(_fit)(features[train], labels[train], features[test], choices)
        for train, test in parts
    )
    accuracies = [
        [(classes == labels[test]).mean() for classes in fold]
        for fold, (_, test) in zip(found, parts, strict=True)
    ]
    return choices[int(np.mean(accuracies, axis=0).argmax())]


def _fit(features: Any, labels: Any, asked: Any, choices: Sequence[float]) -> list[Any]:
    """Predict the classes of rows with every C, each fit starting from the previous one."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(warm_start=True, max_iter=1000, random_state=SEED)
    return [model.set_params(C=choice).fit(features, labels).predict(asked) for choice in choices]


def _make_folds(folds: int) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(folds, shuffle=True, random_state=SEED)


def _read_rows(
    name: str, folder: Path, files: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts of every row of a split and its label, as the files have it."""
    header = int(name == "MRPC")
    for index, file in enumerate(files):
        path = folder / file
        may_be_latin = not name.startswith(("SST", "MRPC"))
        for number, line in enumerate(_read_lines(path, may_be_latin, header), start=1):
            if number <= header:
                continue
            where = f"{path}:{number}: expected"
            if name == "TREC":
                label, _, text = line.strip().partition(" ")
                label, colon, _ = label.partition(":")
                if not text or not colon:
                    raise ValueError(f"{where} COARSE:fine and a question, got {line[:60]!r}")
                yield (text,), label
            elif name == "MRPC":
                label, *columns = line.split("\t")
                if (
                    len(columns) != 4
                    or label not in ("0", "1")
                    or not all(map(str.strip, columns[2:]))
                ):
                    raise ValueError(
                        f"{where} Quality, two ids and two sentences, got {line[:60]!r}"
                    )
                yield (columns[2].strip(), columns[3].strip()), label
            elif name.startswith("SST"):
                text, _, label = line.rpartition("\t")
                if not text.strip() or not label.strip().isdigit():
                    raise ValueError(f"{where} a sentence, a tab and a class, got {line[:60]!r}")
                yield (text.strip(),), label.strip()
            else:
                yield (line.strip() or ".",), str(index)  # as SentEval replaces empty lines


def _read_lines(path: Path, may_be_latin: bool, header: int) -> list[str]:
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    lines = [line.rstrip(b"\r") for line in content.removesuffix(b"\n").split(b"\n")]
    if not any(map(bytes.strip, lines[header:])):
        raise ValueError(f"{path}: the file has no sentences; download it again")
    wrong = []
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
            # in a file in Latin-1, no line is also valid UTF-8, except those in ASCII
            may_be_latin = may_be_latin and line.isascii()
        except UnicodeDecodeError:
            wrong.append(number)
    if wrong and not may_be_latin:
        raise ValueError(f"{path}:{wrong[0]}: not UTF-8; download the file again, or convert it")
    return [line.decode("latin-1" if wrong else "utf-8") for line in lines]
